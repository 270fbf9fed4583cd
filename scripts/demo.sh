#!/bin/sh
# The embedded model through all four programs, within 18 MiB: less than its weights.
root=$(dirname "$(dirname "$(readlink -f "$0")")")
base=$root/
[ "$root" != "$(pwd -P)" ] || base=
exec "${BIN:-${base}build/bin}/thermocline" "${base}datasets/models/reglu-tales-10m-f16.gguf" --memory 18MiB --out "${base}build/demo" \
    --prompt 'Once upon a time, there was a little girl named Lily.' --tokens 200 --run-flags '--temp 0.6 --top-k 40 --seed 7' "$@"
