#!/bin/bash
# Models with folded weights (PrismML's Bonsai 2): folded by plain Python, they give the logits of the same models unfolded, by the dense pass
# and through all four programs, and the same bytes where their neurons are read from storage. What cannot be done with them is refused.
. tests/tap.sh
scratch
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }
printf 'text\nabc def ghi jkl mno pqr stu\nthe same again and another text of some length\nmore\n' > "$tmp/p.csv"
phone "$tmp/hw.sqlite" > /dev/null 2>&1
ids=$(seq -s, 3 50)

packed() # MODEL NAME [SOLVE_OPTION...]
{
    model=$1 name=$2
    shift 2
    rm -f "$tmp/$name.h5" "$tmp/$name.json" "$tmp/$name.thermo"
    "$BIN/thermo-profile" trace -q --model "$model" --prompts "$tmp/p.csv" --out "$tmp/$name.h5" &&
        "$BIN/thermo-plan" solve -q --traces "$tmp/$name.h5" --hardware "$tmp/hw.sqlite" --memory 64MiB --context 256 --rlimit 1 "$@" --out "$tmp/$name.json" &&
        "$BIN/thermo-pack" pack -q --model "$model" --traces "$tmp/$name.h5" --plan "$tmp/$name.json" --out "$tmp/$name.thermo"
}
logits() { "$BIN/thermo-run" logits -q --model "$tmp/$1.thermo" --plan "$tmp/$1.json" --tokens "$ids" "${@:2}"; }
near() # A B SHARE: no logit is further from the other's than this share of the logits' deviation
{
    python3 - "$@" << 'END'
import json, statistics, sys
a, b = (json.load(open(f))['logits'] for f in sys.argv[1:3])
d = max(abs(x - y) for x, y in zip(a, b)) / statistics.pstdev(a)
print('# largest difference %.2g of the deviation' % d)
sys.exit(len(a) != len(b) or not d <= float(sys.argv[3]))
END
}
streamed() # NAME
{
    floor=$(logits "$1" --memory 1MiB --prefill-chunk 7 --threads 3 2>&1 > /dev/null | sed -n 's/.*below the floor of \([0-9]*\) bytes.*/\1/p')
    logits "$1" > "$tmp/all" && logits "$1" --memory "${floor:-1}" --prefill-chunk 7 --threads 3 > "$tmp/floor" && cmp "$tmp/all" "$tmp/floor"
}
same() # BLOCK MODE, of m.gguf
{
    python3 tests/e2e/fold.py "$tmp/m.gguf" "$tmp/f.gguf" "$@" || return
    "$B/tests/tools/dense-logits" "$tmp/m.gguf" "$ids" "$tmp/plain" && "$B/tests/tools/dense-logits" "$tmp/f.gguf" "$ids" "$tmp/folded" &&
        near "$tmp/plain" "$tmp/folded" 1e-5 || return
    # the keys alone make another model of it
    python3 tests/e2e/fold.py "$tmp/m.gguf" "$tmp/k.gguf" "$@" --keys && "$B/tests/tools/dense-logits" "$tmp/k.gguf" "$ids" "$tmp/keys" &&
        ! near "$tmp/plain" "$tmp/keys" 0.1 || return
    packed "$tmp/f.gguf" f && logits f --kv f32 --act f32 > "$tmp/run" && near "$tmp/plain" "$tmp/run" 1e-5 && streamed f
}
made() { "$BIN/gguf-make" random -q --vocab 260 --context 256 --layers 4 --d-model 64 --heads 4 --kv-heads 2 "$@" "$tmp/m.gguf"; }

# 1152 neurons are two clusters of 512 and a quarter of one; eight value heads are of four key heads
made --arch qwen35 --head-dim 32 --delta-heads 4 --delta-dim 16 --ff 1152 --untied --type f32
check "qwen35, signs, a head of its own" same 32 explicit
made --arch qwen3 --head-dim 32 --ff 192 --type f32
check "qwen3, signs, a tied head" same 64 explicit
made --ff 128 --type f32 --untied
check "llama, without signs" same 16 identity

# A layer that predicts further tokens is not folded, and uses the folded embeddings and head of its model.
further()
{
    made --arch qwen35 --head-dim 32 --delta-heads 4 --delta-dim 16 --ff 512 --nextn 1 --untied --type f32 &&
        python3 tests/e2e/fold.py "$tmp/m.gguf" "$tmp/f.gguf" 32 explicit && packed "$tmp/m.gguf" m && packed "$tmp/f.gguf" f || return
    for name in m f; do
        "$BIN/thermo-pack" mtp -q --model "$tmp/$name.gguf" --out "$tmp/$name-mtp.thermo" &&
            "$B/tests/tools/mtp-guesses" "$tmp/$name.thermo" "$tmp/$name.json" "$tmp/$name-mtp.thermo" 1,65,66,12,200,3,77 2 > "$tmp/$name.guesses" || return
    done
    python3 - "$tmp/m.guesses" "$tmp/f.guesses" << 'END'
import json, statistics, sys
a, b = (json.load(open(f)) for f in sys.argv[1:])
assert a['guesses'] == b['guesses'] and len(a['logits']) == 2
for x, y in zip(a['logits'], b['logits']):
    d = max(abs(i - j) for i, j in zip(x, y)) / statistics.pstdev(x)
    print('largest difference %.2g of the deviation' % d)
    assert d < 1e-4, d
END
}
check "the guesses of a layer that predicts further tokens" further

# What is folded is the file's to say, not the type's: random blocks are taken for folded weights, and the same ones in F32.
typed() # TYPE
{
    "$BIN/gguf-make" random -q --vocab 260 --context 256 --arch qwen35 --layers 4 --d-model 256 --heads 4 --kv-heads 2 --head-dim 64 \
        --delta-heads 2 --delta-dim 64 --ff 1024 --untied --type "$1" "$tmp/m.gguf" &&
        python3 tests/e2e/fold.py "$tmp/m.gguf" "$tmp/q.gguf" 128 explicit --keys &&
        "$BIN/thermo-quantize" -q --pure "$tmp/q.gguf" "$tmp/back.gguf" f32 && packed "$tmp/back.gguf" back && packed "$tmp/q.gguf" q || return
    logits back --kv f32 --act f32 > "$tmp/want" && logits q --kv f32 --act f32 > "$tmp/got" && near "$tmp/want" "$tmp/got" 1e-5 || return
    logits q --kv f32 --act q8 > "$tmp/got" && near "$tmp/want" "$tmp/got" 0.2 && streamed q
}
for type in ptq1_0 q2_0_128 q8_0; do
    check "$type, folded" typed $type
done

check "thermo-pack verify compares it with its model" "$BIN/thermo-pack" verify -q "$tmp/q.thermo" --model "$tmp/q.gguf" --traces "$tmp/q.h5"
for form in split bundle two-phase; do
    check "--form $form is refused" says 2 "folded in blocks of 128 neurons" "$BIN/thermo-plan" solve --traces "$tmp/q.h5" \
        --hardware "$tmp/hw.sqlite" --memory 64MiB --context 256 --form $form --out "$tmp/no.json"
done
check "clusters that part a block are refused" says 2 "folded in blocks of 128 neurons" "$BIN/thermo-plan" solve --traces "$tmp/q.h5" \
    --hardware "$tmp/hw.sqlite" --memory 64MiB --context 256 --cluster-neurons 320 --out "$tmp/no.json"
check "an accelerator is refused" says 2 "the processor alone transforms" logits q --engine opencl
check "an activation with zeros is refused" says 3 "every neuron counts" "$BIN/thermo-profile" trace --model "$tmp/q.gguf" --act relu \
    --prompts "$tmp/p.csv" --out "$tmp/no.h5"
done_testing
