#!/bin/sh
# thermo-profile predictors on the embedded model: what it reports holds, the same whatever the threads and after an
# interruption, it reaches the pack, and what cannot be is refused.
. tests/tap.sh
. tests/chain.sh
scratch
profile="$BIN/thermo-profile" pack="$BIN/thermo-pack"
epochs=8 tokens=200
[ -z "$short" ] || epochs=2 tokens=48 # how good predictors become is told at full speed

make() { "$profile" predictors --model "$model" --traces "$traces" --json --quality-tokens 0 "$@"; }
weights() { h5dump -g /predictors "$1" | sed 1d; } # without the file's name
fields() # FILE PYTHON: an expression over p, the predictors, q, the rows of the quality table, and j, all of the JSON
{
    python3 -c 'import json, sys
j = json.load(open(sys.argv[1])); p = j["predictors"]; q = j.get("quality", {}).get("rows", [])
sys.exit(0 if eval(sys.argv[2]) else "not so: " + sys.argv[2])' "$1" "$2"
}

make --method svd --input both --out "$tmp/svd.h5" > "$tmp/svd.json" 2> "$tmp/log" || cat "$tmp/log"
check "both kinds for every layer" fields "$tmp/svd.json" 'len(p) == 16 and {x["input"] for x in p} == {"ffn", "block"}'
check "they reach the recall" fields "$tmp/svd.json" 'all(x["recall"] >= 0.99 for x in p)'
check "bytes stay within the budget" fields "$tmp/svd.json" \
    'sum(x["bytes"] for x in p if x["input"] == "ffn") <= 0.06 * j["ffn_bytes"]'
check "oracle <= predictor < hot set" fields "$tmp/svd.json" \
    'all(0.98 * x["true_density"] < x["density"] < x["hot_only_density"] for x in p)'
check "curves ascend" fields "$tmp/svd.json" \
    'all(a["recall"] <= b["recall"] and a["density"] <= b["density"] for x in p for a, b in zip(x["curve"], x["curve"][1:]))'

some="--layers 0-2 --epochs $epochs --rank 64"
# shellcheck disable=SC2086
make $some --threads 1 --out "$tmp/a.h5" > "$tmp/a.json"
# shellcheck disable=SC2086
make $some --threads 2 --out "$tmp/b.h5" > "$tmp/b.json"
weights "$tmp/a.h5" > "$tmp/a.txt"
weights "$tmp/b.h5" > "$tmp/b.txt"
check "the same whatever the threads" cmp "$tmp/a.txt" "$tmp/b.txt"
check "trained ones beat training-free ones of the same bytes" fields "$tmp/a.json" \
    'sum(x["density"] for x in p) < sum(x["training_free_density"] for x in p)'

# shellcheck disable=SC2086
"$profile" predictors --model "$model" --traces "$traces" $some --quality-tokens 0 --out "$tmp/c.h5" \
    > "$tmp/log" 2>&1 &
pid=$!
while [ -z "$(find "$tmp/c.h5.predictors.partial" -size +50k 2> /dev/null)" ] && [ -e "/proc/$pid/exe" ]; do # a layer is done
    sleep 0.1
done
kill -TERM $pid 2> /dev/null
wait $pid
status=$?
if [ $status -eq 130 ]; then
    check "interrupted: no trace, but its state" test ! -e "$tmp/c.h5" -a -e "$tmp/c.h5.predictors.partial"
    # shellcheck disable=SC2086
    check "a second run without --resume is refused" says 2 "resume" "$profile" predictors --model "$model" --traces "$traces" \
        $some --out "$tmp/c.h5"
    check "other options are another run" says 5 "" "$profile" predictors --model "$model" --traces "$traces" \
        --layers 0-2 --epochs 9 --rank 64 --out "$tmp/c.h5" --resume
    # shellcheck disable=SC2086
    check "--resume goes on" says 0 "recall" "$profile" predictors --model "$model" --traces "$traces" $some \
        --quality-tokens 0 --out "$tmp/c.h5" --resume
    weights "$tmp/c.h5" > "$tmp/c.txt"
    check "to the same end" cmp "$tmp/a.txt" "$tmp/c.txt"
    check "and leaves no state" test ! -e "$tmp/c.h5.predictors.partial"
else
    skip "interruption" "the run ended too quickly (status $status)"
fi

check "show lists them" says 0 "no train" "$profile" show "$tmp/a.h5"
check "show --json is JSON and has them" sh -c '"$1" show --json "$2" | python3 -c "import json, sys; \
    assert len(json.load(sys.stdin)[\"predictors\"][\"predictors\"]) == 3"' - "$profile" "$tmp/a.h5"
check "the trace is still whole" says 0 "predictors" "$profile" show --verify "$tmp/a.h5"
check "measured again, elsewhere" says 0 "at the same thresholds" "$profile" predictors-measure --model "$model" --traces "$tmp/a.h5" \
    --check "$traces" --quality-tokens 0
check "which changes nothing" sh -c '! "$1" show "$2" | grep -q quality' - "$profile" "$tmp/a.h5"

# What they cost in quality.
check "quality of predictors that there are" says 0 "wrote $tmp/svd.h5" "$profile" predictors-measure --model "$model" \
    --traces "$tmp/svd.h5" --quality-tokens $tokens
"$profile" show --json "$tmp/svd.h5" | python3 -c 'import json, sys; json.dump(json.load(sys.stdin)["predictors"], sys.stdout)' \
    > "$tmp/quality.json"
check "both inputs, on held-out tokens" fields "$tmp/quality.json" \
    '[x["input"] for x in q] == ["ffn"] * 6 + ["block"] * 6 and {x["tokens"] for x in q} == {'$tokens'} and "held" in j["quality"]["corpus"]'
check "recall comes near its target" fields "$tmp/quality.json" 'all(abs(x["recall"] - x["target_recall"]) < 0.02 for x in q)'
check "more recall is denser and costs less" fields "$tmp/quality.json" \
    'all(a["density"] < b["density"] and a["kl_mean_nats"] > b["kl_mean_nats"] for a, b in zip(q, q[1:]) if a["input"] == b["input"])'
check "at recall 0.99 little is lost" fields "$tmp/quality.json" \
    'all(x["kl_mean_nats"] < 0.001 and (1 - x["top1_agreement"]) * x["tokens"] <= 2 + 0.03 * x["tokens"] and
        abs(x["perplexity_ratio"] - 1) < 0.02 for x in q if x["target_recall"] >= 0.99)'
check "show prints it" says 0 "same top" "$profile" show "$tmp/svd.h5"
check "the trace with it is whole" says 0 "predictors" "$profile" show --verify "$tmp/svd.h5"

make --method svd --loss-weighting 1 --quality-tokens $tokens --out "$tmp/weighed.h5" > "$tmp/weighed.json" 2> "$tmp/log"
check "false negatives weighted by loss: less is lost at the same recall, with more neurons" python3 -c 'import json, sys
a, b = ([x for x in json.load(open(f))["quality"]["rows"] if x["input"] == "ffn"] for f in sys.argv[1:])
assert len(a) == len(b) == 6, b
for x, y in zip(a, b):
    assert y["kl_mean_nats"] < (1 if x["target_recall"] < 0.95 else 0.7) * x["kl_mean_nats"] and y["density"] > x["density"], (x, y)
    assert abs(y["recall"] - y["target_recall"]) < 0.02, y' "$tmp/quality.json" "$tmp/weighed.json"
weigh() { "$profile" show --json "$1" | python3 -c 'import json, sys; print(json.load(sys.stdin)["predictors"]["weigh"])'; }
check "the trace has it" test "$(weigh "$tmp/svd.h5") $(weigh "$tmp/weighed.h5")" = "0.0 1.0"
check "show says it" says 0 "loss weighting 1;" "$profile" show "$tmp/weighed.h5"
check "--loss-weighting makes none" says 2 "unknown option" "$profile" predictors-measure --model "$model" --traces "$tmp/svd.h5" \
    --loss-weighting 1

# Some of them again: what is not made anew stays to the byte, and so does what it was measured to cost.
make --method svd --input block --layers 1,5-6 --rank 64 --out "$tmp/some.h5" --traces "$tmp/svd.h5" > "$tmp/some.json" 2> "$tmp/log"
python3 - "$tmp/svd.json" "$tmp/some.json" > "$tmp/kept" 2>&1 << 'END'
import json, sys
a, b = ([(x["input"], x["layer"], x) for x in json.load(open(f))["predictors"]] for f in sys.argv[1:])
assert [x[:2] for x in a] == [x[:2] for x in b], b
assert {x[:2] for x, y in zip(a, b) if x[2] != y[2]} == {("block", l) for l in (1, 5, 6)}
assert all(x["rank"] == 64 for i, l, x in b if i == "block" and l in (1, 5, 6)), b
END
check "--layers and --input make those alone anew" test $? -eq 0
for f in svd some; do
    for k in ffn/0001 ffn/0005 block/0000 block/0004 block/0007; do h5dump -d "/predictors/$k/0000/fc2" "$tmp/$f.h5" | sed 1d; done > "$tmp/$f.txt"
done
check "weights of the others stay" cmp "$tmp/svd.txt" "$tmp/some.txt"
check "the quality of the other input stays, that of this one goes" fields "$tmp/some.json" '[x["input"] for x in q] == ["ffn"] * 6'
check "--input measures one input" says 0 "wrote" "$profile" predictors-measure --model "$model" --traces "$tmp/some.h5" \
    --input block --quality-tokens 64 --out "$tmp/other.h5"
"$profile" show --json "$tmp/other.h5" | python3 -c 'import json, sys; json.dump(json.load(sys.stdin)["predictors"], sys.stdout)' \
    > "$tmp/other.json"
check "and keeps the rows of the other" fields "$tmp/other.json" \
    '[(x["input"], x["tokens"]) for x in q] == [("ffn", '$tokens')] * 6 + [("block", 64)] * 6'
make --method svd --layers 2 --rank 32 --out "$tmp/one.h5" > "$tmp/one.json" 2> "$tmp/log"
check "a trace without others gets one layer" fields "$tmp/one.json" '[(x["input"], x["layer"]) for x in p] == [("ffn", 2)]'
check "an input that it has not" says 3 "no predictors of that input" "$profile" predictors-measure --model "$model" \
    --traces "$tmp/one.h5" --input block --quality-tokens 64 --out "$tmp/no"
for list in 8 3-1 1- 1,, x '' 1,9999999999; do
    check "--layers '$list'" says 2 "--layers" "$profile" predictors --model "$model" --traces "$traces" --layers "$list" --out "$tmp/no"
done
check "--layers of measuring" says 2 "unknown option" "$profile" predictors-measure --model "$model" --traces "$tmp/one.h5" \
    --layers 1

# Into the pack.
check "packed" says 0 "predictors take" "$pack" pack --model "$model" --traces "$tmp/svd.h5" --plan "$plan" --out "$tmp/p.thermo"
check "verify reads them" says 0 "whole" "$pack" verify "$tmp/p.thermo"
"$pack" inspect --json "$tmp/p.thermo" > "$tmp/p.json"
check "inspect lists them" fields "$tmp/p.json" 'len(p) == 16 and all(x["fc1_type"] == "Q4_0" for x in p)'
"$pack" pack --model "$model" --traces "$tmp/svd.h5" --plan "$plan" --predictors block --out "$tmp/q.thermo" > /dev/null
"$pack" inspect --json "$tmp/q.thermo" > "$tmp/q.json"
check "one kind alone" fields "$tmp/q.json" 'len(p) == 8 and all(x["input"] == "block" for x in p)'
check "--predictors none gives the pack of a trace without" sh -c '"$1" pack --model "$2" --traces "$3" --plan "$4" --predictors none \
    --out "$5/r.thermo" > /dev/null && cmp "$5/r.thermo" "$6"' - "$pack" "$model" "$tmp/svd.h5" "$plan" "$tmp" "$packed"
check "a pack of a trace without has none to choose" says 2 "holds none" "$pack" pack --model "$model" --traces "$traces" \
    --plan "$plan" --predictors ffn --out "$tmp/no"
check "the runtime runs it" says 0 "" "$BIN/thermo-run" generate --model "$tmp/p.thermo" --plan "$plan" --prompt "Once" -n 2

# In the runtime.
run() { "$BIN/thermo-run" generate --model "$tmp/p.thermo" --plan "$plan" --prompt "Once upon a time" -n 12 --temp 0 "$@"; }
run --mode predicted --json -q > "$tmp/run.json"
check "predicted mode beside the plan: fewer neurons are computed than there are" python3 -c 'import json, sys
s = [json.loads(l) for l in open(sys.argv[1])][-1]
assert s["mode"] == "predicted" and s["recall"] == 0.99 and not s["predicted"]["valid"], s
assert 0 < s["account"]["predictor"] <= 0.06 * 15728640 + 65536, s["account"]
assert s["decode"]["density"] < s["decode"]["computed"] < 0.7 and s["decode"]["predict_ms"] > 0, s["decode"]
assert s["prompt"]["computed"] == 1 and s["prompt"]["predict_ms"] == 0, s["prompt"]' "$tmp/run.json"
run --mode predicted --recall 0.8 --json -q > "$tmp/low.json"
check "a lower recall computes fewer" python3 -c 'import json, sys
a, b = ([json.loads(l) for l in open(f)][-1]["decode"]["computed"] for f in sys.argv[1:])
assert a < b, (a, b)' "$tmp/low.json" "$tmp/run.json"
python3 tests/predicted_plan.py "$plan" "$tmp/block.json" 0.99 block 0
planned() { "$BIN/thermo-run" "$1" --model "$tmp/p.thermo" --plan "$tmp/block.json" --tokens 1,403 "$2" "$3"; }
check "a plan in predicted mode" says 0 "logits" planned logits -q -q
check "run exactly: the logits of the exact plan" sh -c '"$1" logits --model "$2" --plan "$3" --tokens 1,403 --mode exact -q > "$5/a" &&
    "$1" logits --model "$2" --plan "$4" --tokens 1,403 -q > "$5/b" && cmp "$5/a" "$5/b"' - "$BIN/thermo-run" "$tmp/p.thermo" \
    "$tmp/block.json" "$plan" "$tmp"
head -c 1500 datasets/prompts/stories-eval.csv > "$tmp/text"
ppl() { "$BIN/thermo-run" perplexity --model "$tmp/p.thermo" --plan "$plan" --file "$tmp/text" --ctx 64 --json -q "$@"; }
ppl --mode predicted --recall 0.9 --against exact > "$tmp/ag.json"
ppl --mode predicted --recall 0.9 > "$tmp/pr.json"
ppl --mode exact > "$tmp/ex.json"
check "perplexity --against exact: each mode scores what it scores alone" python3 -c 'import json, sys
a, p, x = (json.load(open(f)) for f in sys.argv[1:])
g = a["against"]
assert a["ppl"] == p["ppl"] != x["ppl"] and g["ppl"] == x["ppl"] and a["scored"] == p["scored"] == x["scored"], (a, p, x)
assert abs(g["ppl_ratio"] - p["ppl"] / x["ppl"]) < 1e-6, g
assert 0 < g["kl_mean"] < g["kl_max"] < 1 and 0.9 < g["top1_agreement"] <= 1, g' "$tmp/ag.json" "$tmp/pr.json" "$tmp/ex.json"
check "every neuron always computed: nothing differs" python3 -c 'import json, subprocess, sys
run, pack, plan, out, text = sys.argv[1:]
n = json.load(open(plan))["model"]["n_ff"]
subprocess.check_call([sys.executable, "tests/predicted_plan.py", plan, out, "0.9", "ffn", str(n)])
g = json.loads(subprocess.check_output([run, "perplexity", "--model", pack, "--plan", out, "--file", text, "--ctx", "64",
                                        "--against", "exact", "--json", "-q"]))["against"]
assert g["kl_mean"] == g["kl_max"] == 0 and g["top1_agreement"] == g["ppl_ratio"] == 1, g' "$BIN/thermo-run" "$tmp/p.thermo" \
    "$plan" "$tmp/all.json" "$tmp/text"
check "--against in exact mode" says 2 "pass --mode predicted" ppl --mode exact --against exact
check "--recall without predicted mode" says 2 "belongs to predicted mode" run --recall 0.9
check "a pack without predictors says what to do" says 5 "thermo-profile predictors" "$BIN/thermo-run" logits --model "$packed" \
    --plan "$plan" --mode predicted --tokens 1
python3 tests/predicted_plan.py "$plan" "$tmp/residual.json" 0.99 ffn,ffn,ffn,residual 0
check "a pack without one of the plan's names it" says 5 "predictor 'residual' of layer 3, expert 0" "$BIN/thermo-run" logits \
    --model "$tmp/p.thermo" --plan "$tmp/residual.json" --tokens 1
check "below the floor: it counts them" says 4 "bytes of predictors" run --mode predicted --memory 2MiB

# Refused.
check "a budget that is too small" says 4 "smallest rank" "$profile" predictors --model "$model" --traces "$traces" \
    --budget 10KiB --out "$tmp/no"
rm -f "$tmp/no.predictors.partial"
check "a rank that is no whole number of blocks" says 2 "multiple of 32" "$profile" predictors --model "$model" \
    --traces "$traces" --rank 40 --out "$tmp/no"
check "nothing to measure" says 3 "holds no predictors" "$profile" predictors-measure --model "$model" --traces "$traces" \
    --out "$tmp/no"
check "nothing to do" says 2 "nothing to do" "$profile" predictors-measure --model "$model" --traces "$traces" \
    --quality-tokens 0
"$BIN/thermo-quantize" --pure "$model" "$tmp/q8.gguf" Q8_0 > /dev/null 2>&1
check "another model than the trace's" says 5 "has hash" "$profile" predictors --model "$tmp/q8.gguf" --traces "$traces" \
    --rank 32 --out "$tmp/no"
check "nothing was left behind" test ! -e "$tmp/no"
done_testing
