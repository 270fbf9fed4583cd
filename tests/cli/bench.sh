#!/bin/sh
# The benchmark: what it would run, its table and its file of results on the embedded model, peers (a program that answers as
# llama-bench does), what is skipped, going on after an interruption, and the disk's read-ahead put back.
. tests/tap.sh
. tests/chain.sh
scratch
export MODEL="$packed" PLAN="$plan" OUT="$tmp/out" STATE="$tmp/state" NAME=embedded TOKENS=8 PROMPT=8 RUNS=2 PEER_TOKENS=8 FIO_SECONDS=1
export BENCH_KERNELS="$tmp/kernels" READ_AHEAD_FILE="$tmp/read-ahead"
bench() { sh scripts/bench.sh "$@"; }

# Stand-ins: a peer at 20 tokens/s that notes the read-ahead that it ran with, and one that never ends; a bandwidth.
mkdir "$tmp/peer" "$tmp/slow"
cat > "$tmp/peer/llama-bench" << END
#!/bin/sh
cat "$tmp/read-ahead" >> "$tmp/seen"
echo '[{"build_commit": "abc", "avg_ts": 20.0}]'
END
printf '#!/bin/sh\necho $$ > %s/slow.pid\nexec sleep 60\n' "$tmp" > "$tmp/slow/llama-bench"
cat > "$tmp/kernels" << END
#!/bin/sh
echo >> "$tmp/measured" # faster from one to the next
n=\$(wc -l < "$tmp/measured")
echo "{\"kernel\": \"rows\", \"row_bytes\": 512, \"gb_per_s\": 9, \"bound_gb_per_s\": \$((9 + n))}"
echo "{\"kernel\": \"rows_at\", \"row_bytes\": 512, \"gb_per_s\": 4, \"bound_gb_per_s\": \$((4 + n))}"
END
chmod +x "$tmp/peer/llama-bench" "$tmp/slow/llama-bench" "$tmp/kernels"
echo 8192 > "$tmp/read-ahead"

check "--help" says 0 "^usage: bench.sh" bench --help
check "an unknown option" says 2 "unknown option --frob" bench --frob
check "a limit that is none" says 2 "MEMORY: 'lots' is neither" env MEMORY="resident lots" sh scripts/bench.sh
check "a number that is none" says 2 "RUNS='many'" env RUNS=many sh scripts/bench.sh
check "a pack without a plan" says 2 "needs a plan, or TRACES and HARDWARE" env PLAN= sh scripts/bench.sh
check "a model that is not there" says 3 "MODEL: cannot read" env MODEL=/none.thermo sh scripts/bench.sh
cat > "$tmp/peer/llama-cli" << END
#!/bin/sh
echo "\$MAX_N_CACHED \$EXPERT_BUNDLE_PATH \$*" >> "$tmp/thinker"
echo "llama_perf_context_print: prompt eval time =    9.00 ms /     2 tokens (    4.50 ms per token,   222.22 tokens per second)" >&2
echo "llama_perf_context_print:        eval time =   250.00 ms /     8 runs   (   31.25 ms per token,    32.00 tokens per second)" >&2
END
chmod +x "$tmp/peer/llama-cli"
check "a folder without llama-cli" says 3 "llama-cli' is not a program" env SMALLTHINKER="$tmp" SMALLTHINKER_GGUF=$model sh scripts/bench.sh
check "SmallThinker's engine needs files of its own" sh -c 'SMALLTHINKER=$1 MEMORY="resident 16MiB" sh scripts/bench.sh --dry-run | grep -q "SmallThinker is left out under limits: SMALLTHINKER_SLIM, SMALLTHINKER_BUNDLE, SMALLTHINKER_CACHED not set"' - "$tmp/peer"
check "a folder without llama-bench" says 3 "llama-bench' is not a program" env LLAMA_CPP="$tmp" GGUF=$model sh scripts/bench.sh

dry() { MEMORY="resident 16MiB floor" bench --dry-run > "$tmp/dry" 2> "$tmp/err" && [ ! -e "$OUT" ] && [ ! -e "$STATE/results.json" ]; }
check "a dry run runs nothing" dry
check "it lists each run: 2 of 3 limits, prompts, and the ladder" test "$(grep -c 'thermo-run bench' "$tmp/dry")" -eq 17
flat() { ln -s "$(readlink -f "$packed")" "$tmp/flat.thermo"; FLAT_MODEL=$tmp/flat.thermo FLAT_PLAN=$plan MEMORY=16MiB bench --dry-run > "$tmp/dry2" 2> "$tmp/err" && grep -q 'ladder: packed as [a-z-]* .*--model .FLAT_MODEL .*--no-cache' "$tmp/dry2"; }
check "a pack in another form is the ladder's last rung" flat
modes() # each mode runs with a plan of its own, made where there is none; flags, names and the page tell them apart
{
    PLAN='' TRACES="$traces" HARDWARE="$hardware" NAME=test-modes-$$ PLAN_FLAGS='--context 256' MEMORY=16MiB MODES='exact dense' \
        LADDER=none bench --dry-run > "$tmp/dry4" 2> "$tmp/err" &&
        grep -q 'thermo-run, exact .*PLAN_EXACT .*--mode exact' "$tmp/dry4" &&
        grep -q 'thermo-run, dense .*PLAN_DENSE .*--mode dense' "$tmp/dry4" &&
        grep -q '"mode": "dense"' build/bench/test-modes-$$/plan-dense.json
    r=$?
    rm -rf build/bench/test-modes-$$
    return $r
}
check "modes with plans of their own" modes
made() { PLAN='' TRACES="$traces" HARDWARE="$hardware" NAME=test-bench-$$ PLAN_FLAGS='--context 256' MEMORY=16MiB bench --dry-run > "$tmp/dry3" 2> "$tmp/err" && grep -q '"memory_bytes": 16777216' build/bench/test-bench-$$/plan.json; r=$?; rm -rf build/bench/test-bench-$$; return $r; }
check "a plan is made from traces and hardware" made
check "it says what is left out" grep -q "llama.cpp is left out: LLAMA_CPP names no folder" "$tmp/dry"

if [ -n "${SANITIZE:-}" ]; then
    skip "the benchmark itself" "a sanitizer takes memory of its own"
    done_testing
    exit
fi
export MEMORY="resident 16MiB" LADDER=none LLAMA_CPP="$tmp/peer" GGUF=$model
run() { bench > "$tmp/table" 2> "$tmp/err" || { cat "$tmp/err"; return 1; }; }
check "a benchmark" run
thinker() # resident with one file, under a limit with the others; its own words are its speed
{
    echo x > "$tmp/slim" && echo y > "$tmp/bundle" || return 1
    SMALLTHINKER=$tmp/peer SMALLTHINKER_GGUF=$model SMALLTHINKER_SLIM=$tmp/slim SMALLTHINKER_BUNDLE=$tmp/bundle SMALLTHINKER_CACHED=768 \
        LLAMA_CPP='' GGUF='' OUT=$tmp/out-st STATE=$tmp/state-st RUNS=1 PROMPT=0 bench > "$tmp/table" 2> "$tmp/err" || { cat "$tmp/err"; return 1; }
    grep -q "^  *-m $model -no-cnv" "$tmp/thinker" && grep -q "^768 $tmp/bundle -m $tmp/slim " "$tmp/thinker" &&
        ! grep -q "$tmp" "$tmp/out-st/benchmarks.json" &&
        grep -q '^| 16MiB | SmallThinker | 32.0 (32.0–32.0) | – | – ' "$tmp/out-st/BENCHMARKS.md" &&
        grep -q '"command": "env MAX_N_CACHED=768 EXPERT_BUNDLE_PATH=.SMALLTHINKER_BUNDLE .SMALLTHINKER/llama-cli -m .SMALLTHINKER_SLIM' "$tmp/out-st/benchmarks.json"
}
check "SmallThinker's engine" thinker
export PEERS='' TIERS=''
check "a peer without a folder" says 2 "PEERS: 'ik' is not NAME=DIR" env PEERS=ik sh scripts/bench.sh --dry-run
check "a peer twice" says 2 "PEERS: a name stands twice" env PEERS="a=$tmp/peer a=$tmp/peer" sh scripts/bench.sh --dry-run
check "a peer without llama-bench" says 3 "PEERS: '$tmp/llama-bench' is not a program" env PEERS="a=$tmp" sh scripts/bench.sh --dry-run
check "a tier that is none" says 2 "TIERS: 'mmx' is none of native, scalar, avx2" env TIERS=mmx sh scripts/bench.sh --dry-run
tiered() # builds by tier beside ours of the same tiers; the peer makes 20 tokens/s, also of a prompt
{
    mkdir "$tmp/built" "$tmp/newer" && sed '/seen/d' "$tmp/peer/llama-bench" > "$tmp/built/llama-bench" || return 1
    chmod +x "$tmp/built/llama-bench" && cp "$tmp/built/llama-bench" "$tmp/newer" || return 1
    LLAMA_CPP='' PEERS="ik-scalar=$tmp/built new=$tmp/newer" OUT=$tmp/out-t STATE=$tmp/state-t RUNS=1 bench > "$tmp/table" 2> "$tmp/err" || { cat "$tmp/err"; return 1; }
    python3 - "$tmp/out-t" "$tmp" << 'END'
import json, sys
text, page = open(sys.argv[1] + "/benchmarks.json").read(), open(sys.argv[1] + "/BENCHMARKS.md").read()
assert sys.argv[2] not in text + page
records = json.loads(text)["sets"][0]["records"]
ours = {r["tier"]: r for r in records if r["engine"].startswith("thermo-run") and r["kind"] == "decode" and r["memory"] == "resident"}
assert set(ours) == {"scalar", "native"} and ours["scalar"]["engine"] == "thermo-run, scalar", ours
assert " --cpu scalar" in ours["scalar"]["command"] and "--cpu" not in ours["native"]["command"]
theirs = {(r["memory"], r["engine"]): r for r in records if r["engine"] in ("ik-scalar", "new") and r["kind"] == "decode"}
assert theirs["resident", "ik-scalar"]["command"].startswith("$ik-scalar/llama-bench ") and theirs["resident", "ik-scalar"]["command"].endswith(" -rtr 1")
assert "-rtr" not in theirs["resident", "new"]["command"] and theirs["resident", "new"]["tier"] == "native"
assert all("-rtr" not in r["command"] for (limit, _), r in theirs.items() if limit != "resident")
lines = [x.split(" | ") for x in page.split("### By tier")[1].split("###")[0].splitlines() if x.startswith("| resident | ")]
assert [x[1:3] for x in lines] == [["scalar", "thermo-run, scalar"], ["scalar", "ik-scalar"], ["native", "thermo-run"], ["native", "new"]], lines
for mine, its in (lines[:2], lines[2:]):
    assert its[3] == "20.0" and its[5] == "20.0" and mine[4] == "–", its
    for own, ratio in ((3, 4), (5, 6)):
        assert abs(float(its[ratio].split()[0]) / (float(mine[own]) / 20) - 1) < 0.02, (mine, its)
above = next(x for x in page.splitlines() if x.startswith("| resident | thermo-run, scalar |"))
assert "× ik-scalar" in above and "× new" not in above, above
END
}
check "peers by tier, beside ours of that tier" tiered
check "results: every run, speeds, bounds, and no path of this machine" python3 - "$OUT" "$tmp" "$plan" << 'END'
import json, re, sys
out, tmp, plan = sys.argv[1:]
text = open(out + "/benchmarks.json").read()
j = json.loads(text)
s = j["sets"][0]
assert j["format"] == "thermo-bench" and len(j["sets"]) == 1 and s["name"] == "embedded"
assert tmp not in text, re.search(".{60}" + tmp, text)
ours = [r for r in s["records"] if r["engine"] == "thermo-run" and r["kind"] == "decode"]
assert [(r["memory"], r["round"]) for r in ours] == [("resident", 0), ("resident", 1), ("16MiB", 0), ("16MiB", 1)]
assert all(r["tokens_per_s"] > 0 and r["ms_per_token"]["ffn"] > 0 for r in ours)
assert ours[0]["read_bytes_per_token"] == 0 < ours[2]["read_bytes_per_token"]
assert ours[2]["peak_bytes"] <= ours[2]["limit_bytes"] == 16 << 20
peers = [r for r in s["records"] if r["engine"] == "llama.cpp" and r["kind"] == "decode"]
assert all(r["tokens_per_s"] == 20 for r in peers)
# There and back: ours first in even rounds, last in odd ones.
order = [r["engine"] for r in s["records"] if r["memory"] == "resident" and r["kind"] == "decode"]
assert order == ["thermo-run", "llama.cpp", "llama.cpp", "thermo-run"], order
END
between() # the machine before, between and after the rounds of each limit; the disk once the size of reads is known
{
    python3 - "$OUT" << 'END'
import json, statistics, sys
s = json.load(open(sys.argv[1] + "/benchmarks.json"))["sets"][0]
want = []
for limit in ("resident", "16MiB"):
    rounds = [(r["kind"], r["round"]) for r in s["records"] if r["memory"] == limit]
    want += [(limit, n) for n in range(len(rounds) + 1) if n in (0, len(rounds)) or rounds[n] != rounds[n - 1]]
memory = s["bounds"]["memory"]
assert [(b["memory"], b["after_runs"]) for b in memory] == want and len(want) == 8, (memory, want)
assert [(b["sequential"], b["scattered"]) for b in memory] == [(n + 10, n + 5) for n in range(8)]
page = open(sys.argv[1] + "/BENCHMARKS.md").read()
assert "| resident | 4 | %d | 512 | %.1f | 11.5 (10.0–13.0) | 6.50 (5.00–8.00) |" % (memory[0]["threads"], memory[0]["read_bytes"] / 1e9) in page
assert "| 16MiB | 4 | %d | 512 | %.1f | 15.5 (14.0–17.0) | 10.5 (9.00–12.0) |" % (memory[0]["threads"], memory[0]["read_bytes"] / 1e9) in page
fio = s["bounds"]["fio"]["16MiB"].get("thermo-run")
if fio:
    assert [("16MiB", x["after_runs"]) for x in fio["seen"]] == want[5:], fio
    assert fio["bytes_per_s"] == statistics.median(x["bytes_per_s"] for x in fio["seen"])
    assert "| 16MiB | thermo-run | %d KiB | %d | 3 | " % (fio["sizes"][0][0] // 1024, fio["queue_depth"]) in page
END
}
check "bounds are measured between rounds" between
older() # results of before: bounds once for each limit, fio once; what was measured for any limit bounds all
{
    mkdir -p "$tmp/older" && python3 - "$OUT" "$tmp/older" << 'END' && python3 -B scripts/bench_report.py "$tmp/older" &&
import json, sys
j = json.load(open(sys.argv[1] + "/benchmarks.json"))
b = j["sets"][0]["bounds"]
b["memory"] = [{k: v for k, v in x.items() if k not in ("memory", "after_runs", "read_bytes")} for x in b["memory"] if not x["after_runs"]]
for x in b["fio"]["16MiB"].values():
    del x["seen"]
json.dump(j, open(sys.argv[2] + "/benchmarks.json", "w"))
END
        grep -q '^| each, before it | 2 | [0-9]* | 512 | – | 12.0 (10.0–14.0) | 7.00 (5.00–9.00) |$' "$tmp/older/BENCHMARKS.md"
}
check "results of when bounds were measured less often" older
table() # what the page says, recomputed: medians, ratio to the peer, the memory's bound of a resident token
{
    "$BIN/thermo-pack" inspect --json --tensors "$packed" > "$tmp/inspect" && python3 - "$OUT" "$tmp/inspect" << 'END'
import json, statistics, sys
s = json.load(open(sys.argv[1] + "/benchmarks.json"))["sets"][0]
m = json.load(open(sys.argv[2]))
page = open(sys.argv[1] + "/BENCHMARKS.md").read().splitlines()
line = next(x for x in page if x.startswith("| resident | thermo-run |")).split(" | ")
runs = [r for r in s["records"] if r["engine"] == "thermo-run" and r["memory"] == "resident" and r["kind"] == "decode"]
speed = statistics.median(r["tokens_per_s"] for r in runs)
assert abs(float(line[2].split()[0]) / speed - 1) < 0.005, (line[2], speed) # three digits or more
assert abs(float(line[5].split()[0]) / (speed / 20) - 1) < 0.01, line[5]
d, layers, ff = (m["model"][k] for k in ("d_model", "n_layers", "n_ff"))
active = statistics.median(sum(r["neurons_per_token"][k] for k in ("hot", "cold", "read")) for r in runs)
seconds = (m["dense_bytes"] + layers * ff * 2 * d) / 11.5e9 + active * 2 * 2 * d / 6.5e9 # F16: 2 bytes; tied head
assert abs(float(line[3]) * seconds - 1) < 0.01, (line[3], 1 / seconds)
assert "### Ablation" not in page
END
}
check "the page's figures" table
disk() # under a limit: the bytes that were read at the disk's rate, interpolated here once more
{
    python3 - "$OUT" << 'END'
import bisect, json, statistics, sys
s = json.load(open(sys.argv[1] + "/benchmarks.json"))["sets"][0]
runs = [r for r in s["records"] if r["engine"] == "thermo-run" and r["memory"] == "16MiB" and r["kind"] == "decode"]
read, reads = (statistics.median(r[k] for r in runs) for k in ("read_bytes_per_token", "reads_per_token"))
points = [(p["block_bytes"], p["bytes_per_s_p50"]) for p in s["bounds"]["disk"].get("points", []) if p["pattern"] == "random"]
assert points, s["bounds"]["disk"]
sizes = sorted({b for b, _ in points})
seconds = [min(b / rate for b, rate in points if b == size) for size in sizes]
size = read / reads
assert sizes[0] <= size < sizes[-1], (size, sizes)
i = bisect.bisect(sizes, size)
least = reads * (seconds[i - 1] + (size - sizes[i - 1]) / (sizes[i] - sizes[i - 1]) * (seconds[i] - seconds[i - 1]))
fio = s["bounds"]["fio"]["16MiB"].get("thermo-run")
if fio:
    first = runs[0]["read_bytes_per_token"] / runs[0]["reads_per_token"]
    assert fio["sizes"] == [[max(4096, int(first + 2048) // 4096 * 4096), 100]], (fio, first)
    least = min(least, read / fio["bytes_per_s"])
page = open(sys.argv[1] + "/BENCHMARKS.md").read()
line = [x for x in page.split("### Where")[1].splitlines() if x.startswith("| 16MiB | thermo-run |")][0].split(" | ")
assert abs(float(line[10]) / (1e3 * least) - 1) < 0.006, (line[10], 1e3 * least) # three digits
assert abs(float(line[12]) / (size / 1024) - 1) < 0.006, (line[12], size)
assert float(line[9]) > 0, line[9]
END
}
check "the disk's bound" disk
rate() # by hand: a read takes 40 us at 4 KiB, 80 us at 12 KiB (at the better depth) and 1 s / 1024 at 1 MiB
{
    python3 -B -c 'import sys
sys.path.insert(0, "scripts")
from bench import read_sizes
from bench_report import Row
point = lambda size, ns, pattern="random": {"pattern": pattern, "block_bytes": size, "bytes_per_s_p50": 1e9 * size / ns}
bounds = {"memory": [], "fio": {}, "disk": {"points": [point(4096, 40e3), point(12288, 80e3), point(12288, 95e3), point(1 << 20, 1e9 / 1024),
          point(8192, 1e3, "seq")]}}
run = {"kind": "decode", "limit_bytes": 1, "tokens_per_s": 1, "reads_per_token": 100, "read_bytes_per_token": 100 * 10000}
row = Row({"model": {}, "models": {}, "bounds": bounds}, "1", "thermo-run", None, [run])
near = lambda a, b: abs(a / b - 1) < 1e-9
assert row.read_size() == 10000 and read_sizes([run]) == [(8192, 100)], 1
assert near(row.disk(8192), 8192 / 60e-6) and near(row.disk(4096), 4096 / 40e-6) and near(row.disk(12288), 12288 / 80e-6), 2
assert near(row.disk(2048), 2048 / 40e-6) and near(row.disk(1 << 20), 1 << 30) and near(row.disk(1 << 21), 1 << 30), 3
bounds["fio"] = {"1": {"thermo-run": {"bytes_per_s": 1e8}}}
assert near(row.disk(8192), 8192 / 60e-6), 4
bounds["fio"]["1"]["thermo-run"]["bytes_per_s"] = 1e9
assert near(row.disk(8192), 1e9), 5
assert row.reads_ms() == 0, 6
for p, ns in zip(bounds["disk"]["points"], (2000, 9000, 4000, 7000, 1)):
    p["cpu_ns_per_read"] = ns
bounds["memory"].append({"threads": 2})
assert near(row.reads_ms(), 100 * (2000 + 2000 * (10000 - 4096) / 8192) / 1e6 / 2), 7'
}
check "the rate of a disk between and beyond the sizes that were measured" rate
experts() # 2 of 8 are used: of the GGUF's 900 bytes 100 are dense and 0 the embedding's; of our predictors' 80 a token needs 20
{
    python3 -B -c 'import sys
sys.path.insert(0, "scripts")
from bench_report import Row
shape = {"d_model": 32, "n_experts": 8, "n_experts_used": 2}
layout = {"gate_type": "Q4_0", "up_type": "Q4_0", "down_type": "Q4_0"}
model = {"shape": shape, "layout": layout, "dense_bytes": 100, "embedding_bytes": 0, "predictor_bytes": {"ffn": 80}}
run = {"kind": "decode", "limit_bytes": None, "tokens_per_s": 1, "mode": "predicted",
       "neurons_per_token": {"hot": 1, "cold": 2, "read": 3, "possible": 99, "computed": 10}}
result = {"model": model, "models": {}, "gguf_bytes": 900}
assert Row(result, "resident", "llama.cpp", None, [run]).touched() == (300, 0, 0), 1
assert Row(result, "resident", "thermo-run", None, [run]).touched() == (120, 0, 10 * 18 + 6 * 36), 2
shape["n_experts"] = 0
assert Row(result, "resident", "llama.cpp", None, [run]).touched() == (900, 0, 0), 3'
}
check "of experts, a token touches those that it is routed to" experts
drawn() { for k in speed time; do python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' "$OUT/bench-embedded-$k.svg" || return 1; done; }
check "plots that are XML" drawn
check "the page can be drawn again from the results" sh -c 'cp "$1/BENCHMARKS.md" "$2/page" && python3 -B scripts/bench_report.py "$1" && cmp "$1/BENCHMARKS.md" "$2/page"' - "$OUT" "$tmp"

# The disk has been measured once; from here on it is as it was then.
mkdir "$tmp/bin"
ln -s "$(readlink -f "$BIN")"/thermo-run "$(readlink -f "$BIN")"/thermo-pack "$tmp/bin"
printf '#!/bin/sh\necho \047{"devices": [{"storage_points": []}]}\047\n' > "$tmp/bin/thermo-profile"
printf '#!/bin/sh\necho \047{"jobs": [{"read": {"bw_bytes": 500000000}}]}\047\n' > "$tmp/bin/fio"
chmod +x "$tmp/bin/thermo-profile" "$tmp/bin/fio"
BIN=$tmp/bin PATH=$tmp/bin:$PATH
export BIN PATH
second() { NAME=again RUNS=1 PROMPT=0 LLAMA_CPP='' run && python3 -c '
import json, sys
assert [s["name"] for s in json.load(open(sys.argv[1]))["sets"]] == ["embedded", "again"]' "$OUT/benchmarks.json"; }
check "another model's results stand beside" second

if grep -q 'no limit is enforced' "$tmp/out/BENCHMARKS.md"; then
    skip "peers run with both read-aheads" "no memory cgroup can be made here"
    skip "interrupted under a limit: the read-ahead is put back" "no memory cgroup can be made here"
else
    check "peers run with both read-aheads, then with the better" test "$(sort "$tmp/seen" | uniq -c | tr -s ' \n' ' ')" = " 2 512 6 8192 "
    interrupted()
    {
        rm -f "$tmp/slow.pid"
        MEMORY=16MiB LLAMA_CPP="$tmp/slow" PROMPT=0 STATE="$tmp/state2" python3 - << 'END'
import os, signal, subprocess, sys, time
tmp = os.path.dirname(os.environ["STATE"])
p = subprocess.Popen(["sh", "scripts/bench.sh"], stdout=subprocess.DEVNULL, stderr=open(tmp + "/err2", "w"))
def ahead():
    return open(tmp + "/read-ahead").read().strip()
slow = tmp + "/slow.pid"
while p.poll() is None:
    if os.path.exists(slow) and os.path.exists(tmp + "/state2/read-ahead.saved"):
        break
    time.sleep(0.1)
time.sleep(0.3)
p.send_signal(signal.SIGINT)
assert p.wait() == 130, p.returncode
assert ahead() == "8192", ahead()
try:
    os.kill(int(open(slow).read()), 0)
    sys.exit("the measured program is still there")
except ProcessLookupError:
    pass
END
    }
    check "interrupted under a limit: exit 130, nothing left running, the read-ahead put back" interrupted
fi
on() { MEMORY=16MiB LLAMA_CPP="$tmp/peer" PROMPT=0 STATE="$tmp/state2" bench 2>&1 | cat > "$tmp/said"; grep -q 'settings, files or revision differ' "$tmp/said"; }
check "other settings do not go on with what is there" on
left()
{
    cut() { python3 - "$tmp/state3/results.json" << 'END'
import json, sys
j = json.load(open(sys.argv[1]))
j["records"] = j["records"][:3] # in the second round under the first limit
seen = j["bounds"]["memory"]
want = [(b["memory"], b["after_runs"]) for b in seen]
print(want[:2] + [("resident", 3)] + want[2:]) # what goes on looks at the machine first
j["bounds"]["memory"] = seen[:2]
del j["done"]
json.dump(j, open(sys.argv[1], "w"))
END
    }
    export STATE="$tmp/state3" PROMPT=0
    bounds() { python3 -c 'import json, sys; print([(b["memory"], b["after_runs"]) for b in json.load(open(sys.argv[1]))["bounds"]["memory"]])' "$tmp/state3/results.json"; }
    run && cut > "$tmp/whole" && run && bounds > "$tmp/again" && diff "$tmp/whole" "$tmp/again" && grep -q 'going on after 3 runs' "$tmp/err" && [ "$(grep -c 'tokens/s; ' "$tmp/err")" -eq "$1" ]
}
check "an interrupted benchmark goes on where it was" left "$(grep -q 'no limit is' "$OUT/BENCHMARKS.md" && echo 3 || echo 6)"
check "the read-ahead is as it was" grep -qx 8192 "$tmp/read-ahead"
# Its name ends in the process that made it: one of a benchmark that still runs beside this test is not left.
no_cgroup_left()
{
    left=
    for group in /sys/fs/cgroup/thermo-bench-* /sys/fs/cgroup/memory/thermo-bench-*; do
        [ ! -d "$group" ] || kill -0 "${group##*-}" 2> /dev/null || [ ! -d "$group" ] || left="$left $group"
    done
    [ -z "$left" ] || { echo "left:$left"; return 1; }
}
check "no cgroup is left" no_cgroup_left
done_testing
