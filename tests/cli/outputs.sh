#!/bin/sh
# No command writes over a file that it reads, nor two outputs into one: every program and command, every pair of options.
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }
BIN=${BIN:-build/bin}
exec python3 tests/cli/outputs.py "$BIN/thermo-profile" "$BIN/thermo-plan" "$BIN/thermo-pack" "$BIN/thermo-run" \
    "$BIN/thermo-quantize" "$BIN/gguf-make" "$BIN/gguf-synth"
