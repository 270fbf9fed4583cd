#!/bin/bash
# thermo-probe: what it writes is what import reads, to the last bit; a device that was imported is the one that was measured, with the
# same plans; it refuses what it cannot do.
. tests/tap.sh
scratch
P=$BIN/thermo-profile
mkdir "$tmp/a drive"
quick="--quick --range 8MiB --memory-range 8MiB --seconds-per-point 0.003 --patience 0 -q"
hash_of() { "$P" show --json "$1" | python3 -c "import json,sys; print(json.load(sys.stdin)['devices'][0]['hash'])"; }
same_hash() { [ -n "$(hash_of "$1")" ] && [ "$(hash_of "$1")" = "$(hash_of "$2")" ] || { hash_of "$1"; hash_of "$2"; return 1; }; }
same_export() { "$P" export --db "$1" | cmp - "$2"; }
plan() { # DATABASE OUT
    "$BIN/thermo-plan" solve -q --description datasets/descriptions/small-relu.json --hardware "$1" --memory 9MiB --form split --context 256 \
        --policy lru --out "$2"
}
same_plan() { plan "$1" "$tmp/a.json" && plan "$2" "$tmp/b.json" && cmp "$tmp/a.json" "$tmp/b.json"; }
says() # STATUS TEXT COMMAND...
{
    local want=$1 text=$2 got
    shift 2
    "$@" > "$tmp/out" 2> "$tmp/err"
    got=$?
    [ $got -eq "$want" ] && grep -qF -- "$text" "$tmp/err" || { echo "exit $got, not $want: $(cat "$tmp/err")"; return 1; }
}

check "a probe, without a database" "$BIN/thermo-probe" --device "box 1, \"blue\"" --storage "$tmp/a drive" $quick --out "$tmp/probe.csv"
check "nothing is left in the drive's folder" sh -c "[ -z \"\$(ls -A '$tmp/a drive')\" ]"
check "import reads it" "$P" import -q --db "$tmp/probe.sqlite" --csv "$tmp/probe.csv"
check "and export writes the same bytes" same_export "$tmp/probe.sqlite" "$tmp/probe.csv"
check "the same samples into a database and a CSV" "$P" hardware --db "$tmp/hw.sqlite" --device box --storage "$tmp/a drive" $quick \
    --csv "$tmp/hw.csv"
check "the CSV is what export writes" same_export "$tmp/hw.sqlite" "$tmp/hw.csv"
check "it is imported" "$P" import -q --db "$tmp/imported.sqlite" --csv "$tmp/hw.csv"
check "as the same device" same_hash "$tmp/hw.sqlite" "$tmp/imported.sqlite"
check "with the same plan, byte for byte" same_plan "$tmp/hw.sqlite" "$tmp/imported.sqlite"
check "to standard output" sh -c "'$BIN/thermo-probe' --device box $quick --only memory | head -n 1 | grep -qx device,table,key,field,value,unit,origin,source"
check "a dry run says what it takes" sh -c "cd '$tmp/a drive' && $(realpath "$BIN")/thermo-probe --device box $quick --dry-run | grep -q 'together about'"
check "without --device" says 2 "--device" "$BIN/thermo-probe"
check "--json without --dry-run" says 2 "--dry-run" "$BIN/thermo-probe" --device box --json
check "a folder that is none" says 2 "'$tmp/none'" "$BIN/thermo-probe" --device box --storage "$tmp/none"
check "a full disk is said" says 1 "No space left on device" sh -c "'$BIN/thermo-probe' --device box $quick --only memory > /dev/full"
done_testing
