#!/bin/bash
# bench_guess.sh: what guesses bring to a model that is larger than memory: none, lookup, a draft and the model's own layer, each of the
# two with a set share of right guesses (docs/speculation.md), alternated. The model is made up: Qwen3.8-27B's sizes in Q4_K_M, 16.5 GB; its
# text goes round, and the prompt is once round. The first run makes it all, which takes 34 GB and minutes; later runs go on from what is
# there. Nothing else should run. Settings are environment variables:
#   WORK=DIR                where everything lies, and stays (build/bench-guess), on the drive that is measured
#   MEMORY='8GiB 12GiB'     limits
#   SHARES='0.8 0.6'        of right guesses, of draft and layer
#   TOKENS=64 RUNS=2        of a run; runs of each, alternating
#   SIZES='...'             options for gguf-synth, for a smaller model
#   HARDWARE=FILE           figures of this machine, if there are; else they are taken, for half a minute
case $1 in -*) sed -n '2,12s/^# //p' "$0" >&2; exit 2 ;; esac
set -e -o pipefail
BIN=${BIN:-build/bin} work=${WORK:-build/bench-guess} memory=${MEMORY:-8GiB 12GiB} shares=${SHARES:-0.8 0.6} tokens=${TOKENS:-64}
mkdir -p "$work"
hardware=${HARDWARE:-$work/hardware.sqlite} context=512
read -r -a sizes <<< "$SIZES"
shape=(--shape qwen3.8-27b "${sizes[@]}" --type q4_k_m --act silu --setting hard --cycle 129 --seed 1)
vocab=$(sed -n 's/.*--vocab \([0-9]*\).*/\1/p' <<< "$SIZES")
first=${shares%% *}
new() { [ ! -e "$1" ]; } # FILE: it has to be made

! new "$hardware" || "$BIN/thermo-profile" hardware -q --db "$hardware" --device this --quick --storage "$work" >&2
plan() # TRACES, OUT, OPTION...: by the figures of this machine
{
    "$BIN/thermo-plan" solve -q --traces "$1" --hardware "$hardware" --context $context --out "$2" "${@:3}" >&2
}
if new "$work/model.thermo"; then
    "$BIN/gguf-synth" -q "${shape[@]}" --nextn-agree "$first" --prompts "$work/prompts.csv" --prompt-rows 2 "$work/model.gguf" >&2
    "$BIN/thermo-profile" trace -q --model "$work/model.gguf" --prompts "$work/prompts.csv" --max-tokens 64 --samples 0 \
        --out "$work/traces.h5" >&2
    for m in $memory; do
        plan "$work/traces.h5" "$work/plan-$m.json" --mode dense --form tiles --memory "$m"
    done
    for s in $shares; do
        "$BIN/gguf-synth" -q "${shape[@]}" --nextn-agree "$s" --nextn-only "$work/layer.gguf" >&2
        "$BIN/thermo-pack" mtp -q --share --model "$work/model.gguf" --layer "$work/layer.gguf" --out "$work/mtp-$s.thermo" >&2 # as published
    done
    "$BIN/thermo-pack" pack -q --model "$work/model.gguf" --traces "$work/traces.h5" --plan "$work/plan-${memory%% *}.json" \
        --out "$work/model.thermo" >&2
    rm -f "$work/model.gguf" "$work/layer.gguf"
fi
for s in $shares; do
    d=$work/draft-$s
    new "$d.thermo" || continue
    "$BIN/gguf-synth" -q --shape llama-1b --layers 1 --d-model 512 --heads 8 --kv-heads 2 --ff 1024 --vocab "${vocab:-248320}" --act silu \
        --setting hard --cycle 129 --seed 1 --cycle-agree "$s" --prompts "$d.csv" --prompt-rows 2 "$d.gguf" >&2
    "$BIN/thermo-profile" trace -q --model "$d.gguf" --prompts "$d.csv" --max-tokens 64 --samples 0 --out "$d.h5" >&2
    plan "$d.h5" "$d.json" --mode dense --memory 512MiB
    "$BIN/thermo-pack" pack -q --model "$d.gguf" --traces "$d.h5" --plan "$d.json" --out "$d.thermo" >&2
    rm -f "$d.gguf" "$d.h5"
done

prompt=$(sed -n 's/^cycle,//p' "$work/prompts.csv" | cut -d ' ' -f 1-135)
run() # MEMORY, WHAT, OPTION...: a line of JSON
{
    "$BIN/thermo-run" generate --model "$work/model.thermo" --plan "$work/plan-$1.json" --memory "$1" --prompt "$prompt" -n "$tokens" \
        --temp 0 --ignore-eos --json "${@:3}" | tail -n 1 | sed "s|^|$1 $2 |"
}
for i in $(seq "${RUNS:-2}"); do
    for m in $memory; do
        run "$m" none
        run "$m" lookup --guess lookup
        for s in $shares; do
            run "$m" "draft-$s" --guess draft --draft "$work/draft-$s.thermo" --draft-plan "$work/draft-$s.json"
            run "$m" "mtp-$s" --guess mtp --mtp "$work/mtp-$s.thermo"
        done
    done
done > "$work/runs.txt"
python3 - "$work/runs.txt" << 'END'
import json, statistics, sys
rows = {}
for line in open(sys.argv[1]):
    memory, what, o = line.split(" ", 2)
    o = json.loads(o)
    d, g = o["decode"], o.get("guesses") or {}
    rows.setdefault((memory, what), []).append((d["tokens_per_s"], d["read_bytes"] / d["tokens"] / 1e6, g.get("of"), g.get("accepted"),
                                                g.get("tried"), o["peak_bytes"] / 2**20))
print("| memory | guesses | tokens/s | times | MB a token | passes | right of tried | peak MiB |\n|--|--|--|--|--|--|--|--|")
for (memory, what), runs in rows.items():
    speed = statistics.median(r[0] for r in runs)
    base = statistics.median(r[0] for r in rows[memory, "none"])
    last = runs[-1]
    print("| %s | %s | %s | %.2f | %.1f | %s | %s | %.0f |" % (memory, what, ", ".join("%.3g" % r[0] for r in runs), speed / base, last[1],
          last[2] if last[2] is not None else "", "%s of %s" % last[3:5] if last[4] is not None else "", max(r[5] for r in runs)))
END
