#!/bin/bash
# fingerprint.sh [quick]: hashes of plans, packs and logits of models of four kinds: the embedded one, PowerInfer's form of it,
# a random smallthinker model with experts, and synthetic models with 7B's shape (plans of the published description too). A
# change that must not alter results prints the same lines before and after: `make fingerprint > before`. BIN: the programs.
set -eo pipefail
export LC_ALL=C.UTF-8
cd "$(dirname "$0")/.."
BIN=$(cd "${BIN:-build/bin}" && pwd)
quick=${1:-}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
profile=$BIN/thermo-profile plan=$BIN/thermo-plan pack=$BIN/thermo-pack run=$BIN/thermo-run
embedded=datasets/models/reglu-tales-10m-f16.gguf
for d in oneplus-12 oneplus-ace-2; do "$profile" import -q --db "$tmp/$d.sqlite" --csv datasets/devices/$d.csv > /dev/null; done

say() { printf '%s %s\n' "$(sha256sum < "$2" | cut -c 1-24)" "$1"; } # WHAT FILE
# refused or made: the plan, or what is said instead
solve() # NAME FLAGS...
{
    local name=$1
    shift
    "$plan" solve -q "$@" --out "$tmp/plan.json" > "$tmp/said" 2>&1 || mv "$tmp/said" "$tmp/plan.json"
    say "plan $name" "$tmp/plan.json"
}
trace() { "$profile" trace -q --model "$tmp/$1.gguf" --out "$tmp/$1.h5" "${@:2}" > /dev/null; }
tokens=1,403,404,297,411,260,332,447,359,263,399,281,17,20,30,7,8,9,300

# chain NAME LIMITS FLAGS...: plan, pack, and logits at every limit, whole and in chunks of 3
chain()
{
    local name=$1 limits=$2 l
    shift 2
    solve "$name $limits $*" --traces "$tmp/$name.h5" --hardware "$tmp/oneplus-12.sqlite" --memory "$limits" --context 64 "$@"
    cp "$tmp/plan.json" "$tmp/p.json"
    rm -f "$tmp/m.thermo"
    "$pack" pack -q --model "$tmp/$name.gguf" --traces "$tmp/$name.h5" --plan "$tmp/p.json" --out "$tmp/m.thermo" > /dev/null
    say "pack $name $*" "$tmp/m.thermo"
    for l in ${limits//,/ }; do
        for chunk in 1 3; do
            "$run" logits -q --model "$tmp/m.thermo" --plan "$tmp/p.json" --memory "$l" --prefill-chunk $chunk --tokens "$tokens" > "$tmp/logits" 2>&1 || true
            say "logits $name $l chunk $chunk $*" "$tmp/logits"
        done
    done
}

cp $embedded "$tmp/embedded.gguf"
trace embedded --prompts datasets/prompts/stories-profile.csv --max-tokens 1200
for form in split bundle two-phase; do chain embedded 15MiB,18MiB,64MiB --form $form; done
chain embedded 24MiB,64MiB
cp "$tmp/embedded.h5" "$tmp/oracle.h5"
"$profile" predictors -q --model "$tmp/embedded.gguf" --traces "$tmp/embedded.h5" --method svd --rank 32 --input both --quality-tokens 0 > /dev/null
say "predictors embedded" <(h5dump -g /predictors "$tmp/embedded.h5" | sed 1d)
for form in split bundle two-phase; do chain embedded 18MiB,64MiB --form $form --mode predicted; done
for d in oneplus-12 oneplus-ace-2; do
    for flags in "" "--cost paper" "--policy lfu" "--mode exact --form split" "--context 128 --packed no"; do
        # shellcheck disable=SC2086
        solve "embedded $d $flags" --traces "$tmp/embedded.h5" --hardware "$tmp/$d.sqlite" --memory 16MiB,20MiB,40MiB $flags
    done
done

"$BIN/gguf-make" powerinfer -q $embedded "$tmp/powerinfer.gguf"
trace powerinfer --prompts datasets/prompts/stories-profile.csv --max-tokens 800
chain powerinfer 18MiB,64MiB

printf 'text\nabc def ghi jkl mno pqr stu\nthe same again and another text of some length\nmore\n' > "$tmp/p.csv"
"$BIN/gguf-make" random -q --arch smallthinker --experts 6 --experts-used 2 --gating sigmoid --window 8 --layers 6 --d-model 64 --heads 4 --kv-heads 2 \
    --ff 96 --type f32 --vocab 500 "$tmp/smallthinker.gguf"
trace smallthinker --prompts "$tmp/p.csv"
chain smallthinker 6500KiB,64MiB

[ "$quick" != quick ] || exit 0
printf 'text\n' > "$tmp/w.csv"
"$BIN/gguf-synth" -q --shape mistral-7b --layers 2 --prompts "$tmp/w.csv" "$tmp/synthetic.gguf" > /dev/null
trace synthetic --prompts "$tmp/w.csv" --max-tokens 96 --window-tokens 96
chain synthetic 300MiB,420MiB,2GiB
for d in oneplus-12 oneplus-ace-2; do
    for mode in exact predicted; do
        for limit in 1500MB 2500MB 4500MB; do
            solve "bamboo-7b $d $mode $limit" --description datasets/descriptions/bamboo-7b.json --hardware "$tmp/$d.sqlite" --memory $limit --mode $mode
        done
    done
    solve "mixtral $d" --description datasets/descriptions/turbosparse-mixtral-47b.json --hardware "$tmp/$d.sqlite" --memory 7GB,13GB,19GB
done
