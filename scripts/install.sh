#!/bin/sh
# install.sh list|install|uninstall: what an installed Thermocline consists of, in one place. From the environment:
# PREFIX, DESTDIR, BIN (programs), B (the library, manual pages and completions made by make), ZSHDIR, LIBDIR (lib).
#   list        MODE, SOURCE and DESTINATION (under PREFIX) of each file; of a symbolic link, link, its text, its place
#   install     under DESTDIR and PREFIX; links in documents to what is not installed become plain text
#   uninstall   each of these files, and folders that are empty then
prefix=${PREFIX:-/usr/local} root=${DESTDIR}${PREFIX:-/usr/local} bin=${BIN:-build/bin} made=${B:-build/$(uname -m)}
zsh=${ZSHDIR:-share/zsh/site-functions}
programs='thermo-profile thermo-probe thermo-plan thermo-pack thermo-run thermo-serve thermo-quantize thermocline'
lib=${LIBDIR:-lib} data=share/thermocline doc=share/doc/thermocline

files()
{
    for f in "$@"; do
        printf '644 %s %s\n' "$f" "$data/$f"
    done
}

list()
{
    for p in $programs; do
        printf '755 %s bin/%s\n' "$bin/$p" "$p"
    done
    printf '644 %s lib/systemd/system/thermo-serve@.service\n' "$made/thermo-serve@.service"
    printf '644 runtime/thermo.h include/thermo.h\n'
    printf '644 %s %s/libthermo.a\n' "$made/libthermo.a" "$lib"
    printf '755 %s %s/libthermo.so.0\n' "$made/libthermo.so.0" "$lib"
    printf 'link libthermo.so.0 %s/libthermo.so\n' "$lib"
    printf '644 %s %s/pkgconfig/thermo.pc\n' "$made/thermo.pc" "$lib"
    for f in docs/man/*.[1-9]; do
        page=${f##*/}
        printf '644 %s share/man/man%s/%s\n' "$made/man/$page" "${page##*.}" "$page"
    done
    for p in $programs; do
        printf '644 %s share/bash-completion/completions/%s\n' "$made/completions/$p.bash" "$p"
        printf '644 %s %s/_%s\n' "$made/completions/$p.zsh" "$zsh" "$p"
        printf '644 %s share/fish/vendor_completions.d/%s.fish\n' "$made/completions/$p.fish" "$p"
    done
    # Formats, and data that the programs take as they are. Held-out text, training scripts and the makers of synthetic
    # models stay in the sources.
    files schemas/*.md schemas/*.json schemas/*.sql datasets/README.md
    files datasets/prompts/*.csv datasets/prompts/README.md datasets/devices/*.csv datasets/devices/README.md
    files datasets/descriptions/*.json datasets/descriptions/README.md
    files datasets/models/*.gguf datasets/models/SHA256SUMS datasets/models/README.md
    # Documents for those who use the programs; those on working on them stay in the sources.
    for f in README.md CHANGELOG.md SECURITY.md LICENSE docs/*.md docs/*.svg runtime/README.md; do
        case $f in docs/ARCHITECTURE.md | docs/extending.md) continue ;; esac
        [ ! -e "$f" ] || printf '644 %s %s\n' "$f" "$doc/$f"
    done
    # Documents lead to these by relative links.
    printf 'link ../../thermocline/schemas %s/schemas\n' "$doc"
    printf 'link ../../thermocline/datasets %s/datasets\n' "$doc"
}

# README's commands as an installed program is called.
as_installed()
{
    sed -e '/^    /s|build/bin/thermo-|thermo-|g' -e "/^    /s|\([ =]\)datasets/|\1$prefix/$data/datasets/|g" "$1" > "$2" &&
        chmod 644 "$2"
}

# Links of a document that lead nowhere in the installed tree: only their text is kept.
without_dead_links()
{
    for l in $(grep -oE '\]\([^)#: ]+' "$1" | sed 's/^](//' | sort -u); do
        [ -e "$(dirname "$1")/$l" ] || sed -i -z "s|\[\([^]]*\)\]($l\(#[^)]*\)\{0,1\})|\1|g" "$1" || return 1
    done
}

install_all()
{
    list | while read -r mode source place; do
        at=$root/$place
        mkdir -p "${at%/*}" || exit 1
        case $mode:$source in
        link:*) ln -sfn "$source" "$at" ;;
        *:*.md) rm -f "$at" && as_installed "$source" "$at" ;;
        *) install -m "$mode" "$source" "$at" ;;
        esac || exit 1
    done || return 1
    list | sed -n 's/^644 .*\.md \(.*\.md\)$/\1/p' | while read -r place; do
        without_dead_links "$root/$place" || exit 1
    done
}

# Folders from the innermost: those that are empty go, but for the ones that every prefix has.
uninstall_all()
{
    list | while read -r _ _ place; do
        rm -f "$root/$place" || exit 1
    done || return 1
    list | while read -r _ _ place; do
        while [ "${place%/*}" != "$place" ]; do
            place=${place%/*}
            echo "$place"
        done
    done | sort -ru | grep -vxE 'bin|include|lib|share|share/man|share/doc' | while read -r folder; do
        [ ! -d "$root/$folder" ] || rmdir "$root/$folder" 2> /dev/null || :
    done
}

umask 022
case $1 in
list) list ;;
install) install_all ;;
uninstall) uninstall_all ;;
*) sed -n '2,6s/^# //p' "$0" >&2; exit 2 ;;
esac
