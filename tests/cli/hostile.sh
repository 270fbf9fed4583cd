#!/bin/sh
# Hostile strings in every input of every command: nothing steers the terminal, nothing forges a line. Short: one of twenty files with one
# hostile string.
. tests/tap.sh
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }
exec python3 -B tests/cli/hostile.py "$BIN" "$(of 4 20)"
