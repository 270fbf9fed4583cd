# Sourced by scripts that test thermo-run: `chain FORM` makes $tmp/FORM.thermo and $tmp/FORM.json (64 MiB: all of the
# embedded model fits), `floor_of PLAN FLAGS...` prints the floor in bytes that thermo-run states, `threads_of PLAN` the threads
# of its first limit: without --threads, thermo-run takes no more than there are processors.
. tests/tap.sh
BIN=${BIN:-build/bin}
run=$BIN/thermo-run
model=datasets/models/reglu-tales-10m-f16.gguf

# Traces a little of the prompts; plans for a published device, so that nothing is measured here.
chain_start()
{
    "$BIN/thermo-profile" trace --model $model --prompts datasets/prompts/stories-profile.csv --max-tokens "$(of 1024 512)" --window-tokens 384 \
        --out "$tmp/t.h5" -q > "$tmp/log" 2>&1 &&
    phone "$tmp/hw.sqlite" > "$tmp/log" 2>&1 || {
        sed 's/^/# /' "$tmp/log"
        echo "not ok 1 - trace and device figures"
        echo "1..1"
        exit 1
    }
}

# chain FORM [SOLVE-FLAGS...]
chain()
{
    _form=$1
    shift
    "$BIN/thermo-plan" solve --traces "$tmp/t.h5" --hardware "$tmp/hw.sqlite" --memory 64MiB --context 256 --form "$_form" \
        --cores mid=2,big=0,little=0 "$@" --out "$tmp/$_form.json" > "$tmp/log" 2>&1 &&
    "$BIN/thermo-pack" pack --model $model --traces "$tmp/t.h5" --plan "$tmp/$_form.json" --out "$tmp/$_form.thermo" \
        > "$tmp/log" 2>&1 || { sed 's/^/# /' "$tmp/log"; return 1; }
}

threads_of() { sed -n 's/^ *"threads": \([0-9]*\).*/\1/p' "$1" | head -n 1; }

floor_of()
{
    _plan=$1
    shift
    "$run" logits --model "${_plan%.json}.thermo" --plan "$_plan" --memory 1MiB --tokens 1 "$@" 2>&1 > /dev/null |
        sed -n 's/.*below the floor of \([0-9]*\) bytes.*/\1/p'
}
