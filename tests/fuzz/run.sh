#!/bin/sh
# run.sh BUILD SECONDS SOURCE...: search with libFuzzer, starting from the corpus, FUZZ_JOBS targets at a time (the
# processors). New inputs stay in BUILD; a crash is kept there and named: put it into the corpus together with the fix.

if [ "$1" = --one ]; then
    b=$2 seconds=$3 name=$(basename "$4" .c)
    name=${name#fuzz_}
    work=$b/fuzz/$name
    mkdir -p "$work/found" "$work/crashes" "tests/fuzz/corpus/$name"
    "$b/tests/fuzz/fuzz_$name-libfuzzer" -max_total_time="$seconds" -rss_limit_mb=4096 -timeout=20 -verbosity=0 \
        -print_final_stats=1 -artifact_prefix="$work/crashes/" "$work/found" "tests/fuzz/corpus/$name" > "$work/log" 2>&1
    r=$?
    {
        echo "fuzzed $name for $seconds s"
        [ $r -eq 0 ] || tail -n 40 "$work/log"
        grep -E 'number_of_executed_units|new_units_added' "$work/log"
    } > "$work/report"
    flock "$b/fuzz" cat "$work/report"
    [ $r -eq 0 ]
    exit
fi

b=$1 seconds=$2
shift 2
mkdir -p "$b/fuzz"
printf '%s\n' "$@" | xargs -d '\n' -n 1 -P "${FUZZ_JOBS:-$(nproc)}" "$0" --one "$b" "$seconds" || exit 1
echo "no crash found"
