#!/bin/bash
# Gates in fewer bits (solve --gate-type): fewer bytes are read, error-corrected by the inputs that the trace sampled, which
# loses less than rounding; the same bytes with any number of threads, the same bits within any memory.
. tests/tap.sh
scratch
model=datasets/models/reglu-tales-10m-f16.gguf hw=$tmp/hw.sqlite
# rows N FILE: the header and N texts
rows() { python3 -c 'import csv,sys; csv.writer(sys.stdout).writerows(r for i, r in enumerate(csv.reader(sys.stdin)) if i <= int(sys.argv[1]))' "$1" < "$2"; }
rows 30 datasets/prompts/stories-profile.csv > "$tmp/p.csv"
rows 5 datasets/prompts/stories-eval.csv > "$tmp/e.csv"
check "device" phone "$hw"
check "trace" "$BIN/thermo-profile" trace --model $model --prompts "$tmp/p.csv" --samples 4096 --out "$tmp/t.h5"
check "trace without samples" "$BIN/thermo-profile" trace --model $model --prompts "$tmp/p.csv" --samples 0 --out "$tmp/none.h5"
check "trace of other text" "$BIN/thermo-profile" trace --model $model --prompts "$tmp/e.csv" --samples 0 --out "$tmp/e.h5"

solve() { "$BIN/thermo-plan" solve -q --traces "$tmp/${traces:-t}.h5" --hardware "$hw" --memory 14MiB,64MiB --context 64 --mode exact --form split --rlimit 1 "$@"; }
# pack NAME FLAGS...: from the plan p.json
pack() { "$BIN/thermo-pack" pack -q --model $model --traces "$tmp/${traces:-t}.h5" --plan "$tmp/p.json" --out "$tmp/$1.thermo" "${@:2}" > "$tmp/packed"; }
kl() { "$BIN/thermo-pack" verify -q --json --model $model --traces "$tmp/e.h5" --quality-tokens 400 "$tmp/$1.thermo" |
    python3 -c 'import json,sys; print(json.load(sys.stdin)["against_source"]["kl_mean_nats"])'; }
less() { a=$(kl corrected) && b=$(kl rounded) && python3 -c "assert 0 < $a < $1 * $b, ($a, $b)"; }
logits() { "$BIN/thermo-run" logits -q --model "$tmp/corrected.thermo" --plan "$tmp/p.json" --tokens 1,40,17,300,97 "$@"; }
streamed() { logits --memory 64MiB > "$tmp/a" && logits --memory 14MiB --threads 3 > "$tmp/b" && [ -s "$tmp/a" ] && cmp "$tmp/a" "$tmp/b"; }
# field FILE EXPRESSION: of a plan
field() { python3 -c 'import json,sys; p=json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$1" "$2"; }
fewer_reads() { [ "$(field "$tmp/p.json" "$read * 1.2 < $(field "$tmp/f16.json" "$read")")" = True ]; }
read='p["predictions"]["limits"][0]["batches"][0]["read_bytes"]'
rounded_only() { ! grep -q corrected "$tmp/packed"; }

check "planned as the model has them" solve --out "$tmp/f16.json"
for type in $(of "q4_k:0.8 q2_k:0.8" "") q3_k:0.8 q4_0:0.7; do
    t=${type%:*} most=${type#*:}
    check "$t: plan" solve --gate-type $t --out "$tmp/p.json"
    check "$t: fewer bytes are read" fewer_reads
    check "$t: the plan says what is quantised" says 0 "Gate: quantised anew from F16 to ${t^^} in 8 of 8 layers" cat "$tmp/p.json"
    check "$t: every figure follows" "$BIN/thermo-plan" check "$tmp/p.json" --traces "$tmp/t.h5" --hardware "$hw"
    check "$t: pack" pack corrected --threads 1
    check "$t: says so" grep -q "gate is stored as ${t^^}, errors corrected by [0-9]* inputs" "$tmp/packed"
    check "$t: with three threads" pack again --threads 3
    check "$t: the same bytes" cmp "$tmp/corrected.thermo" "$tmp/again.thermo"
    check "$t: verify" "$BIN/thermo-pack" verify "$tmp/corrected.thermo"
    traces=none
    check "$t: rounded, without samples" pack rounded
    check "$t: which it does not call corrected" rounded_only
    traces=t
    check "$t: KL on other text at most $most of the rounded one's" less $most
    check "$t: the same logits within 14 MiB" streamed
done

recorded() { n=$(sed -n 's/.*corrected by \([0-9]*\) inputs.*/\1/p' "$tmp/packed") && [ "$n" -gt 1000 ] &&
    "$BIN/thermo-pack" inspect --json "$tmp/corrected.thermo" | grep -q "\"corrected_by_inputs\": $n"; }
check "pack again" pack corrected
check "the pack records the inputs" recorded
check "a type without grids is rounded" solve --gate-type q8_0 --out "$tmp/p.json"
check "and packed" pack q8
check "not corrected" says 0 'gate is stored as Q8_0: relative' cat "$tmp/packed"
check "no type" says 2 "gate-type.*'q9'" solve --gate-type q9 --out "$tmp/no.json"
check "a type that cannot be written" says 2 'gate-type' solve --gate-type iq3_s --out "$tmp/no.json"
check "tiles keep the source's" says 2 'gate-type does not go' "$BIN/thermo-plan" solve -q --traces "$tmp/t.h5" --hardware "$hw" --memory 64MiB --mode dense \
    --form tiles --gate-type q3_k --out "$tmp/no.json"
check "so does a pack's layout" says 2 'gate-type' solve --for-pack "$tmp/q8.thermo" --gate-type q3_k --out "$tmp/no.json"
done_testing
