#!/bin/sh
# What clang-tidy finds in the programs without its analyser (make analyze runs that): nothing. .clang-tidy has the checks. Those of
# another version than Debian 12's may be others. Kernels with flags of their own are left out.
. tests/tap.sh
clang-tidy --version 2> /dev/null | grep -q 'version 14\.' || { echo "1..0 # SKIP clang-tidy 14 is not installed"; exit 77; }
scratch

# tidy FILE...
tidy()
{
    # shellcheck disable=SC2046
    clang-tidy --quiet --config-file=.clang-tidy --checks='-clang-analyzer-*' "$@" -- -std=c11 -I. -D_GNU_SOURCE -I "$B" $(pkg-config --cflags hdf5-serial) 2> "$tmp/err" > "$tmp/out"
    cat "$tmp/out"
    ! grep -q ' error: ' "$tmp/out" "$tmp/err" || { cat "$tmp/err"; return 1; }
    ! grep -q ' warning: ' "$tmp/out"
}
sources() { git ls-files 'common/*.c' 'planner/*.c' 'packer/*.c' 'profiler/*.c' 'runtime/*.c' 'server/*.c' 'quantizer/*.c' 'driver/*.c' 'datasets/*.c' 2> /dev/null | grep . ||
    find common planner packer profiler runtime server quantizer driver datasets -name '*.c'; }

sources | grep -v 'kernels_\(neon\|dotprod\|i8mm\|avx\|amx\)' > "$tmp/sources"
check "there are sources" grep -q '^runtime/' "$tmp/sources"
# shellcheck disable=SC2046
check "clang-tidy finds nothing" tidy $(cat "$tmp/sources")
printf 'int f(int a) { return a == a; }\n' > "$tmp/a.c"
check "what it would find is a failure" says 1 "misc-redundant-expression" tidy "$tmp/a.c"
printf 'int f(int a) { return b; }\n' > "$tmp/a.c"
check "and so is what it cannot read" says 1 "error" tidy "$tmp/a.c"
done_testing
