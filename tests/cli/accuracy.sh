#!/bin/sh
# Predicted against measured: one plan for all limits, runs there and back, and figures that follow from plan and telemetry.
. tests/tap.sh
. tests/chain.sh
scratch
export MODEL="$packed" TRACES="$traces" HARDWARE="$hardware" OUT="$tmp/out" WORK="$tmp/work" NAME=embedded TOKENS=8 RUNS=2
export MEMORY="resident 16MiB floor" PLAN_FLAGS="--mode exact --rlimit 1" HARDWARE_FLAGS="--quick --range 8MiB --memory-range 8MiB --seconds-per-point 0.003 --types f16"
accuracy() { python3 -B scripts/accuracy.py "$@"; }

check "--help" says 0 "^usage: accuracy.py" accuracy --help
check "an unknown option" says 2 "unknown option --frob" accuracy --frob
check "a limit that is none" says 2 "MEMORY: 'lots' is neither" env MEMORY=lots python3 -B scripts/accuracy.py
check "no limit" says 2 "MEMORY names no limit" env MEMORY= python3 -B scripts/accuracy.py
check "a number that is none" says 2 "RUNS='0'" env RUNS=0 python3 -B scripts/accuracy.py
check "a model that is not there" says 3 "MODEL: cannot read" env MODEL=/none.thermo python3 -B scripts/accuracy.py
check "a flag that the planner does not know" says 2 "unknown option --frob" env PLAN_FLAGS=--frob python3 -B scripts/accuracy.py

dry() { accuracy --dry-run > "$tmp/dry" 2> "$tmp/err" && [ ! -e "$OUT" ] && [ "$(grep -c 'thermo-run bench' "$tmp/dry")" -eq 3 ]; }
check "a dry run plans and runs nothing" dry
if [ -n "${SANITIZE:-}" ]; then
    skip "runs" "a sanitizer takes memory of its own"
    done_testing
    exit
fi
whole() { accuracy 2> "$tmp/err" || { cat "$tmp/err"; return 1; }; }
check "three limits" whole
check "figures are those of plan and telemetry" python3 - "$OUT" "$WORK" << 'END'
import csv, json, statistics, sys
out, work = sys.argv[1:]
r = json.load(open(out + "/accuracy.json"))["models"][0]
limits = json.load(open(work + "/plan.json"))["limits"]
runs = [json.loads(x) for x in open(work + "/runs.jsonl")]
assert len(r["rows"]) == len(limits) == 3 and len(runs) == 6, r["notes"]
order = [x["memory_bytes"] for x in runs]
assert order[:3] == order[:2:-1], order # there and back
for row in r["rows"]:
    plan = next(x for x in limits if x["memory_bytes"] == row["memory_bytes"])
    p = plan["batches"][0]["predicted"]
    tests = [x["tests"][0] for x in runs if x["memory_bytes"] == row["memory_bytes"]]
    assert plan["context"] == 8 and [t["tokens"] for t in tests] == [8, 8]
    ms = statistics.median(1e3 / t["tokens_per_s"] for t in tests)
    assert abs(row["measured_tokens_per_s"] * ms / 1e3 - 1) < 1e-4
    assert abs(row["deviation"] - (p["tokens_per_s"] * ms / 1e3 - 1)) < 1e-4
    read = statistics.median(t["read_bytes_per_token"] for t in tests)
    assert abs(row["read_bytes"]["measured"] - read) <= max(1, 1e-5 * read), (row["read_bytes"], read) # six digits are printed
    attention = sum(p["layers"]["attention_ns"]) / 1e6
    assert abs(row["attention_ms"]["predicted"] / attention - 1) < 1e-4
    wait = statistics.median(t["ms_per_token"]["stall"] for t in tests)
    assert abs(row["io_wait_ms"]["measured"] - wait) < 1e-4 * max(wait, 1)
d = [abs(x["deviation"]) for x in r["rows"]]
assert abs(r["median_deviation"] - statistics.median(d)) < 1e-9
assert r["rows"][0]["read_bytes"]["measured"] == 0 < r["rows"][2]["read_bytes"]["measured"]
page = open(out + "/accuracy.md").read()
assert f"{100 * r['median_deviation']:.1f} %**" in page and page.count("\n| ") == 4 and "\n| resident (" in page
table = list(csv.DictReader(open(out + "/accuracy.csv")))
assert [int(x["memory_bytes"]) for x in table] == [x["memory_bytes"] for x in r["rows"]]
END
other() # of another name joins; of the same name replaces
{
    NAME=second RUNS=1 MEMORY=16MiB accuracy 2> "$tmp/err" && RUNS=1 MEMORY=floor accuracy 2> "$tmp/err" &&
        python3 -c "import json, sys; m = json.load(open(sys.argv[1]))['models']; assert [(x['name'], len(x['rows'])) for x in m] == [('embedded', 1), ('second', 1)], m" "$OUT/accuracy.json"
}
check "results of several models" other

# Where no figures are given the machine is measured beside the runs: before the first and after each.
beside()
{
    HARDWARE= NAME=beside MEMORY=16MiB RUNS=2 OUT="$tmp/beside" accuracy 2> "$tmp/err" || { cat "$tmp/err"; return 1; }
    for i in 0 1 2; do
        for r in 0 1; do
            sed -n "$((r + 1))p" "$WORK/runs.jsonl" > "$tmp/run" && "$BIN/thermo-plan" calibrate --reprice --plan "$WORK/plan.json" --traces "$TRACES" \
                --hardware "$WORK/hardware-$i.sqlite" --telemetry "$tmp/run" --json > "$tmp/price-$r-$i" || return 1
        done
    done
    python3 - "$tmp" "$WORK/runs.jsonl" << 'END'
import json, statistics, sys
tmp, runs = sys.argv[1:]
row, = json.load(open(tmp + "/beside/accuracy.json"))["models"][0]["rows"]
def step(r, i):
    return next(t for t in json.load(open(f"{tmp}/price-{r}-{i}"))["limits"][0]["terms"] if t["term"] == "step")["predicted"]
prices = [step(0, 0), step(0, 1), step(1, 1), step(1, 2)]
assert len(set(prices)) > 1, prices # no two measurements are alike
for a, b in zip(row["prices_tokens_per_s"], (1e9 / max(prices), 1e9 / min(prices))):
    assert abs(a / b - 1) < 1e-6, (row, prices)
means = [(prices[0] + prices[1]) / 2, (prices[2] + prices[3]) / 2]
ns = [1e9 / json.loads(x)["tests"][0]["tokens_per_s"] for x in open(runs)]
assert abs(row["step_ms"]["predicted"] * 1e6 / statistics.mean(means) - 1) < 1e-6 # of two the median is the mean
assert abs(row["deviation"] - statistics.mean(n / m - 1 for n, m in zip(ns, means))) < 1e-4
END
}
check "figures measured beside the runs" beside
done_testing
