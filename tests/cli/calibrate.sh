#!/bin/bash
# thermo-plan calibrate on the embedded model: compare, store, plan with corrections, check and explain such a plan.
. tests/tap.sh
scratch
. tests/chain.sh
P=$BIN/thermo-plan

generate() { "$BIN/thermo-run" generate --model "$packed" --plan "$plan" --prompt "Once upon a time" --ignore-eos --json "$@"; }
runs()
{
    generate -n 40 --memory 14MiB --seed 1 > "$tmp/a.jsonl" && generate -n 40 --memory 18MiB --seed 2 > "$tmp/b.jsonl" &&
        "$BIN/thermo-run" bench --model "$packed" --plan "$plan" --memory 16MiB -p 8 -n 16 -r 2 --json > "$tmp/c.jsonl"
}
check "telemetry of three limits" runs
cp "$hardware" "$tmp/hw.sqlite"
in=(--plan "$plan" --traces "$traces" --hardware "$tmp/hw.sqlite")
calibrate() { "$P" calibrate "${in[@]}" "$@"; }

text() { calibrate --telemetry "$tmp/a.jsonl" "$tmp/b.jsonl" "$tmp/c.jsonl" > "$tmp/out" && grep -q '3 runs compared, 0 skipped' "$tmp/out" &&
    grep -q '^14.0 MiB, 1 run' "$tmp/out" && grep -q '^16.0 MiB, 1 run' "$tmp/out" && grep -q '^  Waiting for storage' "$tmp/out"; }
check "text: limits and terms" text
numbers()
{
    calibrate --telemetry "$tmp/a.jsonl" --telemetry "$tmp/b.jsonl" --json > "$tmp/out.json" &&
        python3 - "$tmp/out.json" "$tmp/a.jsonl" "$plan" <<'PY'
import json, sys
out, plan = json.load(open(sys.argv[1])), json.load(open(sys.argv[3]))
s = json.loads([l for l in open(sys.argv[2]) if '"summary"' in l][0])
d, n = s["decode"], s["decode"]["tokens"]
assert out["runs"] == 2 and out["stored"] is False and [l["memory_bytes"] for l in out["limits"]] == [14 << 20, 18 << 20]
terms = {t["term"]: t for t in out["limits"][0]["terms"]}
def near(a, b):
    assert abs(a - b) <= 2e-5 * abs(b) + 1e-9, (a, b)
near(terms["attention"]["median"], d["attention_ms"] * 1e6 / n)
near(terms["ffn"]["median"], (d["ffn_ms"] - d["stall_ms"]) * 1e6 / n)
near(terms["io_wait"]["median"], d["stall_ms"] * 1e6 / n)
near(terms["step"]["median"], d["ms"] * 1e6 / n)
near(terms["read_bytes"]["median"], d["read_bytes"] / n)
at = [l["memory_bytes"] for l in plan["decisions"]["limits"]].index(14 << 20)
limit = plan["predictions"]["limits"][at]["batches"][0]
near(terms["step"]["predicted"], limit["step_ns"])
near(sum(terms[t]["predicted"] for t in ("attention", "ffn", "io_wait", "head")), limit["step_ns"])
ratios = {t["term"]: t for t in out["ratios"]}
assert ratios["step"]["runs"] == 2 and ratios["step"]["p10"] <= ratios["step"]["median"] <= ratios["step"]["p90"]
PY
}
check "json: measured from the telemetry, predicted from the plan" numbers

# Exactly twice as slow in one term, by hand: the factor doubles.
factor() { python3 -c 'import json, sys; print([t["median"] for t in json.load(sys.stdin)["factors"] if t["term"] == sys.argv[1]][0])' "$1"; }
twice()
{
    python3 - "$tmp/a.jsonl" "$tmp/slow.jsonl" <<'PY'
import json, sys
out = open(sys.argv[2], "w")
for l in open(sys.argv[1]):
    r = json.loads(l)
    if r["type"] == "summary":
        d = r["decode"]
        d["ms"] += d["attention_ms"]
        d["attention_ms"] *= 2
    print(json.dumps(r), file=out)
PY
    a=$(calibrate --json --telemetry "$tmp/a.jsonl" | factor attention) && b=$(calibrate --json --telemetry "$tmp/slow.jsonl" | factor attention) &&
        python3 -c "assert abs($b / $a - 2) < 1e-4, ($a, $b)" &&
        [ "$(calibrate --json --telemetry "$tmp/a.jsonl" | factor ffn)" = "$(calibrate --json --telemetry "$tmp/slow.jsonl" | factor ffn)" ]
}
check "attention twice as slow doubles its factor, and no other" twice

# The same plan at the prices of a machine that has become half as fast in everything.
cp "$hardware" "$tmp/later.sqlite"
sqlite3 "$tmp/later.sqlite" "UPDATE compute SET ns_per_row_p10 = 2 * ns_per_row_p10, ns_per_row_p50 = 2 * ns_per_row_p50, ns_per_row_p90 = 2 * ns_per_row_p90, flops_per_s = flops_per_s / 2;
    UPDATE memory SET bytes_per_s_p10 = bytes_per_s_p10 / 2, bytes_per_s_p50 = bytes_per_s_p50 / 2, bytes_per_s_p90 = bytes_per_s_p90 / 2;
    UPDATE storage SET bytes_per_s_p10 = bytes_per_s_p10 / 2, bytes_per_s_p50 = bytes_per_s_p50 / 2, bytes_per_s_p90 = bytes_per_s_p90 / 2, cpu_ns_per_read = 2 * cpu_ns_per_read;
    UPDATE joint SET bytes_per_s_p10 = bytes_per_s_p10 / 2, bytes_per_s_p50 = bytes_per_s_p50 / 2, bytes_per_s_p90 = bytes_per_s_p90 / 2"
reprice() { "$P" calibrate --plan "$plan" --traces "$traces" --hardware "$1" --telemetry "$tmp/a.jsonl" --json "${@:2}"; }
check "figures of another time are not the plan's" says 5 'is for hardware' reprice "$tmp/later.sqlite"
repriced()
{
    calibrate --json --telemetry "$tmp/a.jsonl" > "$tmp/as" && reprice "$hardware" --reprice > "$tmp/now" && reprice "$tmp/later.sqlite" --reprice > "$tmp/later" &&
        python3 - "$tmp/as" "$tmp/now" "$tmp/later" <<'PY'
import json, sys
def load(p):
    o = json.load(open(p))
    return {t["term"]: t for t in o["limits"][0]["terms"]}, {t["term"]: t["median"] for t in o["ratios"]}
def near(a, b):
    assert abs(a - b) <= 1e-4 * abs(b), (a, b)
(plan, _), (now, ratio), (later, _) = (load(p) for p in sys.argv[1:4])
for t in ("ffn", "head", "read_bytes", "hit_rate"):
    near(now[t]["predicted"], plan[t]["predicted"])
assert now["attention"]["predicted"] < plan["attention"]["predicted"] # 40 tokens, planned for a context of 256
for t in ("attention", "step"): # for the positions of the run, as ratios are
    near(now[t]["median"] / now[t]["predicted"], ratio[t])
for t in ("attention", "ffn", "io_wait", "head", "step"):
    near(later[t]["predicted"], 2 * now[t]["predicted"])
    assert later[t]["median"] == now[t]["median"]
for t in ("read_bytes", "hit_rate"):
    near(later[t]["predicted"], now[t]["predicted"])
PY
}
check "--reprice: same figures, same times; half as fast, twice the times; same reads" repriced
check "--reprice needs a trace" says 2 'needs --traces' "$P" calibrate --plan "$plan" --hardware "$hardware" --telemetry "$tmp/a.jsonl" --reprice
check "--reprice stores nothing" says 2 'goes without --store' reprice "$tmp/later.sqlite" --reprice --store

# Store, and plan with it.
raw() { sqlite3 "$tmp/hw.sqlite" 'SELECT * FROM compute; SELECT * FROM memory; SELECT * FROM storage; SELECT * FROM device'; }
solve() { "$P" solve --traces "$traces" --hardware "$tmp/hw.sqlite" --memory 18MiB --context 256 --form split --policy lru "$@"; }
check "no corrections yet" says 2 'holds none for device' solve --corrections --out "$tmp/x.json"
raw > "$tmp/raw"
check "a plan before there are any" solve --out "$tmp/plain.json"
check "store" says 0 'stored in' calibrate --store --telemetry "$tmp/slow.jsonl" "$tmp/b.jsonl"
kept() { raw | cmp - "$tmp/raw" && [ "$(sqlite3 "$tmp/hw.sqlite" 'SELECT count(*) > 2 FROM v_calibration WHERE device = "test"')" = 1 ]; }
check "what was measured is as it was" kept
same() { solve --out "$tmp/again.json" > "$tmp/log" && cmp "$tmp/again.json" "$tmp/plain.json"; }
check "without --corrections nothing changes" same
check "solve --corrections" says 0 'note: times corrected by calibration 1: attention' solve --corrections --out "$tmp/corrected.json"
check "check derives its figures" "$P" check "$tmp/corrected.json" --traces "$traces" --hardware "$tmp/hw.sqlite"
check "explain shows the factors" says 0 '(C) *factors of a calibration' "$P" explain "$tmp/corrected.json" --traces "$traces" --hardware "$tmp/hw.sqlite"
times()
{
    python3 - "$tmp/plain.json" "$tmp/corrected.json" "$(sqlite3 "$tmp/hw.sqlite" 'SELECT factor_p50 FROM calibration_term WHERE term = "attention"')" <<'PY'
import json, sys
a, b = (json.load(open(p)) for p in sys.argv[1:3])
def attention(plan, i):
    layers = plan["predictions"]["limits"][i]["batches"][0]["layers"]
    return sum(layers["attention_ns"])
for i, (x, y) in enumerate(zip(a["decisions"]["limits"], b["decisions"]["limits"])):
    if x["threads"] == y["threads"]:
        assert abs(attention(b, i) / attention(a, i) / float(sys.argv[3]) - 1) < 1e-4
PY
}
check "predicted attention is multiplied by the factor" times
check "another calibration does not disturb an old plan" says 0 'stored in' calibrate --store --telemetry "$tmp/b.jsonl"
check "it is still the one it was made with" "$P" check "$tmp/corrected.json" --traces "$traces" --hardware "$tmp/hw.sqlite"
check "corrections of the paper's model" says 2 'belong to --cost measured' solve --corrections --cost paper --out "$tmp/x.json"

# What does not belong together, and what is no telemetry.
sed 's/"valid":true/"valid":false/' "$tmp/a.jsonl" > "$tmp/scaled.jsonl"
check "only runs that the plan does not speak of" says 5 'less memory' calibrate --telemetry "$tmp/scaled.jsonl"
check "another plan" says 5 'is of another plan' "$P" calibrate --plan "$tmp/corrected.json" --hardware "$tmp/hw.sqlite" --telemetry "$tmp/b.jsonl"
sed 's/"model":"[^"]*"/"model":"nobody"/' "$tmp/a.jsonl" > "$tmp/other.jsonl"
check "another model" says 5 "model 'nobody'" calibrate --telemetry "$tmp/other.jsonl"
sed 's/"ffn_ms":/"ffn_ms":-/g' "$tmp/a.jsonl" > "$tmp/bad.jsonl"
check "a bad figure: line and key" says 3 'line 41: decode.ffn_ms' calibrate --telemetry "$tmp/bad.jsonl"
check "no telemetry at all" says 3 'is not JSON' calibrate --telemetry "$tmp/log"
sed 's/"ms_per_token":{[^}]*},//g' "$tmp/c.jsonl" > "$tmp/untold.jsonl"
check "a bench without times per term tells no factor" says 2 'no factor follows' calibrate --store --telemetry "$tmp/untold.jsonl"
check "no telemetry given" says 2 '--telemetry' "$P" calibrate "${in[@]}"
done_testing
