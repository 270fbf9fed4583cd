#!/bin/bash
# thermo-plan on the embedded model: solve, repeat, check, compare, explain, sweep, refuse. What is said of speeds is held
# against the published figures of a phone, for they are the same wherever this runs; this machine's have to give plans.
. tests/tap.sh
scratch
. tests/chain.sh # what this machine measured, once for all tests
P=$BIN/thermo-plan

head -n "$(of 13 6)" datasets/prompts/stories-profile.csv > "$tmp/p.csv"
check "trace of 12 prompts" "$BIN/thermo-profile" trace -q --model datasets/models/reglu-tales-10m-f16.gguf \
    --prompts "$tmp/p.csv" --window-tokens "$(of 320 160)" --samples "$(of 640 320)" --out "$tmp/t.h5"
check "figures of a phone" phone "$tmp/phone.sqlite"
in=(--traces "$tmp/t.h5" --hardware "$tmp/phone.sqlite") mine=(--traces "$tmp/t.h5" --hardware "$hardware")
solve() { "$P" solve "${in[@]}" "$@"; }

valid()
{
    python3 - schemas/plan.schema.json "$1" <<'PY'
import json, sys
import jsonschema
schema, plan = (json.load(open(p)) for p in sys.argv[1:3])
jsonschema.Draft7Validator.check_schema(schema)
jsonschema.validate(plan, schema)
text = open(sys.argv[2]).read()
assert text.endswith("}\n")
def keys_sorted(pairs):
    names = [k for k, _ in pairs]
    assert names == sorted(names), names
    return dict(pairs)
json.loads(text, object_pairs_hook=keys_sorted)
of = plan["predictions"]
for bad in ({"revision": 99}, {"surprise": 1}, {"predictions": {**of, "cost": "guess"}}, {"predictions": {**of, "figures": "peak"}}):
    try:
        jsonschema.validate({**plan, **bad}, schema)
    except jsonschema.ValidationError:
        continue
    raise AssertionError(bad)
PY
}

schema() { "$B/tests/tools/plan-schema" > "$tmp/schema" && cmp "$tmp/schema" schemas/plan.schema.json || { echo "make schemas"; return 1; }; }
check "the schema is that of the table which reads and writes plans" schema

# Short runs try every layout once.
one=()
[ -z "$short" ] || one=(--form split --packed no)

# At 18 MiB the embedded model has to run, with 256 and with 512 positions.
check "a plan at 18 MiB, context 256" solve --memory 18MiB --context 256 --out "$tmp/a.json"
unless_short check "a plan at 18 MiB, context 512" solve --memory 18MiB --context 512 --out "$tmp/a512.json"
check "several limits and batches" solve --memory 16MiB,18MiB --max-batch 2 "${one[@]}" --out "$tmp/m.json"
weights() { says 2 "--batch-weights: $2" solve --memory 18MiB --max-batch 2 --batch-weights "$1" --out "$tmp/w.json"; }
check "one number for each batch size" weights 3 '1 numbers for 2 batch sizes'
check "an empty list is none" weights '' '0 numbers for 2 batch sizes'
check "weights are whole numbers" weights 1,0 "'0' is not a whole number from 1 to 64"
unless_short check "the same inputs again" solve --memory 16MiB,18MiB --max-batch 2 --out "$tmp/m2.json"
unless_short check "give the same bytes" cmp "$tmp/m.json" "$tmp/m2.json"
check "the paper's equations" solve --memory 18MiB --cost paper "${one[@]}" --out "$tmp/paper.json"
unless_short check "this machine, what it sustains" "$P" solve "${mine[@]}" --memory 18MiB --context 256 --figures sustained --out "$tmp/slow.json"
unless_short check "dense mode" solve --memory 18MiB --mode dense --out "$tmp/dense.json"
check "bundles, int8 activations, Q8_0 for Down" solve --memory 18MiB --form bundle --act q8 --down-type q8_0 --out "$tmp/bundle.json"
check "this machine" "$P" solve "${mine[@]}" --device test --memory 18MiB,24MiB --max-batch 2 "${one[@]}" --out "$tmp/here.json"
for f in a m paper $(unless_short echo slow dense) bundle here; do
    check "$f.json follows its schema" valid "$tmp/$f.json"
done
for f in a m paper $(unless_short echo a512 dense) bundle; do
    check "check derives every figure of $f.json" "$P" check "$tmp/$f.json" "${in[@]}"
done
for f in here $(unless_short echo slow); do
    check "check derives every figure of $f.json" "$P" check "$tmp/$f.json" "${mine[@]}"
done
check "check by itself" "$P" check "$tmp/m.json" --json

# A plan that was tampered with, or belongs to other files.
tampered() { sed "$1" "$tmp/a.json" > "$tmp/bad.json"; cmp -s "$tmp/bad.json" "$tmp/a.json" && return 9; "$P" check "$tmp/bad.json" "${in[@]}"; }
check "another account is found" status 3 tampered 's/"account_bytes": /"account_bytes": 1/'
check "another speed is found" status 3 tampered 's/"tokens_per_s": /"tokens_per_s": 1/'
other_figures() { sed 's/"figures": "sustained"/"figures": "typical"/' "$tmp/slow.json" > "$tmp/bad.json"; "$P" check "$tmp/bad.json" "${mine[@]}"; }
unless_short check "sustained figures are not the typical ones" status 3 other_figures
check "another prefix is found" status 3 tampered '0,/\[\[[0-9]*, [0-9]*\]\]/s//[[64, 1216]]/'
check "another model is found" status 5 tampered '/"model": {/,/"layers"/{s/"hash": "0/"hash": "1/;t;s/"hash": "[^0]/"hash": "0/}'
check "another device is found" status 5 "$P" check "$tmp/a.json" "${mine[@]}" --device test

# Against an older plan.
unless_short check "nothing changed" "$P" check "$tmp/m.json" --against "$tmp/m2.json"
check "a promise got worse" status 1 "$P" check "$tmp/a.json" --against "$tmp/m.json"

# Limits that contradict each other: named, with the nearest values; following the advice gives a plan.
refused() { solve "$@" --out "$tmp/none.json" 2> "$tmp/why"; }
check "below the floor" status 4 refused --memory 8MiB --context 512 "${one[@]}"
check "names the limits" grep -q -- '--memory 8.0 MiB (8388608 bytes) is below the floor of [0-9]* bytes .* --context 512' "$tmp/why"
floor=$(sed 's/.*floor of \([0-9]*\) bytes.*/\1/' "$tmp/why")
unless_short check "the floor it names is one" solve --memory "$floor" --context 512 --out "$tmp/f.json"
unless_short check "a byte less is not" status 4 refused --memory $((floor - 1)) --context 512
# The same as numbers, on standard output: each key is followed as the message's values are.
number() { python3 -c "import json, sys
d = json.load(open(sys.argv[1]))
assert d['feasible'] is False and d['exit_status'] == 4 and d['message'] in open(sys.argv[2]).read(), d
print(d[sys.argv[3]][sys.argv[4]] if sys.argv[3] != 'contradict' else ' '.join(d['contradict']))" "$tmp/why.json" "$tmp/why" "$@"; }
in_json() { refused "$@" --json > "$tmp/why.json"; }
check "too much context" status 4 in_json --memory 18MiB --context 100000 "${one[@]}"
context=$(sed -n 's/.*largest --context is \([0-9]*\).*/\1/p' "$tmp/why")
unless_short check "the context it names fits" solve --memory 18MiB --context "${context:-0}" --out "$tmp/f.json"
check "names the limits" test "$(number contradict x)" = "memory context"
check "and what was asked" test "$(number asked memory_bytes) $(number asked context_tokens)" = "18874368 100000"
check "the same context" test "$(number nearest context_tokens)" = "$context"
bytes=$(number nearest memory_bytes)
unless_short check "the bytes that fit it all" solve --memory "${bytes:-x}" --context 100000 --out "$tmp/f.json"
check "no plan as JSON beside it" test ! -e "$tmp/none.json"
check "no core" status 4 in_json --memory 16MiB --cores big=0,mid=0,little=0 "${one[@]}"
check "one would do" test "$(number contradict x) $(number nearest cores)" = "cores 1"
check "another failure says nothing there" sh -c "! '$P' solve -q --json --traces '$tmp/t.h5' --hardware '$tmp/none' --memory 16MiB --out '$tmp/none.json' 2> '$tmp/why' | grep ."
check "too fast" status 4 in_json --memory 16MiB --form split --context 256 --min-speed 100000
check "names the speed" test "$(number contradict x)" = "min_speed"
check "no memory is enough" grep -q 'no memory is enough' "$tmp/why"
# Speeds and memory that a refusal names: test_planning follows them too.
faster()
{
    speed=$(sed -n 's/.*fastest plan makes \([0-9.]*\) .*/\1/p' "$tmp/why")
    check "the speed it names is reached" solve --memory 16MiB --form split --context 256 --min-speed "${speed:-x}" --out "$tmp/f.json"
    solve --memory 64MiB --form split --context 256 --out "$tmp/r.json" > "$tmp/log" # half-way to what memory can give
    double=$(python3 -c "
import json, sys
print(($speed * json.load(open(sys.argv[1]))['predictions']['limits'][0]['batches'][0]['tokens_per_s']) ** 0.5)" "$tmp/r.json")
    check "faster needs more memory" status 4 refused --memory 16MiB --form split --context 256 --min-speed "$double"
    memory=$(sed -n 's/.*; --memory \([0-9]*\) .* would do.*/\1/p' "$tmp/why")
    check "the memory it names will do" solve --memory "${memory:-x}" --form split --context 256 --min-speed "$double" --out "$tmp/f.json"
}
unless_short faster
check "nothing was written for what was refused" test ! -e "$tmp/none.json"

# Predicted mode: predictors of both inputs, and what they cost in quality.
check "predictors without training" "$BIN/thermo-profile" predictors -q --model datasets/models/reglu-tales-10m-f16.gguf \
    --traces "$tmp/t.h5" --out "$tmp/tp.h5" --input both --method svd --rank 64 --quality-tokens 96
pred() { "$P" solve --traces "$tmp/tp.h5" --hardware "$tmp/phone.sqlite" --memory "${limits:-24MiB}" --context 256 "$@"; }
pcheck() { "$P" check "$1" --traces "$tmp/tp.h5" --hardware "$tmp/phone.sqlite"; }
why_pred() { pred "$@" --out "$tmp/none.json" 2> "$tmp/why"; }
check "predicted mode" pred --mode predicted "${one[@]}" --out "$tmp/pred.json"
limits=16MiB,24MiB check "packed bundles, at another recall, looking ahead" pred --mode predicted --form bundle --packed yes --recall 0.95 \
    --predictor block --out "$tmp/ahead.json"
for f in pred ahead; do
    check "$f.json follows its schema" valid "$tmp/$f.json"
    check "check derives every figure of $f.json" pcheck "$tmp/$f.json"
done
check "it is what was asked for" python3 -c '
import json, sys
p, a = (json.load(open(f)) for f in sys.argv[1:])
notes, p, a = p["notes"], p["decisions"], a["decisions"]
assert len(p["limits"]) == 1 and len(a["limits"]) == 2
assert all(l["mode"] == "predicted" and len(l["predictors"]) == 8 for l in p["limits"] + a["limits"])
assert a["layout"]["packed"] is True and a["layout"]["form"] == "bundle"
assert all(set(l["predictors"]) == {"block"} and l["recall"] == 0.95 for l in a["limits"])
assert any("KL" in n for n in notes), notes' "$tmp/pred.json" "$tmp/ahead.json"
# adds_up PLAN LIMIT TEXT OPTION...: explains as JSON what TEXT explains, and holds both to the plan.
adds_up() { "$P" explain "$1" --json "${@:4}" > "$tmp/x.json" && python3 -B tests/explain_sums.py "$1" "$2" "$3" "$tmp/x.json"; }
with_predictors=(--traces "$tmp/tp.h5" --hardware "$tmp/phone.sqlite")
its_lines() { "$P" explain "$tmp/ahead.json" "${with_predictors[@]}" --memory 16MiB --no-gains > "$tmp/pred.txt" && grep -q "^  (M11) " "$tmp/pred.txt" &&
    grep -q "^  (M12) " "$tmp/pred.txt" && grep -q "^  (M13) " "$tmp/pred.txt" && grep -q "floor in exact mode" "$tmp/pred.txt"; }
check "its explanation" its_lines
check "adds up" adds_up "$tmp/ahead.json" 0 "$tmp/pred.txt" "${with_predictors[@]}" --memory 16MiB --no-gains
check "quality that predictors cannot give" status 4 why_pred --mode predicted --form bundle --max-kl 1e-12
kl=$(sed -n 's/.*the least that was measured is \([0-9.e-]*\),.*/\1/p' "$tmp/why")
check "the quality it names will do" pred --mode predicted --form bundle --max-kl "$(python3 -c "print(float('$kl') * 1.01)")" --out "$tmp/kl.json"
check "auto stays exact where quality forbids" sh -c '"$@" && ! grep -q "\"mode\": \"predicted\"" "$0"' "$tmp/auto.json" \
    "$P" solve --traces "$tmp/tp.h5" --hardware "$tmp/phone.sqlite" --memory 24MiB --context 256 --max-kl 1e-12 --out "$tmp/auto.json"
# What is in memory of each layer is always computed; what else the plan says stays.
check "hot prefixes always computed" pred --mode predicted --form bundle --recall 0.95 --memory 18MiB --out "$tmp/few.json"
check "as asked for" pred --mode predicted --form bundle --recall 0.95 --memory 18MiB --always-resident --out "$tmp/resident.json"
check "check derives every figure of it" pcheck "$tmp/resident.json"
check "the prefixes are the plan's" python3 -c '
import json, sys
a, b = (json.load(open(f)) for f in sys.argv[1:])
x, y = (p["decisions"]["limits"][0] for p in (a, b))
hot = [l[0][0] for l in y["batches"][0]["hot"]]
assert hot == [l[0][0] for l in x["batches"][0]["hot"]] and sum(hot) > 0, (hot, x["batches"])
assert y["exempt"] == [max(h, e) for h, e in zip(hot, x["exempt"])] != x["exempt"], (x["exempt"], y["exempt"])
assert b["request"]["always_resident"] is True and "always_resident" not in a["request"]' "$tmp/few.json" "$tmp/resident.json"
# A budget of quality: each layer its own recall, within the budget by what layers were measured to lose.
budget=$(python3 -c "print(float('$kl') * 20)")
check "a budget of quality" pred --mode predicted --form bundle --max-kl "$budget" --memory 18MiB --always-resident --out "$tmp/budget.json"
check "it follows the schema" valid "$tmp/budget.json"
check "check derives every figure of the budget" pcheck "$tmp/budget.json"
check "recalls differ by layer, and the promise keeps the budget" python3 -c '
import json, re, sys
p, most = json.load(open(sys.argv[1])), float(sys.argv[2])
l = p["decisions"]["limits"][0]
kl = [float(m[1]) for n in p["notes"] for m in [re.search("by layer.*mean KL ([0-9.e-]+) nats", n)] if m]
print(l["recall"], l["recalls"], p["notes"], most)
assert len(l["recalls"]) == 8 and min(l["recalls"]) == l["recall"] < max(l["recalls"]) and len(kl) == 1 and 0 < kl[0] <= most * 1.01' \
    "$tmp/budget.json" "$budget"
check "not in exact mode" status 2 why_pred --mode exact --always-resident
check "nor without a mode" status 2 why_pred --always-resident
check "nor with a proof" status 2 why_pred --mode predicted --always-resident --prove
limits=16MiB,24MiB check "nor where limits share a text" status 2 why_pred --mode predicted --always-resident --elastic
check "a recall of nothing" status 2 why_pred --recall 0.9
check "a recall of exact mode" status 2 why_pred --mode exact --recall 0.9
check "predicted mode without predictors" status 3 refused --memory 18MiB --mode predicted

# Explain and sweep.
explain() { "$P" explain "$tmp/a.json" "${in[@]}" "$@"; }
equations() { explain --memory 18MiB > "$tmp/explain.txt" && for i in 1 2 3 4 5 6 7 8 9 10 11 M1 M2 M3 M4 M5 M6 M7 M8 M9 M10; do
    grep -q "^  ($i) " "$tmp/explain.txt" || { echo "no equation ($i)"; return 1; }; done
    grep -q 'one more MiB of memory' "$tmp/explain.txt" && grep -q 'storage twice as fast' "$tmp/explain.txt" &&
    grep -q 'one more core' "$tmp/explain.txt" && grep -q 'What binds' "$tmp/explain.txt"; }
check "explain has every equation, what binds, what more would buy" equations
json() { python3 -c '
import json, sys
x = json.load(open(sys.argv[1]))
assert abs(sum(v for k, v in x["account"].items() if k not in ("total", "floor")) - x["account"]["total"]) == 0
assert len(x["layers"]) == 8 and {l["id"] for l in x["paper"]} == {"(%d)" % (i + 1) for i in range(11)}
s = [l for l in x["measured"] if l["id"] == "(M10)"][0]
assert abs(s["value"] - s["terms"]["t_head"] - sum(l["total_ns"] for l in x["layers"])) < 1e-4 * s["value"]
assert all(g["tokens_per_s"] >= 0.989 * x["tokens_per_s"] for g in x["gains"]) # 1 % may go to more threads
assert x["solved_again_tokens_per_s"] == x["tokens_per_s"] and sum(x["binds"].values()) == 8' "$tmp/x.json"; }
check "explain adds up, as text and as JSON" adds_up "$tmp/a.json" 0 "$tmp/explain.txt" "${in[@]}" --memory 18MiB
check "explain --json has what the plan has" json
explain_other() { "$P" explain "$1" "${@:2}" --no-gains > "$tmp/explain.txt" && adds_up "$1" 0 "$tmp/explain.txt" "${@:2}" --no-gains; }
unless_short check "so does the paper's" explain_other "$tmp/paper.json" "${in[@]}"
unless_short check "so does this machine's, whose reads cost CPU time" explain_other "$tmp/here.json" "${mine[@]}" --memory 18MiB
sweep() { "$P" sweep "${in[@]}" --memory 4MiB..32MiB --steps 8 --svg "$tmp/s.svg" --out "$tmp/s.csv" && python3 - "$tmp/s.csv" "$tmp/s.svg" <<'PY'
import csv, sys, xml.dom.minidom
rows = list(csv.DictReader(open(sys.argv[1])))
assert len(rows) == 8 and rows[0]["feasible"] == "0" and rows[-1]["feasible"] == "1"
speed = [float(r["tokens_per_s"]) for r in rows if r["feasible"] == "1"]
bound = [float(r["bound_tokens_per_s"]) for r in rows if r["feasible"] == "1"]
assert all(b >= a * 0.989 for a, b in zip(speed, speed[1:])), speed # 1 % may go to more threads
assert all(b >= a * 0.9999 for a, b in zip(speed, bound))
assert [p for p in xml.dom.minidom.parse(sys.argv[2]).getElementsByTagName("path") if p.getAttribute("class") == "line s0"]
PY
}
unless_short check "sweep rises with memory; its drawing is one" sweep

# The command line.
check "no memory" status 2 "$P" solve "${in[@]}" --out "$tmp/x.json"
check "an unknown core class" status 2 solve --memory 18MiB --cores huge=1 --out "$tmp/x.json"
check "the same limit twice" status 2 solve --memory 18MiB,18MiB --out "$tmp/x.json"
check "an unknown device" status 2 "$P" solve --traces "$tmp/t.h5" --hardware "$tmp/phone.sqlite" --device nobody --memory 18MiB --out "$tmp/x.json"
check "a trace that is none" status 3 "$P" solve --traces "$tmp/phone.sqlite" --hardware "$tmp/phone.sqlite" --memory 18MiB --out "$tmp/x.json"
check "a plan that is none" status 3 "$P" check datasets/prompts/stories-profile.csv
check "a folder that is not there" status 1 solve --memory 18MiB --out "$tmp/no/such/x.json"
one_core() { "$P" solve "${mine[@]}" --memory 18MiB --cores 1 --out "$tmp/one.json" && grep -q '"threads": 1' "$tmp/one.json"; }
unless_short check "one core" one_core
done_testing
