#!/bin/bash
# What check believes: every field of a plan is refused once it is changed, or listed as unverified (tests/mutations.py). A limit that
# claims more memory than its plan makes use of; solving again.
. tests/tap.sh
scratch
. tests/chain.sh
P=$BIN/thermo-plan
phone "$tmp/phone.sqlite" > "$tmp/log" 2>&1

all_noticed() { BIN=$BIN TRACE=$traces SHARE=$(of 1 0.3) tests/mutations.py 1 "$1" > "$tmp/out" 2>&1 || { grep -A9 '^not ok' "$tmp/out" || cat "$tmp/out"; return 1; }; }
check "one leaf of each field, changed, is noticed or listed" all_noticed 1

in=(--traces "$traces" --hardware "$tmp/phone.sqlite")
check "a plan in 14 MiB" "$P" solve -q "${in[@]}" --memory 14MiB --context 64 --form split --no-verify --out "$tmp/p.json"
verify() { "$P" check "$@" "${in[@]}"; }
check "is right" verify "$tmp/p.json"
sed 's/"memory_bytes": 14680064/"memory_bytes": 25165824/' "$tmp/p.json" > "$tmp/more.json"
check "in 24 MiB it refutes its own gap" says 4 "limits\[0\].gap says that no plan in memory_bytes 25165824" verify "$tmp/more.json"

check "solved again it is the same" says 0 "solved again, it is the same" verify "$tmp/p.json" --solve --context 64 --form split
check "another request is another plan" says 5 "solved again, with these options, it is" verify "$tmp/p.json" --solve --context 128 --form split
for edit in 's/"gap": [0-9.e-]*/"gap": 0.5/' 's/"solver": "z3/"solver": "Z3/' 's/"seed": 1/"seed": 2/' 's/"notes": \[\]/"notes": ["faster than light"]/'; do
    sed "$edit" "$tmp/p.json" > "$tmp/edited.json"
    cmp -s "$tmp/p.json" "$tmp/edited.json" && continue
    key=${edit#*\"}
    check "an edited ${key%%\"*} is noticed" says 5 "${key%%\"*}" verify "$tmp/edited.json" --solve --context 64 --form split
done
proved() { "$P" solve -q "${in[@]}" --memory 16MiB --context 64 --form split --no-verify --out "$tmp/q.json" --certificate "$tmp/q.smt2"; }
again() { verify "$tmp/q.json" --solve --context 64 --form split --certificate "$1"; }
check "a plan with its proof" proved
check "every price in it follows from the inputs" says 0 "every price in it follows from the inputs" again "$tmp/q.smt2"
# A point that no plan takes, a little slower: Z3 refutes the claims all the same.
awk '!done && match($0, /\(\* q [0-9]+\)/) { v = substr($0, RSTART + 5, RLENGTH - 6)
    $0 = substr($0, 1, RSTART + 4) (v + 1000) substr($0, RSTART + RLENGTH - 1); done = 1 } { print }' "$tmp/q.smt2" > "$tmp/slower.smt2"
check "with a slower price, Z3 refutes the claims still" says 0 "Z3 refutes all" "$P" check "$tmp/q.json" --certificate "$tmp/slower.smt2"
check "but it does not follow from the inputs" says 5 "is not what these inputs give" again "$tmp/slower.smt2"

check "options of the request without --solve" says 2 "go with --solve" verify "$tmp/p.json" --context 64
check "--solve without inputs" says 2 "needs --hardware" "$P" check "$tmp/p.json" --solve
listed() { "$P" check "$tmp/p.json" "${in[@]}" --json | python3 -c '
import json, sys
d = json.load(sys.stdin)
sys.exit("predictions.limits[].gap" not in [u["field"] for u in d["unverified"]] or "predictions.limits[].account_bytes" not in d["verified"])'; }
check "JSON lists both" listed
done_testing
