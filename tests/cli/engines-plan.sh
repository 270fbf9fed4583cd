#!/bin/bash
# Plans with an accelerator: a fast one gets neurons, a slow one none; check, explain, the proof and the text for Z3 agree; without figures of one
# nothing changes; the runtime takes engine and heights from the plan. The accelerators' figures are made up, in CSV.
. tests/chain.sh
. tests/tap.sh
leaks_unseen
scratch
P=$BIN/thermo-profile plan=$BIN/thermo-plan run=$BIN/thermo-run
is() { [ "$1" = "$2" ] || { echo "'$1' instead of '$2'"; return 1; }; }

# device NAME ENGINE LAUNCH_US NS_PER_WEIGHT [DRIVER_BYTES [NS_PER_WEIGHT]]: the measured device with such an accelerator, an FFN's weight in so
# many ns whatever the tokens, and one of a product by itself: so few where it is to be fast that any processor loses; its buffers are in the
# processor's memory, and its driver takes so much.
device()
{
    python3 - "$tmp/box.csv" "$@" << 'END' > "$tmp/$1.csv" && "$P" import -q --db "$tmp/$1.sqlite" --csv "$tmp/$1.csv"
import csv, sys
rows = list(csv.reader(open(sys.argv[1], newline='')))
name, engine, launch, each = sys.argv[2], sys.argv[3], float(sys.argv[4]) * 1e3, float(sys.argv[5])
out = csv.writer(sys.stdout, lineterminator='\n')
bw = max(float(r[4]) for r in rows if r[1] == 'memory' and 'engines=cpu;' in r[2] and 'seq' in r[2] and r[3] == 'bytes_per_s')
threads = max(int(r[2].split('threads=')[1]) for r in rows if r[1] == 'memory')
for r in rows:
    out.writerow([name if r[0] == 'test' else r[0]] + r[1:])
def row(table, key, field, value, unit):
    out.writerow([name, table, key, field, repr(value), unit, 'estimated', 'made up'])
row('accelerator', f'engine={engine}', 'launch_ns', launch, 'ns')
if len(sys.argv) > 6:
    row('accelerator', f'engine={engine}', 'driver_bytes', int(sys.argv[6]), 'B')
    row('accelerator', f'engine={engine}', 'shares_memory', 1, '')
for b in 1, 8:
    for n in 64, 4096:
        for kind in 'f16', 'q4_0':
            row('accelerator_point', f'engine={engine};op=ffn/{kind};rows={n};cols=256;batch={b}', 'ns', launch + 3 * n * 256 * each, 'ns')
for b in (1, 128) if len(sys.argv) > 7 else ():
    for n in 64, 4096:
        for kind in 'f16', 'q4_0', 'q8_0', 'f32':
            row('accelerator_point', f'engine={engine};op=matmul/{kind};rows={n};cols=256;batch={b}', 'ns', launch + n * 256 * float(sys.argv[7]), 'ns')
row('memory', f'engines={engine};pattern=seq;row=64KiB', 'bytes_per_s', bw, 'B/s')
for t in range(1, threads + 1):
    row('memory', f'engines=cpu+{engine};pattern=seq;row=64KiB;threads={t}', 'bytes_per_s', 1.8 * bw, 'B/s')
END
}

solve() { # DEVICE OUT [...]
    local db=$tmp/$1.sqlite out=$2; shift 2
    "$plan" solve --traces "$traces" --hardware "$db" --memory ${memory:-64MiB} --context 256 --form split --packed no --no-verify --out "$out" "$@"
}
heights() { python3 -c "import json,sys
p = json.load(open(sys.argv[1]))['decisions']
print(p.get('engine', '-'), *[b.get('engine_neurons', 0) for b in p['limits'][0]['batches']])" "$1"; }
works() { python3 -c "import json,sys
l = json.load(open(sys.argv[1]))['decisions']['limits'][0]
print(*[b.get('engine_work', 'ffn') for b in l['batches']])" "$1"; }

check "the measured device" "$P" export --db "$hardware" --out "$tmp/box.csv"
check "a fast accelerator beside it" device fast opencl:0 0.01 0.0005
check "a slow one" device slow opencl:0 40000 1000
check "one that thermo-run cannot drive" device other npu 0.01 0.0005
check "one whose products alone are fast" device works opencl:0 0.01 1000 65536 0.0005

gets_some() { solve fast "$tmp/fast.json" --max-batch 2 && heights "$tmp/fast.json" && heights "$tmp/fast.json" | grep -q '^opencl:0 [1-9][0-9]* [1-9]'; }
check "the fast one gets neurons at every batch size" gets_some
check "that plan is checked without figures of the device" "$plan" check "$tmp/fast.json" --traces "$traces"
less_account() # PLAN OUT: an account that does not even hold the neurons
{
    python3 -c "import json,sys
p = json.load(open(sys.argv[1]))
p['predictions']['limits'][0]['account_bytes'] = p['predictions']['limits'][0]['floor_bytes']
json.dump(p, open(sys.argv[2], 'w'))" "$1" "$2"
}
check "so is an account" less_account "$tmp/fast.json" "$tmp/less.json"
check "that is too small" says 3 account_bytes "$plan" check "$tmp/less.json" --traces "$traces"
gets_none() { solve slow "$tmp/slow.json" --max-batch 2 && is "$(heights "$tmp/slow.json")" "- 0 0" && grep -q "makes no batch size faster" "$tmp/slow.json"; }
check "the slow one none, and a note says so" gets_none
same() # A B: but for the device, whose figures differ, the notes, and the gap, for the search ends where it is small enough
{
    python3 - "$@" << 'END'
import json, sys
a, b = (json.load(open(f)) for f in sys.argv[1:3])
for p in a, b:
    if p['predictions']['limits'][0].pop('gap') > 0.002:
        sys.exit('a gap above 0.2 %')
    del p['device'], p['notes'], p['request']
sys.exit(a != b and 'the plans differ')
END
}
as_without() { sed s/^test,/plain,/ "$tmp/box.csv" > "$tmp/plain.csv" && "$P" import -q --db "$tmp/plain.sqlite" --csv "$tmp/plain.csv" &&
    solve plain "$tmp/plain.json" --max-batch 2 && same "$tmp/plain.json" "$tmp/slow.json"; }
check "that plan is the one without an accelerator" as_without
refused_engine() { solve fast "$tmp/none.json" --max-batch 2 --engine none && same "$tmp/plain.json" "$tmp/none.json"; }
unless_short check "so is a plan for the fast one with --engine none" refused_engine
others() { solve other "$tmp/auto.json" --max-batch 2 && same "$tmp/plain.json" "$tmp/auto.json" &&
    solve other "$tmp/npu.json" --engine npu && heights "$tmp/npu.json" | grep -q '^npu [1-9]'; }
check "what thermo-run cannot drive is planned only where it is named" others
says() { want=$1 text=$2; shift 2; "$@" > "$tmp/out" 2> "$tmp/err"; [ $? -eq "$want" ] && grep -qF -- "$text" "$tmp/err" || { cat "$tmp/err"; return 1; }; }
check "a name that the device has not" says 2 "accelerators that it has: opencl:0" solve fast "$tmp/no.json" --engine opencl:7
check "the paper's equations know of none" says 2 "know of no accelerator" solve fast "$tmp/no.json" --engine opencl:0 --cost paper

from="--traces $traces --hardware $tmp/fast.sqlite"
faster() { python3 - "$tmp/plain.json" "$tmp/fast.json" << 'END'
import json, sys
a, b = (json.load(open(f))['predictions']['limits'][0]['batches'] for f in sys.argv[1:])
for x, y in zip(a, b):
    assert y['tokens_per_s'] > 1.01 * x['tokens_per_s'], (x['tokens_per_s'], y['tokens_per_s'])
    assert 'ffn_engine_ns' not in x['layers'] and all(v > 0 for v in y['layers']['ffn_engine_ns'])
END
}
check "it promises more with it" faster
check "check computes it again" "$plan" check "$tmp/fast.json" $from
check "and solves it again" "$plan" check "$tmp/fast.json" $from --solve --memory 64MiB --context 256 --form split --packed no --max-batch 2
tampered() { sed '0,/"engine_neurons": [0-9]*/s//"engine_neurons": 64/' "$tmp/fast.json" > "$tmp/bad.json" && says 3 "the equations give" "$plan" check "$tmp/bad.json" $from; }
check "a height that was changed is found" tampered
explained()
{
    "$plan" explain "$tmp/fast.json" $from --no-gains > "$tmp/text" && "$plan" explain "$tmp/fast.json" $from --no-gains --json > "$tmp/json" &&
        python3 tests/explain_sums.py "$tmp/fast.json" 0 "$tmp/text" "$tmp/json" && grep -q 'batch 1: it computes [0-9]* neurons' "$tmp/text" &&
        "$plan" explain "$tmp/slow.json" --traces "$traces" --hardware "$tmp/slow.sqlite" --no-gains | grep -q 'batch 1: it gets no neurons'
}
reported()
{
    for name in fast slow plain; do
        "$plan" report "$tmp/$name.json" --traces "$traces" --hardware "$tmp/$name.sqlite" --out "$tmp/$name.html" -q $(of '' --no-gains) ||
            return 1
    done
    grep -q '<h3>Accelerator opencl:0</h3>' "$tmp/fast.html" && grep -q '<td>[1-9][0-9]* of [0-9]*</td>' "$tmp/fast.html" &&
        grep -q '<td>0 of [0-9]*</td>' "$tmp/slow.html" && ! grep -q 'Accelerator' "$tmp/plain.html"
}
check "the report has what it brings, where there is one" reported
check "explain adds up, and says what it brings or why nothing" explained
gets_work() { solve works "$tmp/works.json" --max-batch 2 --prove --certificate "$tmp/works.smt2" && is "$(heights "$tmp/works.json") $(works "$tmp/works.json")" "opencl:0 0 0 all all" &&
    "$plan" check "$tmp/works.json" --traces "$traces" --hardware "$tmp/works.sqlite" --certificate "$tmp/works.smt2"; }
check "one whose products alone are fast gets attention's and the head's, and no neurons; the certificate holds it" gets_work
shown() { "$plan" explain "$tmp/works.json" --traces "$traces" --hardware "$tmp/works.sqlite" --no-gains > "$tmp/text" &&
    "$plan" explain "$tmp/works.json" --traces "$traces" --hardware "$tmp/works.sqlite" --no-gains --json > "$tmp/json" &&
    python3 tests/explain_sums.py "$tmp/works.json" 0 "$tmp/text" "$tmp/json" &&
    grep -q "batch 1: it computes 0 neurons of each FFN that are in memory, attention's products and the head: " "$tmp/text" &&
    grep -q '"best_work":"all"' <(tr -d ' \n' < "$tmp/json"); }
check "explain says so" shown
undone() { sed 's/"engine_work": "all"/"engine_work": "head"/' "$tmp/works.json" > "$tmp/bad.json" && says 3 "the equations give" "$plan" check "$tmp/bad.json" --traces "$traces" --hardware "$tmp/works.sqlite"; }
check "work that was changed is found" undone
check "the text for Z3 has it" eval 'solve fast "$tmp/one.json" --smt2 "$tmp/one.smt2" && grep -q "(M26.t_both " "$tmp/one.smt2"'
proven() { solve fast "$tmp/one.json" --prove --certificate "$tmp/cert.smt2" && "$plan" check "$tmp/one.json" $from --certificate "$tmp/cert.smt2"; }
unless_short check "the certificate holds it" proven # as that of the one whose products alone are fast
if command -v z3 > /dev/null; then
    by_z3() { python3 - "$tmp/one.smt2" << 'END'
import re, subprocess, sys
want = re.findall(r'\(check-sat\).*; (unsat|sat)', open(sys.argv[1]).read())
got = re.findall(r'^(unsat|sat|unknown)$', subprocess.run(['z3', sys.argv[1]], capture_output=True, text=True).stdout, re.M)
# everything is in memory: whether something takes less, the first claim, is decided by how ticks are rounded
sys.exit((len(got) != 3 or got[1:] != want[1:]) and f'{got} instead of {want}')
END
    }
    check "and Z3 the text" by_z3
else
    skip "and Z3 the text" "no z3"
fi

predicted() # neurons that the accelerator has are not scored
{
    python3 - datasets/descriptions/small-relu.json "$tmp/model.json" << 'END' || return 1
import json, sys
d = json.load(open(sys.argv[1]))
d['predictors'] = {'input': 'residual', 'type': 'Q4_0', 'rank': 64, 'bytes': 4 * 64 * (256 + 1024) * 18 // 32}
d['sources']['predictors'] = 'made up'
json.dump(d, open(sys.argv[2], 'w'))
END
    local from="--description $tmp/model.json --hardware $tmp/fast.sqlite"
    for engine in none auto; do
        "$plan" solve -q $from --memory 64MiB --context 256 --form split --packed no --down-type source --mode predicted --max-batch $(of 2 1) --engine $engine \
            --certificate "$tmp/$engine.smt2" --out "$tmp/$engine.json" > "$tmp/out" && "$plan" check -q "$tmp/$engine.json" $from --certificate "$tmp/$engine.smt2" || return 1
    done
    python3 - "$tmp/none.json" "$tmp/auto.json" << 'END'
import json, sys
a, b = (json.load(open(f)) for f in sys.argv[1:])
for d, x, y in zip(b['decisions']['limits'][0]['batches'], *(p['predictions']['limits'][0]['batches'] for p in (a, b))):
    n, few, many = d.get('engine_neurons', 0), sum(y['layers']['predict_ns']), sum(x['layers']['predict_ns'])
    print(n, few, many)
    assert 0 < n and few < many * (1 - 0.5 * n / 1024) and y['tokens_per_s'] > x['tokens_per_s']
END
}
check "predictors score what is left, and the certificate holds that too" predicted

# ---- the runtime ----
cannot_drive() { "$run" logits --model "$packed" --plan "$tmp/npu.json" --engine plan --tokens 1,2 --memory 1GiB > "$tmp/a" 2> "$tmp/err" && grep -q "accelerator 'npu'" "$tmp/err" &&
    "$run" logits --model "$packed" --plan "$tmp/npu.json" --tokens 1,2 --memory 1GiB --engine none -q > "$tmp/b" && cmp "$tmp/a" "$tmp/b" &&
    says 6 "accelerator 'npu'" "$run" logits --model "$packed" --plan "$tmp/npu.json" --tokens 1 --memory 1GiB --engine plan --engine-fail exit; }
check "an accelerator that it cannot drive: the processor alone, or exit status 6" cannot_drive
# A library in OpenCL's place, which says that it was loaded.
cat > "$tmp/opencl.c" << 'END'
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void loaded(void) { fclose(fopen(getenv("LOADED"), "w")); }
END
"${CC:-cc}" -shared -fPIC -o "$tmp/libOpenCL.so.1" "$tmp/opencl.c"
with_it() { rm -f "$tmp/loaded"; LOADED=$tmp/loaded LD_LIBRARY_PATH=$tmp "$@"; }
echo '{{ messages[0].content }}' > "$tmp/chat.jinja"
in=(--model "$packed" --plan "$tmp/fast.json" --memory 1GiB)
loads_none() # SAYS COMMAND...
{
    local text=$1
    shift
    says 0 "$text" with_it "$@" < /dev/null && [ ! -e "$tmp/loaded" ]
}
alone='a driver is loaded only where --engine plan or --engine NAME says so: the processor works alone'
for command in "generate --prompt Once -n 2" "logits --prompt Once" "bench -p 8 -n 2 -r 1" "perplexity --ctx 16 --windows 1 --file README.md" \
    "chat --chat-template $tmp/chat.jinja" "serve --stdio"; do
    check "${command%% *}: a plan alone loads no driver" loads_none "$alone" "$run" $command "${in[@]}"
done
checked() { with_it "$plan" check -q "$tmp/fast.json" --traces "$traces" --hardware "$tmp/fast.sqlite" && [ ! -e "$tmp/loaded" ]; }
check "check: a plan loads no driver" checked
if with_it "$run" engines 2>&1 > /dev/null | grep -q 'this build has no OpenCL'; then
    skip "--engine loads one" "built without OpenCL"
else
    for engine in plan opencl; do
        check "--engine $engine loads one" eval 'with_it "$run" logits "${in[@]}" --prompt Once --engine $engine > "$tmp/out" 2>&1 && [ -e "$tmp/loaded" ]'
    done
fi
if "$run" engines --json 2> /dev/null | grep -q opencl:0; then
    taken() { # the bytes of the same engine and heights by hand
        "$run" logits --model "$packed" --plan "$tmp/fast.json" --tokens 1,2,3 --memory 1GiB --engine plan --engine-cache "$tmp" -q > "$tmp/a" || return 1
        read -r _ one two <<< "$(heights "$tmp/fast.json")"
        "$run" logits --model "$packed" --plan "$tmp/plain.json" --tokens 1,2,3 --memory 1GiB --engine opencl:0 --engine-cache "$tmp" \
            --engine-height "1:$one,$two" -q > "$tmp/b" && cmp "$tmp/a" "$tmp/b" &&
            "$run" logits --model "$packed" --plan "$tmp/fast.json" --tokens 1,2,3 --memory 1GiB --engine none -q > "$tmp/c" &&
            "$run" logits --model "$packed" --plan "$tmp/plain.json" --tokens 1,2,3 --memory 1GiB -q > "$tmp/d" && cmp "$tmp/c" "$tmp/d" &&
            ! cmp -s "$tmp/a" "$tmp/c"
    }
    check "the plan's engine and heights are taken, and --engine none overrides them" taken
    work_taken() { # by hand the same bytes, and other ones than the processor's
        local all="logits --model $packed --tokens 1,2,3 --memory 1GiB --engine-cache $tmp -q"
        "$run" $all --plan "$tmp/works.json" --engine plan > "$tmp/a" && "$run" $all --plan "$tmp/plain.json" --engine opencl:0 --engine-height 0 --engine-work all > "$tmp/b" &&
            cmp "$tmp/a" "$tmp/b" && ! cmp -s "$tmp/a" "$tmp/d" && "$run" $all --plan "$tmp/works.json" --engine plan --engine-work ffn > "$tmp/b" && cmp "$tmp/b" "$tmp/d" &&
            "$run" $all --plan "$tmp/works.json" --engine plan --engine-work head > "$tmp/b" && ! cmp -s "$tmp/b" "$tmp/d" && ! cmp -s "$tmp/b" "$tmp/a"
    }
    check "the plan's work is taken, and --engine-work overrides it" work_taken
    # What its driver takes is measured, and a plan has room for that, a quarter more, for it differs from start to start, and its buffers:
    # nothing has to give way, and the peak is within it (a sanitizer's own memory is not ours).
    fits()
    {
        "$P" hardware --db "$tmp/pocl.sqlite" --device pocl --only engine --engine opencl:0 --quick --types f16 --engine-cache "$tmp" \
            --seconds-per-point 0.003 --patience 0 -q > "$tmp/out" || return 1
        local bytes memory
        bytes=$("$P" show --json "$tmp/pocl.sqlite" | python3 -c 'import json, sys; print(int(json.load(sys.stdin)["devices"][0]["accelerators"][0]["driver_bytes"]) * 5 // 4)')
        device driven opencl:0 0.01 0.0005 "$bytes" 0.0005 && memory=$((bytes + (30 << 20))) && solve driven "$tmp/driven.json" --max-batch 2 > "$tmp/out" &&
            ! grep -q 'driver takes' "$tmp/driven.json" && "$plan" check -q "$tmp/driven.json" --traces "$traces" --hardware "$tmp/driven.sqlite" > "$tmp/out" &&
            "$plan" explain "$tmp/driven.json" --traces "$traces" --hardware "$tmp/driven.sqlite" --no-gains > "$tmp/text" && grep -q '^  engine  *[0-9]' "$tmp/text" &&
            "$run" generate --model "$packed" --plan "$tmp/driven.json" --prompt 'Once upon a time' -n 8 --temp 0 --engine plan --engine-cache "$tmp" --json -q > "$tmp/lines" &&
            is "$(works "$tmp/driven.json")" "all all" && python3 - "$tmp/lines" "$tmp/driven.json" "${SANITIZE:-}" << 'END'
import json, sys
s, p = json.loads(open(sys.argv[1]).readlines()[-1]), json.load(open(sys.argv[2]))
l = {**p['decisions']['limits'][0], **p['predictions']['limits'][0]}
print(s['peak_bytes'], s['memory_bytes'], s['account_bytes'], l['account_bytes'], s['engine'])
assert (sys.argv[3] or s['peak_bytes'] <= s['memory_bytes']) and s['memory_bytes'] == l['memory_bytes'] and s['engine']['lost'] is None and s['engine']['neurons'] > 0
assert {h['work'] for h in s['engine']['heights']} == {'all'} # one height, or another for prompts
assert s['account_bytes'] + s['engine']['driver_bytes'] <= l['account_bytes'] and s['predicted']['valid']
END
    }
    check "a plan has room for its driver and buffers, and a run stays within it" fits
else
    skip "the plan's engine and heights are taken" "no OpenCL device"
fi
done_testing
