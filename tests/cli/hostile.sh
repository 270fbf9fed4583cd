#!/bin/sh
# Hostile strings in every input of every command: nothing steers the terminal, nothing forges a line. One of sixteen files with one hostile
# string; short, one of twenty; with sanitizers, one of sixty and of all command lines with one hostile string every third.
. tests/tap.sh
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }
exec python3 -B tests/cli/hostile.py "$BIN" $([ -n "${SANITIZE:-}" ] && echo 60 3 || of 16 20)
