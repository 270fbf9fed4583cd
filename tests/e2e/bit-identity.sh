#!/bin/sh
# The logits of a prompt are the same bytes under any memory, thread count, prefill chunk, read backend and mode, in
# every layout. Of the 72 combinations each fifth is tried, so that all values of each come up with most of the others';
# BIT_ALL=1 tries all, BIT_ROUNDS=20 repeats.
. tests/run_chain.sh
ids=1,403,404,297,411,260,332,447,359,263,399,281,1000,2000,3000,7,8,9,300,301,302,303,304,305,306,307,308,309,310,311
few=1,403,404,297,411,260,332,447,359,263
combination=0
scratch
chain_start

logits() # FORM FLAGS...
{
    _f=$1 _ids=$ids
    shift
    [ "$_f" != two-phase ] || _ids=$few # it reads twice a layer and token
    "$run" logits --model "$tmp/$_f.thermo" --plan "$tmp/$_f.json" --tokens $_ids -q "$@"
}

same() # FORM: every combination equals the first
{
    form=$1
    floor=$(floor_of "$tmp/$form.json" --threads 2 --prefill-chunk 64)
    [ -n "$floor" ] || { echo "no floor stated"; return 1; }
    all=$((floor + 17 * 1024 * 1024)) step=$((15 * 1024 * 1024 / 5))
    logits "$form" --memory 64MiB > "$tmp/want" || return 1
    runs=0 round=0
    while [ $round -lt "${BIT_ROUNDS:-1}" ]; do
        for memory in $floor $((floor + step / 8)) $((floor + step)) $((floor + 2 * step)) $((floor + 4 * step)) $all; do
            for threads in 1 2; do
                for chunk in 1 7 64; do
                    for io in pread io_uring; do
                        combination=$((combination + 1))
                        [ -n "${BIT_ALL:-}" ] || [ $((combination % 5)) -eq 0 ] || continue
                        logits "$form" --memory "$memory" --threads $threads --prefill-chunk $chunk --io $io > "$tmp/got" ||
                            { echo "failed: $memory $threads $chunk $io"; return 1; }
                        cmp -s "$tmp/want" "$tmp/got" || { echo "differs: memory $memory threads $threads chunk $chunk $io"; return 1; }
                        runs=$((runs + 1))
                    done
                done
            done
        done
        for memory in $floor $all; do
            logits "$form" --memory "$memory" --mode dense > "$tmp/got" && cmp -s "$tmp/want" "$tmp/got" ||
                { echo "dense mode differs at $memory"; return 1; }
        done
        round=$((round + 1))
    done
    [ $runs -ge 14 ]
}

for form in split bundle two-phase; do
    check "$form: planned and packed" chain $form
    check "$form: 6 budgets x 1, 2 threads x chunks 1, 7, 64 x pread, io_uring; dense: the same bytes" same $form
done
differs() { logits split --act q8 --kv f32 > "$tmp/a" && logits split --kv f16 > "$tmp/b" && ! cmp -s "$tmp/a" "$tmp/b"; }
check "what should change logits does (f32 and f16 KV)" differs
done_testing
