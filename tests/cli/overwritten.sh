#!/bin/bash
# A model that is written over while a program reads it again and again: what comes out is of the weights that were hashed, bit for bit, or the
# program ends with exit status 6, names file, tensor and offset, and writes nothing else. What was not read before, a trace knows by its
# hash: exit status 5. Each command is tried with the change at several places of its run.
. tests/tap.sh
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }
[ -z "$SANITIZE" ] || { echo "1..0 # SKIP sanitizers come before other libraries"; exit 77; }
scratch
${CC:-cc} -D_GNU_SOURCE -shared -fPIC -O1 -o "$tmp/overwrite.so" tests/preload/overwrite.c -ldl 2> "$tmp/log" &&
    LD_PRELOAD=$tmp/overwrite.so true 2>> "$tmp/log" && [ ! -s "$tmp/log" ] ||
    { echo "1..0 # SKIP no reads of one's own here: $(head -n 1 "$tmp/log")"; exit 77; }
. tests/chain.sh
P=$BIN/thermo-profile K=$BIN/thermo-pack L=$BIN/thermo-plan
prompts=datasets/prompts/stories-profile.csv

# over BYTES: the command $run, whose model is $file, a copy of $from, of which all behind the first 2 MB (or half) becomes zeros once BYTES of
# it were read. What it printed that says how long it took, is left out.
over()
{
    cp "$from" "$file" && rm -f "$tmp/out" "$tmp"/out.* || return
    OVERWRITE=$file OVERWRITE_AFTER=$1 OVERWRITE_FROM=$((size > 4000000 ? 2000000 : size / 2)) LD_PRELOAD=$tmp/overwrite.so "${run[@]}" > "$tmp/said" 2> "$tmp/why"
    status=$?
    sed -i 's/in [0-9.]* s\b.*//' "$tmp/said"
}
# tried: undisturbed, and with the change after so many tenths of the model's bytes. 0: it was noticed at least once, and never passed over.
tried()
{
    local tenths noticed=0
    size=$(wc -c < "$from")
    over $((size * 1000)) && [ "$status" = 0 ] && cmp -s "$from" "$file" || { cat "$tmp/why"; return 1; }
    rm -f "$tmp/right" && { [ ! -e "$tmp/out" ] || mv "$tmp/out" "$tmp/right"; }
    cp "$tmp/said" "$tmp/right.said"
    for tenths in "$@"; do
        over $((size * tenths / 10))
        if [ "$status" = 0 ]; then
            cmp "$tmp/said" "$tmp/right.said" && { [ ! -e "$tmp/right" ] || cmp "$tmp/out" "$tmp/right"; } ||
                { echo "after $tenths tenths it passed, and something else came out"; return 1; }
            continue
        fi
        noticed=$((noticed + 1))
        { [ "$status" = 6 ] && grep -q "'$file': tensor '[^']*', at offset [0-9]*" "$tmp/why"; } ||
            { [ "$status" = 5 ] && grep -q "tensor '[^']*' of '$file' has hash .* traced in" "$tmp/why"; } ||
            { echo "after $tenths tenths: exit status $status"; cat "$tmp/why"; return 1; }
        [ ! -e "$tmp/out" ] || cmp "$tmp/out" "$tmp/right" || { echo "after $tenths tenths: another output was left"; return 1; }
    done
    echo "noticed $noticed times"
    [ "$noticed" -gt 0 ]
}

file=$tmp/g.gguf from=$model
run=("$P" trace -q --model "$file" --prompts $prompts --max-tokens 512 --window-tokens 64 --samples 64 --threads 1 --out "$tmp/out")
check "trace" tried 10 12 15 25 40
run=("$P" predictors -q --model "$file" --traces "$traces" --samples 256 --method svd --rank 32 --quality-tokens 0 --threads 1 --out "$tmp/out")
check "predictors" tried 1 3 5 8
"$P" predictors -q --model "$model" --traces "$traces" --samples 256 --method svd --rank 32 --quality-tokens 0 --out "$tmp/made.h5" > /dev/null 2>&1
run=("$P" predictors-measure -q --model "$file" --traces "$tmp/made.h5" --quality-tokens 64 --threads 1 --out "$tmp/out")
check "predictors-measure" tried 1 3 5 8 10 15
run=("$K" verify --model "$file" --traces "$traces" --quality-tokens 16 "$packed")
check "thermo-pack verify --model" tried 3 6 10 15
"$L" solve -q --traces "$traces" --hardware "$hardware" --device test --form split --packed no --context 64 --memory 18MiB \
    --down-type q8_0 --out "$tmp/q8.json" > /dev/null 2>&1
run=("$K" pack -q --model "$file" --traces "$traces" --plan "$tmp/q8.json" --quality-tokens 16 --threads 1 --out "$tmp/out")
check "thermo-pack pack, and its comparison of logits" tried 1 5 9 11 12
run=("$K" pack -q --model "$model" --requant-from "$file" --traces "$traces" --plan "$tmp/q8.json" --quality-tokens 0 --threads 1 --out "$tmp/out")
check "thermo-pack pack --requant-from" tried 10 11

"$BIN/gguf-make" random -q --act silu --layers 3 --vocab 4096 --context 256 --d-model 128 --ff 1024 --type f32 "$tmp/silu.gguf"
from=$tmp/silu.gguf
run=("$P" trace -q --silence 50% --silence-tokens 300 --model "$file" --prompts $prompts --max-tokens 512 --window-tokens 64 --threads 1
    --out "$tmp/out")
check "trace --silence" tried 3 6 9 15 20 25
run=("$P" silence -q --model "$file" --prompts $prompts --held-out $prompts --silence-tokens 300 --held-out-tokens 300 --threads 1)
check "silence" tried 6 9 15
"$BIN/gguf-make" random -q --vocab 2600 --context 256 --type f32 --arch glm4moe --d-model 64 --heads 4 --kv-heads 2 --head-dim 32 --ff 96 \
    --experts 6 --experts-used 2 --layers 4 --lead 1 --nextn 1 "$tmp/glm.gguf"
from=$tmp/glm.gguf
run=("$K" mtp -q --model "$file" --threads 1 --out "$tmp/out")
check "thermo-pack mtp" tried 10 11
done_testing
