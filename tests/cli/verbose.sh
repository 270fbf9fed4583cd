#!/bin/bash
# --verbose says on stderr what was decided and how long it took, in each program; what is written stays the same, and without it nothing
# of that is said.
. tests/tap.sh
scratch
. tests/chain.sh
# says_more PATTERN COMMAND...: with --verbose there is a line of that pattern, and standard output is the same but for times.
says_more()
{
    local pattern=$1
    shift
    "$@" > "$tmp/out" 2> "$tmp/err" || { cat "$tmp/err"; return 1; }
    "$@" --verbose > "$tmp/vout" 2> "$tmp/verr" || { cat "$tmp/verr"; return 1; }
    ! grep -n 'debug: ' "$tmp/err" && grep -q "debug: $pattern" "$tmp/verr" && grep -q "debug: ${1##*/}.* of version .* on [1-9][0-9]* processors" "$tmp/verr" &&
        grep -q 'debug: took [0-9.]* s, .* peak memory [1-9]' "$tmp/verr" && cmp <(sed 's/in [0-9.]* s .*//' "$tmp/out") <(sed 's/in [0-9.]* s .*//' "$tmp/vout") ||
        { cat "$tmp/verr"; return 1; }
}
phone "$tmp/hw.sqlite"
check "thermo-profile trace" says_more 'layer 7: seen [1-9]' "$BIN/thermo-profile" trace --model "$model" \
    --prompts datasets/prompts/stories-profile.csv --max-tokens 64 --out "$tmp/t.h5"
hardware() { "$BIN/thermo-profile" hardware --db "$tmp/here.sqlite" --device x --quick --patience 0 --only compute --memory-range 8MiB --seconds-per-point 0.003 -v 2> "$tmp/err" &&
    grep -q 'debug: compute: [1-9][0-9]* points' "$tmp/err"; }
check "thermo-profile hardware" hardware
check "thermo-plan solve" says_more 'so far the best: split.* tokens' "$BIN/thermo-plan" solve --traces "$tmp/t.h5" --hardware "$tmp/hw.sqlite" \
    --memory 16MiB --form split --packed yes --out "$tmp/p.json"
check "thermo-pack pack" says_more 'layer 0, expert 0: gate F16, up F16, down F16' "$BIN/thermo-pack" pack --model "$model" --traces "$traces" \
    --plan "$plan" --out "$tmp/m.thermo"
check "thermo-run logits" says_more 'account: kv  *[0-9]' "$BIN/thermo-run" logits --model "$packed" --plan "$plan" --memory 16MiB --tokens 1,2
check "each layer's share" grep -q 'debug: layer 7: [0-9.]* % of rows resident, [0-9]* cold slots for [0-9]* units' "$tmp/verr"
check "what reads" grep -q 'debug: reads by [a-z_]*' "$tmp/verr"
done_testing
