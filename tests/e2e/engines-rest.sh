#!/bin/bash
# Whole layers on an accelerator: neurons that are not in memory are read for it in prompts (--engine-height with a +), on the embedded model,
# about half of whose neurons are not: logits within the bound of the processor's, the same bytes each time, the area in the account, what
# telemetry says, faults, command lines that are wrong. Without an OpenCL device what needs one is skipped.
. tests/chain.sh
. tests/tap.sh
leaks_unseen
run=$BIN/thermo-run
ids=1,403,404,297,411,260,332,447,359,263,399,281,1000,2000,3000,7,8,9,300,301
scratch

logits() { "$run" logits --model "$packed" --plan "$plan" --tokens $ids --act f32 --kv f32 -q "$@"; }

# COMMAND...: up to five times. What the driver takes may be a MiB more or less from one start to the next; which neurons are in memory
# follows from it, and which of them the accelerator sums up.
again() { "$@" || "$@" || "$@" || "$@" || "$@"; }
# as FILE OUT COMMAND...: the same bytes, from one of ten starts: how many neurons there is memory for follows from what the driver takes
as()
{
    local want=$1 got=$2
    shift 2
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        "$@" > "$got" || return 1
        ! cmp -s "$want" "$got" || return 0
    done
    cmp "$want" "$got"
}

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

for spec in + %+ 5%++ 5%+,; do
    check "--engine-height '$spec' is refused" says 2 "engine-height" logits --engine opencl --engine-height "$spec"
done
check "--engine-area needs an engine" says 2 "belong to an accelerator" logits --engine-area 1MiB

if ! "$run" engines --json | grep -q .; then
    skip "the rest of FFNs" "no OpenCL device"
    done_testing
fi

cl() { logits --engine opencl --engine-cache "$tmp" --threads 2 "$@"; } # stacks and scratch of two threads on every machine
logits --memory 64MiB > "$tmp/cpu"
cl --memory 1GiB > "$tmp/all"
say() { "$run" generate --model "$packed" --plan "$plan" --prompt 'Once upon a time there was a little fish' -n 6 --temp 0 --threads 2 --engine opencl \
    --engine-cache "$tmp" --json -q "$@"; }
# What the driver takes varies from start to start: memory with room for it, for all that is fixed and for about half of the neurons.
memory=$(say --memory 1GiB | tail -n 1 | python3 -c '
import json, sys
e = json.load(sys.stdin)["engine"]
print(e["driver_bytes"] + e["host_bytes"] + (23 << 20))')
check "the area is for heights with a +" says 2 "heights with a +" cl --memory $memory --engine-area 1MiB
check "and holds a cluster at least" says 2 "one cluster" cl --memory $memory --engine-height 100%+ --engine-area 4KiB

heights()
{
    for height in 100%+ 50%+ 0+ 8:50%,100%+; do
        cl --memory $memory --engine-height $height > "$tmp/got" && within "$tmp/cpu" "$tmp/got" 1e-4 || return 1
    done
}
check "logits within 1e-4 of the processor's, of 15, whatever the height beside them" heights
same() # of what changes no byte of the account, which the number of neurons in memory follows from
{
    cl --memory $memory --engine-height 64+ --engine-area 640KiB > "$tmp/want" || return 1
    for flags in "--io pread" "--mode dense" "--no-verify-reads" ""; do
        # shellcheck disable=SC2086
        as "$tmp/want" "$tmp/got" cl --memory $memory --engine-height 64+ --engine-area 640KiB $flags || return 1
    done
}
check "the same bytes whatever backend, mode and time" again same

telemetry()
{
    say --memory $memory --engine-height 1:0,100%+ --engine-area 1MiB > "$tmp/lines" && python3 - "$tmp/lines" $memory << 'END'
import json, sys
s = json.loads(open(sys.argv[1]).readlines()[-1])
e, p, d = s['engine'], s['prompt']['engine'], s['decode']['engine']
assert e['lost'] is None and e['area_bytes'] == 1 << 20, e
rest = [h['rest'] for h in e['heights']]
assert rest[0] == 0 and 2000 < rest[1] < 10240 and e['heights'][1]['neurons'] + rest[1] <= 10240, e
assert p['rest'] == p['passes'] * rest[1] > 0 and d['rest'] == 0, (p, d)
assert s['account']['staging'] >= 1 << 20 and s['account_bytes'] + e['driver_bytes'] + e['host_bytes'] <= int(sys.argv[2]), s['account']
assert s['peak_bytes'] <= int(sys.argv[2]), s['peak_bytes']
END
}
check "telemetry says what it did, and the account has the area" telemetry

# Bytes of a prompt: each neuron that is not in memory once a pass, gates only where they are not, and rounding.
read_once()
{
    python3 - "$tmp/lines" << 'END'
import json, sys
s = json.loads(open(sys.argv[1]).readlines()[-1])
rest, passes = s['engine']['heights'][1]['rest'], s['prompt']['engine']['passes']
most = passes * rest * 3 * 256 * 2
assert most / 1.6 <= s['prompt']['read_bytes'] <= 1.1 * most, (s['prompt']['read_bytes'], most)
END
}
check "a prompt reads what is not in memory once a pass" read_once

# A plan says from how many tokens on: the bytes of the same by hand.
rest_plan()
{
    python3 - "$plan" "$tmp/rest.json" << 'END'
import json, sys
p = json.load(open(sys.argv[1]))
zeros = [0] * 3
for l, x in zip(p['decisions']['limits'], p['predictions']['limits']):
    l['prefill_chunk'] = 64
    l['prompt'] = {'tokens': [1, 16, 64], 'engine_neurons': [0, 0, 0], 'engine_rest': {'area_bytes': 655360, 'from_tokens': 16}}
    x['prompt'] = {'attention_ns': zeros, 'ffn_ns': zeros, 'wait_ns': zeros, 'read_bytes': zeros, 'head_ns': 0}
p['decisions']['engine'], p['request'] = 'opencl:0', {**p['request'], 'engine': 'opencl:0'}
json.dump(p, open(sys.argv[2], 'w'))
END
}
check "a plan that leaves prompts' rest to it" rest_plan
alone() { "$run" logits --model "$packed" --plan "$tmp/rest.json" --threads 2 --act f32 --kv f32 --memory $memory --engine plan --engine-cache "$tmp" -q "$@"; }
by_plan()
{
    alone --tokens $ids > "$tmp/a" && within "$tmp/cpu" "$tmp/a" 1e-4 &&
        as "$tmp/a" "$tmp/b" cl --memory $memory --engine-height 15:0,0+ --engine-area 640KiB --prefill-chunk 64
}
check "a prompt of as many tokens has it" again by_plan
short() { alone --tokens 1,403,404 > "$tmp/a" && alone --tokens 1,403,404 --engine-height 0 > "$tmp/b" &&
    within "$tmp/a" "$tmp/b" 0; }
check "a shorter one does not" short
other_area() { alone --tokens $ids --engine-area 1MiB > "$tmp/b" && within "$tmp/cpu" "$tmp/b" 1e-4; }
check "--engine-area takes the place of the plan's" other_area

lost()
{
    logits --memory $memory --engine opencl:4000 --engine-height 100%+ > "$tmp/got" 2> "$tmp/err" && logits --memory $memory > "$tmp/b" &&
        cmp "$tmp/got" "$tmp/b"
}
check "a device that is not there leaves no area behind" lost
done_testing
