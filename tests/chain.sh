# Sourced by test scripts (after tests/tap.sh, from the repository's root): the embedded model once through trace,
# hardware, plan and pack, kept in $B/tests/chain and made again only when a program, the model or this file is newer. Sets
# $chain and the paths $model $traces $hardware $plan $packed; the plan holds limits from near the floor to resident. Its
# layout is given: what this machine measures, while other tests run beside it, must not decide what the tests see.
BIN=${BIN:-build/bin}
chain=${B:-build/$(uname -m)}/tests/chain
model=datasets/models/reglu-tales-10m-f16.gguf
traces=$chain/traces.h5 hardware=$chain/hardware.sqlite plan=$chain/plan.json packed=$chain/model.thermo
chain_limits=13MiB,14MiB,16MiB,18MiB,22MiB,64MiB

chain_step()
{
    "$@" > "$chain.new/log" 2>&1 && return
    echo "Bail out! exit status $? of: $*"
    sed 's/^/# /' "$chain.new/log" | tail -n 20
    exit 1
}

chain_make()
{
    rm -rf "$chain.new" && mkdir -p "$chain.new" || exit 1
    chain_step "$BIN/thermo-profile" trace --model "$model" --prompts datasets/prompts/stories-profile.csv \
        --max-tokens 2048 --window-tokens 128 --out "$chain.new/traces.h5"
    chain_step "$BIN/thermo-profile" hardware --db "$chain.new/hardware.sqlite" --device test --quick --patience 0 \
        --range 64MiB --memory-range 16MiB --seconds-per-point 0.004 --engine none --storage "$chain.new"
    chain_step "$BIN/thermo-plan" solve --traces "$chain.new/traces.h5" --hardware "$chain.new/hardware.sqlite" \
        --device test --memory "$chain_limits" --context 256 --form split --packed no --out "$chain.new/plan.json"
    chain_step "$BIN/thermo-pack" pack --model "$model" --traces "$chain.new/traces.h5" --plan "$chain.new/plan.json" \
        --out "$chain.new/model.thermo"
    rm -rf "$chain" && mv "$chain.new" "$chain"
}

mkdir -p "${chain%/*}"
exec 7> "$chain.lock" # of several tests at a time, the first makes it
flock 7
chain_stale=
for f in "$BIN/thermo-profile" "$BIN/thermo-plan" "$BIN/thermo-pack" "$model" tests/chain.sh; do
    [ -e "$packed" ] && [ -z "$(find -L "$f" -newer "$packed" 2>/dev/null)" ] || chain_stale=1
done
[ -z "$chain_stale" ] || chain_make
exec 7>&-
