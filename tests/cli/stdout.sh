#!/bin/bash
# Standard output: what does not arrive there is reported by every command, with the reason. Sizes without a unit are asked about,
# and a drawn seed is told.
. tests/tap.sh
. tests/chain.sh
scratch
P=$BIN/thermo-profile L=$BIN/thermo-plan
few=(trace --model "$model" --prompts datasets/prompts/stories-profile.csv --ctx 8 --max-tokens 600 --window-tokens 64 --samples 400)
"$P" "${few[@]}" --out "$tmp/few.h5" > /dev/null || exit 1
inputs=(--traces "$tmp/few.h5" --hardware "$hardware" --device test)
want=("${inputs[@]}" --form split --packed no --context 64)
"$L" solve "${want[@]}" --memory 18MiB --out "$tmp/plan.json" > /dev/null || exit 1

# lost COMMAND...: on a full disk standard output is an error with its reason, said once
lost()
{
    local got
    "$@" > /dev/full 2> "$tmp/err"
    got=$?
    [ $got -eq 1 ] || { echo "exit status $got: $*"; cat "$tmp/err"; return 1; }
    [ "$(grep -c 'error: .*No space left on device' "$tmp/err")" -eq 1 ] || { echo "$*"; cat "$tmp/err"; return 1; }
}
# closed COMMAND...: no standard output at all, and no file that is opened in its place
closed()
{
    local got
    "$@" >&- 2> "$tmp/err"
    got=$?
    [ $got -eq 1 ] && grep -q 'error: .*Bad file descriptor' "$tmp/err" || { echo "exit status $got: $*"; cat "$tmp/err"; return 1; }
}
"$P" "${few[@]}" --shard 0/2 --out "$tmp/0.h5" > /dev/null && "$P" "${few[@]}" --shard 1/2 --out "$tmp/1.h5" > /dev/null
run=(--model "$packed" --plan "$plan")
"$BIN/thermo-run" generate "${run[@]}" --prompt Once -n 30 --seed 1 --json > "$tmp/run.jsonl" 2> /dev/null
everything()
{
    "$1" "$P" show "$traces" && "$1" "$P" show --json "$traces" && "$1" "$P" show "$hardware" &&
        "$1" "$P" "${few[@]}" --out "$tmp/t.h5" && "$1" "$P" "${few[@]}" --dry-run --json --out "$tmp/t2.h5" &&
        "$1" "$P" merge --out "$tmp/m.h5" "$tmp/0.h5" "$tmp/1.h5" && "$1" "$P" export --db "$hardware" &&
        "$1" "$P" import --db "$tmp/i.db" --csv datasets/devices/oneplus-12.csv &&
        "$1" "$P" hardware --db "$tmp/h.db" --device x --quick --dry-run &&
        "$1" "$L" solve "${want[@]}" --memory 18MiB --out "$tmp/p.json" &&
        "$1" "$L" solve "${want[@]}" --memory 18MiB --out "$tmp/p.json" --json &&
        "$1" "$L" check "$plan" && "$1" "$L" explain "$tmp/plan.json" "${inputs[@]}" --no-gains &&
        "$1" "$L" sweep "${want[@]}" --memory 14MiB..18MiB --steps 3 &&
        "$1" "$L" report "$tmp/plan.json" "${inputs[@]}" --no-gains --out "$tmp/r.html" &&
        "$1" "$L" calibrate --plan "$plan" --hardware "$hardware" --telemetry "$tmp/run.jsonl" &&
        "$1" "$BIN/thermo-pack" pack --model "$model" --traces "$traces" --plan "$plan" --out "$tmp/m.thermo" &&
        "$1" "$BIN/thermo-pack" inspect "$packed" && "$1" "$BIN/thermo-pack" verify "$packed" --json &&
        "$1" "$BIN/thermo-run" generate "${run[@]}" --prompt Once -n 20 &&
        "$1" "$BIN/thermo-run" generate "${run[@]}" --prompt Once -n 20 --json &&
        "$1" "$BIN/thermo-run" bench "${run[@]}" -p 0 -n 4 -r 1 && "$1" "$BIN/thermo-run" bench "${run[@]}" -p 0 -n 4 -r 1 --json &&
        "$1" "$BIN/thermo-run" perplexity "${run[@]}" --file datasets/prompts/stories-eval.csv --ctx 64 --windows 1 &&
        "$1" "$BIN/thermo-run" logits "${run[@]}" --tokens 1,2,3 &&
        "$1" "$BIN/gguf-synth" --shape tiny --dry-run /dev/null && "$1" "$BIN/gguf-synth" --version
}
if [ -e /dev/full ]; then
    check "a full disk behind standard output: said by every command" everything lost
    soon() # it does not go on for nobody
    {
        "$BIN/thermo-run" generate "${run[@]}" --prompt Once -n 100 --ignore-eos --json > /dev/full 2> "$tmp/err"
        ! grep -q 'decode:' "$tmp/err"
    }
    check "generate ends with the first token that is lost" soon
else
    skip "a full disk behind standard output" "there is no /dev/full"
fi
check "no standard output at all" everything closed
check "what was written meanwhile is whole" eval '"$L" check "$tmp/p.json" && "$BIN/thermo-pack" verify "$tmp/m.thermo" &&
    "$P" show --verify "$tmp/t.h5" && cmp "$tmp/m.thermo" "$packed"'

# Sizes without a unit that nobody means in bytes
check "solve --memory 18 asks for the unit" says 2 "did you mean 18MiB?" "$L" solve "${want[@]}" --memory 18 --out "$tmp/x.json"
check "one of several limits" says 2 "did you mean 512MiB?" "$L" solve "${want[@]}" --memory 1GiB,512 --out "$tmp/x.json"
check "sweep, both ends" eval 'says 2 "did you mean 12MiB?" "$L" sweep "${inputs[@]}" --memory 12..32MiB &&
    says 2 "did you mean 32MiB?" "$L" sweep "${inputs[@]}" --memory 12MiB..32'
check "explain" says 2 "did you mean 18MiB?" "$L" explain "$tmp/plan.json" "${inputs[@]}" --memory 18
check "generate" says 2 "did you mean 18MiB?" "$BIN/thermo-run" generate "${run[@]}" --prompt Once --memory 18
check "bench" says 2 "did you mean 2048MiB?" "$BIN/thermo-run" bench "${run[@]}" --memory=2048
check "hardware --range" says 2 "did you mean 512MiB?" "$P" hardware --db "$tmp/h.db" --device x --range 512
check "predictors --budget" says 2 "did you mean 8MiB?" "$P" predictors --model "$model" --traces "$tmp/few.h5" --budget 8 --dry-run
check "18B are bytes" says 4 "" "$BIN/thermo-run" generate "${run[@]}" --prompt Once --memory 18B

# The seed that was drawn is in the summary, also of a quiet run: it gives the same text again.
seed_again()
{
    "$BIN/thermo-run" generate "${run[@]}" --prompt Once -n 20 -q --json > "$tmp/a.jsonl" 2> "$tmp/err" && [ ! -s "$tmp/err" ] || return 1
    local seed
    seed=$(sed -n 's/.*"type":"summary".*"seed":\([0-9]*\).*/\1/p' "$tmp/a.jsonl")
    [ -n "$seed" ] && "$BIN/thermo-run" generate "${run[@]}" --prompt Once -n 20 -q --json --seed "$seed" > "$tmp/b.jsonl" &&
        [ "$(grep -o '"id":[0-9]*' "$tmp/a.jsonl")" = "$(grep -o '"id":[0-9]*' "$tmp/b.jsonl")" ]
}
check "-q --json keeps the seed" seed_again
done_testing
