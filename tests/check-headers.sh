#!/bin/sh
# Every header compiles alone, twice included, and has a guard.
. tests/tap.sh
scratch

alone()
{
    case $1 in
    */offline/*) flags=$(pkg-config --cflags hdf5-serial) ;;
    *) flags= ;;
    esac
    printf '#include "%s"\n#include "%s"\nextern int only_a_header;\n' "$1" "$1" > "$tmp/x.c"
    # shellcheck disable=SC2086
    ${CC:-cc} -I. -D_GNU_SOURCE -std=c11 -Wall -Wextra -Wshadow -Wvla -Wstrict-prototypes -Werror $flags \
        -fsyntax-only "$tmp/x.c"
}

for h in $(find common profiler planner packer runtime server quantizer driver datasets tests -name '*.h' | sort); do
    check "$h" alone "$h"
done
done_testing
