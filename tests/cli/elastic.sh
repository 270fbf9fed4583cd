#!/bin/bash
# A memory limit that changes while a model runs, by a plan of limits in one elastic group: the same text, in a memory cgroup that is moved with
# it; what is refused changes nothing.
. tests/tap.sh
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }
. tests/chain.sh
scratch
# For a published device: by what was measured beside other tests, a limit may find no room for the reads of larger ones.
phone_csv "$tmp/all.csv" && grep -v -e class=big -e class=little "$tmp/all.csv" > "$tmp/hw.csv" &&
    "$BIN/thermo-profile" import -q --db "$tmp/hw.sqlite" --csv "$tmp/hw.csv" > "$tmp/log" &&
    "$BIN/thermo-plan" solve -q --traces "$traces" --hardware "$tmp/hw.sqlite" --for-pack "$packed" --context 256 \
    --memory 14MiB,18MiB,22MiB,28MiB --elastic --out "$tmp/elastic.json" > "$tmp/log" 2>&1 || { cat "$tmp/log"; echo "not ok 1 - plan"; echo "1..1"; exit 1; }
python3 -B tests/cli/elastic.py "$BIN" "$packed" "$tmp/elastic.json" "$plan"
