#!/bin/bash
# Plans from a description of a model, without a trace: solve, check, explain, sweep; what is refused.
. tests/tap.sh
scratch
P=$BIN/thermo-plan
small=datasets/descriptions/small-relu.json

check "figures of a phone" phone "$tmp/hw.sqlite"
in=(--description "$small" --hardware "$tmp/hw.sqlite")
check "a plan from a description" "$P" solve "${in[@]}" --memory 9MiB,10MiB --max-batch "$(of 4 2)" --context 256 --out "$tmp/a.json"
unless_short check "again" "$P" solve "${in[@]}" --memory 9MiB,10MiB --max-batch 4 --context 256 --out "$tmp/b.json"
unless_short check "gives the same bytes" cmp "$tmp/a.json" "$tmp/b.json"
valid() { python3 -c '
import json, jsonschema, sys
jsonschema.validate(json.load(open(sys.argv[2])), json.load(open(sys.argv[1])))' "$@"; }
check "follows the plan schema" valid schemas/plan.schema.json "$tmp/a.json"
check "says that there was no trace" grep -q '"trace_hash": "0\{32\}"' "$tmp/a.json"
check "check derives every figure" "$P" check "$tmp/a.json" "${in[@]}"
check "explain" says 0 "What binds" "$P" explain "$tmp/a.json" "${in[@]}" --memory 9MiB
check "sweep" "$P" sweep "${in[@]}" --memory 8MiB..10MiB --steps 3 --out "$tmp/s.csv"
check "three limits" test "$(wc -l < "$tmp/s.csv")" = 4

# Exactly one of trace and description.
for c in solve sweep; do
    check "$c without either" says 2 "--traces or --description is needed" "$P" $c --hardware "$tmp/hw.sqlite" --memory 9MiB..10MiB --out "$tmp/x"
    check "$c with both" says 2 "do not go together" "$P" $c "${in[@]}" --traces x.h5 --memory 8MiB..10MiB --out "$tmp/x"
done
check "explain without either" says 2 "--traces or --description is needed" "$P" explain "$tmp/a.json" --hardware "$tmp/hw.sqlite"
check "check with both" says 2 "do not go together" "$P" check "$tmp/a.json" "${in[@]}" --traces x.h5
check "no such file" says 3 "no-such.json" "$P" solve --description "$tmp/no-such.json" --hardware "$tmp/hw.sqlite" --memory 9MiB --out "$tmp/x"
check "not a description" says 3 "has an unknown key" "$P" solve --description "$tmp/a.json" --hardware "$tmp/hw.sqlite" --memory 9MiB --out "$tmp/x"
python3 - "$small" > "$tmp/wrong.json" <<'PY'
import json, sys
d = json.load(open(sys.argv[1]))
del d["activation"]["persistence"]
d["activation"]["misses"] = [{"cached": 0.5, "missed": 0.8}]
print(json.dumps(d))
PY
check "a figure that cannot be" says 3 "activation.misses" "$P" solve --description "$tmp/wrong.json" --hardware "$tmp/hw.sqlite" --memory 9MiB --out "$tmp/x"

# Another description is another model.
sed 's/"share": 0.1 }/"share": 0.11 }/' "$small" > "$tmp/other.json"
check "another rate is another model" says 5 "is for the model" "$P" check "$tmp/a.json" --description "$tmp/other.json" --hardware "$tmp/hw.sqlite"
sed 's/Invented\./Made up./' "$small" > "$tmp/same.json"
check "another source is not" "$P" check "$tmp/a.json" --description "$tmp/same.json" --hardware "$tmp/hw.sqlite"

# The embedded model, described: the account is that of its trace but for the tokenizer's text, the plan no use to the packer.
head -n 7 datasets/prompts/stories-profile.csv > "$tmp/p.csv"
check "a trace" "$BIN/thermo-profile" trace -q --model datasets/models/reglu-tales-10m-f16.gguf --prompts "$tmp/p.csv" --out "$tmp/t.h5"
cat > "$tmp/tales.json" <<'JSON'
{
  "format": "thermo-model-description", "revision": 1, "name": "ReGLU-Tales-10M, described",
  "shape": { "layers": 8, "d_model": 256, "heads": 8, "kv_heads": 4, "head_dim": 32, "n_ff": 1280, "vocab": 4096,
             "context": 512, "tied_output": true, "activation": "relu" },
  "types": { "embedding": "F16", "output": "F16", "attention": "F16", "gate": "F16", "up": "F16", "down": "F16" },
  "activation": { "rate": [{ "batch": 1, "share": 0.13 }], "skew": { "spread": 0.4 },
                  "persistence": [{ "share": 0.1, "period": 4 }] },
  "sources": {}
}
JSON
floors()
{
    for m in "--traces $tmp/t.h5" "--description $tmp/tales.json"; do
        "$P" solve $m --hardware "$tmp/hw.sqlite" --memory 18MiB --context 256 --form split --out "$tmp/d.json" > /dev/null || return 1
        status 4 "$P" solve -q --json $m --hardware "$tmp/hw.sqlite" --memory 1KiB --context 256 --form split --out "$tmp/x.json" > "$tmp/floor" || return 1
        sed -n 's/.*"memory_bytes": \([0-9]*\).*/\1/p' "$tmp/floor" | tail -n 1
    done > "$tmp/floors"
    echo "$(tr '\n' ' ' < "$tmp/floors")"
    awk '{ f[NR] = $1 } END { exit !(f[1] > 0 && f[2] > 0.99 * f[1] && f[2] < 1.01 * f[1]) }' "$tmp/floors"
}
check "account of the described model" floors
check "the packer refuses the plan" says 5 "$tmp/d.json" "$BIN/thermo-pack" pack --model datasets/models/reglu-tales-10m-f16.gguf \
    --traces "$tmp/t.h5" --plan "$tmp/d.json" --out "$tmp/m.thermo"

# Layers that are alike are drawn alike by the planner and by check, whatever predictors predict.
random_models() { BIN=$BIN tests/descriptions.py "$(of 5 2)" "$1" > "$tmp/out" 2>&1 || { grep -A2 '^not ok' "$tmp/out"; return 1; }; }
check "random models: solve accepts its own plans" random_models 1
done_testing
