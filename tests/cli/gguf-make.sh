#!/bin/sh
# gguf-make: what it writes is read again, the same twice; what it cannot do it says.
. tests/tap.sh
MODEL=datasets/models/reglu-tales-10m-f16.gguf
M=$BIN/gguf-make Q=$BIN/thermo-quantize
T=$(mktemp -d "${TMPDIR:-/tmp}/gguf-make.XXXXXX") || exit 1
trap 'rm -rf "$T"' EXIT

fails() # STATUS TEXT COMMAND...
{
    want=$1 text=$2; shift 2
    "$@" > "$T/out" 2> "$T/err"; got=$?
    [ $got -eq "$want" ] && grep -qF -- "$text" "$T/err" && [ ! -s "$T/out" ] || { echo "exit $got: $(cat "$T/err")"; return 1; }
}

repeats()
{
    for a in "--act relu --layers 3 --kv-heads 2 --type q4_0" "--experts 4 --experts-used 2 --untied --vocab 700" "--tokenizer rwkv --vocab 900" "--tokenizer unigram --vocab 900" \
             "--tokenizer-from $MODEL --type f32"; do
        # shellcheck disable=SC2086
        "$M" random -q $a "$T/1.gguf" && "$M" random -q $a "$T/2.gguf" && cmp "$T/1.gguf" "$T/2.gguf" || return 1
        # shellcheck disable=SC2086
        "$M" random -q $a --seed 2 "$T/2.gguf" && ! cmp -s "$T/1.gguf" "$T/2.gguf" || return 1
        "$Q" -q "$T/1.gguf" "$T/2.gguf" F16 || return 1 # reads it as a model
    done
}

# published NAME OPTIONS... -- TENSOR:TYPE...: shrunk, it has the published file's types.
published()
{
    name=$1
    shift
    options=
    while [ "$1" != -- ]; do options="$options $1"; shift; done
    shift
    # shellcheck disable=SC2086
    "$M" random -q --published "$name" --vocab 300 $options "$T/p.gguf" && python3 - "$T/p.gguf" "$@" << 'EOF2'
import sys
sys.path.insert(0, "tests/e2e")
from naive import Gguf
g = object.__new__(Gguf)
g.b, g.at = open(sys.argv[1], "rb").read(), 4
version, tensors, keys = g.num("I"), g.num("Q"), g.num("Q")
for _ in range(keys):
    g.text(), g.value(g.num("I"))
types = {}
for _ in range(tensors):
    name = g.text()
    [g.num("Q") for _ in range(g.num("I"))]
    types[name] = g.num("I")
    g.num("Q")
for want in sys.argv[2:]:
    name, kind = want.split(":")
    assert types.get(name) == int(kind), "%s is %s, not %s" % (name, types.get(name), kind)
EOF2
}
small="--d-model 256 --heads 4 --kv-heads 2 --ff 256 --head-dim 64"

check "random models are readable and the same twice" repeats
if command -v python3 > /dev/null; then
    # Of eight layers, Q4_K_M gives more bits to 0, 3, 6 and 7.
    check "published: Llama 3.1" published llama-3.1-8b-q4_k_m $small --layers 8 -- token_embd.weight:12 output.weight:14 rope_freqs.weight:0 \
        blk.0.attn_v.weight:14 blk.1.attn_v.weight:12 blk.3.ffn_down.weight:14 blk.4.ffn_down.weight:12 blk.7.ffn_down.weight:14 \
        blk.0.ffn_up.weight:12 blk.0.attn_output.weight:12
    check "published: Qwen3-30B-A3B" published qwen3-30b-a3b-q4_k_m $small --layers 8 --experts 4 --experts-used 2 -- blk.0.ffn_down_exps.weight:14 \
        blk.1.ffn_down_exps.weight:12 blk.1.ffn_gate_exps.weight:12 blk.1.ffn_gate_inp.weight:0 blk.1.attn_q_norm.weight:0
    check "published: gpt-oss" published gpt-oss-20b-mxfp4 $small --layers 2 --experts 4 --experts-used 2 -- blk.0.ffn_up_exps.weight:39 \
        blk.0.ffn_up_exps.bias:0 blk.1.attn_q.weight:8 token_embd.weight:8 output.weight:8 blk.0.attn_sinks.weight:0
    check "published: Gemma 4" published gemma-4-26b-a4b-q4_0 $small --layers 6 --full-kv-heads 1 --experts 4 --experts-used 2 --wide 512 -- \
        token_embd.weight:14 blk.5.ffn_gate_up_exps.weight:2 blk.5.ffn_down.weight:2 blk.0.attn_v.weight:2
fi
check "a published file that is not known" fails 2 "--published other" "$M" random --published other "$T/x.gguf"
check "full kv heads that do not divide" fails 2 "--full-kv-heads 3" "$M" random --arch gemma4 --layers 6 --window 8 --full-kv-heads 3 "$T/x.gguf"
check "heads that do not divide" fails 2 "--heads 5" "$M" random --heads 5 "$T/x.gguf"
check "kv heads that do not divide" fails 2 "--kv-heads 3" "$M" random --kv-heads 3 "$T/x.gguf"
check "experts used without experts" fails 2 "--experts-used 2" "$M" random --experts-used 2 "$T/x.gguf"
check "rows that do not divide into blocks" fails 3 "ffn_down.weight': rows of 200" "$M" random --ff 200 --type q8_0 "$T/x.gguf"
check "a vocabulary that does not fit its tokenizer" fails 2 "4096" \
    "$M" random --vocab 4000 --tokenizer-from $MODEL "$T/x.gguf"
check "a folder that is not there" fails 1 "none/x.gguf" "$M" random "$T/none/x.gguf"
check "nothing half-made is left" [ ! -e "$T/x.gguf" ]
done_testing
