#!/bin/bash
# thermo-quantize: types by the published rule, by pattern and alone; importance matrices of both forms; what it refuses; nothing half-made.
. tests/tap.sh
scratch
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }
MODEL=datasets/models/reglu-tales-10m-f16.gguf
Q=$BIN/thermo-quantize
py() { python3 tests/cli/quantize.py "$@"; }
quiet() { "$Q" -q "$@"; }
bytes() { stat -c %s "$1"; }

# Back to F16 from F32 nothing is lost: the tensors, hence all but the header, are the model's.
round_trip()
{
    quiet $MODEL "$tmp/f32.gguf" F32 && quiet "$tmp/f32.gguf" "$tmp/f16.gguf" f16 || return 1
    tail -c 20000000 $MODEL > "$tmp/a"; tail -c 20000000 "$tmp/f16.gguf" > "$tmp/b"
    cmp "$tmp/a" "$tmp/b"
}
# 9,437,184 weights in layers and 1,048,576 in the embedding: blocks of 32 in 34 or 18 bytes.
sizes()
{
    for t in q8_0:11141120 q4_0:5898240; do
        quiet --pure $MODEL "$tmp/q.gguf" ${t%:*} || return 1
        n=$(bytes "$tmp/q.gguf")
        [ "$n" -gt "${t#*:}" ] && [ "$n" -lt $((${t#*:} + 200000)) ] || { echo "$t: $n bytes"; return 1; }
    done
}
check "to F32 and back gives the same bytes" round_trip
check "Q8_0 and Q4_0 files have the sizes that their blocks make" sizes

# ---- types ----

check "a model" "$BIN/gguf-make" random -q --layers 16 --d-model 256 --heads 4 --kv-heads 1 --ff 256 --untied --vocab 300 --type f32 "$tmp/m.gguf"
check "one of experts" "$BIN/gguf-make" random -q --layers 16 --d-model 256 --heads 4 --kv-heads 2 --ff 256 --experts 8 --experts-used 2 --vocab 300 --type f32 "$tmp/e.gguf"
# typed MODEL TYPE TENSOR:NUMBER...
typed()
{
    m=$1 t=$2; shift 2
    quiet "$tmp/$m.gguf" "$tmp/t.gguf" "$t" && py types "$tmp/t.gguf" "$@"
}
w=weight
check "Q4_K_M" typed m Q4_K_M output.$w:14 token_embd.$w:12 blk.0.attn_v.$w:14 blk.1.ffn_down.$w:14 blk.2.ffn_down.$w:12 blk.4.attn_v.$w:14 \
    blk.14.ffn_down.$w:14 blk.3.attn_q.$w:12 blk.0.attn_output.$w:12 blk.0.attn_norm.$w:0
check "its short name" typed m q4_k blk.0.attn_v.$w:14 blk.2.ffn_down.$w:12
check "its file type" py key "$tmp/t.gguf" general.file_type 15
check "and version" py key "$tmp/t.gguf" general.quantization_version 2
check "Q4_K_S" typed m Q4_K_S blk.3.attn_v.$w:13 blk.4.attn_v.$w:12 blk.1.ffn_down.$w:13 blk.2.ffn_down.$w:12
check "Q5_K_M" typed m Q5_K_M blk.0.attn_v.$w:14 blk.2.attn_v.$w:13 output.$w:14
check "Q3_K_M" typed m Q3_K_M blk.1.attn_v.$w:13 blk.2.attn_v.$w:12 blk.0.ffn_down.$w:13 blk.1.ffn_down.$w:12 blk.0.attn_output.$w:12 blk.0.attn_k.$w:11
check "Q3_K_L" typed m Q3_K_L blk.9.attn_v.$w:13 blk.9.ffn_down.$w:13 blk.9.attn_output.$w:13 blk.9.ffn_up.$w:11
check "Q2_K, four heads to a KV head" typed m Q2_K blk.9.attn_v.$w:12 blk.9.ffn_down.$w:11 blk.9.attn_output.$w:11 blk.9.ffn_up.$w:10
check "Q2_K, two; eight experts" typed e Q2_K blk.9.attn_v.$w:8 blk.9.attn_k.$w:8 blk.9.attn_output.$w:13 blk.9.ffn_down_exps.$w:11 blk.9.ffn_gate_inp.$w:0
check "a tied output" typed e Q4_K_M token_embd.$w:14 blk.2.ffn_down_exps.$w:12
check "MXFP4_MOE" typed e MXFP4_MOE blk.0.ffn_up_exps.$w:39 blk.0.attn_q.$w:8
check "Q4_0" typed m Q4_0 blk.0.ffn_down.$w:2 output.$w:14
asked() { quiet "$@" && py types "$tmp/t.gguf" output.$w:8 token_embd.$w:1 blk.0.ffn_up.$w:14 blk.1.ffn_up.$w:12 blk.12.ffn_up.$w:12 blk.0.attn_q.$w:0; }
check "types that are asked for" asked --output-tensor-type q8_0 --token-embedding-type f16 --tensor-type '^blk\.0\.ffn=q6_k' --tensor-type 'blk\.0\.=f32' \
    "$tmp/m.gguf" "$tmp/t.gguf" Q4_K_M
left() { quiet --leave-output-tensor --pure "$tmp/m.gguf" "$tmp/t.gguf" Q4_K_M && py types "$tmp/t.gguf" output.$w:0 token_embd.$w:12 blk.0.attn_v.$w:12; }
check "the output left, one type for the rest" left
narrow() { "$BIN/gguf-make" random -q --layers 2 --d-model 96 --heads 4 --ff 160 --vocab 300 --type f32 "$tmp/n.gguf" && typed n Q4_K_M blk.0.ffn_up.$w:6 blk.1.ffn_down.$w:8; }
check "rows that do not divide into 256" narrow
check "it says so" says 0 "rows of 96 elements do not divide into blocks of Q4_K: it becomes Q5_0" "$Q" "$tmp/n.gguf" "$tmp/t.gguf" Q4_K_M
json() { "$Q" -q --json "$tmp/m.gguf" "$tmp/t.gguf" Q4_K_M > "$tmp/o.json" && python3 -c 'import json,sys
d = json.load(open(sys.argv[1]))
t = {x["name"]: x for x in d["tensors"]}
assert d["type"] == "Q4_K_M" and d["file_type"] == 15 and t["blk.0.attn_v.weight"]["to"] == "Q6_K" and d["bytes_out"] == sum(x["bytes"] for x in d["tensors"]), d' "$tmp/o.json"; }
check "JSON" json
threads() { quiet "$tmp/m.gguf" "$tmp/1.gguf" Q4_K_M 1 && quiet -t 3 "$tmp/m.gguf" "$tmp/3.gguf" Q4_K_M && cmp "$tmp/1.gguf" "$tmp/3.gguf"; }
check "the same bytes with three threads" threads
shards() { python3 tests/split_gguf.py "$tmp/m.gguf" "$tmp/s" 3 && quiet "$tmp/s-00001-of-00003.gguf" "$tmp/3.gguf" Q4_K_M && cmp "$tmp/1.gguf" "$tmp/3.gguf"; }
check "the same bytes of a split model" shards
runs() { "$BIN/thermo-profile" trace -q --model "$tmp/t.gguf" --prompts datasets/prompts/stories-profile.csv --max-tokens 16 --out "$tmp/t.h5"; }
check "the programs read it" runs

# ---- importance ----

check "an importance matrix" py imatrix "$tmp/m.gguf" "$tmp/i.gguf" gguf
check "in the older form" py imatrix "$tmp/m.gguf" "$tmp/i.dat" binary
check "of experts" py imatrix "$tmp/e.gguf" "$tmp/e.imatrix" gguf
# Two layers have weights enough for an error.
check "a smaller model" "$BIN/gguf-make" random -q --layers 2 --d-model 256 --heads 4 --kv-heads 1 --ff 256 --untied --vocab 300 --type f32 "$tmp/l.gguf"
check "and its importance" py imatrix "$tmp/l.gguf" "$tmp/l.imatrix" gguf
# less TYPE: the weighted error is less than without, and the file as large.
less()
{
    quiet --pure "$tmp/l.gguf" "$tmp/0.gguf" "$1" && quiet --pure --imatrix "$tmp/l.imatrix" "$tmp/l.gguf" "$tmp/1.gguf" "$1" &&
        quiet "$tmp/0.gguf" "$tmp/0f.gguf" F32 && quiet "$tmp/1.gguf" "$tmp/1f.gguf" F32 &&
        without=$(py error "$tmp/l.gguf" "$tmp/0f.gguf" "$tmp/l.imatrix") && with=$(py error "$tmp/l.gguf" "$tmp/1f.gguf" "$tmp/l.imatrix") || return 1
    echo "# $1: $without without, $with with"
    awk "BEGIN { exit !($with < 0.97 * $without) }" || { echo "$with is not less than $without"; return 1; }
}
for t in $(of "Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS" "Q4_0 Q2_K Q4_K"); do
    check "$t: a smaller weighted error" less "$t"
done
forms()
{
    quiet --imatrix "$tmp/i.gguf" "$tmp/m.gguf" "$tmp/0.gguf" Q4_K_M && (cd "$tmp" && cp i.dat b && cp i.gguf g) &&
        quiet --imatrix "$tmp/g" "$tmp/m.gguf" "$tmp/0.gguf" Q4_K_M && mv "$tmp/b" "$tmp/g" && quiet --imatrix "$tmp/g" "$tmp/m.gguf" "$tmp/1.gguf" Q4_K_M && cmp "$tmp/0.gguf" "$tmp/1.gguf"
}
check "both forms give the same bytes" forms
for k in "file $tmp/g" "dataset some.txt" "entries_count 113" "chunks_count 7"; do
    check "key quantize.imatrix.${k% *}" py key "$tmp/1.gguf" "quantize.imatrix.${k% *}" "${k#* }"
done
check "of experts: each its own" quiet --imatrix "$tmp/e.imatrix" "$tmp/e.gguf" "$tmp/1.gguf" Q4_K_M
bad() { py imatrix "$tmp/m.gguf" "$tmp/bad" "$1" "$2" blk.3.ffn_up.weight; }
for form in gguf binary; do
    bad $form missing
    check "$form: a matrix that is missing" says 5 "no entry of the matrix 'blk.3.ffn_up.weight'" "$Q" --imatrix "$tmp/bad" "$tmp/m.gguf" "$tmp/no.gguf" Q4_K_M
    check "$form: as Q8_0 it needs none" quiet --imatrix "$tmp/bad" --tensor-type 'blk\.3\.ffn_up\.weight=q8_0' "$tmp/m.gguf" "$tmp/t.gguf" Q4_K_M
    bad $form short
    check "$form: one of another length" says 5 "'blk.3.ffn_up.weight' has 255 values" "$Q" --imatrix "$tmp/bad" "$tmp/m.gguf" "$tmp/no.gguf" Q4_K_M
    bad $form negative
    check "$form: a negative value" says 3 "'blk.3.ffn_up.weight' has a value that is negative" "$Q" --imatrix "$tmp/bad" "$tmp/m.gguf" "$tmp/no.gguf" Q4_K_M
done
check "no importance matrix" says 3 "no importance matrix" "$Q" --imatrix README.md "$tmp/m.gguf" "$tmp/no.gguf" Q4_K_M
check "a model in its place" says 3 "no importance matrix" "$Q" --imatrix "$tmp/e.gguf" "$tmp/m.gguf" "$tmp/no.gguf" Q4_K_M
check "an importance matrix in place of a model" says 3 "importance matrix" "$Q" "$tmp/i.gguf" "$tmp/no.gguf" Q4_K_M
check "of a small model" eval 'py imatrix "$tmp/n.gguf" "$tmp/n.dat" binary && py imatrix "$tmp/n.gguf" "$tmp/n.imatrix" gguf'
check "damaged ones" py damage "$tmp/n.dat" "$(of 100 20)" "$Q" -q --imatrix @ "$tmp/n.gguf" "$tmp/t.gguf" Q4_0
check "damaged ones, GGUF" py damage "$tmp/n.imatrix" "$(of 100 20)" "$Q" -q --imatrix @ "$tmp/n.gguf" "$tmp/t.gguf" Q4_0

# ---- what is refused ----

check "what is quantised already" says 2 "quantised already, as Q4_0.*--allow-requantize" "$Q" "$tmp/q.gguf" "$tmp/no.gguf" Q8_0
check "unless it is allowed" quiet --allow-requantize "$tmp/q.gguf" "$tmp/t.gguf" Q8_0
check "a type that is not known" says 2 "TYPE 'q9'" "$Q" $MODEL "$tmp/no.gguf" q9
check "a type that cannot be written" says 2 "TYPE 'IQ2_XS'" "$Q" $MODEL "$tmp/no.gguf" IQ2_XS
check "a mixture for one tensor" says 2 "tensor-type q4_k_m: this build quantises to" "$Q" --tensor-type a=q4_k_m $MODEL "$tmp/no.gguf" Q4_0
check "a pattern that is none" says 2 "POSIX extended" "$Q" --tensor-type '(=q8_0' $MODEL "$tmp/no.gguf" Q4_0
check "a pattern without a type" says 2 "PATTERN=TYPE is needed" "$Q" --tensor-type attn_v $MODEL "$tmp/no.gguf" Q4_0
check "a pattern of no matrix" says 2 "attn_x=q8_0: no matrix" "$Q" --tensor-type attn_x=q8_0 $MODEL "$tmp/no.gguf" Q4_0
check "no type" says 2 "2 arguments given" "$Q" $MODEL "$tmp/no.gguf"
check "threads that are none" says 2 "THREADS '0'" "$Q" $MODEL "$tmp/no.gguf" Q4_0 0
check "a file that is none" says 3 "README.md': not a GGUF file" "$Q" README.md "$tmp/no.gguf" Q4_0
check "a folder that is not there" says 1 "none/x.gguf" "$Q" $MODEL "$tmp/none/x.gguf" Q4_0
over() { cp $MODEL "$tmp/own.gguf" && ln -s own.gguf "$tmp/link.gguf" && says 2 "same file" "$Q" "$tmp/own.gguf" "$tmp/link.gguf" Q4_0 && cmp $MODEL "$tmp/own.gguf"; }
check "its own input" over
huge() { python3 - "$tmp/f32.gguf" "$tmp/h.gguf" << 'EOF2'
import struct, sys
b = bytearray(open(sys.argv[1], "rb").read())
b[-4096:-4092] = struct.pack("<f", float(sys.argv[3]) if len(sys.argv) > 3 else 1e6)
open(sys.argv[2], "wb").write(b)
EOF2
}
huge
check "weights that F16 has no room for" says 3 "too large for F16" "$Q" "$tmp/h.gguf" "$tmp/no.gguf" F16
check "nothing half-made is left" eval '[ -z "$(ls "$tmp" | grep "^no")" ]'
done_testing
