#!/bin/bash
# bench_masks.sh [PASSES [LOOK [SCHEMA]]]: what masks of schemas add to a pass of a model of Qwen3-0.6B's shape, in memory, with one text
# and with 32 (tests/bench/bench_masks.c). make bench-masks builds what it needs. Settings are environment variables:
#   TOKENIZER=FILE   a GGUF whose vocabulary the model gets: the worst masks are of a vocabulary that has many kinds of tokens (without: one
#                    is made up, of letters)
#   TYPE=q8_0        of the weights
#   WORK=DIR         where model, trace, figures of this machine, plan and pack lie, and stay (build/bench-masks)
#   HARDWARE=FILE    figures of this machine, if there are; else they are taken, for half a minute in which nothing else should run
#   SEQUENCES=32     texts at once
case $1 in -*) sed -n '2,10s/^# //p' "$0" >&2; exit 2 ;; esac
set -e
BIN=${BIN:-build/bin} B=${B:-build/$(uname -m)} work=${WORK:-build/bench-masks}
mkdir -p "$work"
model=$work/model.gguf plan=$work/plan.json pack=$work/model.thermo hardware=${HARDWARE:-$work/hardware.sqlite}
if [ ! -e "$model" ]; then
    "$BIN/gguf-make" random -q --arch qwen3 --layers 28 --d-model 1024 --ff 3072 --heads 16 --kv-heads 8 --head-dim 128 --vocab 151936 \
        --type "${TYPE:-q8_0}" --context 2048 ${TOKENIZER:+--tokenizer-from "$TOKENIZER"} "$model.new" >&2
    mv "$model.new" "$model"
fi
[ -e "$work/traces.h5" ] || "$BIN/thermo-profile" trace -q --model "$model" --prompts datasets/prompts/stories-profile.csv \
    --max-tokens 1024 --ctx 16 --samples 0 --out "$work/traces.h5" >&2
[ -e "$hardware" ] || "$BIN/thermo-profile" hardware -q --db "$hardware" --device this --quick --storage "$work" >&2
[ -e "$plan" ] || "$BIN/thermo-plan" solve -q --traces "$work/traces.h5" --hardware "$hardware" --for serve --mode dense --context 128 \
    --max-batch "${SEQUENCES:-32}" --memory 4GiB --out "$plan" >&2
[ -e "$pack" ] || "$BIN/thermo-pack" pack -q --model "$model" --traces "$work/traces.h5" --plan "$plan" --out "$pack" >&2
exec "$B/tests/bench/bench_masks" "$pack" "$plan" tests/golden/schemas.jsonl "$@"
