#!/bin/bash
# Servers beside each other, and passes with and without masks: what the scripts print is what servers and passes do.
. tests/tap.sh
scratch
. tests/chain.sh
export BIN B GGUF=$model TRACES=$traces HARDWARE=$hardware WORK=$tmp/work LLAMA_SERVER=
serve() { scripts/bench_serve.sh "$@"; }

check "without a mode" says 2 "^bench_serve.sh turns|clients" serve
check "without a model" says 3 "GGUF='no.gguf': no such file" env GGUF=no.gguf scripts/bench_serve.sh turns
check "a server without a command" says 2 "NAME=COMMAND is needed" python3 -B scripts/bench_serve.py turns --server one
check "a size that is none" says 2 "a size is needed" python3 -B scripts/bench_serve.py clients --server one=http://localhost:1 --memory lots
check "a server that ends at once" says 1 "one does not answer" python3 -B scripts/bench_serve.py turns --server one=false
check "masks: a setting that is none" says 2 "^bench_masks.sh" scripts/bench_masks.sh --help
# The second server is the first one under another name: both read the same, and of the third turn what the first two did not have.
two() { serve turns --turns 3 --tokens 24 --words 20 --last 1 --json "$tmp/turns" --server "other=$BIN/thermo-serve -q --port {port} \
    --model $tmp/work/model.thermo --plan $tmp/work/turns.json -- --chat-template $tmp/work/template" 2>&1; }
export CONTEXT=512
check "three turns on two servers" says 0 "^The last 1, median: thermo-serve reads [0-9]* tokens, .*; other reads [0-9]* tokens" two
check "both read what is new, and the same" python3 - "$tmp/turns" << 'END'
import json, sys
r = json.load(open(sys.argv[1]))["results"]
a, b = ([(t["turn"], t["prompt"], t["read"], t["made"]) for t in r[n]] for n in ("thermo-serve", "other"))
assert a == b and a[0][1] == a[0][2] and a[2][2] < a[2][1] and a[2][1] > a[1][1] > a[0][1], (a, b)
assert all(t["ttft_ms"] > 0 and t["tokens_per_s"] > 0 for n in r for t in r[n]), r
END
export MEMORY=40MB CONTEXT=128 SEQUENCES=2 WORK=$tmp/clients
group() { [ -w /sys/fs/cgroup/memory ] || [ -w /sys/fs/cgroup/cgroup.procs ]; }
clients() { serve clients --seconds 20 --rounds 2 --tokens 12 --json "$tmp/answers"; }
if [ -z "${SANITIZE:-}" ] && group; then
    check "two clients in a memory cgroup" says 0 "^| thermo-serve | [0-9.]* | [0-9.]* | [0-9.]* | 4 | 0 | [0-9.]* |" clients
    check "tokens and times are those of answers" python3 - "$tmp/answers" << 'END'
import json, sys
r, = json.load(open(sys.argv[1]))["results"]["thermo-serve"]
assert r["n_errors"] == 0 and 24 < r["pieces"] <= 48 and 0 < r["peak_bytes"] <= 40e6, r
assert 0 < r["ttft_s"] <= r["ttft_worst_s"] < r["seconds"] < 20, r
assert abs(r["tokens_per_s"] - r["pieces"] / r["seconds"]) < 1e-6, r
END
else
    skip "two clients in a memory cgroup" "no memory cgroup, or a sanitizer"
    skip "tokens and times are those of answers" "no memory cgroup, or a sanitizer"
fi
masks() { "$B/tests/bench/bench_masks" "$tmp/clients/model.thermo" "$tmp/clients/clients.json" tests/golden/schemas.jsonl 20 1 30; }
if [ -e "$tmp/clients/model.thermo" ] && [ -x "$B/tests/bench/bench_masks" ]; then
    check "passes with masks and without" says 0 "^| 30 | 2 | 20 | [0-9.]* | [0-9.]* | .* %" masks
else
    skip "passes with masks and without" "no pack, or make bench-masks has not built it"
fi
done_testing
