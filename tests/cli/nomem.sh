#!/bin/bash
# Out of memory is no verdict on a file: exit status 1, whichever library ran out of it.
. tests/tap.sh
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }
[ -z "$SANITIZE" ] || { echo "1..0 # SKIP sanitizers have allocators of their own"; exit 77; }
scratch
${CC:-cc} -D_GNU_SOURCE -shared -fPIC -O1 -o "$tmp/nomem.so" tests/preload/nomem.c -ldl 2> "$tmp/log" &&
    LD_PRELOAD=$tmp/nomem.so true 2>> "$tmp/log" && [ ! -s "$tmp/log" ] ||
    { echo "1..0 # SKIP no allocator of one's own here: $(head -n 1 "$tmp/log")"; exit 77; }
. tests/chain.sh
P=$BIN/thermo-profile L=$BIN/thermo-plan
few=(trace --model "$model" --prompts datasets/prompts/stories-profile.csv --ctx 8 --max-tokens 64 --window-tokens 16 --samples 16)
"$P" "${few[@]}" --out "$tmp/few.h5" > /dev/null || exit 1
"$BIN/thermo-run" generate --model "$packed" --plan "$plan" --prompt Once -n 8 --seed 1 --json > "$tmp/run.jsonl" 2> /dev/null || exit 1

# starved NAME STRICT COMMAND...
starved() { check "$1" python3 tests/cli/nomem.py "$tmp/nomem.so" "$tmp" "$@"; }
starved "generate" 1 "$BIN/thermo-run" generate --model "$packed" --plan "$plan" --prompt Once -n 2 --json
starved "inspect" 1 "$BIN/thermo-pack" inspect --json --tensors "$packed"
starved "verify" 1 "$BIN/thermo-pack" verify --json "$packed"
starved "quantize" 1 "$BIN/thermo-quantize" "$model" "$tmp/q.gguf" Q8_0
starved "show, a database" 1 "$P" show --json "$hardware"
starved "export" 1 "$P" export --db "$hardware" --out "$tmp/x.csv"
starved "import" 1 "$P" import --db "$tmp/new.db" --csv datasets/devices/oneplus-12.csv
starved "calibrate" 1 "$L" calibrate --plan "$plan" --hardware "$hardware" --telemetry "$tmp/run.jsonl" --json
# HDF5 and Z3 do not survive every failure: HDF5 1.10 follows null pointers, Z3 4.8 ends the process.
starved "show, a trace" 0 "$P" show --json --verify "$tmp/few.h5"
starved "trace" 0 "$P" "${few[@]}" --threads 1 --out "$tmp/new.h5"
starved "solve" 0 "$L" solve --traces "$tmp/few.h5" --hardware "$hardware" --device test --form split --packed no --context 64 \
    --memory 18MiB --out "$tmp/p.json"
done_testing
