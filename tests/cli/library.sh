#!/bin/sh
# The library as a program of somebody else sees it: installed, found by pkg-config, linked shared and static; only what thermo.h declares
# is exported; the example makes the text that thermo-run makes.
. tests/tap.sh
. tests/chain.sh
scratch
command -v pkg-config > /dev/null || { echo "1..0 # SKIP pkg-config is not installed"; exit 77; }
at=$tmp/root/usr
# shellcheck disable=SC2086
made()
{
    MAKEFLAGS='' ${MAKE:-make} --no-print-directory -s CC="${CC:-cc}" SANITIZE="${SANITIZE:-}" PREFIX="$at" library "$B/thermo.pc" || return 1
    mkdir -p "$at/include" "$at/lib/pkgconfig"
    PREFIX=$at B=$B BIN=$BIN scripts/install.sh list | grep -E ' (include|lib)/' | grep -v systemd > "$tmp/list"
    while read -r mode source place; do
        case $mode in
        link) ln -s "$source" "$at/$place" ;;
        *) install -m "$mode" "$source" "$at/$place" ;;
        esac || return 1
    done < "$tmp/list"
    [ "$(wc -l < "$tmp/list")" -eq 5 ]
}
check "made, and five files of it are installed" made
export PKG_CONFIG_PATH="$at/lib/pkgconfig"
flags="-std=c11 -Wall -Wextra -Werror ${SANITIZE:+-fsanitize=$SANITIZE}"

declared() { grep -o 'thermo_[a-z_]*(' "$at/include/thermo.h" | tr -d '(' | sort -u | grep -vx -e thermo_sink; }
declared > "$tmp/declared"
exports()
{
    nm -D --defined-only "$at/lib/libthermo.so.0" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' | sort > "$tmp/shared"
    nm -g --defined-only "$at/lib/libthermo.a" 2> /dev/null | awk 'NF == 3 { print $3 }' | sort > "$tmp/static"
    [ -n "${SANITIZE:-}" ] || diff "$tmp/declared" "$tmp/static" || return 1
    diff "$tmp/declared" "$tmp/shared" && ! nm -D --defined-only "$at/lib/libthermo.so.0" | grep ' T ' | grep -v '@@THERMO_'
}
check "exported is what the header declares, with versions" exports
# shellcheck disable=SC2086,SC2046
header()
{
    printf '#include <thermo.h>\nint main(void) { return thermo_version() == 0; }\n' > "$tmp/x.c"
    "${CC:-cc}" $flags -pedantic $(pkg-config --cflags thermo) -fsyntax-only "$tmp/x.c" || return 1
    command -v g++ > /dev/null || return 0
    cp "$tmp/x.c" "$tmp/x.cc" && g++ -Wall -Wextra -Werror -pedantic $(pkg-config --cflags thermo) -fsyntax-only "$tmp/x.cc"
}
check "the header is C11 and C++" header
# shellcheck disable=SC2086,SC2046
links()
{
    "${CC:-cc}" $flags docs/example.c $(pkg-config --cflags --libs thermo) -Wl,-rpath,"$at/lib" -o "$tmp/shared-example" &&
        "${CC:-cc}" $flags docs/example.c $(pkg-config --cflags thermo) "$at/lib/libthermo.a" $(pkg-config --static --libs-only-l thermo | sed 's/-lthermo//') \
            -pthread -o "$tmp/static-example" && readelf -d "$tmp/shared-example" | grep -q 'libthermo.so.0' && ! readelf -d "$tmp/static-example" | grep -q libthermo
}
check "the example, shared and static" links
texts()
{
    "$BIN/thermo-run" generate -q --model "$packed" --plan "$plan" --prompt "$1" -n 24 --temp 0 > "$tmp/want" || return 1
    for e in shared static; do
        "$tmp/$e-example" "$packed" "$plan" "$1" 'The little cat' > "$tmp/got" || return 1
        awk '/^\([0-9]* tokens, [a-z]*\)$/ { exit } { print }' "$tmp/got" > "$tmp/first"
        grep -c 'tokens, ' "$tmp/got" | grep -qx 2 || return 1
        diff "$tmp/want" "$tmp/first" || diff "$tmp/want" "$tmp/got" | grep -q '^>' || return 1
        python3 - "$tmp/want" "$tmp/got" << 'END' || return 1
import sys
want, got = (open(f).read() for f in sys.argv[1:])
assert want in got, (want, got)
END
    done
}
check "it makes the text that thermo-run makes" texts 'Once upon a time'
check "and says what is wrong" says 3 "none.json" "$tmp/shared-example" "$packed" none.json x
lean() # FILE MORE
{
    readelf -d "$1" > "$tmp/needed" || return 1
    grep NEEDED "$tmp/needed" | grep -vE "zstd|xxhash|jansson|pcre2|uring|libm\.|libc\.|ld-linux|libgcc|asan|ubsan|tsan|libdl$2" | grep . && return 1
    return 0
}
check "the library needs no library more" lean "$B/libthermo.so.0" ''
check "thermo-run needs libedit beside them, where it was built with it" lean "$BIN/thermo-run" '|libedit'
done_testing
