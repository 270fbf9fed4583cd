#!/bin/bash
# logits --dump-layer: the residual through a layer, operation by operation, in the runtime and in the dense pass, for models of several kinds:
# the same lines in the same order, with the same numbers but for rounding; the logits after them are those without it.
. tests/tap.sh
scratch
printf 'text\nabc def ghi jkl mno pqr stu\nthe same again and another text of some length\nmore\n' > "$tmp/p.csv"
phone "$tmp/hw.sqlite" > /dev/null 2>&1
ids=1,63,160,95,55,99,193,52,35,33

chain()
{
    rm -f "$tmp/t.h5" "$tmp/plan.json" "$tmp/m.thermo"
    "$BIN/gguf-make" random -q --vocab 260 --context 256 --d-model 64 --heads 4 --ff 96 --type f32 "$@" "$tmp/m.gguf" &&
        "$BIN/thermo-profile" trace -q --model "$tmp/m.gguf" --prompts "$tmp/p.csv" --out "$tmp/t.h5" &&
        "$BIN/thermo-plan" solve -q --traces "$tmp/t.h5" --hardware "$tmp/hw.sqlite" --memory 64MiB --context 256 --rlimit 1 --out "$tmp/plan.json" &&
        "$BIN/thermo-pack" pack -q --model "$tmp/m.gguf" --traces "$tmp/t.h5" --plan "$tmp/plan.json" --out "$tmp/m.thermo"
}
logits() { "$BIN/thermo-run" logits -q --model "$tmp/m.thermo" --plan "$tmp/plan.json" --tokens $ids --kv f32 --act f32 "$@"; }

# LAYER OPERATIONS: both passes print these, and no number differs by more than 1e-4 of the largest.
same()
{
    logits --dump-layer "$1" --prefill-chunk 4 > "$tmp/run" && "$B/tests/tools/dense-logits" --dump-layer "$1" "$tmp/m.gguf" $ids "$tmp/dense" &&
        logits > "$tmp/alone" && tail -n 1 "$tmp/run" | cmp - "$tmp/alone" && python3 - "$tmp/run" "$tmp/dense" "$@" << 'END'
import json, sys
a, b = ([json.loads(line) for line in open(name)] for name in sys.argv[1:3])
want = sys.argv[4].split()
for got in a, b:
    assert [x['after'] for x in got[:-1]] == want and all(x['layer'] == int(sys.argv[3]) for x in got[:-1]), [x.get('after') for x in got]
for x, y in zip(a, b):
    key = 'x' if 'x' in x else 'logits'
    most = max(map(abs, y[key]))
    assert len(x[key]) == len(y[key]) and max(abs(p - q) for p, q in zip(x[key], y[key])) <= 1e-4 * most, x.get('after', key)
assert all(a[i]['x'] != a[i + 1]['x'] for i in range(len(want) - 1))
END
}

check "a plain model" chain --layers 3 --act relu
check "its second layer in both passes" same 1 "input add ffn"
check "a layer that it has not" says 2 "the model has layers 0 to 2" logits --dump-layer 3
check "experts after a layer without" chain --arch glm4moe --layers 3 --lead 1 --kv-heads 2 --head-dim 32 --experts 6 --experts-used 2
check "the layer without" same 0 "input add ffn"
check "the last" same 2 "input add ffn"
check "attention beside the FFN" chain --arch falcon --two-norms --layers 2 --kv-heads 2
check "its first layer" same 0 "input add ffn"
check "RWKV-6" chain --arch rwkv6 --layers 3 --heads 2 --decay-rank 24 --mix-rank 12 --halve-period 2
check "a layer whose residual is halved" same 1 "input add ffn scale"
done_testing
