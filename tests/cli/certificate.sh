#!/bin/bash
# Proofs of a plan's gap: random requests of every kind (tests/certificates.py), and what check says of a proof that is none.
. tests/tap.sh
scratch
. tests/chain.sh
P=$BIN/thermo-plan
phone "$tmp/phone.sqlite" > "$tmp/log" 2>&1

# Under sanitizers one: proofs are the same then; make certificates has more.
several=3
[ -z "$short" ] || several=1
all_refuted() { BIN=$BIN TRACE=$traces tests/certificates.py $several "$1" > "$tmp/out" 2>&1 || { cat "$tmp/out"; return 1; }; }
check "random requests, refuted; damaged, not" all_refuted 3

# A plan with few configurations: what is said of damaged proofs is the same of all.
few=(--description datasets/descriptions/small-relu.json --memory 9MiB,10MiB --context 64 --max-batch 2 --form split --packed no --policy lru --cores "mid=1,big=0,little=0")
solve() { "$P" solve -q "${few[@]}" --hardware "$tmp/phone.sqlite" "$@" > "$tmp/out" 2>&1 || { cat "$tmp/out"; return 1; }; }
check "a plan with its proof" solve --out "$tmp/p.json" --certificate "$tmp/p.smt2"
check "the same inputs again" solve --out "$tmp/p2.json" --certificate "$tmp/p2.smt2"
check "give the same bytes" cmp "$tmp/p.smt2" "$tmp/p2.smt2"
solve --prove --out "$tmp/q.json"
check "and the plan that there is without" cmp "$tmp/p.json" "$tmp/q.json"

verify() { "$P" check "$1" --certificate "$2"; }
says() # STATUS TEXT COMMAND...
{
    local want=$1 text=$2
    shift 2
    "$@" > "$tmp/out" 2>&1
    local got=$?
    [ $got -eq "$want" ] && grep -q -- "$text" "$tmp/out" || { echo "status $got"; cat "$tmp/out"; return 1; }
}
check "check refutes every claim" says 0 "Z3 refutes all" verify "$tmp/p.json" "$tmp/p.smt2"
counts() { "$P" check "$tmp/p.json" --certificate "$tmp/p.smt2" --json | python3 -c 'import json, sys; n = json.load(sys.stdin)["claims_refuted"]; sys.exit(n != int(sys.argv[1]))' \
    "$(grep -c '^(check-sat)' "$tmp/p.smt2")"; }
check "and counts them in JSON" counts
sed '0,/"gap": [0-9.e-]*/s//"gap": 0.00001/' "$tmp/p.json" > "$tmp/better.json"
check "a gap that was edited in the plan" says 5 "do not name this plan" verify "$tmp/better.json" "$tmp/p.smt2"
sed 's/^\(; plan: memory 9437184 .* gap \).*/\11e-05/' "$tmp/p.smt2" > "$tmp/better.smt2"
check "and in the proof" says 5 "its claim is a gap of" verify "$tmp/better.json" "$tmp/better.smt2"
sed 's/^(define-fun claim1 () Int [0-9]*)/(define-fun claim1 () Int 99999999999)/' "$tmp/better.smt2" > "$tmp/worst.smt2"
check "and in the claim" says 5 "the gap is not proven" verify "$tmp/better.json" "$tmp/worst.smt2"
sed '0,/^(check-sat)/s///' "$tmp/p.smt2" > "$tmp/less.smt2"
check "a claim that is not asked for" says 5 "the gap is not proven" verify "$tmp/p.json" "$tmp/less.smt2"
head -c 5000 "$tmp/p.smt2" > "$tmp/cut.smt2"
check "half a proof" says 5 "do not name this plan" verify "$tmp/p.json" "$tmp/cut.smt2"
{ echo '(assert ('; tail -n 4 "$tmp/p.smt2"; } > "$tmp/none.smt2"
check "no proof" says 5 "its claim is a gap" verify "$tmp/p.json" "$tmp/none.smt2"
{ cat "$tmp/none.smt2"; grep '^(define-fun claim' "$tmp/p.smt2"; tail -n 4 "$tmp/p.smt2"; } > "$tmp/none2.smt2"
check "no SMT-LIB" says 3 "Z3 does not read it" verify "$tmp/p.json" "$tmp/none2.smt2"
check "no file" says 3 "none" verify "$tmp/p.json" "$tmp/none"
done_testing
