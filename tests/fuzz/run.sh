#!/bin/sh
# run.sh BUILD SECONDS SOURCE...: search with libFuzzer, starting from the corpus. New inputs stay in BUILD; a crash
# is kept there and named: put it into the corpus together with the fix.
b=$1 seconds=$2 bad=0
shift 2
for src in "$@"; do
    name=$(basename "$src" .c)
    name=${name#fuzz_}
    work=$b/fuzz/$name
    mkdir -p "$work/found" "$work/crashes" "tests/fuzz/corpus/$name"
    echo "fuzzing $name for $seconds s"
    if ! "$b/tests/fuzz/fuzz_$name-libfuzzer" -max_total_time="$seconds" -rss_limit_mb=4096 -timeout=20 -verbosity=0 \
        -print_final_stats=1 -artifact_prefix="$work/crashes/" "$work/found" "tests/fuzz/corpus/$name" \
        > "$work/log" 2>&1; then
        bad=1
        tail -n 40 "$work/log"
    fi
    grep -E 'number_of_executed_units|new_units_added' "$work/log"
done
[ "$bad" -eq 0 ] && echo "no crash found"
exit $bad
