#!/bin/bash
# A budget of quality in exact mode: cold neurons whose gates are open but small are left out. The trace has thresholds and what is lost
# below them, the plan a bound, the runtime what the plan says, whatever is in memory; and what it loses is what was promised.
. tests/tap.sh
scratch
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }
phone "$tmp/hw.sqlite" > /dev/null 2>&1
model=datasets/models/reglu-tales-10m-f16.gguf
prompts=datasets/prompts/stories-profile.csv
ids=1,42,7,99,200,17,3,250,66,80,81,82,83,84

trace() { "$BIN/thermo-profile" trace -q --model "$model" --prompts "$prompts" --max-tokens 2000 --silence-tokens 1000 "$@"; }
solve() { "$BIN/thermo-plan" solve -q --traces "$tmp/t.h5" --hardware "$tmp/hw.sqlite" --context 256 --memory 16MiB "$@"; }
run() { what=$1; shift; "$BIN/thermo-run" "$what" -q --model "$tmp/m.thermo" "$@"; }
logits() { run logits --tokens $ids "$@"; }

check "trace with cold thresholds" trace --cold-thresholds --out "$tmp/t.h5"
check "plan with a budget" solve --mode exact --max-kl 1e-3 --out "$tmp/b.json"
check "the plan has a bound" grep -q '"cold_bound"' "$tmp/b.json"
layout=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["decisions"]["layout"]["form"])' "$tmp/b.json")
check "plan without" solve --mode exact --form "$layout" --out "$tmp/e.json"
check "which has none" sh -c "! grep -q cold_bound $tmp/e.json"
check "packed" "$BIN/thermo-pack" pack -q --model "$model" --traces "$tmp/t.h5" --plan "$tmp/b.json" --out "$tmp/m.thermo"

# ---- what it brings and what it costs ----
faster() { python3 -c 'import json, sys
a, b = (json.load(open(x))["predictions"]["limits"][0]["batches"][0]["tokens_per_s"] for x in sys.argv[1:])
sys.exit(not a > b)' "$@"; }
check "the plan with a budget promises more" faster "$tmp/b.json" "$tmp/e.json"
measure() { run perplexity --plan "$1" --ctx 256 --windows 4 --ids datasets/heldout/held_tiny.bin --against exact --store "$2" --json > "$tmp/out"; }
within() { python3 -c 'import json, sys
kl = json.load(open(sys.argv[1]))["against"]["kl_mean"]
print(kl)
sys.exit(not float(sys.argv[2]) <= kl <= float(sys.argv[3]))' "$tmp/out" "$@"; }
check "measured against exact mode" measure "$tmp/b.json" "$tmp/s.json"
check "the loss is what was promised" within 2e-4 1.5e-3
check "and is in the plan" grep -q '"kl_mean"' "$tmp/s.json"
check "check takes it" "$BIN/thermo-plan" check "$tmp/s.json" --traces "$tmp/t.h5" --hardware "$tmp/hw.sqlite"
reads() { run generate --plan "$1" --prompt 'Once upon a time' -n 60 --temp 0 --ignore-eos --json | tail -1 |
    python3 -c 'import json, sys; d = json.loads(sys.stdin.read())["decode"]; print(d["read_bytes"])'; }
fewer() { b=$(reads "$tmp/b.json") && e=$(reads "$tmp/e.json") && echo "$b, without $e" && test "$b" -lt "$e"; }
check "fewer bytes are read" fewer

# ---- the plan and the text decide, and nothing else ----
to() { logits "${@:2}" > "$1"; }
check "logits" to "$tmp/want" --plan "$tmp/b.json"
differs() { to "$tmp/got" --plan "$tmp/e.json" && ! cmp -s "$tmp/want" "$tmp/got"; }
check "they differ from exact mode's" differs
for how in "--prefill-chunk 5" "--threads 2 --io pread" "--memory 14MiB" "--memory 64MiB"; do
    # shellcheck disable=SC2086
    same() { to "$tmp/got" --plan "$tmp/b.json" $how && cmp "$tmp/want" "$tmp/got"; }
    check "the same bytes with $how" same
done
dense() { to "$tmp/got" --plan "$tmp/b.json" --mode dense && to "$tmp/other" --plan "$tmp/e.json" && cmp "$tmp/got" "$tmp/other"; }
check "dense mode leaves nothing out" dense

# ---- shards, and what is refused ----
small() { "$BIN/gguf-make" random -q --vocab 260 --context 256 --layers 2 --d-model 64 --heads 4 --ff 200 --type f32 --act "$@"; }
merged()
{
    hash() { "$BIN/thermo-profile" show --json "$1" | python3 -c 'import json, sys; print(json.load(sys.stdin)["content_hash"])'; }
    few() { "$BIN/thermo-profile" trace -q --model "$tmp/s.gguf" --prompts "$prompts" --max-tokens 3000 --ctx 50 --cold-thresholds "$@"; }
    small relu "$tmp/s.gguf" && few --out "$tmp/s.h5" || return 1
    for i in 0 1; do few --shard $i/2 --threads $((i + 1)) --out "$tmp/$i.h5" || return 1; done
    "$BIN/thermo-profile" merge -q --out "$tmp/both.h5" "$tmp/0.h5" "$tmp/1.h5" && test "$(hash "$tmp/both.h5")" = "$(hash "$tmp/s.h5")"
}
check "shards merge to the whole" merged
written() { python3 tests/cli/trace_check.py schemas/trace.md "$B/tests/tools/hash128" "$tmp/t.h5"; }
if command -v h5dump > /dev/null; then check "the trace is as schemas/trace.md has it" written; fi
change() { python3 -c 'import json, sys
p = json.load(open(sys.argv[1]))
l = p["decisions"]["limits"][0]
exec(sys.argv[3])
json.dump(p, open(sys.argv[2], "w"))' "$tmp/b.json" "$tmp/x.json" "$1"; }
verify() { "$BIN/thermo-plan" check "$tmp/x.json" --traces "$tmp/t.h5" --hardware "$tmp/hw.sqlite"; }
change 'l["cold_bound"] *= 4'
check "check: a bound that loses more" says 4 "cold_bound .* loses" verify
change 'l["exempt"][0] += 64'
check "check: exempt neurons that are not the hot prefix" says 5 "the hot prefix has" verify
change 'l["mode"] = "dense"'
check "check: a bound in dense mode" says 3 "belongs to exact mode" verify
check "several limits" says 2 "several limits" solve --mode exact --max-kl 1e-3 --memory 14MiB,16MiB --out "$tmp/x.json"
check "a trace without" trace --out "$tmp/u.h5"
check "with which there is no budget in exact mode" says 5 "cold-thresholds" "$BIN/thermo-plan" solve -q --traces "$tmp/u.h5" \
    --hardware "$tmp/hw.sqlite" --context 256 --memory 16MiB --mode exact --max-kl 1e-3 --out "$tmp/x.json"
check "and --silence with it" says 2 "give one" trace --cold-thresholds --silence 40% --out "$tmp/x.h5"
silu() { small silu "$tmp/silu.gguf" &&
    says 3 "need a gate with ReLU" "$BIN/thermo-profile" trace -q --model "$tmp/silu.gguf" --prompts "$prompts" --max-tokens 300 --cold-thresholds --out "$tmp/x.h5"; }
check "a model without ReLU" silu
done_testing
