#!/bin/bash
# thermo-plan solve makes no plan from a trace that thermo-profile show --verify refuses.
. tests/tap.sh
. tests/chain.sh
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }
scratch
P=$BIN/thermo-profile L=$BIN/thermo-plan
"$P" trace --model "$model" --prompts datasets/prompts/stories-profile.csv --ctx 8 --max-tokens 600 --window-tokens 64 \
    --samples 64 --out "$tmp/t.h5" > /dev/null || exit 1
plan_from() { "$L" "$1" --traces "$2" --hardware "$hardware" --device test --form split --packed no --context 64 "${@:3}"; }
solve() { plan_from solve "$1" --memory 18MiB --out "$tmp/p.json" "${@:2}"; }
size=$(stat -c %s "$tmp/t.h5")

flip() # AT: a damaged copy of the trace, bad.h5
{
    python3 -c 'import sys
d = bytearray(open(sys.argv[1], "rb").read())
d[int(sys.argv[3])] ^= 0x20
open(sys.argv[2], "wb").write(d)' "$tmp/t.h5" "$tmp/bad.h5" "$1"
}

# At places all over the file: where show --verify refuses the trace, so does solve, and leaves no plan.
both_refuse()
{
    local k refused=0
    for k in $(seq 1 24); do
        flip $((size * k / 25))
        rm -f "$tmp/p.json"
        if ! "$P" show --verify "$tmp/bad.h5" > /dev/null 2>&1; then
            refused=$((refused + 1))
            status 3 solve "$tmp/bad.h5" && [ ! -e "$tmp/p.json" ] || { echo "byte $((size * k / 25)) of $size"; return 1; }
        fi
    done 2> "$tmp/err"
    echo "$refused of 24 were refused"
    [ $refused -gt 12 ]
}
# A byte that no plan is made from: of the samples, which are most of the file.
unused()
{
    local k
    for k in $(seq 1 24); do
        flip $((size * k / 25))
        solve "$tmp/bad.h5" --no-verify > "$tmp/said" 2>&1 || continue
        "$P" show --verify "$tmp/bad.h5" > /dev/null 2>&1 && continue
        status 3 solve "$tmp/bad.h5" > "$tmp/said" 2>&1 && grep -q bad.h5 "$tmp/said" &&
            status 3 plan_from sweep "$tmp/bad.h5" --memory 14MiB..18MiB --steps 2 > "$tmp/said" 2>&1
        return
    done
    echo "no such byte was tried"
    return 1
}
check "an intact trace" solve "$tmp/t.h5"
check "what show --verify refuses, solve refuses" both_refuse
check "also where the plan does not depend on it; --no-verify takes it" unused
done_testing
