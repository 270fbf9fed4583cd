#!/bin/bash
# Element types through all programs: a mixture of Q4_0 and Q6_K (the head, and part of attn_v and ffn_down), then matrices of every type, Down
# too: read from storage the text is that of dense mode, and the weights are those of the same file in F32. In dense mode packs hold the
# file's own bytes, in tiles.
. tests/tap.sh
scratch
printf 'text\nOnce there was a dog.\nA cat sat on the mat and looked at it.\n' > "$tmp/p.csv"
hw=$tmp/hw.sqlite

# written TYPE FROM TO: the model FROM in another type, not traced yet
written() { rm -f "${3%.gguf}.h5" && "$BIN/thermo-quantize" -q --pure "$2" "$3" "$1"; }
# packed MODEL [SOLVE_OPTION...]: traced, once, planned and packed
packed()
{
    m=$1 t=${1%.gguf}.h5; shift
    rm -f "$tmp/plan.json" "$tmp/m.thermo"
    { [ -e "$t" ] || "$BIN/thermo-profile" trace -q --model "$m" --prompts "$tmp/p.csv" --out "$t"; } &&
        "$BIN/thermo-plan" solve -q --traces "$t" --hardware "$hw" --memory 64MiB --context 64 --rlimit 1 "$@" --out "$tmp/plan.json" &&
        "$BIN/thermo-pack" pack -q --model "$m" --traces "$t" --plan "$tmp/plan.json" --out "$tmp/m.thermo"
}

# the text at the memory floor, where neurons are read, equals dense mode's
same_text()
{
    floor=$(text --memory 1MiB 2>&1 > /dev/null | sed -n 's/.*below the floor of \([0-9]*\) bytes.*/\1/p')
    text --mode dense > "$tmp/dense" && text --memory "${floor:-1}" > "$tmp/floor" && [ -s "$tmp/dense" ] && cmp "$tmp/dense" "$tmp/floor"
}
chain() { packed "$@" && same_text; }
run() { c=$1; shift; "$BIN/thermo-run" "$c" --model "$tmp/m.thermo" --plan "$tmp/plan.json" "$@"; }
text() { run generate --prompt Once -n 12 --temp 0 --ignore-eos -q --threads 3 "$@"; }

check "a model" "$BIN/gguf-make" random -q --act relu --context 64 --layers 2 --d-model 512 --ff 512 --heads 8 --untied --type f32 "$tmp/f32.gguf"
check "device" phone "$hw"
check "Q4_0 with a Q6_K head" "$BIN/thermo-quantize" -q --pure --output-tensor-type q6_k \
    --tensor-type 'blk\.1\.(attn_v|ffn_down)\.=q6_k' "$tmp/f32.gguf" "$tmp/head.gguf" Q4_0
check "goes through all programs" chain "$tmp/head.gguf" --form split

logits() { run logits -q --tokens 1,300,40,7,8,100 --kv f32 --act "$1"; }
# near A B SHARE: no logit is further from the other's than this share of the logits' deviation
near()
{
    python3 - "$@" << 'EOF'
import json, statistics, sys
a, b = (json.load(open(f))['logits'] for f in sys.argv[1:3])
d = max(abs(x - y) for x, y in zip(a, b)) / statistics.pstdev(a)
print('# largest difference %.2g of the deviation' % d)
sys.exit(len(a) != len(b) or d > float(sys.argv[3]))
EOF
}

# The weights are those of the same file in F32: with F32 activations but for rounding; with int8 ones within what these lose, 1 % of
# a product or so, through two layers.
same_weights()
{
    written f32 "$tmp/q.gguf" "$tmp/back.gguf" && packed "$tmp/back.gguf" --form split --down-type f32 &&
        logits f32 > "$tmp/want" && packed "$tmp/q.gguf" --form split --down-type f32 && logits f32 > "$tmp/f32" && logits q8 > "$tmp/q8" &&
        near "$tmp/want" "$tmp/f32" 1e-4 && near "$tmp/want" "$tmp/q8" 0.1
}

form() { python3 -c 'import json,sys; l=json.load(open(sys.argv[1]))["decisions"]["layout"]; assert [l["form"], l["types"]["down"]] == sys.argv[2:], l' "$tmp/plan.json" "$@"; }
# As above, from a file's own bytes. TYPE
tiles()
{
    packed "$tmp/q.gguf" --mode dense && form tiles "${1^^}" && logits f32 > "$tmp/f32" && logits q8 > "$tmp/q8" &&
        near "$tmp/want" "$tmp/f32" 1e-5 && near "$tmp/want" "$tmp/q8" 0.1 && same_text
}

for type in q4_1 q5_0 q5_1 q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs mxfp4; do
    check "$type is written" written $type "$tmp/f32.gguf" "$tmp/q.gguf"
    check "$type: text" chain "$tmp/q.gguf" --form split --down-type $type
    check "$type: weights" same_weights
    check "$type: tiles" tiles $type
done

# Types that are read and not written: files of random blocks. Down is stored as Q8_0 where neurons are read.
for type in iq2_xxs iq2_xs iq2_s iq3_xxs iq3_s iq1_s iq1_m q1_0 q2_0 q2_0_128 ptq1_0; do
    check "$type is made of random bytes" eval 'rm -f "$tmp/q.h5" && "$BIN/gguf-make" random -q --act relu --context 64 --layers 2 --d-model 512 \
        --ff 512 --heads 8 --untied --type $type --seed 3 "$tmp/q.gguf"'
    check "$type: text" chain "$tmp/q.gguf" --form split
    check "$type: weights" same_weights
    check "$type: tiles" tiles $type
    check "$type is not written" says 2 "$type" "$BIN/thermo-quantize" "$tmp/f32.gguf" "$tmp/no.gguf" $type
    check "$type: no rows of it can be stored" says 2 "down-type.*$type" "$BIN/thermo-plan" solve -q --traces "$tmp/q.h5" --hardware "$hw" \
        --memory 64MiB --context 64 --form split --down-type $type --out "$tmp/no.json"
done
done_testing
