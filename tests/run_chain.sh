# Sourced by scripts that test thermo-run: `chain FORM` makes $tmp/FORM.thermo and $tmp/FORM.json (64 MiB: all of the
# embedded model fits), `floor_of PLAN FLAGS...` prints the floor in bytes that thermo-run states, `threads_of PLAN` the threads
# of its first limit: without --threads, thermo-run takes no more than there are processors. What several scripts make alike is made once,
# by the first, and kept in $B/tests/run_chain until a program or what it was made of is newer; each script has copies of its own.
. tests/tap.sh
BIN=${BIN:-build/bin}
run=$BIN/thermo-run
model=datasets/models/reglu-tales-10m-f16.gguf
kept=$B/tests/run_chain

# kept_of NAME FILE...: copies $kept/NAME/FILE into $tmp, where they are.
kept_of()
{
    [ -d "$kept/$1" ] || return
    _name=$1
    shift
    for _f in "$@"; do cp --reflink=auto "$kept/$_name/$_f" "$tmp/" || return; done
}

# keep NAME FILE...: the other way.
keep()
{
    rm -rf "$kept/$1.new" && mkdir "$kept/$1.new" || return
    _name=$1
    shift
    for _f in "$@"; do cp --reflink=auto "$tmp/$_f" "$kept/$_name.new/" || return; done
    mv "$kept/$_name.new" "$kept/$_name"
}

# Traces a little of the prompts; plans for a published device, so that nothing is measured here.
chain_start()
{
    _tokens=$(of 1024 512)
    mkdir -p "$kept" && exec 7> "$kept.lock" && flock 7 || exit 1
    for _f in "$BIN/thermo-profile" "$BIN/thermo-plan" "$BIN/thermo-pack" $model datasets/devices/oneplus-12.csv datasets/prompts/stories-profile.csv \
        tests/run_chain.sh tests/tap.sh; do
        [ -z "$(find -L "$_f" -newer "$kept/begun" 2> /dev/null)" ] && [ -e "$kept/begun" ] || { rm -rf "$kept" && mkdir "$kept" && : > "$kept/begun"; break; }
    done
    kept_of "inputs-$_tokens" t.h5 hw.sqlite || {
        "$BIN/thermo-profile" trace --model $model --prompts datasets/prompts/stories-profile.csv --max-tokens "$_tokens" --window-tokens 384 \
            --out "$tmp/t.h5" -q > "$tmp/log" 2>&1 &&
        phone "$tmp/hw.sqlite" > "$tmp/log" 2>&1 && keep "inputs-$_tokens" t.h5 hw.sqlite
    } || {
        sed 's/^/# /' "$tmp/log"
        echo "not ok 1 - trace and device figures"
        echo "1..1"
        exit 1
    }
    exec 7>&-
}

# chain FORM [SOLVE-FLAGS...]
chain()
{
    _form=$1
    shift
    _set=plan-$(of 1024 512)-$_form$(printf ' %s' "$@" | tr -c 'A-Za-z0-9\n' _)
    # What a script made of inputs of its own is its own.
    cmp -s "$tmp/t.h5" "$kept/inputs-$(of 1024 512)/t.h5" && cmp -s "$tmp/hw.sqlite" "$kept/inputs-$(of 1024 512)/hw.sqlite" || _set=
    if [ -n "$_set" ]; then
        exec 7> "$kept/$_set.lock" && flock 7 || return
        kept_of "$_set" "$_form.json" "$_form.thermo" && { exec 7>&-; return; }
    fi
    "$BIN/thermo-plan" solve --traces "$tmp/t.h5" --hardware "$tmp/hw.sqlite" --memory 64MiB --context 256 --form "$_form" \
        --cores mid=2,big=0,little=0 "$@" --out "$tmp/$_form.json" > "$tmp/log" 2>&1 &&
    "$BIN/thermo-pack" pack --model $model --traces "$tmp/t.h5" --plan "$tmp/$_form.json" --out "$tmp/$_form.thermo" \
        > "$tmp/log" 2>&1 || { sed 's/^/# /' "$tmp/log"; exec 7>&-; return 1; }
    [ -z "$_set" ] || keep "$_set" "$_form.json" "$_form.thermo" || return
    exec 7>&-
}

threads_of() { sed -n 's/^ *"threads": \([0-9]*\).*/\1/p' "$1" | head -n 1; }

floor_of()
{
    _plan=$1
    shift
    "$run" logits --model "${_plan%.json}.thermo" --plan "$_plan" --memory 1MiB --tokens 1 "$@" 2>&1 > /dev/null |
        sed -n 's/.*below the floor of \([0-9]*\) bytes.*/\1/p'
}
