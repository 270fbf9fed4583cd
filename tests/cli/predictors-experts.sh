#!/bin/sh
# Predictors of a model with experts and a dReLU, from trace to pack: recall of every (layer, expert) holds on other text,
# experts that few samples used get by with those of the whole layer, and quality is measured on the whole model.
. tests/tap.sh
scratch
profile="$BIN/thermo-profile" pack="$BIN/thermo-pack" model="$tmp/m.gguf"

run()
{
    "$@" > "$tmp/log" 2>&1 && return
    echo "Bail out! exit status $? of: $*"
    sed 's/^/# /' "$tmp/log" | tail -n 20
    exit 1
}
fields() # FILE PYTHON: an expression over p, the predictors, c, what --check saw, q, the quality table
{
    python3 -c 'import json, sys
j = json.load(open(sys.argv[1]))
p = j["predictors"]; c = j.get("check", {}).get("predictors"); q = j.get("quality", {}).get("rows")
sys.exit(0 if eval(sys.argv[2]) else "not so: " + sys.argv[2])' "$1" "$2"
}

run "$BIN/gguf-synth" --shape tiny --experts 4 --experts-used 2 --act drelu --prompts "$tmp/words.csv" --prompt-rows 48 \
    --prompt-words 100 "$model"
head -n 1 "$tmp/words.csv" > "$tmp/other.csv"
tail -n 8 "$tmp/words.csv" >> "$tmp/other.csv"
sed -i '42,49d' "$tmp/words.csv"
run "$profile" trace --model "$model" --prompts "$tmp/words.csv" --out "$tmp/t.h5" --samples 3000
run "$profile" trace --model "$model" --prompts "$tmp/other.csv" --out "$tmp/o.h5" --samples 1000
run phone "$tmp/hw.sqlite"
run "$BIN/thermo-plan" solve --traces "$tmp/t.h5" --hardware "$tmp/hw.sqlite" --memory 64MiB --context 128 \
    --cores mid=2,big=0,little=0 --out "$tmp/plan.json"

make() { "$profile" predictors --model "$model" --traces "$tmp/t.h5" --rank 96 --check "$tmp/o.h5" --json "$@"; }
make --method svd --quality-tokens 200 --out "$tmp/p.h5" > "$tmp/p.json" 2> "$tmp/log" || cat "$tmp/log"
check "one for each layer and expert, each from its own tokens" fields "$tmp/p.json" \
    '[(x["layer"], x["block"]) for x in p] == [(l, b) for l in range(3) for b in range(4)] and len({x["tokens_trained"] for x in p}) > 4'
check "recall holds for every expert on other text" fields "$tmp/p.json" 'all(x["recall"] > 0.97 for x in c)'
check "close to an oracle" fields "$tmp/p.json" 'all(x["density"] < 2 * x["true_density"] for x in c)'
check "quality of the whole model" fields "$tmp/p.json" \
    'len(q) == 6 and all(x["top1_agreement"] > 0.9 and x["kl_mean_nats"] < 0.05 and x["tokens"] == 200 for x in q)'
check "its recall comes near the target" fields "$tmp/p.json" 'all(abs(x["recall"] - x["target_recall"]) < 0.02 for x in q)'
make --epochs 1 --quality-tokens 0 --out "$tmp/a.h5" > "$tmp/a.json" 2> "$tmp/log" || cat "$tmp/log"
check "trained ones are no worse" fields "$tmp/a.json" 'all(x["density"] <= x["training_free_density"] for x in p)'

# Columns of the gates: of the tiny model's 256 inputs few decide. Fewer of them must be taken from the weightiest on.
make --method select --quality-tokens 0 --out "$tmp/c.h5" > "$tmp/c.json" 2> "$tmp/log" || cat "$tmp/log"
check "columns of the gates: recall holds for every expert" fields "$tmp/c.json" \
    'len(c) == 12 and all(x["recall"] > 0.96 for x in c) and all(x["method"] == "columns" for x in [j])'
check "columns cut other than by 32 are refused" says 2 "multiple of 32" "$profile" predictors --model "$model" \
    --traces "$tmp/t.h5" --method select --type f16 --rank 40

# 400 samples: some 175 for training an expert.
make --method svd --samples 400 --quality-tokens 0 --out "$tmp/f.h5" > "$tmp/f.json" 2> "$tmp/log"
check "few samples of an expert: the layer's stand in, and that is said" grep -q "4 of 4 experts" "$tmp/log"
check "all of them" fields "$tmp/f.json" 'len({x["tokens_trained"] for x in p}) == 1'
check "recall still holds" fields "$tmp/f.json" 'all(x["recall"] > 0.96 for x in c)'

check "packed" says 0 "predictors take" "$pack" pack --model "$model" --traces "$tmp/p.h5" --plan "$tmp/plan.json" \
    --out "$tmp/p.thermo" --quality-tokens 0
check "verify reads them" says 0 "whole" "$pack" verify "$tmp/p.thermo"
"$pack" inspect --json "$tmp/p.thermo" > "$tmp/i.json"
check "inspect lists them" fields "$tmp/i.json" 'sorted((x["layer"], x["block"]) for x in p) == [(l, b) for l in range(3) for b in range(4)]'
check "show sums a layer's experts up" says 0 "96 .*KiB" "$profile" show "$tmp/p.h5"
done_testing
