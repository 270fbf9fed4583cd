#!/bin/bash
# An accelerator for prompts: one whose figures are good with many tokens gets neurons in passes of these and none in decoding, one that is slow
# none, and no prediction of prompts changes; check, explain and report agree, what was changed by hand is found; the runtime's logits are
# within a bound of the processor's, and its telemetry has the plan's heights. The accelerators' figures are made up, in CSV.
. tests/chain.sh
. tests/tap.sh
leaks_unseen
scratch
P=$BIN/thermo-profile plan=$BIN/thermo-plan run=$BIN/thermo-run
says() { want=$1 text=$2; shift 2; "$@" > "$tmp/out" 2> "$tmp/err"; [ $? -eq "$want" ] && grep -qF -- "$text" "$tmp/err" || { cat "$tmp/err"; return 1; }; }
is() { [ "$1" = "$2" ] || { echo "'$1' instead of '$2'"; return 1; }; }

# device NAME FEW_NS MANY_NS [MOST_TOKENS [STORAGE [DRIVER]]]: the measured device with accelerator opencl:0, an FFN's weight in so many ns
# with up to 8 tokens, and with 64 or more, whatever their number: so few where it is to be fast that any processor loses; measured with no
# more than so many tokens. STORAGE: its storage so many times as fast; DRIVER: what its driver takes, bytes.
device()
{
    python3 - "$tmp/box.csv" "$@" << 'END' > "$tmp/$1.csv" && "$P" import -q --db "$tmp/$1.sqlite" --csv "$tmp/$1.csv"
import csv, sys
rows = list(csv.reader(open(sys.argv[1], newline='')))
name, few, many = sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
most = int(sys.argv[5]) if len(sys.argv) > 5 else 1024
storage = float(sys.argv[6]) if len(sys.argv) > 6 else 1
out = csv.writer(sys.stdout, lineterminator='\n')
bw = max(float(r[4]) for r in rows if r[1] == 'memory' and 'engines=cpu;' in r[2] and 'seq' in r[2] and r[3] == 'bytes_per_s')
threads = max(int(r[2].split('threads=')[1]) for r in rows if r[1] == 'memory')
for r in rows:
    if r[1] == 'storage' and storage != 1 and r[3] == 'samples':
        continue
    if r[1] == 'storage' and storage != 1 and r[3] != 'page_bytes':
        r[4] = repr(float(r[4]) * storage if r[3].startswith('bytes_per_s') else float(r[4]) / storage)
    out.writerow([name if r[0] == 'test' else r[0]] + r[1:])
def row(table, key, field, value, unit):
    out.writerow([name, table, key, field, repr(value), unit, 'estimated', 'made up'])
row('accelerator', 'engine=opencl:0', 'launch_ns', 10.0, 'ns')
row('accelerator', 'engine=opencl:0', 'driver_bytes', int(sys.argv[7]) if len(sys.argv) > 7 else 1 << 20, 'B')
row('accelerator', 'engine=opencl:0', 'shares_memory', 1, '')
for b, each in (1, few), (8, few), (64, many), (256, many), (1024, many):
    for n in 64, 4096:
        if b <= most:
            row('accelerator_point', f'engine=opencl:0;op=ffn/f16;rows={n};cols=256;batch={b}', 'ns', 10 + 3 * n * 256 * each, 'ns')
row('memory', 'engines=opencl:0;pattern=seq;row=64KiB', 'bytes_per_s', bw, 'B/s')
for t in range(1, threads + 1):
    row('memory', f'engines=cpu+opencl:0;pattern=seq;row=64KiB;threads={t}', 'bytes_per_s', 1.8 * bw, 'B/s')
END
}

device_plain() { sed s/^test,/plain,/ "$tmp/box.csv" > "$tmp/plain.csv" && "$P" import -q --db "$tmp/plain.sqlite" --csv "$tmp/plain.csv"; }

solve() { # DEVICE OUT [...]
    local db=$tmp/$1.sqlite out=$2; shift 2
    "$plan" solve --traces "$traces" --hardware "$db" --memory "${memory:-64MiB}" --context 256 --form split --packed no --no-verify --out "$out" "$@"
}
# state PLAN: engine, heights of batch sizes, lengths of prompts that have neurons
state() { python3 -c "import json,sys
p = json.load(open(sys.argv[1]))['decisions']; l = p['limits'][0]; q = l.get('prompt', {})
print(p.get('engine', '-'), *[b.get('engine_neurons', 0) for b in l['batches']], ':',
      *[t for t, n in zip(q.get('tokens', []), q.get('engine_neurons', [])) if n])" "$1"; }

check "the measured device" "$P" export --db "$hardware" --out "$tmp/box.csv"
check "an accelerator beside it that is fast with many tokens" device many 1000 0.0005
check "one that is fast with any" device fast 0.0005 0.0005
check "one that is slow" device slow 40000 40000
check "one that was not measured with many tokens" device few 1000 0.0005 8
check "the fast one beside storage that is a hundred times as fast" device swift 1000 0.0005 1024 100
check "the device without one" device_plain
from="--traces $traces --hardware"

some() { solve many "$tmp/many.json" --max-batch 2 && state "$tmp/many.json" && state "$tmp/many.json" | grep -q '^opencl:0 0 0 : .*64 128 256$'; }
check "with many tokens it is fast: prompts get neurons, decoding none" some
none() { solve slow "$tmp/slow.json" --max-batch 2 && is "$(state "$tmp/slow.json")" "- 0 0 :" && grep -q "no batch size faster by its figures, and no prompt" "$tmp/slow.json"; }
check "slow: none, and a note says so" none
unmeasured() { solve few "$tmp/few.json" --max-batch 2 && is "$(state "$tmp/few.json")" "- 0 0 :"; }
check "not measured with 64 tokens: none" unmeasured
every() { solve fast "$tmp/fast.json" --max-batch 2 && state "$tmp/fast.json" | grep -q '^opencl:0 [1-9][0-9]* [1-9][0-9]* : 1 2 4 8 16 32 64 128 256$'; }
check "fast with any: batch sizes and all lengths" every
as_without()
{
    solve plain "$tmp/plain.json" --max-batch 2 && solve many "$tmp/none.json" --max-batch 2 --engine none && python3 - "$tmp" << 'END'
import json, sys
plain, slow, none, many = (json.load(open(f'{sys.argv[1]}/{n}.json')) for n in ('plain', 'slow', 'none', 'many'))
for half in 'decisions', 'predictions':
    l, m = plain[half]['limits'][0], many[half]['limits'][0] # decoding is that without it, the account has room for it
    assert slow[half]['limits'][0] == l and none[half]['limits'][0] == l
    assert 'alternatives' not in m # where an accelerator has work
    for key in set(l) - {'alternatives'}:
        assert (l[key] == m[key]) == (key not in ('prompt', 'account_bytes', 'floor_bytes')), key
assert m['account_bytes'] > l['account_bytes'] + (1 << 20)
p, q = l['prompt'], m['prompt']
for i, n in enumerate(many['decisions']['limits'][0]['prompt']['engine_neurons']):
    a, b = (x['ffn_ns'][i] + x['wait_ns'][i] for x in (p, q))
    assert b < a if n else a == b, (i, n, a, b)
assert p['attention_ns'] == q['attention_ns']
END
}
check "those without neurons are the plans without it; with them prompts are faster where they have some, and nothing else changes" as_without

check "check computes it again" "$plan" check "$tmp/many.json" $from "$tmp/many.sqlite"
check "and all batch sizes with it" "$plan" check "$tmp/fast.json" $from "$tmp/fast.sqlite"
check "and solves it again" "$plan" check "$tmp/many.json" $from "$tmp/many.sqlite" --solve --memory 64MiB --context 256 --form split --packed no --max-batch 2
check "and its account without figures of the device" "$plan" check "$tmp/many.json" --traces "$traces"
# tampered NAME STATEMENT TEXT: a plan in which a statement about l, the limit, has changed something is refused with this text
tampered()
{
    python3 -c "import json,sys
p = json.load(open(sys.argv[1])); l = p['decisions']['limits'][0]; q = l['prompt']; h = q['engine_neurons']
exec(sys.argv[3])
json.dump(p, open(sys.argv[2], 'w'))" "$tmp/many.json" "$tmp/bad.json" "$1" && says 3 "$2" "$plan" check "$tmp/bad.json" $from "$tmp/many.sqlite"
}
check "a height that was changed is found" tampered "h[6] = 640" "prompt.ffn_ns[6] is"
check "so is one less" tampered "h[7:] = [0, 0]" "the equations give"
check "or one where there was none" tampered "h[3] = 64" "the equations give"
check "heights that are left out" tampered "del q['engine_neurons']; del p['decisions']['engine']" "limits[0]"
check "one of a pass that a batch size holds" tampered "h[1] = 64" "engine_neurons[1] is 64; passes of 2 tokens have 0"
check "one that is too large" tampered "h[8] = 1344" "engine_neurons[8] is 1344"
check "too few" tampered "h.pop()" "engine_neurons has 8 elements; 9 are needed"
explained()
{
    local name
    for name in many fast; do
        "$plan" explain "$tmp/$name.json" $from "$tmp/$name.sqlite" --no-gains > "$tmp/text" &&
            "$plan" explain "$tmp/$name.json" $from "$tmp/$name.sqlite" --no-gains --json > "$tmp/json" &&
            python3 tests/explain_sums.py "$tmp/$name.json" 0 "$tmp/text" "$tmp/json" && grep -q 't_prompt_ffn = t_prompt_processor' "$tmp/text" &&
            grep -q 'prompt of 256 tokens: it computes 1280 neurons' "$tmp/text" || return 1
    done
    "$plan" explain "$tmp/many.json" $from "$tmp/many.sqlite" --no-gains | grep -q 'prompt of 4 tokens: it gets no neurons' &&
        "$plan" report "$tmp/many.json" $from "$tmp/many.sqlite" --out "$tmp/many.html" -q $(of '' --no-gains) && grep -q 'tokens of a prompt' "$tmp/many.html"
}
check "explain adds up and has the heights, and so has the report" explained
compared() { "$plan" check "$tmp/slow.json" --against "$tmp/many.json" > "$tmp/text" 2>&1; cat "$tmp/text"; grep -q 'prompts of 256 tokens: 0 neurons of each FFN for the accelerator; were 1280' "$tmp/text"; }
check "the difference of two plans has them" compared
no_room() { memory=24MiB solve many "$tmp/tight.json" && state "$tmp/tight.json" | grep -q '^- ' && grep -q "do not fit beside the plan" "$tmp/tight.json"; }
check "where its buffers do not fit beside the plan prompts get none, and a note says so" no_room
# 16 KiB less than the plan takes, beside storage that makes them a small matter: neurons give way to the accelerator, for prompts are worth
# more than what decoding loses.
gives_way()
{
    local bytes
    bytes=$(python3 -c "import json,sys; print(json.load(open(sys.argv[1]))['predictions']['limits'][0]['account_bytes'] - 16384)" "$tmp/many.json")
    memory=$bytes solve swift "$tmp/less.json" --chunk 256 --max-batch 2 --prove --certificate "$tmp/less.smt2" || return 1
    memory=$bytes solve swift "$tmp/without.json" --chunk 256 --max-batch 2 --engine none --prove || return 1
    is "$(state "$tmp/without.json")" "- 0 0 :" && state "$tmp/less.json" | grep -q '^opencl:0 0 0 : .*64 128 256$' && python3 - "$tmp" << 'END' || return 1
import json, sys
plans = [json.load(open(f'{sys.argv[1]}/{n}.json')) for n in ('less', 'without')]
less, without = (p['predictions']['limits'][0] for p in plans)
a, b = ([x['tokens_per_s'] for x in l['batches']] for l in (less, without))
print(a, b, less['gap'], without['gap'])
assert all(x <= y for x, y in zip(a, b)) and sum(y / x for x, y in zip(a, b)) < 2 * 1.04
assert less['gap'] > without['gap'] and less['prompt']['ffn_ns'][-1] < 0.5 * without['prompt']['ffn_ns'][-1]
assert less['account_bytes'] <= plans[0]['decisions']['limits'][0]['memory_bytes']
END
    "$plan" check -q "$tmp/less.json" $from "$tmp/swift.sqlite" --certificate "$tmp/less.smt2" &&
        unless_short "$plan" check -q "$tmp/less.json" $from "$tmp/swift.sqlite" --solve --memory "$bytes" --context 256 --form split --packed no --chunk 256 --max-batch 2 --prove
}
check "a little less memory: neurons give way, within 3 % of decoding; check, its proof and solving again agree" gives_way

# ---- the runtime ----
if ! "$run" engines --json 2> /dev/null | grep -q opencl:0; then
    skip "the plan's heights are taken" "no OpenCL device"
    done_testing
fi
ids=$(python3 -c "print(*([1] + [400 + 7 * i % 1500 for i in range(69)]), sep=',')")
logits() { "$run" logits --model "$packed" --memory 1GiB --act f32 --kv f32 -q "$@"; }
taken()
{
    logits --plan "$tmp/many.json" --tokens "$ids" --engine plan --engine-cache "$tmp" > "$tmp/a" && logits --plan "$tmp/plain.json" --tokens "$ids" > "$tmp/b" || return 1
    ! cmp -s "$tmp/a" "$tmp/b" && python3 - "$tmp/a" "$tmp/b" << 'END' || return 1
import json, sys
a, b = (json.load(open(p))['logits'] for p in sys.argv[1:])
worst = max(abs(x - y) for x, y in zip(a, b))
print(f'{worst:g}')
sys.exit(len(a) != len(b) or not worst <= 1e-4)
END
    logits --plan "$tmp/many.json" --tokens 1,403,404 --engine plan --engine-cache "$tmp" > "$tmp/a" && logits --plan "$tmp/plain.json" --tokens 1,403,404 > "$tmp/b" &&
        cmp "$tmp/a" "$tmp/b"
}
check "70 tokens: logits within 1e-4 of the processor's; 3 tokens: its bytes" taken
telemetry()
{
    "$run" generate --model "$packed" --plan "$tmp/many.json" --prompt "$(python3 -c "print('Once upon a time there was a cat. ' * 9)")" -n 8 --temp 0 --memory 1GiB \
        --engine plan --engine-cache "$tmp" --json -q > "$tmp/lines" && python3 - "$tmp/lines" "$tmp/many.json" << 'END'
import json, sys
s, q = json.loads(open(sys.argv[1]).readlines()[-1]), json.load(open(sys.argv[2]))['decisions']['limits'][0]['prompt']
n = s['prompt']['tokens']
height = [h for t, h in zip(q['tokens'], q['engine_neurons']) if t <= n][-1]
print(n, height, s['engine']['heights'], s['prompt']['engine'], s['decode']['engine'])
assert n > 64 and height and s['engine']['lost'] is None
assert s['prompt']['engine']['neurons'] == 8 * height and s['decode']['engine']['neurons'] == 0
want = [[t, h] for t, h in zip(q['tokens'], q['engine_neurons'])]
for e, after in zip(s['engine']['heights'], s['engine']['heights'][1:] + [{'tokens': 1 << 30}]):
    top = e['tokens'] or 1 << 30
    held = [h for t, h in want if t <= top][-1]
    assert e['neurons'] == 8 * held, (e, held)
END
}
check "telemetry has the plan's heights, and what prompt and decoding did" telemetry
# As in engines-plan.sh: with what its driver takes, a quarter more, in the plan's account, a run of a plan that gives neurons to prompts alone
# stays within its limit, and nothing has to give way (a sanitizer's own memory is not ours).
fits()
{
    "$P" hardware --db "$tmp/pocl.sqlite" --device pocl --only engine --engine opencl:0 --quick --types f16 --engine-cache "$tmp" \
        --seconds-per-point 0.003 --patience 0 -q > "$tmp/out" || return 1
    local bytes memory
    bytes=$("$P" show --json "$tmp/pocl.sqlite" | python3 -c 'import json, sys; print(int(json.load(sys.stdin)["devices"][0]["accelerators"][0]["driver_bytes"]) * 5 // 4)')
    device driven 1000 0.0005 1024 1 "$bytes" && memory=$((bytes + (36 << 20))) && solve driven "$tmp/driven.json" --max-batch 2 > "$tmp/out" &&
        state "$tmp/driven.json" && state "$tmp/driven.json" | grep -q '^opencl:0 0 0 : .*64 128 256$' &&
        "$plan" check -q "$tmp/driven.json" $from "$tmp/driven.sqlite" > "$tmp/out" &&
        "$run" generate --model "$packed" --plan "$tmp/driven.json" --prompt "$(python3 -c "print('Once upon a time there was a cat. ' * 9)")" -n 8 --temp 0 \
            --engine plan --engine-cache "$tmp" --json -q > "$tmp/lines" && python3 - "$tmp/lines" "$tmp/driven.json" "${SANITIZE:-}" << 'END'
import json, sys
s, p = json.loads(open(sys.argv[1]).readlines()[-1]), json.load(open(sys.argv[2]))
l = {**p['decisions']['limits'][0], **p['predictions']['limits'][0]}
print(s['peak_bytes'], s['memory_bytes'], s['account_bytes'], l['account_bytes'], s['engine'])
assert (sys.argv[3] or s['peak_bytes'] <= s['memory_bytes']) and s['memory_bytes'] == l['memory_bytes'] and s['engine']['lost'] is None
assert s['prompt']['engine']['neurons'] > 0 and s['account_bytes'] + s['engine']['driver_bytes'] <= l['account_bytes'] and s['predicted']['valid']
END
}
check "a plan for prompts alone has room for its driver and buffers, and a run stays within it" fits
done_testing
