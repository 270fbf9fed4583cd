#!/bin/bash
# A model in PowerInfer's variety of GGUF (magic PWRI, Down transposed, predictors inside) against the same weights in an
# ordinary one: the same order of neurons, the same logits to the bit; its predictors, imported, do what plain Python says
# they do, and reach the pack.
. tests/tap.sh
scratch
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }
model=datasets/models/reglu-tales-10m-f16.gguf
phone "$tmp/hw.sqlite" > /dev/null 2>&1

convert() { "$BIN/gguf-make" powerinfer -q "$@"; }
trace() { "$BIN/thermo-profile" trace -q --model "$tmp/$1.gguf" --prompts "$2" --out "$tmp/$1.h5" "${@:3}"; }
plan()
{
    "$BIN/thermo-plan" solve --traces "$tmp/$1.h5" --hardware "$tmp/hw.sqlite" --device 'OnePlus 12' --memory 64MiB \
        --context 64 --out "$tmp/$1.json" "${@:2}" > /dev/null
}
pack()
{
    "$BIN/thermo-pack" pack --model "$tmp/$1.gguf" --traces "$tmp/$1.h5" --plan "$tmp/$1.json" --out "$tmp/$1.thermo" \
        "${@:2}"
}
logits() { "$BIN/thermo-run" logits -q --model "$tmp/$1.thermo" --plan "$tmp/$1.json" --tokens "$2" > "$tmp/$1.logits"; }
says() { # STATUS PATTERN COMMAND...
    "${@:3}" > "$tmp/out" 2>&1
    [ $? -eq "$1" ] && grep -qE -- "$2" "$tmp/out" || { cat "$tmp/out"; return 1; }
}

# ---- the same weights in both forms ----
cp "$model" "$tmp/plain.gguf"
check "written, the same bytes twice" eval 'convert "$model" "$tmp/pi.gguf" && convert "$model" "$tmp/twice.gguf" &&
    cmp "$tmp/pi.gguf" "$tmp/twice.gguf" && [ "$(head -c 4 "$tmp/pi.gguf")" = PWRI ]'
rm -f "$tmp/twice.gguf"
whole() { trace "$1" datasets/prompts/stories-profile.csv --max-tokens 800 && plan "$1" && pack "$1" -q; }
check "ordinary: trace, plan, pack" whole plain
check "PowerInfer's: trace, plan, pack" whole pi
ids=1,403,404,297,411,260,332,447,359,263,399,281,1000,2000,3000,7,8,9,300
check "the same logits to the bit" eval 'logits plain $ids && logits pi $ids && cmp "$tmp/plain.logits" "$tmp/pi.logits"'
check "a training run says that there are some to import" says 0 'predictors-import' "$BIN/thermo-profile" predictors \
    --model "$tmp/pi.gguf" --traces "$tmp/pi.h5" --out "$tmp/x.h5" --rank 32 --epochs 1 --quality-tokens 0
check "import" says 0 'imported' "$BIN/thermo-profile" predictors-import --model "$tmp/pi.gguf" \
    --traces "$tmp/pi.h5" --quality-tokens 100
check "the trace is otherwise what it was" eval '"$BIN/thermo-profile" show --verify "$tmp/pi.h5" > /dev/null && plan pi'
check "packed with the model" eval 'pack pi && "$BIN/thermo-pack" verify "$tmp/pi.thermo" &&
    "$BIN/thermo-pack" inspect "$tmp/pi.thermo" | grep -i residual'
text() { "$BIN/thermo-run" generate -q --mode "$1" --model "$tmp/pi.thermo" --plan "$tmp/pi.json" --prompt 'Once upon a time' \
    -n 24 --temp 0; }
check "predicted mode with them says what exact mode says" eval 'plan pi --mode predicted --predictor residual && pack pi -q &&
    text exact > "$tmp/exact" && text predicted > "$tmp/predicted" && cmp "$tmp/exact" "$tmp/predicted" && [ -s "$tmp/exact" ]'
check "a trace of other weights" says 5 'traced in' "$BIN/thermo-profile" predictors-import \
    --model "$tmp/pi.gguf" --traces "$tmp/plain.h5" --quality-tokens 0
check "nothing to import" says 3 'has no predictors' "$BIN/thermo-profile" predictors-import \
    --model "$tmp/plain.gguf" --traces "$tmp/plain.h5"
check "flags without use" says 2 'unknown option --rank' "$BIN/thermo-profile" predictors-import --rank 32 \
    --model "$tmp/pi.gguf" --traces "$tmp/pi.h5"

# ---- blocks: rows by neuron need no other type ----
q4() { "$BIN/thermo-quantize" -q --pure "$tmp/pi.gguf" "$tmp/q4.gguf" Q4_0 && trace q4 datasets/prompts/stories-profile.csv \
    --max-tokens 300 && plan q4 && pack q4 > "$tmp/log" && cat "$tmp/log" && ! grep 'is stored as' "$tmp/log" && logits q4 $ids; }
check "Q4_0 by neuron is packed as it is" q4

# ---- figures against plain Python ----
printf 'text\nabc def ghi jkl mno pqr stu\nthe same again and another text of some length\nmore of it and then some\n' > "$tmp/p.csv"
tiny() # ACT FLAGS...: a random model and its poor predictors
{
    "$BIN/gguf-make" random -q --act "$1" --layers 3 --d-model 32 --heads 2 --ff 64 --type f32 --vocab 300 "$tmp/r.gguf" &&
        convert "${@:2}" "$tmp/r.gguf" "$tmp/tiny.gguf" && trace tiny "$tmp/p.csv" && plan tiny && pack tiny -q
}
imported()
{
    "$BIN/thermo-profile" predictors-import --model "$tmp/tiny.gguf" --traces "$tmp/tiny.h5" --quality-tokens 0 \
        --json > "$tmp/tiny.p" && python3 tests/e2e/naive.py "$tmp/tiny.gguf" "$(sequences)" --predictors "$tmp/tiny.p" \
        --max 0.003
}
sequences() # as naive.py takes them
{
    python3 - "$(h5dump -d /corpus/tokens -y -w 0 "$tmp/tiny.h5")" "$(h5dump -d /corpus/sequence_starts -y -w 0 "$tmp/tiny.h5")" << 'END'
import re, sys
ids, starts = ([int(x) for x in re.findall(r"\d+", re.search(r"DATA \{([^}]*)\}", d).group(1))] for d in sys.argv[1:])
print("/".join(",".join(map(str, ids[a:b])) for a, b in zip(starts, starts[1:])))
END
}
for act in relu drelu; do
    check "$act: a tiny model with predictors of half of the channels" tiny $act --rank 40 --threshold 0.3
    check "$act: logits of plain Python" eval 'logits tiny 1,40,41,77,90,123,200,15,16 &&
        python3 tests/e2e/naive.py "$tmp/tiny.gguf" 1,40,41,77,90,123,200,15,16 --compare "$tmp/tiny.logits" --max 0.02'
    if command -v h5dump > /dev/null; then
        check "$act: recall, density and precision of plain Python" imported
    else
        skip "$act: recall, density and precision of plain Python" "h5dump is not installed"
    fi
done
check "drelu makes a bamboo" eval '"$BIN/thermo-profile" show "$tmp/tiny.h5" | grep -q "bamboo.*drelu"'
check "what is silu has no place behind that magic" eval '"$BIN/gguf-make" random -q "$tmp/s.gguf" &&
    says 3 "silu" convert "$tmp/s.gguf" "$tmp/x.gguf"'
check "twice converted" says 3 'only a plain llama' convert "$tmp/pi.gguf" "$tmp/x.gguf"
check "too high a rank" says 2 'up to 512' convert --rank 514 "$model" "$tmp/x.gguf"
done_testing
