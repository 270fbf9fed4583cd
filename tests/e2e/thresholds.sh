#!/bin/bash
# Thresholds of the neurons of gated SiLU and GELU models, through all four programs: what the runtime gives is what plain Python gives, the
# same bytes in exact and dense mode, under any memory, thread count, chunk and backend, in every layout; thresholds that a trace was made
# with reach the pack; whoever cannot have them says so.
. tests/tap.sh
scratch
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }
phone "$tmp/hw.sqlite" > /dev/null 2>&1
ids=1,42,7,99,200,17,3,250,66,80,81,82,83,84
shape="--vocab 260 --context 256 --layers 2 --d-model 64 --heads 4 --ff 200 --type f32"

solve() { "$BIN/thermo-plan" solve -q --traces "$tmp/t.h5" --hardware "$tmp/hw.sqlite" --memory 64MiB --context 256 --out "$tmp/plan.json" "$@"; }
pack() { "$BIN/thermo-pack" pack -q --model "$tmp/m.gguf" --traces "$tmp/t.h5" --plan "$tmp/plan.json" --out "$tmp/m.thermo"; }
trace() { "$BIN/thermo-profile" trace -q --model "$tmp/m.gguf" --prompts datasets/prompts/stories-profile.csv --max-tokens 3000 --ctx 100 \
    --out "$tmp/t.h5" "$@"; }
logits() { "$BIN/thermo-run" logits -q --model "$tmp/m.thermo" --plan "$tmp/plan.json" --tokens "$@"; }

chain() # gguf-make's options
{
    rm -f "$tmp/m.gguf" "$tmp/t.h5" "$tmp/plan.json" "$tmp/m.thermo"
    # shellcheck disable=SC2086
    "$BIN/gguf-make" random -q $shape "$@" "$tmp/m.gguf" && trace && solve && pack
}

naive()
{
    logits 1,42,7,99,200 --mode "$1" --kv f32 --act f32 > "$tmp/out" &&
        python3 tests/e2e/naive.py "$tmp/m.gguf" 1,42,7,99,200 --compare "$tmp/out" --max 1e-4
}

density() { "$BIN/thermo-profile" show "$1" --json | python3 -c 'import json, sys
print(json.load(sys.stdin)["mean_density"])'; }
is_about() { python3 -c 'import sys; sys.exit(not abs(float(sys.argv[1]) - float(sys.argv[2])) <= float(sys.argv[3]))' "$@"; }

same() # every combination equals the first
{
    logits $ids > "$tmp/want" || return 1
    floor=$(logits 1 --memory 1MiB --prefill-chunk 7 2>&1 > /dev/null | sed -n 's/.*below the floor of \([0-9]*\) bytes.*/\1/p')
    for how in "--mode dense" "--memory $floor --prefill-chunk 7" "--memory $((floor + 100000)) --prefill-chunk 7 --threads 2" \
        "--memory $((floor + 200000)) --prefill-chunk 5 --io pread" "--memory $floor --prefill-chunk 1 --threads 1"; do
        # shellcheck disable=SC2086
        logits $ids $how > "$tmp/got" && cmp "$tmp/want" "$tmp/got" || { echo "differs: $how"; return 1; }
    done
}

# ---- thresholds in the model's own file, which plain Python reads too ----
check "a file with thresholds: traced, planned, packed" chain --thresholds --ffn-biases
check "the plan is for exact mode" grep -q '"mode": "exact"' "$tmp/plan.json"
check "logits by plain Python" naive exact
check "dense mode: logits by plain Python" naive dense
for form in split bundle two-phase; do
    planned() { solve --form $form && pack; }
    check "$form: planned and packed" planned
    check "$form: any memory, threads, chunk, backend; dense mode: the same bytes" same
done
revision() { python3 -c 'import struct, sys; sys.exit(struct.unpack("<I", open(sys.argv[1], "rb").read(12)[8:])[0] != int(sys.argv[2]))' "$@"; }
check "the pack is of revision 1" revision "$tmp/m.thermo" 1
verified() { "$BIN/thermo-pack" verify --model "$tmp/m.gguf" --traces "$tmp/t.h5" "$tmp/m.thermo" > "$tmp/out" && grep -q "largest difference 0" "$tmp/out"; }
check "verify: the pack gives the model's own logits" verified

# ---- Down in quant blocks: tiles in dense mode are planned where they are faster than what is skipped ----
tiles()
{
    rm -f "$tmp/m.gguf"
    "$BIN/gguf-make" random -q --vocab 260 --context 256 --layers 2 --d-model 64 --heads 4 --ff 256 --type q8_0 --thresholds "$tmp/m.gguf" &&
        trace && solve "$@" && "$BIN/thermo-plan" check -q "$tmp/plan.json" --traces "$tmp/t.h5" --hardware "$tmp/hw.sqlite" && pack &&
        python3 - "$tmp/plan.json" << 'EOF'
import json, sys
p = json.load(open(sys.argv[1]))["decisions"]
print(p["layout"]["form"], p["limits"][0]["mode"])
assert (p["layout"]["form"] == "tiles") == (p["limits"][0]["mode"] == "dense")
EOF
}
check "of the planner's choice: planned, checked, packed" tiles
check "dense mode, in tiles: planned, checked, packed" tiles --mode dense
check "verify: tiles give the model's own logits" verified
logits_of() { logits $ids --kv f32 --act f32 > "$tmp/$1"; }
near() { python3 -c 'import json, sys
a, b = (json.load(open(f))["logits"] for f in sys.argv[1:])
print("largest difference", max(abs(x - y) for x, y in zip(a, b)))
sys.exit(not max(abs(x - y) for x, y in zip(a, b)) < 0.01 * max(map(abs, a)))' "$@"; }
alike() { logits_of a && tiles --mode exact && logits_of b && near "$tmp/a" "$tmp/b"; }
check "and but for the rounding of Down those of exact mode" alike

# ---- thresholds made by trace --silence ----
for arch in llama gemma; do
    silenced() { rm -f "$tmp/m.gguf"; "$BIN/gguf-make" random -q $shape --arch $arch "$tmp/m.gguf" && trace --silence 60% && solve && pack; }
    check "$arch: traced with --silence, planned, packed" silenced
    share() { d=$(density "$tmp/t.h5"); echo "density $d"; is_about "$d" 0.4 0.03; }
    check "$arch: as many are silent as was asked for" share
    check "$arch: any memory, threads, chunk, backend; dense mode: the same bytes" same
    check "$arch: verify: the pack gives the model's own logits" verified
done
written() { python3 tests/cli/trace_check.py schemas/trace.md "$B/tests/tools/hash128" "$tmp/t.h5"; }
if command -v h5dump > /dev/null; then check "the trace is as schemas/trace.md has it" written; fi
# The same thresholds whatever the shard and the number of threads: merged shards are the whole.
merged()
{
    hash() { "$BIN/thermo-profile" show --json "$1" | python3 -c 'import json, sys; print(json.load(sys.stdin)["content_hash"])'; }
    cp "$tmp/t.h5" "$tmp/whole.h5" || return 1
    for i in 0 1; do trace --silence 60% --shard $i/2 --threads $((i + 1)) --out "$tmp/$i.h5" || return 1; done
    "$BIN/thermo-profile" merge -q --out "$tmp/both.h5" "$tmp/0.h5" "$tmp/1.h5" && [ "$(hash "$tmp/both.h5")" = "$(hash "$tmp/whole.h5")" ] &&
        "$BIN/thermo-profile" show --verify "$tmp/both.h5" > /dev/null
}
check "shards have the same thresholds, and merge to the whole" merged
other() { trace --silence 30% && "$BIN/thermo-pack" pack -q --model "$tmp/m.gguf" --traces "$tmp/t.h5" --plan "$tmp/plan.json" --out "$tmp/x"; [ $? -eq 5 ]; }
check "a plan for other thresholds is one for another model" other
plain() { trace && "$BIN/thermo-pack" pack -q --model "$tmp/m.gguf" --traces "$tmp/t.h5" --plan "$tmp/plan.json" --out "$tmp/x"; [ $? -eq 5 ]; }
check "without thresholds too" plain
quality()
{
    "$BIN/thermo-profile" silence -q --model "$tmp/m.gguf" --prompts datasets/prompts/stories-profile.csv --held-out datasets/prompts/stories-eval.csv \
        --silence-tokens 600 --held-out-tokens 300 --shares 0.001%,30%,80% --json > "$tmp/out" && python3 - "$tmp/out" << 'EOF'
import json, sys
all = json.load(open(sys.argv[1]))
low, mid, high = all["shares"]
print(all)
assert low["density"] > 0.99 and low["kl_mean_nats"] < 1e-4 and low["perplexity"] / all["perplexity_full"] < 1.01
assert abs(mid["density"] - 0.7) < 0.03 and abs(high["density"] - 0.2) < 0.03
assert low["kl_mean_nats"] < mid["kl_mean_nats"] < high["kl_mean_nats"] <= high["kl_max_nats"]
assert all["tokens"] == 300
EOF
}
check "silence states density, divergence and perplexity" quality

# ---- predictors of such neurons: two-sided, for a gate far below zero fires as well ----
predictors() { "$BIN/thermo-profile" predictors -q --model "$tmp/m.gguf" --traces "$tmp/t.h5" --method svd --rank 64 --type q8_0 --quality-tokens 64 "$@"; }
predicted()
{
    rm -f "$tmp/m.gguf" "$tmp/t.h5" "$tmp/plan.json" "$tmp/m.thermo"
    # shellcheck disable=SC2086
    "$BIN/gguf-make" random -q $shape "$@" "$tmp/m.gguf" && trace --silence 60% --samples 3000 && predictors --input both --json > "$tmp/out" && python3 - "$tmp/out" << 'EOF'
import json, sys
j = json.load(open(sys.argv[1]))
for p in j["predictors"]:
    print(p["input"], p["layer"], p["recall"], p["density"], p["true_density"])
    assert p["recall"] >= 0.99 and abs(p["true_density"] - 0.4) < 0.05
    assert p["input"] == "block" or p["density"] < 1.35 * p["true_density"] # of full rank: nearly the gates themselves
    assert p["bytes"] == 64 * 68 + 200 * (68 + 12)
q = [x for x in j["quality"]["rows"] if x["input"] == "ffn"]
assert q[-1]["recall"] > 0.99 and q[-1]["kl_mean_nats"] < q[0]["kl_mean_nats"]
EOF
}
in_predicted_mode() { solve --mode predicted --predictor ffn --recall 0.99 && pack && grep -q '"mode": "predicted"' "$tmp/plan.json"; }
near_exact() # with a recall of 0.999 the logits are nearly those of exact mode, with one of 0.8 they are less so
{
    for r in 0.8 0.999; do logits $ids --recall $r > "$tmp/$r" || return 1; done
    logits $ids --mode exact > "$tmp/exact" && python3 - "$tmp/exact" "$tmp/0.8" "$tmp/0.999" << 'EOF'
import json, sys
exact, far, close = (json.load(open(f))["logits"] for f in sys.argv[1:])
off = lambda x: max(abs(a - b) for a, b in zip(x, exact)) / max(map(abs, exact))
print("off by", off(far), off(close))
assert 0 < off(close) < 0.5 * off(far)
EOF
}
same_predicted()
{
    logits $ids > "$tmp/want" || return 1
    floor=$(logits 1 --memory 1MiB --prefill-chunk 7 2>&1 > /dev/null | sed -n 's/.*below the floor of \([0-9]*\) bytes.*/\1/p')
    for how in "--memory $floor --prefill-chunk 7" "--memory $((floor + 100000)) --prefill-chunk 7 --threads 2" \
        "--memory $((floor + 200000)) --prefill-chunk 5 --io pread" "--memory $floor --prefill-chunk 1 --threads 1"; do
        # shellcheck disable=SC2086
        logits $ids $how > "$tmp/got" && cmp "$tmp/want" "$tmp/got" || { echo "differs: $how"; return 1; }
    done
}
for arch in llama gemma; do
    check "$arch: predictors reach their recall" predicted --arch $arch
    check "$arch: planned in predicted mode, packed" in_predicted_mode
    check "$arch: more recall is nearer to exact mode" near_exact
    check "$arch: predicted, any memory, threads, chunk, backend: the same bytes" same_predicted
    check "$arch: verify passes with predictors" verified
done
listed() { "$BIN/thermo-pack" inspect --json "$tmp/m.thermo" | grep -q '"two_sided": true' && "$BIN/thermo-profile" show "$tmp/t.h5" | grep -q "either side of zero"; }
check "inspect and show say that they are two-sided" listed
unweighted() { predictors --loss-weighting 0.5 2> "$tmp/err"; [ $? -eq 2 ] && grep -q -- "--loss-weighting.*contributes the same" "$tmp/err"; }
check "loss weighting is refused: thresholds have it in them" unweighted

# ---- who has none ----
refuses() # PATTERN gguf-make's options
{
    why=$1
    shift
    rm -f "$tmp/m.gguf"
    # shellcheck disable=SC2086
    "$BIN/gguf-make" random -q $shape "$@" "$tmp/m.gguf" || return 1
    trace --silence 40% 2> "$tmp/err" && return 1
    cat "$tmp/err"
    grep -q "$why" "$tmp/err"
}
check "experts are refused" refuses "experts are sparse by themselves" --experts 4 --experts-used 2
check "ReLU is refused" refuses "exact zeros already" --act relu
check "an FFN without a gate is refused" refuses "no gate" --arch falcon
check "thresholds that are there already" refuses "already" --thresholds
bad_share() { for s in 40 0% 100% x% -3%; do trace --silence $s 2> "$tmp/err"; [ $? -eq 2 ] && grep -q -- "--silence '$s'" "$tmp/err" || { echo "$s"; return 1; }; done; }
check "shares are shares" bad_share
done_testing
