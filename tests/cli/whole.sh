#!/bin/bash
# Outputs appear whole or not at all: no writer leaves half of a file under the final name, nor anything else, when the disk
# takes no more (a limit of the file size stands for that); what was there stays.
. tests/tap.sh
. tests/chain.sh
scratch
P=$BIN/thermo-profile L=$BIN/thermo-plan
few=(trace --model "$model" --prompts datasets/prompts/stories-profile.csv --ctx 8 --max-tokens 600 --window-tokens 64 --samples 400)
"$P" "${few[@]}" --out "$tmp/few.h5" > /dev/null || exit 1
inputs=(--traces "$tmp/few.h5" --hardware "$hardware" --device test)
want=("${inputs[@]}" --form split --packed no --context 64)
"$L" solve "${want[@]}" --memory 18MiB --out "$tmp/plan.json" > /dev/null || exit 1

# cut KIB COMMAND...: COMMAND may write no more than that into one file; what it says is in $said
cut()
{
    said=$(
        ulimit -f "$1" || exit 99
        trap '' XFSZ
        shift
        exec "$@" 2>&1
    )
}

# whole KIB... -- COMMAND...: fails at each of these sizes, and "$tmp/d" keeps the old file "out" and nothing else but OUT.partial
whole()
{
    local sizes=() k got
    while [ "$1" != -- ]; do sizes+=("$1"); shift; done
    shift
    for k in "${sizes[@]}"; do
        rm -rf "$tmp/d" && mkdir "$tmp/d" && echo old > "$tmp/d/out"
        cut "$k" "$@"
        got=$?
        [ $got -eq 1 ] || [ $got -eq 6 ] || { echo "$k KiB: exit status $got: $said"; return 1; }
        [[ $said == *"error: "*"File too large"* ]] || { echo "$k KiB: the reason is not said: $said"; return 1; }
        [ "$(cat "$tmp/d/out")" = old ] || { echo "$k KiB: the old file is gone"; return 1; }
        [ -z "$(find "$tmp/d" -type f ! -name out ! -name '*.partial')" ] || { echo "$k KiB: left:"; ls -l "$tmp/d"; return 1; }
    done
    rm -rf "$tmp/d" && mkdir "$tmp/d" && echo old > "$tmp/d/out"
    "$@" > "$tmp/said" 2>&1 && ! cmp -s - "$tmp/d/out" <<< old || { echo "without a limit:"; cat "$tmp/said"; return 1; }
}

check "trace" whole 0 1 40 -- "$P" "${few[@]}" --out "$tmp/d/out"
"$P" "${few[@]}" --shard 0/2 --out "$tmp/0.h5" > /dev/null && "$P" "${few[@]}" --shard 1/2 --out "$tmp/1.h5" > /dev/null
check "merge" whole 0 2 60 -- "$P" merge --out "$tmp/d/out" "$tmp/0.h5" "$tmp/1.h5"
check "predictors" whole 0 16 500 -- "$P" predictors --model "$model" --traces "$tmp/few.h5" --method svd --rank 32 --layers 0 \
    --quality-tokens 0 --out "$tmp/d/out"
check "export" whole 0 4 -- "$P" export --db "$hardware" --out "$tmp/d/out"
check "solve" whole 0 -- "$L" solve "${want[@]}" --memory 18MiB --out "$tmp/d/out"
check "sweep --out" whole 0 -- "$L" sweep "${want[@]}" --memory 14MiB..18MiB --steps 3 --out "$tmp/d/out"
check "sweep --svg" whole 0 1 -- "$L" sweep "${want[@]}" --memory 14MiB..18MiB --steps 3 --svg "$tmp/d/out"
check "report" whole 0 8 -- "$L" report "$tmp/plan.json" "${inputs[@]}" --no-gains --out "$tmp/d/out"
check "pack" whole 0 4 512 5000 -- "$BIN/thermo-pack" pack --model "$model" --traces "$traces" --plan "$plan" --out "$tmp/d/out"
check "thermo-quantize" whole 0 4 512 -- "$BIN/thermo-quantize" "$model" "$tmp/d/out" Q8_0
check "gguf-make random" whole 0 4 128 -- "$BIN/gguf-make" random "$tmp/d/out"
check "gguf-synth" whole 0 4 512 -- "$BIN/gguf-synth" --shape tiny "$tmp/d/out"

# Databases are changed in place, in one transaction.
database()
{
    local k got
    for k in 0 8 16; do
        rm -rf "$tmp/d" && mkdir "$tmp/d" && cp "$hardware" "$tmp/d/db"
        cut $k "$@" --db "$tmp/d/db"
        got=$?
        [ $got -eq 1 ] || { echo "$k KiB: exit status $got: $said"; return 1; }
        "$P" export --db "$tmp/d/db" > "$tmp/after.csv" && cmp "$tmp/before.csv" "$tmp/after.csv" || { echo "$k KiB"; return 1; }
    done
}
"$P" export --db "$hardware" > "$tmp/before.csv"
check "import" database "$P" import --csv datasets/devices/oneplus-12.csv

# Devices and pipes are written as they are; /dev/stdout is what it leads to.
"$L" sweep "${want[@]}" --memory 14MiB..18MiB --steps 3 > "$tmp/plain.csv"
check "sweep --out /dev/null" "$L" sweep "${want[@]}" --memory 14MiB..18MiB --steps 3 --out /dev/null --svg /dev/null
check "sweep --out /dev/stdout into a pipe" eval '"$L" sweep "${want[@]}" --memory 14MiB..18MiB --steps 3 --out /dev/stdout |
    cmp - "$tmp/plain.csv"'
into_file() # behind what is there, with what the command itself prints after it
{
    { echo first && "$L" report "$tmp/plan.json" "${inputs[@]}" --no-gains --out /dev/stdout && echo last; } > "$tmp/page" || return 1
    [ "$(head -n 1 "$tmp/page")" = first ] && grep -q '</html>' "$tmp/page" && grep -qx 'wrote /dev/stdout' "$tmp/page" &&
        [ "$(tail -n 1 "$tmp/page")" = last ]
}
check "report --out /dev/stdout into a file" into_file
check "a named pipe" eval 'mkfifo "$tmp/pipe" && { cat "$tmp/pipe" > "$tmp/piped" & } &&
    "$L" sweep "${want[@]}" --memory 14MiB..18MiB --steps 3 --out "$tmp/pipe" && wait $! && cmp "$tmp/piped" "$tmp/plain.csv"'

done_testing
