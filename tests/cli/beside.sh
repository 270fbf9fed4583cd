#!/bin/sh
# Reading a hardware database changes nothing on disk, whatever lies beside it: every command that reads one, every kind of journal.
. tests/tap.sh
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }
scratch
. tests/chain.sh
"$BIN/thermo-run" generate --model "$packed" --plan "$plan" --prompt Once -n 8 --memory 16MiB --json -q > "$tmp/run.jsonl" || exit 1
mkdir "$tmp/given" && cp "$hardware" "$plan" "$traces" "$tmp/given" || exit 1 # other tests link to the chain's, which changes their times
python3 tests/cli/beside.py "$BIN" "$tmp" "$tmp/given/${hardware##*/}" "$tmp/given/${plan##*/}" "$tmp/given/${traces##*/}" "$tmp/run.jsonl"
