#!/bin/sh
# How true plans are: figures follow from plan and runs, each choice is one that the runtime takes, and what cannot be is said.
. tests/tap.sh
. tests/chain.sh
scratch
regret() { python3 -B scripts/regret.py --work "$tmp/work" "$@"; }

check "--help" says 0 "^usage: regret.py" regret --help
check "an unknown option" says 2 "unrecognized arguments: --frob" regret --frob
check "a case that is none" says 2 "--cases 'lots': known are embedded" regret --cases lots
check "a limit that is none" says 2 "'lots' is no size" regret --cases embedded --memory lots
check "a model without limits" says 2 "--memory is needed" regret --model "$model"
check "a trace without its model" says 2 "--traces goes with --model" regret --traces "$traces"
check "no run" says 2 "greater than 0" regret --runs -1
check "a model that is not there" says 3 "cannot read '/none.gguf'" regret --model /none.gguf --memory 16MiB
check "a flag that the planner does not know" says 2 "unknown option --frob" regret --model "$model" --traces "$traces" --hardware "$hardware" --memory 16MiB --plan-flags=--frob
if [ -n "${SANITIZE:-}" ]; then
    skip "runs" "a sanitizer takes memory of its own"
    done_testing
    exit
fi
whole()
{
    regret --model "$model" --traces "$traces" --hardware "$hardware" --memory '14MiB 64MiB' --plan-flags '--mode exact --rlimit 1' --seconds 0.2 --runs 2 \
        > "$tmp/page" 2> "$tmp/err" || { cat "$tmp/err"; return 1; }
    cmp "$tmp/page" "$tmp/work/regret.md"
}
check "two limits, one of which reads nothing" whole
check "figures are those of plan and runs" python3 - "$tmp" << 'END'
import json, statistics, sys
r = json.load(open(sys.argv[1] + "/work/regret.json"))
assert r["format"] == "thermo-regret" and [x["limit"] for x in r["rows"]] == ["14MiB", "64MiB"]
for x in r["rows"]:
    runs = {n: statistics.median(s) for n, s in x["runs"].items()}
    assert all(len(s) == 2 for s in x["runs"].values()) and len(runs) <= 4 and "plan" in runs, x
    assert x["measured"] == runs["plan"] and x["best"] == max(runs.values()) == runs[x["best_choice"]], x
    assert abs(x["error"] - x["promised"] / x["measured"]) < 1e-9 and x["regret"] >= 1 and x["spread"] >= 1, x
    assert x["terms"]["ffn"]["measured_ms"] > 0 and x["terms"]["ffn"]["predicted_ms"] > 0
    tried = {n.split()[0] for n in x["grid"]}
    reads = x["limit"] == "14MiB"
    assert ("depth" in tried) == ("io" in tried) == reads == (x["terms"]["read_mib"]["measured"] > 0), x
    assert set(runs) - {"plan"} <= set(x["grid"]) and not x["failures"], x["failures"]
small = r["rows"][0]
assert small["plan"]["joins"] == 0 or "no coalescing" in small["grid"] # a plan without the rule is a plan
page = open(sys.argv[1] + "/page").read()
assert page.count("| own | 14MiB |") == 2 and f"{small['promised']:.4g}" in page and "Regret: median" in page
END
check "nothing large is left" test ! -e "$tmp/work/own/model.thermo"
done_testing
