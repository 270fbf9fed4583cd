#!/bin/bash
# The device profiles of datasets/devices, and scripts/devices.py: every CSV is imported, every figure says where it is from, plans
# are made for some of them, and the page says of each what binds it. Three invented devices are bound by one term each.
. tests/tap.sh
scratch
sources() { python3 tests/cli/devices_check.py sources datasets/devices/*.csv; }
imported() { for c in datasets/devices/*.csv; do "$BIN/thermo-profile" import -q --db "$tmp/all.sqlite" --csv "$c" || return 1; done; }
run() { scripts/devices.py --model datasets/descriptions/small-relu.json --flags "--form split --context 256 --act q8 --policy lru" \
    --plans "$tmp/plans" --state "$tmp/state" --page "$tmp/page.html" --markdown "$tmp/page.md" --json "$tmp/page.json" "$@"; }
page() { python3 tests/cli/devices_check.py page "$tmp/page.html" "$tmp/page.md" "$tmp/page.json" "$tmp/plans" "$@"; }

check "at least fourteen devices" test "$(ls datasets/devices/*.csv | wc -l)" -ge 14
check "every profile is imported" imported
check "every figure says where it is from" sources
sed '3s/,published,"[^"]*"$/,published,/; 3s/,published,[^,]*$/,published,/' datasets/devices/raspberry-pi-5-nvme.csv > "$tmp/none.csv"
check "one without a source is found" says 1 "none.csv:3: " python3 tests/cli/devices_check.py sources "$tmp/none.csv"
sed 's/"Derived: /"About /' datasets/devices/raspberry-pi-5-nvme.csv > "$tmp/about.csv"
check "and an estimate that says not how" says 1 "about.csv:" python3 tests/cli/devices_check.py sources "$tmp/about.csv"
sed '3s/,published,"\?/&Unverified: /' datasets/devices/raspberry-pi-5-nvme.csv > "$tmp/unverified.csv"
check "and a published figure that was not looked up" says 1 "unverified.csv:3: " \
    python3 tests/cli/devices_check.py sources "$tmp/unverified.csv"
check "each file is in the table of README.md" sh -c 'for f in datasets/devices/*.csv; do
    grep -qF "\`${f##*/}\`" datasets/devices/README.md || { echo "$f"; exit 1; }; done'

# Of a profile, one term made a thousand times slower: that binds.
base=datasets/devices/raspberry-pi-5-nvme.csv
slow() { # NAME PATTERN: rows of PATTERN get a unit that is a thousand times smaller
    sed "s/^Raspberry Pi 5 NVMe,/$1,/; /$2/{s|,GFLOP/s,|,MFLOP/s,|;s|,MB/s,|,kB/s,|;s|,GB/s,|,MB/s,|}" $base > "$tmp/slow $1.csv"
}
slow arithmetic ',compute,' && slow bandwidth ',memory,' && slow flash ',storage,'
check "plans for some, and the pages" says 0 "3 devices, 1 models: 6 plans, 3 below what a model needs, 3 more than a device gives, 0 failed" \
    run --devices "'$tmp'/slow*.csv" --memory "1MiB 7756KiB 8056KiB 1TiB"
check "well-formed, and each named with what binds it" page arithmetic=compute "bandwidth=memory bandwidth" flash=storage
check "plans alone in their folder" test "$(find "$tmp/plans" -type f | wc -l)" = 6
cp "$tmp/page.json" "$tmp/first.json"
check "again" run --devices "'$tmp'/slow*.csv" --memory "1MiB 7756KiB 8056KiB 1TiB"
check "gives the same bytes" cmp "$tmp/page.json" "$tmp/first.json"
check "devices of the repository, by name" run --device "Raspberry Pi 5 SD card" --device "AWS i4i.2xlarge" --memory 9MiB
check "are on the page" page "Raspberry Pi 5 SD card=*" "AWS i4i.2xlarge=*"
check "no limit with a plan" run --device "OnePlus 12" --memory "1MiB 1TiB"
check "is a matter of memory" page "OnePlus 12=memory size"
check "a device that is not there" says 2 "'Phone': the CSVs have" run --device Phone
check "a page in place of an input" says 2 "would be replaced" run --page datasets/descriptions/small-relu.json
check "a page among the plans" says 2 "for plans alone" run --page "$tmp/plans/page.html"
check "a limit that is none" says 2 "is not a size" run --memory lots
check "options that solve refuses" status 2 run --memory 11MiB --device "OnePlus 12" --flags "--context none"
done_testing
