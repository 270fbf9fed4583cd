#!/bin/sh
# One Ctrl-C while a command reads something large ends it: files of every kind that it takes, and standard input.
. tests/tap.sh
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }
scratch
. tests/chain.sh
python3 tests/cli/interrupted.py "$BIN" "$tmp" "$model" "$packed" "$plan" "$traces"
