#!/bin/bash
# analyze.sh FILE...: gcc's and clang's analysers, where installed. They report: one that sees one file at a time is often wrong, so each
# finding is to be judged. What clang-tidy finds without its analyser fails tests/check-tidy.sh. Exits 1 only where
# STRICT=1 and there are findings. B takes the logs.
flags="-std=c11 -I. -I${B:-build} -D_GNU_SOURCE -include scripts/analyze.h -O1 -Wall -Wextra $(pkg-config --cflags hdf5-serial 2>/dev/null)"
sources=() bad=0
for f in "$@"; do
    case $f in
    */kernels_neon.c | */kernels_dotprod.c | */kernels_i8mm.c | */kernels_avx*.c | */kernels_amx.c) ;; # their own flags; the kernel tests cover them
    common/base/err.c | tests/*) ;; # what analyze.h speaks of; and tests may die
    *.c) sources+=("$f") ;;
    esac
done

# run NAME COMMAND...: findings of one tool.
run()
{
    local name=$1 log=${B:-build}/analyze-$1.log
    shift
    mkdir -p "${B:-build}"
    if ! "$@" > "$log" 2>&1 || grep -qE '(warning|error):' "$log"; then
        bad=1
        cat "$log"
    fi
    echo "$name: $(grep -cE '(warning|error):' "$log") findings"
}

gcc_analyzer()
{
    # shellcheck disable=SC2086
    printf '%s\n' "${sources[@]}" | xargs -P "$(nproc)" -I{} gcc $flags -fanalyzer -c {} -o /dev/null
}

clang_analyzer()
{
    # shellcheck disable=SC2086
    printf '%s\n' "${sources[@]}" | xargs -P "$(nproc)" -I{} clang-tidy --quiet --checks='-*,clang-analyzer-*' {} -- $flags 2>/dev/null
}

if command -v gcc > /dev/null; then run gcc gcc_analyzer; fi
if command -v clang-tidy > /dev/null; then run clang clang_analyzer; fi
[ -z "$STRICT" ] || exit $bad
