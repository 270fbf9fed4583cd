#!/bin/sh
# predictor-curve.sh [OUT.svg]: what predictors of the embedded model cost and what they do, as a plot. Traces the model over
# the profiling prompts (every token sampled) and the evaluation prompts, makes predictors of several ranks and types
# from the first and measures them on the second, text that neither training nor thresholds have seen. Minutes.
# OUT.json keeps the figures; predictor_curve.py alone draws them again. OUT-quality.svg and OUT-quality.json: what they
# cost in the quality of the whole model, on the same evaluation prompts.
case ${1:-} in -*) echo "usage: predictor-curve.sh [OUT.svg]" >&2; exit 2 ;; esac
set -e
cd "$(dirname "$0")/.."
out=${1:-docs/predictors.svg}
bin=${BIN:-build/bin}
model=datasets/models/reglu-tales-10m-f16.gguf
tmp=$(mktemp -d "${TMPDIR:-/tmp}/thermo-curve-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
for set in profile eval; do
    "$bin/thermo-profile" trace --model $model --prompts datasets/prompts/stories-$set.csv --out "$tmp/$set.h5" \
        --samples 1000000 > /dev/null
done
run()
{
    echo "$*" >&2
    "$bin/thermo-profile" predictors --model $model --traces "$tmp/profile.h5" --check "$tmp/eval.h5" --out "$tmp/out.h5" \
        --json "$@" > "$tmp/run-$n.json"
    n=$((n + 1))
}
n=10
run --input both --quality-tokens 4096 # ranks by layer, within 6 % of the FFN's bytes
for rank in 32 64 96 128 160 192; do
    run --input both --rank $rank --quality-tokens 0
done
for rank in 32 64 96 128; do
    run --rank $rank --type q8_0 --quality-tokens 0
done
python3 scripts/predictor_curve.py --collect "$tmp"/run-*.json > "${out%.svg}.json"
python3 scripts/predictor_curve.py "${out%.svg}.json" > "$out"
n=98
run --input both --method svd --quality-tokens 4096
run --input both --method svd --rank 64 --quality-tokens 4096
quality=${out%.svg}-quality
python3 scripts/predictor_curve.py --collect-quality "$tmp"/run-10.json "$tmp"/run-9[89].json > "$quality.json"
python3 scripts/predictor_curve.py --draw-quality "$quality.json" > "$quality.svg"
