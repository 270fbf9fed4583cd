#!/bin/sh
# Memory is a ceiling: the peak stays under the budget, the program runs in a memory cgroup of exactly the budget, and
# below the floor it refuses. At the floor, in the middle, and with everything resident; BUDGETS=n: at n budgets from
# the floor to everything.
. tests/run_chain.sh
scratch
chain_start
check "predictors" "$BIN/thermo-profile" predictors --model $model --traces "$tmp/t.h5" --method svd --rank 64 --out "$tmp/p.h5" -q
mv "$tmp/p.h5" "$tmp/t.h5"
check "planned and packed" chain split
mode=exact
plan=$tmp/split.json pack=$tmp/split.thermo
floor=$(floor_of "$plan")

generate() # MEMORY IO
{
    "$run" generate --model "$pack" --plan "$plan" --mode $mode --memory "$1" --io "$2" --prompt 'Once upon a time' -n 24 --temp 0 \
        --ignore-eos --json -q
}
peak_is_under()
{
    for io in pread io_uring; do
        generate "$1" $io > "$tmp/out" || return 1
        peak=$(sed -n 's/.*"peak_bytes":\([0-9]*\).*/\1/p' "$tmp/out")
        account=$(sed -n 's/.*"account_bytes":\([0-9]*\).*/\1/p' "$tmp/out")
        echo "budget $1 account $account peak $peak $io"
        [ "$account" -le "$1" ] && [ "$peak" -le "$account" ] || return 1
        echo "# $io: budget $1, account $account, peak $peak" >> "$tmp/said"
    done
}

# A cgroup of our own: v1 where the memory controller is mounted so, else v2 where it is delegated.
group=
if mkdir "/sys/fs/cgroup/memory/thermo-test-$$" 2> /dev/null; then
    group=/sys/fs/cgroup/memory/thermo-test-$$ file=memory.limit_in_bytes
elif mkdir "/sys/fs/cgroup/thermo-test-$$" 2> /dev/null; then
    group=/sys/fs/cgroup/thermo-test-$$ file=memory.max
    [ -w "$group/$file" ] || { rmdir "$group"; group=; }
fi
[ -z "$group" ] || trap 'rmdir "$group" 2> /dev/null; rm -rf "$tmp"' EXIT
in_cgroup() # BYTES IO
{
    echo "$1" > "$group/$file" || return 1
    [ ! -e "$group/memory.swap.max" ] || echo 0 > "$group/memory.swap.max"
    # shellcheck disable=SC2016
    sh -c 'echo $$ > "$0/cgroup.procs"; exec "$@"' "$group" "$run" generate --model "$pack" --plan "$plan" --memory "$1" \
        --mode $mode --io "$2" --prompt 'Once upon a time' -n 24 --temp 0 --ignore-eos --no-echo > "$tmp/text"
    r=$?
    sleep 0.2
    [ $r -eq 0 ] && cmp "$tmp/text" "$tmp/want"
}

want() { "$run" generate --model "$pack" --plan "$plan" --mode $mode --prompt 'Once upon a time' -n 24 --temp 0 --ignore-eos --no-echo -q > "$tmp/want"; }
want
middle=$((floor + 6 * 1024 * 1024)) all=$((floor + 17 * 1024 * 1024))
sizes="$floor $middle $all"
[ -z "${BUDGETS:-}" ] || sizes=$(seq -f %.0f "$floor" $((17 * 1024 * 1024 / (BUDGETS - 1))) "$all")
if [ -n "${SANITIZE:-}" ]; then
    sizes=
    skip "peak and memory cgroup" "a sanitizer takes memory of its own"
fi
for memory in $sizes; do
    check "the peak is under a budget of $memory bytes" peak_is_under "$memory"
    for io in pread io_uring; do
        if [ -n "$group" ]; then
            check "in a memory cgroup of $memory bytes, $io: the same text" in_cgroup "$memory" $io
        else
            skip "in a memory cgroup of $memory bytes, $io" "no memory cgroup can be made here"
        fi
    done
done
[ ! -e "$tmp/said" ] || cat "$tmp/said"

# Where the system gives huge pages the run has them, at the floor too; else it says what it has. The text is the same.
pages_are() # BYTES COMMAND...: page_bytes of a run
{
    _bytes=$1
    shift
    "$@" "$run" generate --model "$pack" --plan "$plan" --memory "$floor" --prompt 'Once upon a time' -n 24 --temp 0 --ignore-eos --json -q > "$tmp/out" &&
        grep -q "\"page_bytes\":$_bytes," "$tmp/out" && sed -n 's/.*"text":"\([^"]*\)".*/\1/p' "$tmp/out" | tr -d '\n' > "$tmp/text.$_bytes"
}
check "without huge pages: pages of 4096 bytes" pages_are 4096 small_pages
if grep -q '\[never\]' /sys/kernel/mm/transparent_hugepage/enabled 2> /dev/null || [ ! -e /sys/kernel/mm/transparent_hugepage/hpage_pmd_size ]; then
    skip "with huge pages" "this system gives none"
else
    huge=$(cat /sys/kernel/mm/transparent_hugepage/hpage_pmd_size)
    check "at the floor: huge pages" pages_are "$huge" env
    check "the same text" cmp "$tmp/text.4096" "$tmp/text.$huge"
fi

# Predicted mode: the account has the predictors, and its floor holds too.
mode=predicted
pfloor=$(floor_of "$plan" --mode predicted)
more() { [ "$pfloor" -gt "$floor" ]; }
check "predictors raise the floor of a plan" more
want
if [ -z "${SANITIZE:-}" ]; then
    for memory in $pfloor $((pfloor + 6 * 1024 * 1024)); do
        check "predicted mode: the peak is under a budget of $memory bytes" peak_is_under "$memory"
        if [ -n "$group" ]; then
            check "predicted mode in a memory cgroup of $memory bytes: the same text" in_cgroup "$memory" io_uring
        else
            skip "predicted mode in a memory cgroup of $memory bytes" "no memory cgroup can be made here"
        fi
    done
fi
mode=exact

below() { status 4 "$run" logits --model "$pack" --plan "$plan" --memory $((floor - 1)) --tokens 1 > "$tmp/out" 2> "$tmp/err"; }
check "one byte below the floor: exit 4" below
check "it names the floor in bytes and in MiB" grep -q "floor of $floor bytes ([0-9.]* MiB)" "$tmp/err"
check "and what to change" grep -q -- '--context.*--threads' "$tmp/err"
check "nothing on stdout" test ! -s "$tmp/out"
chunk=$(sed -n 's/.*"prefill_chunk": \([0-9]*\).*/\1/p' "$plan")
same=$(floor_of "$plan" --threads "$(threads_of "$plan")" --prefill-chunk "$chunk")
check "planner and runtime agree on the floor to the byte" grep -q "\"floor_bytes\": $same," "$plan"
lowered() { [ "$chunk" -gt 1 ] && [ "$floor" -lt "$same" ]; }
check "without --prefill-chunk the chunk is lowered to fit" lowered
smaller() { f=$(floor_of "$plan" --context 64 --threads 1 --prefill-chunk 1); [ "$f" -lt "$floor" ]; }
check "a smaller context, thread count and chunk lower it" smaller
done_testing
