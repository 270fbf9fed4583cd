#!/bin/bash
# thermo-run bench as llama-bench's users know it: lists of tests, one behind the other, at depths; five forms with its columns.
. tests/run_chain.sh
scratch
chain_start
chain split || { echo "not ok 1 - chain"; echo "1..1"; exit 1; }
bench() { "$run" bench -q --model "$tmp/split.thermo" --plan "$tmp/split.json" "$@"; }
rows() { for f in md json jsonl csv sql; do
    bench -p 8,16 -n 4 -pg 8,4 -d 0,20 -r 2 --no-warmup -o $f > "$tmp/rows.$f" 2> "$tmp/err" || { cat "$tmp/err"; return 1; }; done; }
check "lists, pairs and depths, in five forms" rows
same() { python3 - "$tmp/rows" << 'END'
import csv, json, sqlite3, sys
base = sys.argv[1]
text = {f: open(f"{base}.{f}", encoding="utf-8").read() for f in ("md", "json", "jsonl", "csv", "sql")}
rows = json.loads(text["json"])
want = [f"{t}{d}" for d in ("", " @ d20") for t in ("pp8", "pp16", "tg4", "pp8+tg4")]
assert [r["test"] for r in rows] == want, rows
assert [(r["n_prompt"], r["n_gen"], r["n_depth"]) for r in rows] == [(p, n, d) for d in (0, 20) for p, n in ((8, 0), (16, 0), (0, 4), (8, 4))]
for r in rows: # what scripts for llama-bench read
    n = r["n_prompt"] + r["n_gen"]
    assert len(r["samples_ns"]) == len(r["samples_ts"]) == 2 and all(abs(1e9 * n / ns / ts - 1) < 1e-5 for ns, ts in zip(r["samples_ns"], r["samples_ts"])), r
    assert abs(sum(r["samples_ts"]) / 2 / r["avg_ts"] - 1) < 1e-5 and abs(sum(r["samples_ns"]) / 2 - r["avg_ns"]) <= 1 and r["stddev_ns"] >= 0
    assert r["model_n_params"] == 10490112 and r["model_type"] == "llama 10.49 M" and r["test_time"][10] == "T" and r["build_commit"] and r["cpu_info"], r
    assert (r["ttft_ms"] > 0) == (r["n_prompt"] > 0), r
names = list(rows[0])[:-2] # but for samples
lines = [json.loads(l) for l in text["jsonl"].splitlines()]
assert [list(l) for l in lines] == [list(rows[0])] * 8 and [l["test"] for l in lines] == want
table = list(csv.reader(text["csv"].splitlines()))
assert table[0] == names and [dict(zip(names, r))["test"] for r in table[1:]] == want and all(float(dict(zip(names, r))["avg_ts"]) > 0 for r in table[1:])
db = sqlite3.connect(":memory:")
db.executescript(text["sql"])
assert [r[0] for r in db.execute("select test from llama_bench")] == want and db.execute("select min(avg_ts) from llama_bench").fetchone()[0] > 0
assert [l.split("|")[7].strip() for l in text["md"].splitlines()[2:]] == want
END
}
check "all say the same" same
context() { [ "$(bench -d 240 -r 1 --no-warmup -o jsonl | python3 -c 'import json, sys
print([(r["n_prompt"], r["n_gen"]) for r in map(json.loads, sys.stdin)])')" = '[(16, 0), (0, 16)]' ]; }
check "without numbers, what the context has room for" context
check "a test that the context has no room for" says 2 'tg8 @ d250 needs a context of 258; it is 256' bench -p 0 -n 8 -d 250
wrong() { says 2 'error: --[a-z-]* .*\(numbers from\|limit of 16\)' bench "$@"; }
for given in '-p=8,' '-p=x' '-n=1;;2' '-pg=8' '-pg=8,0' '-pg=8,4,' '-d=-1' '-p=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17'; do
    check "bench ${given/=/ }" wrong "${given%%=*}" "${given#*=}"
done
done_testing
