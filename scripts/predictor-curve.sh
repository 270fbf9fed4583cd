#!/bin/sh
# predictor-curve.sh [OUT.svg]: what predictors of the embedded model cost and what they do, as a plot. Traces the model over
# the profiling prompts (every token sampled) and the evaluation prompts, makes predictors of several ranks and types
# from the first and measures them on the second, text that neither training nor thresholds have seen. Minutes.
# OUT.json keeps the figures; predictor_curve.py alone draws them again. OUT-quality.svg and OUT-quality.json: what they
# cost in the quality of the whole model, on the same evaluation prompts.
#
# predictor-curve.sh --table MODEL [--traces FILE] [--silence SHARE] [--tokens N] [--ranks 'R...'] [--type T] [--method M]: of any model, a
# table of densities by rank and input, on held-out sequences of its trace, as text for Markdown. Without --traces it is traced first,
# over N tokens of the profiling prompts (16384).
usage() { sed -n 's/^# \(predictor-curve.sh [^:]*\).*/usage: \1/p' "$0" >&2; exit 2; }
set -e
model= traces= silence= tokens=16384 ranks='64 128 256' type=q4_0 method=svd
if [ "${1:-}" = --table ]; then
    [ -n "${2:-}" ] || usage
    model=$2
    shift 2
    while [ $# -gt 0 ]; do
        [ $# -ge 2 ] || usage
        case $1 in
        --traces) traces=$2 ;;
        --silence) silence=$2 ;;
        --tokens) tokens=$2 ;;
        --ranks) ranks=$2 ;;
        --type) type=$2 ;;
        --method) method=$2 ;;
        *) usage ;;
        esac
        shift 2
    done
fi
case ${1:-} in -*) usage ;; esac
root=$(cd "$(dirname "$0")/.." && pwd)
bin=${BIN:-build/bin}
case $bin in /*) ;; *) bin=$root/$bin ;; esac
tmp=$(mktemp -d "${TMPDIR:-/tmp}/thermo-curve-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
if [ -n "$model" ]; then
    if [ -z "$traces" ]; then
        traces=$tmp/t.h5
        "$bin/thermo-profile" trace --model "$model" --prompts "$root/datasets/prompts/stories-profile.csv" --out "$traces" \
            ${silence:+--silence "$silence"} --max-tokens "$tokens" --samples "$tokens" > /dev/null
    fi
    for rank in $ranks; do
        echo "rank $rank" >&2
        "$bin/thermo-profile" predictors --model "$model" --traces "$traces" --out "$tmp/out.h5" --input both --rank "$rank" \
            --type "$type" --method "$method" --quality-tokens 0 --json > "$tmp/run-$rank.json"
    done
    set --
    for rank in $ranks; do set -- "$@" "$tmp/run-$rank.json"; done
    python3 "$root/scripts/predictor_curve.py" --ranks "$@"
    exit
fi
cd "$root"
out=${1:-docs/predictors.svg}
model=datasets/models/reglu-tales-10m-f16.gguf
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
