#!/bin/sh
# make install puts everything under DESTDIR and PREFIX, what it put there works and leads somewhere, and uninstall takes
# it away.
. tests/tap.sh
scratch
prefix=/opt/tc root=$tmp/root
at=$root$prefix

mk()
{
    MAKEFLAGS='' ${MAKE:-make} --no-print-directory -s CC="${CC:-cc}" SANITIZE="${SANITIZE:-}" DESTDIR="$root" PREFIX=$prefix "$@"
}
listed() { PREFIX=$prefix BIN=$BIN B=$B scripts/install.sh list | sed 's/.* //' | sort; }
installed() { (cd "$at" && find . ! -type d | sed 's|^\./||' | sort); }
same_files()
{
    listed > "$tmp/listed"
    installed > "$tmp/installed"
    diff "$tmp/listed" "$tmp/installed"
}
outside() { [ "$(ls "$root")" = opt ]; }

# Sources, tests' matter and what makes other data stay at home.
no_repository_matter()
{
    ! find "$at" | grep -vxE "$at/(include/thermo\.h|lib/libthermo\.a)" | grep -E '\.(c|h|mk|py|sh|o|a|tokenizer|model)$|/(training|heldout|tools|synth|tests|scripts)(/|$)|README.*\.tmp'
}
names_no_checkout() { ! grep -rIlF -e "$PWD" -e "$tmp" "$at"; }

# Every relative link of every document leads to something that is installed.
links()
{
    find "$at" -name '*.md' > "$tmp/documents"
    [ "$(wc -l < "$tmp/documents")" -ge 8 ] || return 1
    links=0 dead=0
    while read -r d; do
        for l in $(grep -oE '\]\([^)]+\)' "$d" | sed 's/^](//; s/)$//; s/#.*//' | grep -v '^[a-z]*:'); do
            links=$((links + 1))
            [ -e "$(dirname "$d")/$l" ] || { echo "${d#"$at"}: $l"; dead=$((dead + 1)); }
        done
    done < "$tmp/documents"
    echo "$links links, $dead dead"
    [ $links -ge 10 ] && [ $dead -eq 0 ]
}

# Every document that a program names is installed.
named_by_programs()
{
    for p in "$at"/bin/*; do "$p" --help > /dev/null && grep -aoE '\b(docs|runtime|schemas|datasets)/[A-Za-z0-9_/-]+\.md' "$p"; done | sort -u > "$tmp/named"
    [ "$(wc -l < "$tmp/named")" -ge 8 ] || return 1
    missing=0
    while read -r d; do [ -e "$at/share/doc/thermocline/$d" ] || { echo "$d"; missing=1; }; done < "$tmp/named"
    return $missing
}
lists_models()
{
    for a in $("$BIN/thermo-profile" models | sed -n 's/^| `\([a-z0-9_-]*\)` .*/\1/p'); do
        grep -qxF ".It $(echo "$a" | sed 's/-/\\-/g')" "$at/share/man/man7/thermocline.7" || { echo "$a"; return 1; }
    done
}

# ... and so does every file of ours that a manual page names, and every page that it refers to.
pages_lead_somewhere()
{
    bad=0
    for p in "$at"/share/man/man?/*; do
        for f in $(sed -n "s|^\.[IP][ta] \(Pa \)*\($prefix/[^ ]*\).*|\2|p" "$p"); do
            ls -d $root$f > /dev/null || bad=1
        done
        sed -n 's/^\.Xr \([a-z-]*\) \([0-9]\).*/\1.\2/p' "$p" | while read -r x; do
            [ -e "$at/share/man/man${x##*.}/$x" ] || { echo "${p##*/}: $x"; exit 1; }
        done || bad=1
    done
    return $bad
}
no_markers() { ! grep -rnE '@[A-Z_]+@|^@' "$at/share/man"; }

# Every option of every subcommand is in the page.
page_has_options()
{
    page=$at/share/man/man1/$1.1
    for o in $("$BIN/$1" --help=table | sed -n 's/^option\t\([^\t]*\).*/\1/p'); do
        grep -qE "^\.It.* Fl \\\\-$(echo "$o" | sed 's/-/\\\\-/g')( |\$)" "$page" || { echo "--$o"; return 1; }
    done
    for c in $("$BIN/$1" --help=table | sed -n 's/^command\t//p'); do
        grep -q "^\.Ss $1 $c\$" "$page" || { echo "$c"; return 1; }
        for o in $("$BIN/$1" "$c" --help=table | sed -n 's/^option\t\([^\t]*\).*/\1/p'); do
            sed -n "/^\.Ss $1 $c\$/,/^\.S[sh] /p" "$page" | grep -qE "^\.It.* Fl \\\\-$(echo "$o" | sed 's/-/\\\\-/g')( |\$)" ||
                { echo "$c --$o"; return 1; }
        done
    done
}
page_sections()
{
    for s in "$@"; do
        shift
        grep -q "^\.Sh $s" "$page" || { echo "${page##*/}: no $s"; return 1; }
    done
}
linted() { mandoc -T lint -W style "$page" > "$tmp/lint" 2>&1; grep -vE 'lacks .* entry|referenced manual not found' "$tmp/lint" > "$tmp/lint2"; cat "$tmp/lint2"; [ ! -s "$tmp/lint2" ]; }
typeset_page()
{
    LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings -l "$page" > "$tmp/page" 2> "$tmp/warnings"
    cat "$tmp/warnings"
    [ -s "$tmp/page" ] && [ ! -s "$tmp/warnings" ]
}

# What is left: folders that every prefix has, and what others put there.
gone()
{
    left=$(cd "$at" && find . -mindepth 1 | sort | tr '\n' ' ')
    [ "$left" = "./bin ./include ./lib ./share ./share/doc ./share/doc/thermocline ./share/doc/thermocline/mine ./share/man " ] ||
        { echo "left: $left"; return 1; }
}

check "make install" mk install
for p in thermo-profile thermo-plan thermo-pack thermo-run thermocline; do
    check "$p runs" "$at/bin/$p" --version
    check "$p(1) has every option" page_has_options $p
    page=$at/share/man/man1/$p.1
    check "$p(1) has its sections" page_sections SYNOPSIS DESCRIPTION COMMANDS ENVIRONMENT FILES 'EXIT STATUS' EXAMPLES 'SEE ALSO'
done
check "thermo-serve runs" "$at/bin/thermo-serve" --version
check "thermo-serve(1) has every option" page_has_options thermo-serve
check "thermo-probe runs" "$at/bin/thermo-probe" --version
check "thermo-probe(1) has every option" page_has_options thermo-probe
check "thermo-quantize runs" "$at/bin/thermo-quantize" --version
check "thermo-quantize(1) has every option" page_has_options thermo-quantize
check "what is listed is what is installed" same_files
check "nothing outside PREFIX" outside
check "no sources, no tests' matter" no_repository_matter
check "no file names the checkout" names_no_checkout
check "links in documents lead somewhere" links
check "what manual pages name is there" pages_lead_somewhere
check "documents that programs name are there" named_by_programs
check "thermocline(7) lists every architecture" lists_models
check "manual pages are filled in" no_markers
for page in "$at"/share/man/man?/*; do
    if command -v mandoc > /dev/null; then check "mandoc: ${page##*/}" linted; else skip "mandoc: ${page##*/}" "no mandoc"; fi
    if command -v man > /dev/null && command -v groff > /dev/null; then
        check "man: ${page##*/}" typeset_page
    else
        skip "man: ${page##*/}" "no man"
    fi
done
check "the embedded model" cmp datasets/models/reglu-tales-10m-f16.gguf \
    "$at/share/thermocline/datasets/models/reglu-tales-10m-f16.gguf"
check "licence" cmp LICENSE "$at/share/doc/thermocline/LICENSE"
check "a second make install" mk install
touch "$at/share/doc/thermocline/mine"
check "make uninstall" mk uninstall
check "nothing is left but what others put there" gone
done_testing
