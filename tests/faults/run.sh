#!/bin/bash
# run.sh OUT MOST [ARGS...]: every fault, in as many processes as there are processors (FAULTS_JOBS). OUT.json has one object a line:
# program, case, kind, calls, faults, held, failed. Prints what did not hold, then sums per program and kind.
out=$1 most=$2
shift 2
jobs=${FAULTS_JOBS:-$(nproc)}
b=${B:-build/$(uname -m)}/tests/faults
[ -z "$SANITIZE" ] || set -- -S "$@"
for ((k = 0; k < jobs; k++)); do
    "$b/faults" -p "$k/$jobs" -m "$most" -j "$out-$k.json" "$@" "${BIN:-build/bin}" "$b/shim.so" > "$out-$k.log" 2>&1 &
    all+=($!)
done
bad=0
for p in "${all[@]}"; do wait "$p" || bad=1; done
cat "$out"-[0-9]*.json > "$out.json"
grep -hv -e '^ok' -e '^1\.\.' "$out"-[0-9]*.log
python3 - "$out.json" <<'SUMS'
import collections, json, sys
sums = collections.defaultdict(lambda: collections.Counter())
for line in open(sys.argv[1]):
    j = json.loads(line)
    for key in (j["program"], j["kind"]), (j["program"], "all"), ("all", "all"):
        sums[key].update({k: j[k] for k in ("faults", "held", "failed", "not_reached", "known")})
print(f"{'program':16}{'kind':10}{'faults':>9}{'held':>9}{'failed':>8}{'known':>7}{'not reached':>13}")
for (program, kind), c in sorted(sums.items()):
    print(f"{program:16}{kind:10}{c['faults']:9}{c['held']:9}{c['failed']:8}{c['known']:7}{c['not_reached']:13}")
SUMS
exit $bad
