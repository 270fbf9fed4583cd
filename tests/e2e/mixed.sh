#!/bin/bash
# Models whose tensors differ in type from layer to layer, as Q4_K_M's do, through all programs: planned within less than they take,
# the same bits as with everything in memory, and where Down's types are floats the logits of the source itself.
. tests/tap.sh
scratch
hw=$tmp/hw.sqlite
tokens=1,40,17,300,97,411,260,32,447,59
printf 'text\nOnce there was a dog.\nA cat sat on the mat and looked at it.\nThe dog ran home and the cat did too.\n' > "$tmp/p.csv"
check "device" phone "$hw"
for act in relu silu; do
    check "a random model, $act" "$BIN/gguf-make" random --act $act --layers 8 --d-model 256 --heads 4 --ff 768 --untied --type f32 "$tmp/$act.gguf"
done

# model NAME ACT TYPE MORE: such a mixture, traced
model()
{
    check "$1: $3, with more bits $4" "$BIN/thermo-quantize" --pure --output-tensor-type "$4" \
        --tensor-type "blk\\.[0367]\\.(attn_v|ffn_down)\\.=$4" "$tmp/$2.gguf" "$tmp/$1.gguf" "$3"
    check "$1: trace" "$BIN/thermo-profile" trace --model "$tmp/$1.gguf" --prompts "$tmp/p.csv" --out "$tmp/$1.h5"
}
logits() { "$BIN/thermo-run" logits -q --model "$tmp/m.thermo" --plan "$tmp/p.json" --tokens "$tokens" "$@"; }
resident() { logits --memory 64MiB > "$tmp/resident" && [ -s "$tmp/resident" ]; }
streamed() { logits "$@" > "$tmp/streamed" && cmp "$tmp/resident" "$tmp/streamed"; }
exceptions() { python3 -c 'import json,sys; t=json.load(open(sys.argv[1]))["decisions"]["layout"]["types"]; assert [e["layers"] for e in t.get("exceptions",[])] == eval(sys.argv[2]), t' "$tmp/p.json" "$1"; }
near()
{
    "$BIN/thermo-pack" verify -q --json --model "$tmp/$1.gguf" --traces "$tmp/$1.h5" "$tmp/m.thermo" > "$tmp/verify.json" &&
        python3 -c 'import json,sys; d=json.load(open(sys.argv[1]))["against_source"]; assert d["max_logit_difference"] < 1e-4, d' "$tmp/verify.json"
}

# chain NAME LIMIT EXCEPTIONS FLAGS...: from trace to logits
chain()
{
    local name=$1 limit=$2 layers=$3
    shift 3
    local what="$name $*"
    check "$what: plan" "$BIN/thermo-plan" solve --traces "$tmp/$name.h5" --hardware "$hw" --memory "$limit,64MiB" --context 64 "$@" --out "$tmp/p.json"
    check "$what: its types" exceptions "$layers"
    check "$what: every figure follows" "$BIN/thermo-plan" check "$tmp/p.json" --traces "$tmp/$name.h5" --hardware "$hw"
    check "$what: explained" "$BIN/thermo-plan" explain "$tmp/p.json" --traces "$tmp/$name.h5" --hardware "$hw"
    rm -f "$tmp/m.thermo"
    check "$what: pack" "$BIN/thermo-pack" pack --model "$tmp/$name.gguf" --traces "$tmp/$name.h5" --plan "$tmp/p.json" --out "$tmp/m.thermo"
    check "$what: verify" "$BIN/thermo-pack" verify "$tmp/m.thermo"
    check "$what: logits" resident
    check "$what: the same within $limit" streamed --memory "$limit"
    check "$what: the same in chunks, with three threads" streamed --memory "$limit" --threads 3 --prefill-chunk 4
}

usual='[[1, 2, 4, 5]]'
model floats relu f16 f32
for form in split bundle two-phase; do
    chain floats 18MiB "$usual" --form $form
    check "floats $form: the source's logits" near floats
done
model quants relu q4_0 q8_0
chain quants 8MiB "$usual" --form split --down-type source
chain quants 8MiB '[]' --form split # all of Down is Q8_0
chain quants 8MiB "$usual" --form bundle --down-type source --act q8
requantised() { grep -q 'quantised anew from Q4_0 to Q4_0 in 4 of 8 layers' "$tmp/p.json" && grep -q 'from Q8_0 to Q8_0 in 4 of 8' "$tmp/p.json"; }
model dense silu q4_0 q8_0
chain dense 8MiB "$usual" --down-type source
check "the plan says what of Down is quantised anew" requantised
chain dense 8MiB "$usual" # the default: tiles
check "dense: the source's logits" near dense
model tiles silu q5_k q8_0
chain tiles 8MiB "$usual" --act q8
check "tiles: the source's logits" near tiles
wrong() { ! "$BIN/thermo-plan" solve --traces "$tmp/quants.h5" --hardware "$hw" --memory 8MiB --form tiles --out "$tmp/no.json" 2> "$tmp/err" && grep -q -- '--mode dense' "$tmp/err"; }
check "tiles are refused in exact mode" wrong
other() { ! logits --mode exact > /dev/null 2> "$tmp/err" && grep -q 'packed in tiles' "$tmp/err"; }
check "and by the runtime" other
done_testing
