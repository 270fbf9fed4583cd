#!/bin/bash
# make plans and plans-check, and scripts/plans.py behind them: two phones, one CSV with both, two limits, a described model,
# names with spaces. Only what changed is made again, a promise that got worse is found, the folder holds plans alone, and
# summary, JUnit XML and exit status say what happened.
. tests/tap.sh
scratch
MAKE=${MAKE:-make}
mkdir "$tmp/my devices"
cp datasets/devices/oneplus-*.csv "$tmp/my devices/"
cp datasets/descriptions/small-relu.json "$tmp/small model.json"
flags="--form split --context 256 --cores mid=1,little=0 --policy lru"
d="$tmp/the plans/small model"
plans() { # TARGET [VARIABLE=VALUE...]: the last of a name counts
    MAKEFLAGS='' MAKELEVEL='' $MAKE -s -j2 CC="${CC:-cc}" SANITIZE="${SANITIZE:-}" "$1" MODEL="$tmp/small model.json" \
        DEVICES="'$tmp/my devices'/*.csv" MEMORY="8MiB 9MiB" PLANS="$tmp/the plans" PLANS_STATE="$tmp/state" PLAN_FLAGS="$flags" \
        PLANS_REPORT="$tmp/report" "${@:2}"
}
py=(scripts/plans.py --model "$tmp/small model.json" --devices "$tmp/my devices/both.csv" --memory "8MiB 9MiB" --plans "$tmp/the plans"
    --state "$tmp/state" --flags "$flags")
py() { "${py[@]}" "$@"; }
made() { find "$d" -type f -newer "$tmp/mark" | sed 's|.*/||' | sort | tr '\n' ' '; }
mark() { sleep 0.1; touch "$tmp/mark"; sleep 0.1; }
is() { [ "$1" = "$2" ] || { echo "'$1' instead of '$2'"; return 1; }; }
json() { python3 -c "import json, sys
d = json.load(open(sys.argv[1]))
p = {x['name']: x for x in d['plans']}
assert eval('(' + sys.argv[2] + ')'), json.dumps(d, indent=1)[:3000]" "${3:-$tmp/report/plans.json}" "$2" || return 1; }
junit() { python3 tests/cli/junit_check.py "${2:-$tmp/report/plans.xml}" "$1"; }

mark
check "plans for all" says 0 "4 plans in $d" plans plans
check "four of them, and nothing else" is "$(made)" "oneplus-12-8MiB.json oneplus-12-9MiB.json oneplus-ace-2-8MiB.json oneplus-ace-2-9MiB.json "
check "nor beside them" is "$(ls "$tmp/the plans")" "small model"
check "no path of this machine is in them" sh -c "! grep -rF -e '$tmp' -e '$PWD' '$tmp/the plans'"
"$BIN/thermo-profile" import -q --db "$tmp/one.sqlite" --csv "$tmp/my devices/oneplus-12.csv"
check "what make makes, solve makes" sh -c "'$BIN/thermo-plan' solve -q --description '$tmp/small model.json' --hardware '$tmp/one.sqlite' \
    --memory 9MiB $flags --out '$tmp/one.json' && cmp '$tmp/one.json' '$d/oneplus-12-9MiB.json'"
check "the summary says what is promised" json - "d['exit_status'] == 0 and d['counts']['plans'] == 4 and d['model'] == 'small model' and all(
    x['outcome'] == 'planned' and x['limits'][0]['batches'][0]['tokens_per_s'] > 0 for x in p.values()) and p['oneplus-12-9MiB']['device'] == 'OnePlus 12'"
check "JUnit: four that pass" junit "tests=4 failures=0 errors=0 skipped=0"
mark
check "again" plans plans
check "makes nothing" is "$(made)" ""
cp -r "$tmp/the plans" "$tmp/kept plans"
touch "$tmp/my devices/"*.csv "$tmp/small model.json"
check "newer files of the same content" plans plans
check "make nothing either" is "$(made)" ""
rm "$d/oneplus-12-9MiB.json"
echo ' ' >> "$d/oneplus-12-8MiB.json"
check "plans that went or were altered" plans plans
check "are made again" is "$(made)" "oneplus-12-8MiB.json oneplus-12-9MiB.json "
check "with the same bytes" diff -r "$tmp/the plans" "$tmp/kept plans"
check "nothing got worse" says 0 "4 plans compared with $tmp/kept plans/small model: 0 worse, 0 new" plans plans-check BASELINE="$tmp/kept plans"

# Both phones in one CSV: the same plans, by name.
{ cat "$tmp/my devices/oneplus-12.csv"; tail -n +2 "$tmp/my devices/oneplus-ace-2.csv"; } > "$tmp/my devices/both.csv"
check "a device in two files is refused" says 2 "device 'OnePlus 12' is in .*both.csv' and in .*oneplus-12.csv'" plans plans
rm "$tmp/my devices/"oneplus*.csv
mark
check "several devices in one CSV" says 0 "4 plans in $d" plans plans
check "whose figures are the same: nothing to make" is "$(made)" ""
check "one of them alone" sh -c "scripts/plans.py --model '$tmp/small model.json' --devices '\"$tmp/my devices/\"*.csv' --memory 9MiB --device 'OnePlus 12' \
    --plans '$tmp/alone' --state '$tmp/state' --flags '$flags' && [ \"\$(ls '$tmp/alone/small model')\" = oneplus-12-9MiB.json ]"
check "a device that is not there" says 2 "'Phone': the CSVs have OnePlus 12, OnePlus Ace 2" py --device Phone
sed 's/^OnePlus 12,/OnePlus  12,/' datasets/devices/oneplus-12.csv > "$tmp/twin.csv"
check "names that would give the same plans" says 2 "would both give plans 'oneplus-12-" py --devices "$tmp/twin.csv"

# Shards of the matrix together are the matrix.
for i in 0 1 2; do check "shard $i of 3" py --plans "$tmp/shards" --shard $i/3 --json "$tmp/s$i.json"; done
check "together they are all" diff -r "$tmp/shards" "$tmp/kept plans"
check "each made its own" sh -c "cat '$tmp'/s[012].json | grep -c '\"outcome\": \"planned\"' | grep -qx 4"

# One phone's storage becomes a third slower: its two plans are worse, the other's are not.
sed -i '/^OnePlus 12,storage,/{s/,1076.10,MB/,717,MB/;s/,850,MB/,566,MB/;s/,450,MB/,300,MB/;s/,4,GB/,2.6,GB/;s/,3.77,GB/,2.5,GB/;s/,1.75,GB/,1.1,GB/;s/,1.38,GB/,0.9,GB/}' \
    "$tmp/my devices/both.csv"
mark
check "a slower device" says 2 "2 worse, 0 new" plans plans-check BASELINE="$tmp/kept plans"
check "is named" grep -q 'oneplus-12-9MiB: worse: .* tokens/s, was' "$tmp/said"
check "with the status that make hides" grep -q 'Error 1$' "$tmp/said"
check "its plans alone were made again" is "$(made)" "oneplus-12-8MiB.json oneplus-12-9MiB.json "
check "the other is not" sh -c "! grep 'ace-2.*worse:' '$tmp/said'"
check "JUnit: two failures" junit "tests=4 failures=2 errors=0 skipped=0 failed=oneplus-12-8MiB,oneplus-12-9MiB"
check "the summary: two worse, and why" json - "d['exit_status'] == 1 and d['counts']['worse'] == 2 and p['oneplus-12-9MiB']['compared'] == 'worse' and
    any(c['worse'] and 'tokens/s' in c['text'] for c in p['oneplus-12-9MiB']['changes']) and p['oneplus-ace-2-9MiB']['compared'] == 'same'"
check "the script itself returns 1" status 1 py --baseline "$tmp/kept plans"
check "within a tolerance" says 0 " 0 worse" plans plans-check BASELINE="$tmp/kept plans" TOLERANCE=60
check "a limit that is no longer planned" says 2 "oneplus-12-9MiB is no longer planned" plans plans-check BASELINE="$tmp/kept plans" TOLERANCE=60 MEMORY=8MiB
check "is a failure of its own" junit "tests=4 failures=2 errors=0 skipped=0 failed=oneplus-12-9MiB,oneplus-ace-2-9MiB"
mark
check "other flags" plans plans PLAN_FLAGS="$flags --kv f32" MEMORY=8MiB
check "make plans again" is "$(made)" "oneplus-12-8MiB.json oneplus-ace-2-8MiB.json "

# No plan is possible: exit status 4, skipped, with the nearest value; worse where there was one.
check "a limit below the floor" says 2 "infeasible: oneplus-12-1MiB: .*below the floor" plans plans MEMORY="1MiB 9MiB"
check "the others are made all the same" grep -q "2 plans in $d, 2 infeasible" "$tmp/said"
check "leaves no plan" test ! -e "$d/oneplus-12-1MiB.json"
check "JUnit: skipped" junit "tests=4 failures=0 errors=0 skipped=2"
check "the summary: the nearest value as a number" json - "d['exit_status'] == 4 and d['counts']['infeasible'] == 2 and
    p['oneplus-12-1MiB']['contradict'] == ['memory'] and 7e6 < p['oneplus-12-1MiB']['nearest']['memory_bytes'] < 9e6"
check "the script itself returns 4" status 4 py --memory 1MiB
check "or 0 when asked to" status 0 py --memory 1MiB --infeasible-ok
check "what was not kept is no regression" says 0 "2 infeasible" py --memory "1MiB 8MiB 9MiB" --baseline "$tmp/kept plans" --tolerance 60
cp "$tmp/kept plans/small model/oneplus-12-9MiB.json" "$tmp/kept plans/small model/oneplus-12-1MiB.json"
check "what was kept is" says 1 "oneplus-12-1MiB: worse: no plan any more" py --memory "1MiB 8MiB 9MiB" --baseline "$tmp/kept plans" --tolerance 60 \
    --junit "$tmp/gone.xml"
check "in JUnit too" junit "tests=6 failures=1 errors=0 skipped=1 failed=oneplus-12-1MiB" "$tmp/gone.xml"
cp "$tmp/kept plans/small model/oneplus-12-9MiB.json" "$d/oneplus-12-1MiB.json"
check "a plan of former inputs" status 4 py --memory 1MiB
check "does not stay where there is none" test ! -e "$d/oneplus-12-1MiB.json"

# Failures are errors, with the planner's exit status.
echo '{ "format": "thermocline-plan"' > "$tmp/kept plans/small model/oneplus-12-8MiB.json"
check "a kept plan that is damaged" says 3 "failed: *oneplus-12-8MiB: .*oneplus-12-8MiB.json" py --baseline "$tmp/kept plans" --tolerance 60 --junit "$tmp/bad.xml"
check "is an error in JUnit" junit "tests=5 failures=1 errors=1 skipped=0 failed=oneplus-12-1MiB" "$tmp/bad.xml"
check "flags that solve refuses" status 2 py --flags "--context none"
check "a profile that is none" says 3 "no column 'device'" py --devices "$tmp/one.json"
printf 'device,table,key,field,value,unit,origin,source\nbox,device,,memory_bytes,lots,GB,published,me\n' > "$tmp/lots.csv"
check "a figure that is none" says 3 "lots.csv' line 2" py --devices "$tmp/lots.csv"
cp "$tmp/small model.json" "$tmp/keep.json"
check "a report in place of an input" says 2 "is an input" py --json "$tmp/small model.json"
check "which is untouched" cmp "$tmp/keep.json" "$tmp/small model.json"
check "a report among the plans" says 2 "for plans alone" py --junit "$tmp/the plans/x.xml"
check "plans compared with themselves" says 2 "compared with themselves" py --baseline "$tmp/the plans"

# Stopped in the midst: what is not whole is not there.
"${py[@]}" --fresh --plans "$tmp/stopped" --jobs 1 > /dev/null 2>&1 &
pid=$!
caught $pid
kill -TERM $pid 2> /dev/null
wait $pid
check "stopped: exit status 130" is $? 130
check "no piece of a plan is left" is "$(find "$tmp/stopped" "$tmp/state" -name '*.tmp*')" ""
check "and a second run makes them all" py --plans "$tmp/stopped"
check "all four" is "$(ls "$tmp/stopped/small model" | wc -l)" 4

check "no memory" says 2 "which limits to plan for" plans plans MEMORY=
check "a limit twice" says 2 "names a limit twice" plans plans MEMORY="9MiB 9MiB"
check "a GGUF" says 2 "from a description (.json) or a trace (.h5)" plans plans MODEL=datasets/models/reglu-tales-10m-f16.gguf
check "no device" says 2 "there is no such file" plans plans DEVICES="$tmp/*.none"
check "no baseline" says 2 "BASELINE=folder" plans plans-check
check "a baseline that is not there" says 2 "there is no folder" plans plans-check BASELINE="$tmp/nowhere"
check "--help tells the exit statuses" says 0 "a limit that no plan can keep" scripts/plans.py --help
done_testing
