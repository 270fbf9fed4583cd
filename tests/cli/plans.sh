#!/bin/bash
# make plans and plans-check: two phones, two limits, a described model. Only what changed is made again, and a promise
# that got worse is found.
. tests/tap.sh
scratch
MAKE=${MAKE:-make}
cp datasets/devices/*.csv "$tmp/"
cp datasets/descriptions/small-relu.json "$tmp/small.json"
flags="--form split --context 256 --cores mid=1,little=0 --policy lru"
plans() { # TARGET [VARIABLE=VALUE...]: the last of a name counts
    MAKEFLAGS='' MAKELEVEL='' $MAKE -s -j2 CC="${CC:-cc}" SANITIZE="${SANITIZE:-}" "$1" MODEL="$tmp/small.json" \
        DEVICES="$tmp/*.csv" MEMORY="9MiB 10MiB" PLANS="$tmp/plans" PLAN_FLAGS="$flags" "${@:2}"
}
d=$tmp/plans/small
made() { find "$d" -name '*.json' -newer "$tmp/mark" | sed 's|.*/||' | sort | tr '\n' ' '; }
mark() { sleep 0.1; touch "$tmp/mark"; sleep 0.1; }
is() { [ "$1" = "$2" ] || { echo "'$1' instead of '$2'"; return 1; }; }

mark
check "plans for all" says 0 "4 plans in $d" plans plans
check "four of them" is "$(made)" "oneplus-12-10MiB.json oneplus-12-9MiB.json oneplus-ace-2-10MiB.json oneplus-ace-2-9MiB.json "
check "what make makes, solve makes" sh -c "'$BIN/thermo-plan' solve -q --description '$tmp/small.json' --hardware '$d/oneplus-12.sqlite' \
    --memory 9MiB $flags --out '$tmp/one.json' && cmp '$tmp/one.json' '$d/oneplus-12-9MiB.json'"
mark
check "again" plans plans
check "makes nothing" is "$(made)" ""
cp -r "$tmp/plans" "$tmp/kept"
mark
touch "$tmp/oneplus-ace-2.csv"
check "a newer device" plans plans
check "makes its plans" is "$(made)" "oneplus-ace-2-10MiB.json oneplus-ace-2-9MiB.json "
check "nothing got worse" says 0 "4 plans compared with $tmp/kept/small: 0 worse, 0 new" plans plans-check BASELINE="$tmp/kept"

# One phone's storage becomes a third slower: its two plans are worse, the other's are not.
sed -i '/,storage,/{s/,1076.10,MB/,717,MB/;s/,850,MB/,566,MB/;s/,450,MB/,300,MB/;s/,4,GB/,2.6,GB/;s/,3.77,GB/,2.5,GB/;s/,1.75,GB/,1.1,GB/;s/,1.38,GB/,0.9,GB/}' \
    "$tmp/oneplus-12.csv"
check "a slower device" says 2 "2 worse, 0 new" plans plans-check BASELINE="$tmp/kept"
check "is named" grep -q 'oneplus-12-9MiB.json: worse: .* tokens/s, was' "$tmp/said"
check "the other is not" sh -c "! grep 'ace-2.*worse:' '$tmp/said'"
check "within a tolerance" says 0 " 0 worse" plans plans-check BASELINE="$tmp/kept" TOLERANCE=60
check "a limit that is no longer planned" says 2 "oneplus-12-9MiB.json is no longer planned" plans plans-check BASELINE="$tmp/kept" TOLERANCE=60 MEMORY=10MiB
mark
check "other flags" plans plans PLAN_FLAGS="$flags --kv f32" MEMORY=10MiB
check "make plans again" is "$(made)" "oneplus-12-10MiB.json oneplus-ace-2-10MiB.json "

check "no memory" says 2 "which limits to plan for" plans plans MEMORY=
check "a GGUF" says 2 "from a description (.json) or a trace (.h5)" plans plans MODEL=datasets/models/reglu-tales-10m-f16.gguf
check "no device" says 2 "there is no such file" plans plans DEVICES="$tmp/*.none"
check "no baseline" says 2 "BASELINE=folder" plans plans-check
check "a baseline that is not there" says 2 "there is no folder" plans plans-check BASELINE="$tmp/nowhere"
check "a limit below the floor" says 2 "below the floor" plans plans MEMORY=1MiB
check "leaves no plan" test ! -e "$d/oneplus-12-1MiB.json"
done_testing
