#!/bin/bash
# Several texts at once: generate --best-of and --prompts, serve --stdio. Each text is the one that it is alone; results keep the order of
# the prompts, an interrupted run goes on where it was, requests and their errors do not disturb each other, memory is a ceiling.
. tests/run_chain.sh
scratch
chain_start
chain split --max-batch 4 || { echo "not ok 1 - chain"; echo "1..1"; exit 1; }
chain bundle || { echo "not ok 1 - chain"; echo "1..1"; exit 1; }
files=(--model "$tmp/split.thermo" --plan "$tmp/split.json")
one=(--model "$tmp/bundle.thermo" --plan "$tmp/bundle.json")

fails() # STATUS PATTERN COMMAND...
{
    local s=$1 p=$2 r=0
    shift 2
    "$@" > "$tmp/out" 2> "$tmp/err" < /dev/null || r=$?
    [ $r -eq "$s" ] && grep -q -- "$p" "$tmp/err" || { echo "exit $r instead of $s, or stderr lacks '$p':"; cat "$tmp/err"; return 1; }
}
gen() { "$run" generate "${files[@]}" -q "$@" 2> "$tmp/err" || { cat "$tmp/err" >&2; return 1; }; }
serve() { "$run" serve --stdio "${files[@]}" -q "$@" 2> "$tmp/err" || { cat "$tmp/err" >&2; return 1; }; }
py() { python3 -B -c "import json, sys
def lines(name): return [json.loads(l) for l in open('$tmp/' + name)]
def results(name): return [l for l in lines(name) if l['type'] == 'result']
$1" "${@:2}"; }

# ---- options ----
check "--resume without --output" fails 2 'belongs to --output' "$run" generate "${files[@]}" --prompts x --resume
check "--prompts and --prompt" fails 2 'does not go with' "$run" generate "${files[@]}" --prompts x --prompt y
check "--best-of and --prompts" fails 2 'does not go with' "$run" generate "${files[@]}" --prompts x --best-of 2
check "--kv-positions alone" fails 2 'belongs to' "$run" generate "${files[@]}" --prompt x --kv-positions 64
check "more than the plan is for" fails 2 'max-batch 8' "$run" generate "${files[@]}" --prompt x --best-of 5
check "several with a plan for one" fails 2 'is for 1: plan with .*--max-batch 2' "$run" generate "${one[@]}" --prompt x --best-of 2
chain two-phase --max-batch 8 > "$tmp/log" 2>&1
rows=167
[ -z "$short" ] || rows=9 # of one line each: one more than run together
head -n $((rows == 167 ? 100000 : rows + 1)) datasets/prompts/stories-profile.csv > "$tmp/prompts.csv"
many()
{
    "$run" generate --model "$tmp/two-phase.thermo" --plan "$tmp/two-phase.json" -q --prompts "$tmp/prompts.csv" \
        --sequences 8 -n 6 --temp 0 > "$tmp/many" 2> "$tmp/err"
    [ "$(grep -c '"stop"' "$tmp/many")" -eq $rows ] || { cat "$tmp/err"; tail -n 2 "$tmp/many"; return 1; }
}
check "a file of prompts, 8 at a time" many
check "32 sequences with a plan for 8" fails 2 'max-batch 32' "$run" generate --model "$tmp/two-phase.thermo" --plan "$tmp/two-phase.json" \
    --prompts datasets/prompts/stories-profile.csv --sequences 32
check "a pool larger than what can be used" fails 2 'need no more than 512' "$run" generate "${files[@]}" --prompts x --sequences 2 --kv-positions 513
check "serve without --stdio" fails 2 'needs --stdio' "$run" serve "${files[@]}"
check "no such file" fails 3 'nowhere' "$run" generate "${files[@]}" --prompts "$tmp/nowhere"
printf 'a,b\n1,2\n' > "$tmp/t.csv"
check "no such column" fails 3 "without a column 'text'" "$run" generate "${files[@]}" --prompts "$tmp/t.csv"
check "an output that is the input" fails 2 'prompts' "$run" generate "${files[@]}" --prompts "$tmp/t.csv" --output "$tmp/t.csv"

# ---- best-of ----
best()
{
    gen --prompt 'Once upon a time' -n 16 --seed 5 --best-of 3 --json > "$tmp/best" || return 1
    for i in 0 1 2; do gen --prompt 'Once upon a time' -n 16 --seed $((5 + i)) --no-echo > "$tmp/alone$i" || return 1; done
    gen --prompt 'Once upon a time' -n 16 --seed 5 --best-of 3 --no-echo > "$tmp/text" || return 1
    py "
c = [l for l in lines('best') if l['type'] == 'candidate']
assert [l['text'] for l in c] == [open('$tmp/alone%d' % i).read()[:-1] for i in range(3)], c
top = max(c, key=lambda l: l['logprob'])
assert top['best'] and sum(l['best'] for l in c) == 1 and open('$tmp/text').read()[:-1] == top['text']
assert len({l['text'] for l in c}) == 3 and lines('best')[-1]['best'] == top['n']"
}
check "the best of three: each is what its seed gives alone" best
choices()
{
    echo '{"id": "c", "prompt": "Once upon a time", "n": 16, "seed": 5, "choices": 3}' | serve > "$tmp/choices" || return 1
    py "
l = [x for x in lines('choices') if x.get('id') == 'c']
for i in range(3):
    own = [x for x in l if x['choice'] == i]
    assert [x['type'] for x in own] == ['token'] * 16 + ['done'] and [x.get('n') for x in own[:-1]] == list(range(1, 17)), own
    assert ''.join(x['text'] for x in own) == open('$tmp/alone%d' % i).read()[:-1], own
assert len(l) == 3 * 17"
}
check "serve: three choices are these, each line says of which" choices
conversations() # in turns, with one place: each turn reads what is new, and says what it says to a process that knows nothing
{
    python3 - "$run" "${files[@]}" << 'END'
import json, subprocess, sys
command = [sys.argv[1], 'serve', '--stdio', *sys.argv[2:], '-q', '--sequences', '1', '--temp', '0']
class Served:
    def __init__(self):
        self.p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert json.loads(self.p.stdout.readline())['type'] == 'ready'
    def ask(self, tokens):
        self.p.stdin.write(json.dumps({'id': 'x', 'tokens': tokens, 'n': 20, 'ignore_eos': True}) + '\n')
        self.p.stdin.flush()
        made = []
        while (l := json.loads(self.p.stdout.readline()))['type'] == 'token':
            made.append(l['token'])
        return made, l
    def close(self):
        self.p.stdin.close()
        assert json.loads(self.p.stdout.readline())['type'] == 'summary' and self.p.wait() == 0
both = Served()
said = {'a': list(range(5, 45)), 'b': list(range(60, 100))}
for turn in range(3):
    for who in 'ab':
        made, done = both.ask(said[who])
        alone = Served()
        assert alone.ask(said[who])[0] == made and len(made) == 20, (who, turn)
        alone.close()
        assert done['shared_tokens'] == 32 * turn and done['prompt_tokens'] == 40 + 21 * turn, done
        said[who] += made + [7]
both.close()
END
}
check "serve: two conversations with one place read what is new" conversations
# Batch sizes with threads and queue depths of their own, whatever is best here: the same texts, and telemetry says who made them.
own_configurations()
{
    python3 -B -c "import json, sys
p = json.load(open('$tmp/split.json'))
for l in p['decisions']['limits'] + p['predictions']['limits']:
    l.pop('alternatives', None)
for l in p['decisions']['limits']:
    assert [b['batch'] for b in l['batches']] == [1, 2, 4] and all(b['hot'] == l['batches'][0]['hot'] for b in l['batches'])
    classes = [dict(c, n=min(c['n'], 1)) for c in l['classes']]
    l['io']['queue_depth'] = max(4, l['io']['queue_depth'])
    for b, (few, depth) in zip(l['batches'], ((1, 1), (0, 4), (1, 2))):
        n = classes if few else l['classes']
        b['configuration'] = {'classes': n, 'threads': sum(c['n'] for c in n), 'queue_depth': depth}
    l['batches'][1]['configuration']['queue_depth'] = l['io']['queue_depth']
json.dump(p, open('$tmp/own.json', 'w'))" || return 1
    "$run" generate --model "$tmp/split.thermo" --plan "$tmp/own.json" --memory 16MiB -q --prompt 'Once upon a time' -n 16 --seed 5 --best-of 3 \
        --json > "$tmp/own" 2> "$tmp/err" || { cat "$tmp/err"; return 1; }
    py "
k = lambda n: [l for l in lines(n) if l['type'] == 'candidate']
b = lines('own')[-1]['batches']
assert k('own') == k('best'), 'texts'
assert [x['batch'] for x in b] == [1, 2, 4, 0] and [x['queue_depth'] for x in b][:3:2] == [1, 2] and b[0]['threads'] == 1, b
assert b[2]['passes'] > 0 and sum(x['passes'] for x in b) == lines('own')[-1]['passes'], b"
}
check "configurations of their own for batch sizes" own_configurations
small_pool()
{
    gen --prompt 'Once upon a time' -n 16 --seed 5 --best-of 3 --json --kv-positions 128 > "$tmp/pool" &&
        py "
k = lambda n: [l for l in lines(n) if l['type'] == 'candidate']
assert k('pool') == k('best') and lines('pool')[-1]['account']['kv'] < lines('best')[-1]['account']['kv']"
}
check "in a smaller pool" small_pool
check "a pool that cannot hold it" fails 3 'pages of the KV cache' "$run" generate "${files[@]}" --prompt 'Once upon a time' -n 100 --best-of 4 \
    --kv-positions 64

# ---- a file of prompts ----
py "
import csv
rows = list(csv.DictReader(open('datasets/prompts/stories-profile.csv')))[:10]
with open('$tmp/p.csv', 'w', newline='') as f:
    w = csv.writer(f)
    w.writerow(['id', 'note', 'text'])
    for i, r in enumerate(rows):
        w.writerow([r['id'], 'a \"note\",\nof two lines', r['text'][:60 + 10 * i] + (' \"she, said\"\n' if i % 2 else '')])
    w.writerow(['long', '', 'word ' * 400])
with open('$tmp/p.jsonl', 'w') as f:
    for r in csv.DictReader(open('$tmp/p.csv')):
        f.write(json.dumps({'id': r['id'], 'prompt': r['text']}) + '\n')
"
prompts() { gen --prompts "$tmp/p.csv" -n 9 --seed 3 "$@"; }
table()
{
    prompts > "$tmp/a" && return 1 # one is too long
    grep -q 'could not be continued' "$tmp/err" &&
        py "
import csv, subprocess
rows = list(csv.DictReader(open('$tmp/p.csv')))
r = results('a')
assert [l['id'] for l in r] == [x['id'] for x in rows] and [l['index'] for l in r] == list(range(11)), r
assert 'error' in r[10] and r[10]['status'] == 2, r[10]
for i in (0, 3, 9):
    out = subprocess.run(sys.argv[1:] + ['--prompt', rows[i]['text'], '--seed', str(3 + i), '-n', '9', '--no-echo', '-q'], capture_output=True, text=True)
    assert out.stdout == r[i]['text'] + '\n', (out.stdout, r[i])" "$run" generate "${files[@]}"
}
check "a table: in order, each as alone, one that is too long" table
same_lines() { gen --prompts "$tmp/p.jsonl" -n 9 --seed 3 "$@" > "$tmp/b"; sed 1d "$tmp/a" | cmp - <(sed 1d "$tmp/b"); }
check "the same as JSON lines" same_lines
check "one at a time" same_lines --sequences 1
check "in a small pool, in chunks of 5" same_lines --sequences 3 --kv-positions 320 --prefill-chunk 5
check "with hardly any memory" same_lines --memory 20MiB

check "--output FILE: the same file, and no state" eval \
    'prompts --output "$tmp/o"; [ -f "$tmp/o" ] && [ ! -e "$tmp/o.partial" ] && cmp "$tmp/a" "$tmp/o"'
pipe()
{
    mkfifo "$tmp/pipe" && { cat "$tmp/pipe" > "$tmp/piped" & } && prompts --output "$tmp/pipe"
    wait $!
    cmp "$tmp/a" "$tmp/piped" && [ -p "$tmp/pipe" ] && [ ! -e "$tmp/pipe.partial" ]
}
check "a pipe is written, not replaced" pipe
check "and holds nothing to go on from" fails 2 'pipe' "$run" generate "${files[@]}" --prompts "$tmp/p.csv" -n 9 --output "$tmp/pipe" --resume
# ---- a run that is interrupted ----
many=(--prompts "$tmp/many.csv" -n 40 --temp 0.9 --ignore-eos --seed 3 -q)
py "
import csv
rows = list(csv.DictReader(open('datasets/prompts/stories-profile.csv')))[:48]
with open('$tmp/many.csv', 'w', newline='') as f:
    w = csv.writer(f)
    w.writerow(['id', 'text'])
    w.writerows([r['id'], r['text'][:60]] for r in rows)
"
"$run" generate "${files[@]}" "${many[@]}" --output "$tmp/whole" 2> "$tmp/err" || cat "$tmp/err"
interrupted() # SIGNAL STATUS [OPTION...]: leaves $tmp/i.partial, of which a record more is there
{
    local signal=$1 status=$2 pid r=0 i=0 was
    shift 2
    "$run" generate "${files[@]}" "${many[@]}" --output "$tmp/i" "$@" 2> "$tmp/err" &
    pid=$!
    was=$(stat -c %s "$tmp/i.partial" 2> /dev/null || echo 152)
    while [ "$(stat -c %s "$tmp/i.partial" 2> /dev/null || echo 0)" -le "$was" ] && [ -e /proc/$pid/exe ] && [ $i -lt 6000 ]; do
        sleep 0.02
        i=$((i + 1))
    done
    kill -"$signal" $pid
    wait $pid || r=$?
    [ $r -eq "$status" ] && [ ! -e "$tmp/i" ] && [ -s "$tmp/i.partial" ] || { echo "exit $r"; cat "$tmp/err"; ls -l "$tmp"; return 1; }
}
check "a signal leaves what is done" interrupted TERM 130 -v
check "and says where" grep -q "results are in '$tmp/i.partial'; --resume continues" "$tmp/err"
cp "$tmp/i.partial" "$tmp/state"
go_on() { "$run" generate "${files[@]}" "${many[@]}" --output "$tmp/i" --resume "$@" 2> "$tmp/err" || { cat "$tmp/err"; return 1; }; }
same_as_whole() { cmp "$tmp/whole" "$tmp/i" && [ ! -e "$tmp/i.partial" ] && rm "$tmp/i"; }
check "without --resume it is not written over" fails 2 'resume continues it' "$run" generate "${files[@]}" "${many[@]}" --output "$tmp/i"
killed() { interrupted KILL 137 --resume && go_on --sequences 2 --memory 20MiB --threads 1 && same_as_whole; }
check "killed, it goes on too: the file of an uninterrupted run" killed
damaged() # HOW
{
    python3 - "$tmp/state" "$tmp/i.partial" "$1" <<'P' && go_on && same_as_whole
import sys
b, how = bytearray(open(sys.argv[1], 'rb').read()), sys.argv[3]
m = 152 + (len(b) - 152) // 2 # in the middle of the results
if how == 'zeros':
    b[m:m + 4096] = bytes(len(b[m:m + 4096]))
elif how == 'lost':
    del b[m:b.index(b'\n', m) + 1]
elif how == 'twice':
    b[m:m] = b[m - 300:m]
elif how == 'cut':
    del b[-7:]
else:
    b[m] ^= 4
open(sys.argv[2], 'wb').write(b)
P
}
for how in zeros lost $(of 'twice cut flipped' ''); do
    check "a state that is damaged ($how): nothing is missing, nothing twice" damaged "$how"
done

cp "$tmp/state" "$tmp/r.partial"
resume=("$run" generate "${files[@]}" "${many[@]}" --output "$tmp/r" --resume)
not_with() { check "not with $1" fails 5 "$2" "${resume[@]}" "${@:3}"; }
not_with "another seed" 'seed 3' --seed 4
not_with "other options" 'other options' -n 8
not_with "other sums" 'other options' --act f32
head -n 20 "$tmp/many.csv" > "$tmp/fewer.csv"
not_with "other prompts" 'other prompts' --prompts "$tmp/fewer.csv"
{ cat "$tmp/split.json"; echo; } > "$tmp/plan2.json"
not_with "another plan" 'other plan' --plan "$tmp/plan2.json"
other_pack()
{
    local other=(--traces "$tmp/t.h5" --plan "$tmp/q4.json")
    "$BIN/thermo-plan" solve "${other[@]:0:2}" --hardware "$tmp/hw.sqlite" --memory 64MiB --context 256 --form split --cores mid=2,big=0,little=0 \
        --max-batch 4 --down-type Q4_0 --out "$tmp/q4.json" > "$tmp/log" 2>&1 &&
        "$BIN/thermo-pack" pack --model "$model" "${other[@]}" --quality-tokens 0 --out "$tmp/q4.thermo" > "$tmp/log" 2>&1 || { cat "$tmp/log"; return 1; }
    fails 5 'other pack, plan' "${resume[@]}" --model "$tmp/q4.thermo" --plan "$tmp/q4.json"
}
check "not with another pack" other_pack
two_at_once()
{
    cp "$tmp/state" "$tmp/i.partial"
    exec 8<> "$tmp/i.partial"
    flock 8
    fails 3 'in use by another process' "$run" generate "${files[@]}" "${many[@]}" --output "$tmp/i" --resume || return 1
    exec 8>&-
    go_on && same_as_whole
}
check "not two at once" two_at_once
linked() # OPTION-OF-LN PATTERN
{
    rm -f "$tmp/r.partial"
    printf 'somebody needs this, without a newline' > "$tmp/victim"
    ln $1 "$tmp/victim" "$tmp/r.partial" && fails 3 "$2" "${resume[@]}" && [ "$(cat "$tmp/victim")" = 'somebody needs this, without a newline' ]
}
check "a symbolic link is not followed" linked -s 'symbolic link'
check "nor is a hard link taken" linked '' 'hard link'
rm -f "$tmp/r.partial"

# ---- bench ----
measured()
{
    "$run" bench "${files[@]}" -q -p 0 -n 6 -r 2 --no-warmup --sequences 1,3,4 --json > "$tmp/speeds" 2> "$tmp/err" &&
        "$run" bench "${files[@]}" -q -p 0 -n 6 -r 2 --no-warmup --sequences 4 --text datasets/heldout/heldout.txt -o csv > "$tmp/speeds.csv" || { cat "$tmp/err"; return 1; }
    py "
import csv
p = json.load(open('$tmp/split.json'))
plan = {b['batch']: y['tokens_per_s'] for b, y in zip(*(p[h]['limits'][0]['batches'] for h in ('decisions', 'predictions')))}
t = lines('speeds')[0]['tests']
assert [(x['test'], x['sequences'], x['tokens']) for x in t] == [('tg6', 1, 6), ('tg6@3', 3, 6), ('tg6@4', 4, 6)], t
assert [abs(x.get('tokens_per_s_predicted', 0) - plan.get(x['sequences'], 0)) < 1e-3 * plan[1] for x in t] == [True] * 3, (t, plan)
assert all(len(x['samples']) == 2 and x['tokens_per_s'] > 0 for x in t), t
# Of reads and neurons a token of a batch has its share.
assert abs(t[1]['neurons_per_token']['possible'] * 3 / t[0]['neurons_per_token']['possible'] - 1) < 1e-4, t
row, = csv.DictReader(open('$tmp/speeds.csv'))
assert row['test'] == 'tg6@4' and row['sequences'] == '4', row"
}
check "speeds of several together, beside the plan's" measured
check "speeds of more than the plan is for" fails 2 'sequences 5, but plan .* is for 4' "$run" bench "${files[@]}" --sequences 2,5
for list in 0 2, ,2 2,x 1025 -1 '2 3'; do
    check "--sequences '$list'" fails 2 "numbers from 1 to 1024" "$run" bench "${files[@]}" --sequences="$list"
done

# ---- serve ----
requests()
{
    py "
r = [{'id': 1, 'prompt': 'Once upon a time', 'n': 12, 'seed': 5}, {'id': 'b', 'prompt': 'The little cat', 'n': 9, 'temp': 0},
     {'id': 'b', 'prompt': 'again'}, {'id': 'x', 'prompt': 'y', 'nn': 1}, {'prompt': 'z'}, {'id': 't', 'tokens': [1, 403, 99999999]},
     {'id': 's', 'prompt': 'The dog', 'stop': ['.', 'zz'], 'n': 60, 'seed': 2}, {'cancel': 'nobody'}]
for x in r: print(json.dumps(x))
print('{\"id\": \"open\"'); print(); print('[' * 3000); print('[{}' + ',{}' * 2000 + ']'); print('\"' + 'x' * 40000 + '\"')
for i in range(30): print(json.dumps({'id': 'q%d' % i, 'prompt': 'A', 'n': i % 4, 'seed': i}))
print(json.dumps({'id': 'last', 'prompt': 'Once upon a time', 'n': 12, 'seed': 5}), end='')" > "$tmp/in"
    serve < "$tmp/in" > "$tmp/served" || return 1
    gen --prompt 'Once upon a time' -n 12 --seed 5 --no-echo > "$tmp/t1" && gen --prompt 'The little cat' -n 9 --temp 0 --no-echo > "$tmp/t2" &&
        gen --prompt 'The dog' -n 60 --seed 2 --stop . --stop zz --no-echo > "$tmp/t3" || return 1
    py "
l = lines('served')
assert l[0]['type'] == 'ready' and l[-1]['type'] == 'summary' and l[-1]['answered'] == 34, l[-1]
text = lambda i: ''.join(x['text'] for x in l if x.get('id') == i and x['type'] in ('token', 'done')) + '\n'
done = {x['id']: x for x in l if x['type'] == 'done'}
assert text('1') == text('last') == open('$tmp/t1').read() and text('b') == open('$tmp/t2').read(), text('1')
assert text('s') == open('$tmp/t3').read() and done['s']['stop'] == 'stop'
assert all(done['q%d' % i]['tokens'] <= i % 4 for i in range(30))
e = [x for x in l if x['type'] == 'error']
said = ' '.join(x['error'] for x in e)
assert len(e) == 9, e
for what in ('this id is open', 'no field \"nn\"', 'has an \"id\"', 'token id from 0', 'no request with this id', 'not JSON', 'bytes of memory to read', 'longer than'):
    assert what in said, what"
}
check "requests: each as alone; errors are those of their lines" requests
cancels()
{
    mkfifo "$tmp/fifo"
    serve < "$tmp/fifo" > "$tmp/c" &
    local pid=$! i=0
    exec 7> "$tmp/fifo"
    printf '%s\n' '{"id":"long","prompt":"Once","n":-1,"ignore_eos":true}' '{"id":"other","prompt":"Once","n":5}' >&7
    while [ "$(grep -c '"token","id":"long"' "$tmp/c")" -lt 3 ] && [ $i -lt 600 ]; do sleep 0.1; i=$((i + 1)); done
    printf '%s\n' '{"cancel":"long"}' >&7
    i=0
    while ! grep -q '"done","id":"long"' "$tmp/c" && [ $i -lt 600 ]; do sleep 0.1; i=$((i + 1)); done
    exec 7>&-
    wait $pid && py "
d = {x['id']: x for x in lines('c') if x['type'] == 'done'}
assert d['long']['stop'] in ('interrupted', 'context') and d['other']['tokens'] <= 5, d"
}
check "tokens come as they are made, and a request is cancelled" cancels
# One sequence has four places: requests behind them wait, and a cancellation is no line that waits behind these.
overtakes()
{
    py "
for i in range(7): print(json.dumps({'id': i, 'prompt': 'Once', 'n': 40, 'ignore_eos': True}))
for i in (5, 0, 6): print(json.dumps({'cancel': i}))
print(json.dumps({'cancel': 6}))" > "$tmp/in"
    serve --sequences 1 < "$tmp/in" > "$tmp/c" || return 1
    py "
l = lines('c')
ends = [(x['id'], x['stop'], x['tokens']) for x in l if x['type'] == 'done']
assert len(ends) == 7 and {x[0] for x in ends} == set('0123456'), ends
assert {x[0] for x in ends[:3]} == set('056') and all(x[1] == 'interrupted' and x[2] < 9 for x in ends[:3]), ends
assert all(x[1] in ('length', 'context') for x in ends[3:]), ends
e = [x for x in l if x['type'] == 'error']
assert len(e) == 1 and e[0]['id'] == '6' and 'no request with this id' in e[0]['error'], e
assert l[-1]['answered'] == 5, l[-1]"
}
check "a cancellation overtakes requests that wait for a place" overtakes
served_signal()
{
    mkfifo "$tmp/fifo2"
    rm -f "$tmp/c" # or the line of an earlier one is found before it begins
    "$run" serve --stdio "${files[@]}" -q < "$tmp/fifo2" > "$tmp/c" 2> "$tmp/err" &
    local pid=$! i=0 r=0
    exec 7> "$tmp/fifo2"
    while ! grep -q ready "$tmp/c" && [ $i -lt 600 ]; do sleep 0.1; i=$((i + 1)); done
    kill -TERM $pid
    wait $pid || r=$?
    exec 7>&-
    [ $r -eq 130 ] && grep -q '"summary"' "$tmp/c" || { echo "exit $r"; cat "$tmp/err"; return 1; }
}
check "a signal while idle" served_signal
chats()
{
    printf '%s' "{%- for m in messages %}{{- '[' ~ m.role ~ '] ' ~ m.content ~ '\n' }}{%- endfor %}{%- if add_generation_prompt %}{{ '[teller]' }}{% endif %}" > "$tmp/template"
    printf '%s\n' '{"id":"p","prompt":"Hello"}' '{"id":"m","messages":[{"role":"system","content":"Be kind."},{"role":"user","content":"Hello"}]}' |
        serve --chat --chat-template "$tmp/template" --system 'Be kind.' --temp 0 -n 8 > "$tmp/chat" 2>&1
    py "
t = {i: ''.join(x['text'] for x in lines('chat') if x.get('id') == i and x['type'] in ('token', 'done')) for i in 'pm'}
d = {x['id']: x for x in lines('chat') if x['type'] == 'done'}
assert d['m']['prompt_tokens'] > d['p']['prompt_tokens'], d" &&
        printf '{"id":"m","messages":[]}\n' | serve | grep -q 'need --chat'
}
check "messages" chats

# ---- memory ----
ceiling()
{
    local floor
    floor=$(floor_of "$tmp/split.json")
    py "
for i in range(12): print(json.dumps({'id': i, 'prompt': 'Once there was a small boat. ' * 12, 'n': 10, 'temp': 0}))
for i in range(20): print(json.dumps({'id': i, 'prompt': 'Once' * 2400, 'n': 4}))
for i in range(9): print('[' + ','.join(['\"ab\"'] * 1200) + ']')" > "$tmp/in"
    for memory in $((floor + (3 << 20))) $((64 << 20)); do
        serve --memory $memory < "$tmp/in" > "$tmp/m" || return 1
        py "
s = lines('m')[-1]
print(s['peak_bytes'], s['memory_bytes'], s['account_bytes'])
assert s['peak_bytes'] <= s['memory_bytes'] == $memory, s" || return 1
    done
}
if [ -n "${SANITIZE:-}" ]; then
    skip "long lines and many requests stay within the ceiling" "a sanitizer takes memory of its own"
else
    check "long lines and many requests stay within the ceiling" ceiling
fi
done_testing
