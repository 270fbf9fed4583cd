#!/bin/bash
# What the packed model gives while it is loaded, and what a token takes, against what the plan counts on: thermo-run says so in one line where
# they are far apart.
. tests/run_chain.sh
scratch
chain_start
chain split || { echo "not ok 1 - chain"; echo "1..1"; exit 1; }
m=$tmp/split.thermo p=$tmp/split.json
check "the plan has the device's figure of large reads" grep -q '"load_bytes_per_s": [1-9]' "$p"
checked() { sed "s/\"load_bytes_per_s\": .*,/\"load_bytes_per_s\": 12345,/" "$p" > "$tmp/bad.json"
    "$BIN/thermo-plan" check "$tmp/bad.json" --traces "$tmp/t.h5" --hardware "$tmp/hw.sqlite"; }
check "check derives it" says 3 'load_bytes_per_s is 12345' checked
counts_on() { sed "s/\"load_bytes_per_s\": .*,/\"load_bytes_per_s\": $1,/" "$p" > "$tmp/other.json"; } # BYTES
run() { "$run" generate --model "$m" --plan "$tmp/other.json" --prompt Once -n 2 --temp 0 --json > "$tmp/out" 2> "$tmp/err" || { cat "$tmp/err"; return 1; }; }
loaded() { python3 - "$tmp/out" << 'END'
import json, sys
s = [json.loads(l) for l in open(sys.argv[1]) if '"summary"' in l][-1]
assert s["load_bytes"] > 4 << 20 and 0 < s["load_wait_ms"] <= s["load_ms"], s
print("%.6g" % (1e3 * s["load_bytes"] / (s["load_wait_ms"] * s["load_ms"]) ** 0.5)) # between what it is at least and at most
END
}
far() { counts_on "$1" && run && [ "$(grep -c "a second while it was loaded" "$tmp/err")" -eq 1 ] && grep -q "split.thermo' gave $2 .* the plan counts on $3" "$tmp/err"; }
check "a plan that counts on far more is named, with what to do" far 1e15 'at most' '909.5 TiB'
check "and one that counts on far less" far 1024 'more than' '1.0 KiB'
near() { for try in 1 2 3 4 5 6 7 8 9 10; do # beside other programs a drive gives twice as much from one moment to the next
     counts_on "$(loaded)" && run && ! grep -q 'while it was loaded' "$tmp/err" && return; done; cat "$tmp/err"; return 1; }
check "nothing is said of one that counts on what it gives" near
without() { sed '/load_bytes_per_s/d' "$p" > "$tmp/other.json" && run && ! grep -q 'while it was loaded' "$tmp/err"; }
check "nor by a plan that does not say" without
# TOKENS_PER_S TERM NS: the plan's speed and what every term but one takes; that one takes NS.
promises() { python3 - "$p" "$tmp/other.json" "$@" << 'END'
import json, sys
plan, out, rate, term, ns = json.load(open(sys.argv[1])), *sys.argv[2:]
for f in (b for l in plan["predictions"]["limits"] for b in l["batches"]):
    other = 1e12 - float(ns)
    f["tokens_per_s"] = float(rate)
    for name, v in f["layers"].items():
        if name.endswith("_ns"):
            v[:] = [other if name in ("attention_ns", "ffn_compute_ns") else 2 * other if name == "total_ns" else 0] * len(v)
    f["head_ns"] = float(ns)
json.dump(plan, open(out, "w"))
END
}
term() { promises "$@" && "$run" generate --model "$m" --plan "$tmp/other.json" --prompt Once -n 8 --temp 0 > "$tmp/out" 2> "$tmp/err" ||
    { cat "$tmp/err"; return 1; }; }
slower() { term 1e6 head 0 && [ "$(grep -c 'differs most' "$tmp/err")" -eq 1 ] && grep -q "output head differs most: [0-9.e-]* ms a token, 0 by the plan; 'thermo-profile hardware'" "$tmp/err"; }
check "a speed that is not reached: the term that takes more than planned is named, with what to do" slower
faster() { term 1e-3 head 1e12 && grep -q "output head differs most: [0-9.e-]* ms a token, 1000000 by the plan" "$tmp/err"; }
check "and one that is surpassed: the term that takes less" faster
json_terms() { "$run" generate --model "$m" --plan "$p" --prompt Once -n 8 --temp 0 --json 2> "$tmp/json.err" | python3 -c '
import json, sys
s = [json.loads(l) for l in sys.stdin if "summary" in l][-1]
for of in ("predicted", "measured"):
    t = s[of]["terms_ms"]
    assert list(t) == ["attention", "predict", "ffn", "io_wait", "head"] and all(v >= 0 for v in t.values()), t
    assert sum(t.values()) <= 1.01e3 / s[of]["tokens_per_s"], (of, t, s[of])
'; }
check "--json has both, term by term" json_terms
done_testing
