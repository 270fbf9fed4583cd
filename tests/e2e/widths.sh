#!/bin/bash
# FFNs of several widths: Gemma 4 E2B's in tiles, with neurons silenced and predicted, and nemotron_h's, which are sparse, through all
# programs: narrow layers are planned, packed and read as the others, with the bits of a run in memory and within the account.
. tests/tap.sh
scratch
hw=$tmp/hw.sqlite
tokens=1,40,17,300,97,411,260,32,447,59,$(seq -s , 3 7 500)
cores=--cores=mid=2,big=0,little=0
printf 'text\nabc def ghi jkl mno pqr stu\nthe same again and another text of some length\nmore\n' > "$tmp/p.csv"
check "device" phone "$hw"

number() { sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p" "$2" | head -n 1; }
solve() { "$BIN/thermo-plan" solve -q --traces "$tmp/$1.h5" --hardware "$hw" --memory "$2" --context 256 --rlimit 1 "$cores" --out "$3" "${@:4}"; }
model() # NAME, gguf-make's options
{
    "$BIN/gguf-make" random -q --context 256 "${@:2}" "$tmp/$1.gguf" &&
        "$BIN/thermo-profile" trace -q --model "$tmp/$1.gguf" --prompts "$tmp/p.csv" --out "$tmp/$1.h5" $silence
}

silent() { silence="--silence 40% --silence-tokens 200" model "$@"; }

# Widths are each layer's own: in the trace, the plan and the pack, and no neuron more; narrow layers are in memory in part.
planned() # NAME WIDTHS SOLVE'S OPTIONS
{
    solve "$1" 200MiB "$tmp/$1.all.json" "${@:3}" &&
        neurons=$(($(number account_bytes "$tmp/$1.all.json") - $(number floor_bytes "$tmp/$1.all.json"))) &&
        solve "$1" $(($(number account_bytes "$tmp/$1.all.json") - neurons / 2)) "$tmp/$1.json" "${@:3}" &&
        half=$(($(number floor_bytes "$tmp/$1.json") + neurons / 3)) && solve "$1" "$half" "$tmp/$1.json" "${@:3}" && python3 - "$tmp/$1.json" "$2" << 'END'
import json, sys
p, widths = json.load(open(sys.argv[1])), eval(sys.argv[2])
l, said = p['decisions']['limits'][0], p['predictions']['limits'][0]
assert p['model']['widths'] == widths and p['model']['n_ff'] == max(widths)
assert said['account_bytes'] <= l['memory_bytes']
part = [x[0][-1] for x in l['batches'][0]['hot']]
print(said['account_bytes'], l['memory_bytes'], part, file=sys.stderr)
assert all(h <= w for h, w in zip(part, widths))
narrow = [i for i, w in enumerate(widths) if w < max(widths) and part[i] < w]
open(sys.argv[1] + '.narrow', 'w').write('%d' % narrow[0])
END
}
checked()
{
    for command in check explain "report --out $tmp/$1.html"; do
        # shellcheck disable=SC2086
        "$BIN/thermo-plan" $command "$tmp/$1.json" --traces "$tmp/$1.h5" --hardware "$hw" || return 1
    done
}
pack() { rm -f "$tmp/$1.thermo" && "$BIN/thermo-pack" pack -q --model "$tmp/$1.gguf" --traces "$tmp/$1.h5" --plan "$tmp/$1.json" --out "$tmp/$1.thermo" && "$BIN/thermo-pack" verify -q "$tmp/$1.thermo"; }
# Neurons in the pack are those of the model, of which none is there twice or made up.
bytes()
{
    "$BIN/thermo-pack" inspect --json "$tmp/$1.thermo" > "$tmp/inspect.json" && "$BIN/thermo-pack" inspect "$tmp/$1.thermo" | grep 'FFN of up to' &&
        python3 - "$tmp/inspect.json" "$2" << 'END'
import json, sys
d, widths = json.load(open(sys.argv[1])), eval(sys.argv[2])
kinds = [d['layout']] + d['layout']['exceptions']
units = {k['n_ff']: sum(-(-k['n_ff'] // p['neurons_per_unit']) == p['units'] for p in k['parts']) for k in kinds}
print(units, d['neuron_bytes'])
assert set(units) == set(widths) and all(n == len(kinds[0]['parts']) for n in units.values())
block, most = d['layout']['block_bytes'], 0
for w in widths:
    parts = [k for k in kinds if k['n_ff'] == w][0]['parts']
    most += sum(p['units'] * p['stride_bytes'] if i == 0 or p['stride_bytes'] != parts[0]['stride_bytes'] else 0 for i, p in enumerate(parts)) + 2 * block
assert d['neuron_bytes'] <= most
END
}
logits() { "$BIN/thermo-run" logits -q --model "$tmp/$name.thermo" --plan "$tmp/$name.json" --tokens "$tokens" "$@"; }
text() { "$BIN/thermo-run" generate --model "$tmp/$name.thermo" --plan "$tmp/$name.json" --prompt 'abc def' -n 30 --temp 0 --ignore-eos --json -q "$@"; }
equal()
{
    name=$1
    half=$(number memory_bytes "$tmp/$1.json") floor=$(logits --memory 1MiB 2>&1 > /dev/null | sed -n 's/.*below the floor of \([0-9]*\) bytes.*/\1/p')
    logits --memory 200MiB > "$tmp/want" || return 1
    for with in "" "--memory ${floor:-1}" "--memory $half --threads 3 --prefill-chunk 4" "--io pread --prefill-chunk 1"; do
        # shellcheck disable=SC2086
        logits $with > "$tmp/got" && cmp "$tmp/want" "$tmp/got" || return 1
    done
}
# In F32, of the runtime and of the dense pass, which is its oracle.
oracle()
{
    name=$1
    logits --kv f32 --act f32 > "$tmp/got" && "$B/tests/tools/dense-logits" --context 256 "$tmp/$1.gguf" "$tokens" "$tmp/want" && python3 - "$tmp/got" "$tmp/want" << 'END'
import json, statistics, sys
got, want = (json.load(open(f))['logits'] for f in sys.argv[1:3])
worst = max(abs(a - b) for a, b in zip(got, want)) / statistics.pstdev(want)
print(worst)
assert worst < 1e-4
END
}
texts()
{
    name=$1
    text --memory 200MiB > "$tmp/want" && text > "$tmp/got" && python3 - "$tmp/want" "$tmp/got" "${SANITIZE:-}" << 'END'
import json, sys
want, got = ([json.loads(l) for l in open(f)] for f in sys.argv[1:3])
words = [[l['text'] for l in x if l.get('type') == 'token'] for x in (want, got)]
print(words[0], got[-1])
assert len(words[0]) == 30 and words[0] == words[1]
assert sys.argv[3] or got[-1]['peak_bytes'] <= got[-1]['account_bytes'] <= got[-1]['memory_bytes']
assert got[-1]['reads'] > 0
END
}
# Bytes of a narrow layer's neurons were others before it ran: each is read where it is needed, and verify names the layer.
damaged()
{
    name=$1 layer=$(cat "$tmp/$1.json.narrow")
    python3 - "$tmp/$1.thermo" "$layer" << 'END' || return 1
import struct, sys
b = bytearray(open(sys.argv[1], 'rb').read())
toc, n = struct.unpack_from('<QI', b, 40)
for i in range(n):
    kind, = struct.unpack_from('<I', b, toc + 96 * i)
    layer, = struct.unpack_from('<I', b, toc + 96 * i + 16)
    if kind == 5 and layer == int(sys.argv[2]):
        at, size = struct.unpack_from('<QQ', b, toc + 96 * i + 64)
        for k in range(at + size - 8192, at + size, 512):
            b[k] ^= 255
open(sys.argv[1] + '.bad', 'wb').write(b)
END
    mv "$tmp/$1.thermo" "$tmp/good" && mv "$tmp/$1.thermo.bad" "$tmp/$1.thermo"
    status 6 logits > "$tmp/err" 2>&1 && grep "layer $layer, .*damaged" "$tmp/err" && says 3 "layer $layer, expert 0" "$BIN/thermo-pack" verify -q "$tmp/$1.thermo"
    _ok=$?
    mv "$tmp/good" "$tmp/$1.thermo"
    cat "$tmp/err"
    return $_ok
}
# A plan with other widths is of another model.
others()
{
    sed "s/\"widths\": \[[0-9]*, \([0-9]*\)/\"widths\": [64, \1/" "$tmp/$1.json" > "$tmp/other.json" && ! cmp -s "$tmp/$1.json" "$tmp/other.json" &&
        status 3 "$BIN/thermo-run" logits -q --model "$tmp/$1.thermo" --plan "$tmp/other.json" --tokens 1 ||
        status 5 "$BIN/thermo-run" logits -q --model "$tmp/$1.thermo" --plan "$tmp/other.json" --tokens 1
}

through() # NAME WIDTHS SOLVE'S OPTIONS
{
    check "$1: planned" planned "$@"
    check "$1: every figure follows" checked "$1"
    check "$1: packed" pack "$1"
    check "$1: neurons of the pack" bytes "$1" "$2"
    check "$1: the same logits" equal "$1"
    [ "$1" = predicted ] || check "$1: the logits of the dense pass" oracle "$1"
    check "$1: the same text" texts "$1"
    check "$1: damaged" damaged "$1"
    check "$1: other widths" others "$1"
}

silence=
e2b="--arch gemma4 --layers 12 --window 16 --shared-kv 6 --layer-embd 64 --narrow 512 --wide 1024 --d-model 128 --heads 4 --kv-heads 2 --head-dim 32 --rope-base 1000000"
# shellcheck disable=SC2086
check "e2b" model e2b $e2b --type q8_0
through e2b '[512]*6+[1024]*6'
# shellcheck disable=SC2086
check "silenced" model silenced $e2b --type f16 --thresholds
through silenced '[512]*6+[1024]*6' --mode exact
predictors()
{
    for i in $(seq 60); do
        echo "the $i-th text of $((i * 7919)) words and some more that differ $((i * i)) abc def ghi"
    done >> "$tmp/p.csv"
    # shellcheck disable=SC2086
    silent predicted $e2b --type f16 &&
        "$BIN/thermo-profile" predictors -q --model "$tmp/predicted.gguf" --traces "$tmp/predicted.h5" --method svd --rank 64 --quality-tokens 64 &&
        "$BIN/thermo-profile" predictors-measure -q --model "$tmp/predicted.gguf" --traces "$tmp/predicted.h5" --quality-tokens 64 &&
        "$BIN/thermo-profile" show "$tmp/predicted.h5" --verify
}
check "predictors of several widths" predictors
through predicted '[512]*6+[1024]*6' --mode predicted --recall 0.95
check "nemotron_h" model nemotron --arch nemotron_h --layers 20 --d-model 96 --heads 4 --kv-heads 2 --head-dim 32 --ff 4000 --narrow 1336 --delta-heads 6 \
    --delta-dim 24 --type f16
through nemotron '[4000,1336]*4'
done_testing
