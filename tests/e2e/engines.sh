#!/bin/bash
# An accelerator beside the processor, whole programs on the embedded model: logits within a bound of the processor's for every height and
# every share of the work, the same bytes each time, sparse and dense together as near as dense alone; speed apart, everything that --help says:
# cache, faults, memory. Without an OpenCL device what needs one is skipped.
. tests/chain.sh
. tests/tap.sh
leaks_unseen
run=$BIN/thermo-run
ids=1,403,404,297,411,260,332,447,359,263,399,281,1000,2000,3000,7,8,9,300,301
scratch

logits() { "$run" logits --model "$packed" --plan "$plan" --tokens $ids --act f32 --kv f32 -q "$@"; }

# within A B BOUND: the largest difference of two logits is at most that.
within()
{
    python3 - "$@" << 'END'
import json, sys
a, b = (json.load(open(p))['logits'] for p in sys.argv[1:3])
worst = max(abs(x - y) for x, y in zip(a, b))
print(f'{worst:g}')
sys.exit(len(a) != len(b) or not worst <= float(sys.argv[3]))
END
}

none_is_none() { logits --memory 64MiB > "$tmp/cpu" && logits --memory 64MiB --engine none > "$tmp/none" && cmp "$tmp/cpu" "$tmp/none"; }
check "--engine none changes no byte" none_is_none
check "an engine that is not known is refused" says 2 "none, opencl or opencl:N" logits --engine vulkan
check "so is a device that is no number" says 2 "opencl:N" logits --engine opencl:x
for spec in '' 5%,3% 4:5 4:5,2:3,1 101% -3 1:2: 1.5; do
    check "--engine-height '$spec' is refused" says 2 "engine-height" logits --engine opencl --engine-height "$spec"
done
check "--engine-height needs an engine" says 2 "belong to an accelerator" logits --engine-height 50%
check "so does --engine-work" says 2 "belong to an accelerator" logits --engine-work head
by_none() { logits --memory 64MiB --engine plan --engine-cache "$tmp" > "$tmp/got" && cmp "$tmp/cpu" "$tmp/got"; }
check "--engine plan takes a cache where the plan names none, and changes no byte" by_none
listed() { "$run" engines > "$tmp/list" && "$run" engines --json > "$tmp/json" && python3 -c '
import json, sys
for line in open(sys.argv[1]):
    d = json.loads(line)
    assert d["buffer_bytes"] <= d["memory_bytes"] and d["engine"].startswith("opencl:"), d' "$tmp/json"; }
check "engines are listed, as text and JSON" listed

# Without the library, as where none is installed: a loader that finds nothing.
absent() { logits --memory 64MiB --engine opencl:4000 > "$tmp/got" 2> "$tmp/err" && cmp "$tmp/cpu" "$tmp/got"; }
check "a device that is not there: the processor works alone" absent
check "or exit status 6" status 6 logits --memory 64MiB --engine opencl:4000 --engine-fail exit

if [ ! -s "$tmp/json" ]; then
    skip "logits of an accelerator" "no OpenCL device"
    done_testing
fi

cl() { logits --memory 1GiB --engine opencl --engine-cache "$tmp" "$@"; }

all_heights()
{
    for height in 100% 50% 64 0 1:10%,8:30%,70%; do
        for work in ffn head attention all; do
            cl --engine-height $height --engine-work $work > "$tmp/got" && within "$tmp/cpu" "$tmp/got" 1e-4 || return 1
        done
    done
}
check "logits within 1e-4 of the processor's, of 15: heights, shares of the work" all_heights
same()
{
    cl --engine-height 50% > "$tmp/want" || return 1
    for flags in "--threads 1" "--threads 2 --prefill-chunk 7" "--io pread --prefill-chunk 64" "--mode dense" ""; do
        cl --engine-height 50% $flags > "$tmp/got" && cmp "$tmp/want" "$tmp/got" || return 1
    done
}
check "the same bytes whatever threads, chunk, backend and mode" same
apart() { cl --engine-height 0 > "$tmp/a" && cmp "$tmp/a" "$tmp/cpu"; }
check "a height of 0 leaves the processor's bytes" apart
together() { cl --engine-height 100% --mode dense > "$tmp/dense" && cl --engine-height 37% > "$tmp/both" && within "$tmp/dense" "$tmp/both" 1e-4; }
check "sparse and dense together as dense alone" together
cached() { ls "$tmp"/opencl-*.bin > "$tmp/files" && cl -v > "$tmp/got" 2> "$tmp/err"; "$run" logits --model "$packed" --plan "$plan" --tokens 1 -v \
    --memory 1GiB --engine opencl --engine-cache "$tmp" 2>&1 > "$tmp/got" | grep -q ' 0 programs built, [1-9]'; }
check "programs come from the cache" cached
damaged()
{
    for f in "$tmp"/opencl-*.bin; do
        printf x | dd of="$f" bs=1 seek=100 conv=notrunc status=none
    done
    cl > "$tmp/got" 2> "$tmp/err" && within "$tmp/cpu" "$tmp/got" 1e-4
}
check "a cache that is damaged is built anew" damaged
memory() { says 0 "the processor works alone" "$run" logits --model "$packed" --plan "$plan" --tokens 1 --memory 18MiB --engine opencl; }
check "where memory does not hold the driver, the processor works alone" memory
check "or that is exit status 6, and says why" says 6 "the accelerator takes" "$run" logits --model "$packed" --plan "$plan" --tokens 1 \
    --memory 18MiB --engine opencl --engine-fail exit

telemetry()
{
    "$run" generate --model "$packed" --plan "$plan" --prompt 'Once upon a time' -n 12 --temp 0 --memory 1GiB --engine opencl --engine-cache "$tmp" \
        --engine-height 1:25%,100% --json -q > "$tmp/lines" && python3 - "$tmp/lines" << 'END'
import json, sys
s = json.loads(open(sys.argv[1]).readlines()[-1])
assert s['engine']['lost'] is None and s['engine']['driver_bytes'] > 0, s['engine']
assert 0 < s['engine']['neurons'] < s['engine']['neurons_large'], s['engine']
d = s['decode']['engine']
assert d['neurons'] == d['passes'] * s['engine']['neurons'], d
assert s['predicted']['valid'] is False
END
}
check "telemetry says what it did" telemetry

# A plan whose prompts alone have neurons on it: none in passes of up to 11 tokens, 640 of each FFN in larger ones.
prompts_plan()
{
    python3 - "$plan" "$tmp/prompts.json" << 'END'
import json, sys
p = json.load(open(sys.argv[1]))
zeros = [0] * 4
for l, x in zip(p['decisions']['limits'], p['predictions']['limits']):
    l['prompt'] = {'tokens': [1, 6, 12, 256], 'engine_neurons': [0, 0, 640, 640]}
    x['prompt'] = {'attention_ns': zeros, 'ffn_ns': zeros, 'wait_ns': zeros, 'read_bytes': zeros, 'head_ns': 0}
    l['prefill_chunk'] = 64
p['decisions']['engine'], p['request'] = 'opencl:0', {**p['request'], 'engine': 'opencl:0'}
json.dump(p, open(sys.argv[2], 'w'))
END
}
check "a plan that gives prompts alone neurons" prompts_plan
alone() { "$run" logits --model "$packed" --plan "$tmp/prompts.json" --act f32 --kv f32 --memory 1GiB -q "$@"; }
by_plan() { alone --engine plan --engine-cache "$tmp" "$@"; }
planned()
{
    by_plan --tokens $ids > "$tmp/a" && within "$tmp/cpu" "$tmp/a" 1e-4 && ! cmp -s "$tmp/cpu" "$tmp/a" &&
        cl --engine-height 11:0,640 --prefill-chunk 64 > "$tmp/b" && cmp "$tmp/a" "$tmp/b"
}
check "a pass of a prompt has its height: the bytes of the same height by hand, within 1e-4 of the processor's" planned
short()
{
    by_plan --tokens 1,403,404 > "$tmp/a" && alone --tokens 1,403,404 --engine none > "$tmp/b" && cmp "$tmp/a" "$tmp/b" &&
        by_plan --tokens $ids --prefill-chunk 11 > "$tmp/a" && cmp "$tmp/cpu" "$tmp/a"
}
check "passes without one, of short prompts or small chunks, have the processor's bytes" short
planned_telemetry()
{
    "$run" generate --model "$packed" --plan "$tmp/prompts.json" --prompt 'Once upon a time there was a little girl who lived in a house by the sea' \
        -n 8 --temp 0 --memory 1GiB --engine plan --engine-cache "$tmp" --json -q > "$tmp/lines" && python3 - "$tmp/lines" << 'END'
import json, sys
s = json.loads(open(sys.argv[1]).readlines()[-1])
h = s['engine']['heights']
print(h, s['prompt']['engine'], s['decode']['engine'])
assert [x['tokens'] for x in h] == [11, None] and h[0]['neurons'] == 0 and h[1]['neurons'] == 8 * 640, h
assert s['prompt']['engine']['neurons'] == 8 * 640 and s['decode']['engine']['neurons'] == 0
END
}
check "telemetry says which passes had how many neurons" planned_telemetry
done_testing
