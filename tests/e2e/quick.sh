#!/bin/bash
# One chain through all programs on a tiny random model, in a second or two: traced, planned for a published device, checked,
# packed, verified, run; the sparse engine's text is that of dense mode.
. tests/tap.sh
scratch
m=$tmp/m.gguf t=$tmp/t.h5 hw=$tmp/hw.sqlite plan=$tmp/plan.json pack=$tmp/m.thermo
printf 'text\nOnce there was a dog.\nA cat sat on the mat and looked at it.\n' > "$tmp/p.csv"
text() { "$BIN/thermo-run" generate --model "$pack" --plan "$plan" --prompt 'Once' -n 16 --temp 0 --ignore-eos -q "$@"; }
same() { text > "$tmp/exact" && text --mode dense > "$tmp/dense" && [ -s "$tmp/exact" ] && cmp "$tmp/exact" "$tmp/dense"; }

check "model" "$BIN/gguf-make" random --act relu --context 64 --layers 3 --ff 512 "$m"
check "trace" "$BIN/thermo-profile" trace --model "$m" --prompts "$tmp/p.csv" --out "$t"
check "device" phone "$hw"
check "plan" "$BIN/thermo-plan" solve --traces "$t" --hardware "$hw" --memory 64MiB --context 64 --form split --out "$plan"
check "check" "$BIN/thermo-plan" check "$plan" --traces "$t" --hardware "$hw"
check "pack" "$BIN/thermo-pack" pack --model "$m" --traces "$t" --plan "$plan" --out "$pack"
check "verify" "$BIN/thermo-pack" verify "$pack"
floor=$("$BIN/thermo-run" logits --model "$pack" --plan "$plan" --memory 1MiB --tokens 1 2>&1 > /dev/null | sed -n 's/.*below the floor of \([0-9]*\) bytes.*/\1/p')
check "the same text as in dense mode" same
at_the_floor() { text --memory "${floor:-1}" > "$tmp/floor" && cmp "$tmp/exact" "$tmp/floor"; }
check "and at the floor, where neurons are read" at_the_floor
check "below it: exit status 4" status 4 text --memory 1MiB

# RWKV's tokenizer: llama.cpp makes 40 tokens of these texts.
printf 'text\nOnce there was a dog.\nA cat sat on the mat and looked at it. \344\270\255\345\233\275 \303\251\n' > "$tmp/p.csv"
rwkv()
{
    "$BIN/gguf-make" random -q --arch rwkv7 --context 64 --tokenizer rwkv --vocab 600 "$m" &&
        "$BIN/thermo-profile" trace --model "$m" --prompts "$tmp/p.csv" --out "$t" > "$tmp/log" 2>&1 && grep -q ' 40 tokens in 2 sequences' "$tmp/log" &&
        "$BIN/thermo-plan" solve -q --traces "$t" --hardware "$hw" --memory 64MiB --context 64 --form split --out "$plan" &&
        rm "$pack" && "$BIN/thermo-pack" pack -q --model "$m" --traces "$t" --plan "$plan" --out "$pack" && same
}
check "RWKV's tokenizer" rwkv
done_testing
