#!/bin/sh
# run.sh BUILD SECONDS SOURCE...: search with libFuzzer, starting from the corpus, FUZZ_JOBS targets at a time (the
# processors). New inputs stay in BUILD; a crash is kept there and named: put it into the corpus together with the fix.
# With FUZZ_CPU=1 they are seconds of the targets' CPU time, however busy the machine is.

if [ "$1" = --one ]; then
    b=$2 seconds=$3 name=$(basename "$4" .c)
    name=${name#fuzz_}
    work=$b/fuzz/$name
    mkdir -p "$work/found" "$work/crashes" "tests/fuzz/corpus/$name"
    "$b/tests/fuzz/fuzz_$name-libfuzzer" -max_total_time="$([ "$FUZZ_CPU" ] && echo 0 || echo "$seconds")" -rss_limit_mb=4096 -timeout=20 \
        -verbosity=0 -print_final_stats=1 -artifact_prefix="$work/crashes/" "$work/found" "tests/fuzz/corpus/$name" > "$work/log" 2>&1 &
    p=$!
    while [ "$FUZZ_CPU" ] && t=$(sed 's/.*) //' "/proc/$p/stat" 2> /dev/null) && [ "${t%% *}" != Z ]; do
        # shellcheck disable=SC2086
        set -- $t
        [ $(((${12} + ${13}) / $(getconf CLK_TCK))) -lt "$seconds" ] || kill -INT $p
        sleep 1
    done
    wait $p
    r=$?
    [ -z "$FUZZ_CPU" ] || [ $r -ne 72 ] || r=0 # libFuzzer's, of an interrupt
    {
        echo "fuzzed $name for $seconds s${FUZZ_CPU:+ of CPU time}"
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
