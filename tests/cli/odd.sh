#!/bin/bash
# Files in a model's place that are no model: what each message says. thermo-profile is given each; thermo-run too, where it is not a GGUF.
. tests/tap.sh
scratch
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }
python3 -B tests/cli/odd.py "$BIN" "$tmp"
