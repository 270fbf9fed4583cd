#!/bin/sh
# Reading a hardware database changes nothing on disk, whatever lies beside it: every command that reads one, every kind of journal.
. tests/tap.sh
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }
scratch
. tests/chain.sh
"$BIN/thermo-run" generate --model "$packed" --plan "$plan" --prompt Once -n 8 --memory 16MiB --json -q > "$tmp/run.jsonl" || exit 1
python3 tests/cli/beside.py "$BIN" "$tmp" "$hardware" "$plan" "$traces" "$tmp/run.jsonl"
