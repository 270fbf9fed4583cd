#!/bin/bash
# Speed of the embedded model on this machine, from almost nothing resident to everything, as one table; beside each
# figure what the plan predicted. REPEAT=5 runs each. For a model of yours: MODEL=big.gguf MEMORY='4GiB,8GiB'.
MODEL=${MODEL:-datasets/models/reglu-tales-10m-f16.gguf}
MEMORY=${MEMORY:-15MiB,16MiB,18MiB,20MiB,32MiB}
REPEAT=${REPEAT:-5}
BIN=${BIN:-build/bin}
out=build/bench/$(basename "$MODEL" .gguf)

scripts/pipeline.sh --model "$MODEL" --memory "$MEMORY" --out "$out" --tokens 16 > /dev/null || exit
{
    echo "machine   $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) CPUs, $(uname -sr)"
    echo "model     $MODEL, $(stat -c %s "$MODEL") bytes"
    echo "revision  $(git describe --always --dirty 2> /dev/null || echo unknown), $(date -u +%FT%TZ), load $(cut -d ' ' -f 1-3 /proc/loadavg)"
    echo "runs      $REPEAT of each, after a warm-up; mean and standard deviation"
    echo
    printf '| %-9s | %-19s | %-9s | %-11s | %-8s | %-8s | %-10s |\n' memory 'tokens/s' predicted 'MiB/token' 'hit rate' stalled 'peak MiB'
    echo '| --------: | ------------------: | --------: | ----------: | -------: | -------: | ---------: |'
} | tee "$out/table.md"
for memory in ${MEMORY//,/ }; do
    "$BIN/thermo-run" bench --model "$out/model.thermo" --plan "$out/plan.json" --memory "$memory" -p 0 -r "$REPEAT" \
        --output json > "$out/$memory.json" || exit
    python3 - "$memory" "$out/$memory.json" << 'END' | tee -a "$out/table.md"
import json, sys
memory, path = sys.argv[1:]
b = json.load(open(path))
t = b["tests"][0]
print("| %9s | %10.1f +- %5.1f | %9.1f | %11.3f | %6.1f %% | %6.1f %% | %10.1f |" % (
    memory, t["tokens_per_s"], t["stddev"], b["predicted_tokens_per_s"], t["read_bytes_per_token"] / 2**20,
    100 * t["hit_rate"], 100 * t["stall_share"], b["peak_bytes"] / 2**20))
END
done
echo
echo "also in $out/table.md"
