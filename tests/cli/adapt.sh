#!/bin/bash
# The online choice: a plan has alternatives that its account has room for; texts are the same whichever is used, also with another one at
# every pass; options leave out what they fix; --adapt off stays with the plan; bench has none of it. That a change happens when it should is
# unit/test_adapt's, for which machines are made up: nothing here depends on time.
. tests/run_chain.sh
scratch
chain_start
phone_plan() { chain split --memory 14MiB,64MiB --no-verify "$@"; }
check "a plan for 14 and 64 MiB" phone_plan --max-batch 2
plan=$tmp/split.json pack=$tmp/split.thermo

has_alternatives()
{
    python3 -c "
import json
p = json.load(open('$plan'))
for d, q in zip(p['decisions']['limits'], p['predictions']['limits']):
    a, t, own = d.get('alternatives', []), q.get('alternatives', []), q['batches'][0]['step_ns']
    assert len(a) == len(t) and all(x['threads'] >= 1 for x in a), a
    assert all(0 < sum(x.values()) < 2.6 * own for x in t), (own, t)
    assert q['account_bytes'] <= d['memory_bytes']
assert all('alternatives' in d for d in p['decisions']['limits']), p['decisions']['limits']"
}
check "it has alternatives, near enough, within its account" has_alternatives
check "check prices them" "$BIN/thermo-plan" check "$plan" --traces "$tmp/t.h5" --hardware "$tmp/hw.sqlite"
dearer() { sed 's/"attention_ns": [0-9.e+]*, "ffn_ns"/"attention_ns": 1, "ffn_ns"/' "$plan" > "$tmp/dearer.json"; ! cmp -s "$plan" "$tmp/dearer.json"; }
check "one with another time" dearer
check "is refused" says 3 "alternatives\[[0-9]\].attention_ns is 1; the equations give" "$BIN/thermo-plan" check "$tmp/dearer.json" \
    --traces "$tmp/t.h5" --hardware "$tmp/hw.sqlite"

# Alternatives of every kind, whatever is best on that device: threads, back end, depth.
python3 -B -c "
import json
p = json.load(open('$plan'))
for d, q in zip(p['decisions']['limits'], p['predictions']['limits']):
    ways = [(1, 'pread', 1), (1, 'io_uring', 2), (2, 'pread', 2), (2, 'io_uring', 1), (1, 'pread', 3)]
    own = (d['threads'], d['io']['backend'], d['io']['queue_depth'])
    ways = [w for w in ways if w != own][:4]
    d['alternatives'] = [{'backend': b, 'experts_ahead': True, 'joins': False, 'queue_depth': n, 'threads': t} for t, b, n in ways]
    q['alternatives'] = [dict.fromkeys(('attention_ns', 'ffn_ns', 'head_ns', 'io_wait_ns', 'predict_ns'), 1e5)] * len(ways)
json.dump(p, open('$tmp/ways.json', 'w'))" || exit 1

made() # FILE OPTIONS...
{
    local to=$1
    shift
    "$run" generate --model "$pack" --plan "$tmp/ways.json" --memory 16MiB -q --prompt 'Once upon a time' -n 40 --seed 5 --json "$@" \
        > "$tmp/$to" 2> "$tmp/err" || { cat "$tmp/err"; return 1; }
}
same() { python3 -B -c "
import json
a, b = ([json.loads(x) for x in open('$tmp/' + n)] for n in ('$1', '$2'))
assert [x.get('id') for x in a[:-1]] == [x.get('id') for x in b[:-1]] and len(a) > 30, 'texts'
a, b = a[-1]['adapt'], b[-1]['adapt']
$3" 2>&1; }
check "a text without changes" made off --adapt off
check "with another way at every pass" made cycle --adapt cycle
check "is the same, made in several ways" same off cycle "assert a == dict(a, how='off', changes=0, tried=0, last=[]) and b['how'] == 'cycle' and b['changes'] > 30 and b['variants'] >= 3, (a, b)"
check "as it is used" made on
check "it is the same" same off on "assert b['how'] == 'on' and b['variants'] == a['variants'] and b['passes'] > 30, b"
check "several texts at once, in turn" made two --adapt cycle --best-of 2
check "and without" made two-off --adapt off --best-of 2
texts() { python3 -B -c "
import json
a, b = ([x for x in map(json.loads, open('$tmp/' + n)) if x['type'] == 'candidate'] for n in ('two', 'two-off'))
assert a == b and len(a) == 2, (a, b)"; }
check "are the same" texts
check "--threads leaves out other threads" made threads --adapt cycle --threads 1
check "so it does" same off threads "assert 1 < b['variants'] < a['variants'] or $(nproc) < 2, b"
check "--io leaves out the other back end" made io --adapt cycle --io pread
check "so it does, too" same off io "assert 1 < b['variants'] < a['variants'], (a, b)
assert all(x['io'] == 'pread' for x in [json.loads(open('$tmp/io').readlines()[-1])]), b"
check "guesses and changes" made guess --adapt cycle --guess lookup
check "the same text" same off guess "assert b['changes'] > 10"
answers() { printf '{"prompt":"Once upon a time","n":20,"seed":5,"id":"a"}\n{"prompt":"The dog","n":20,"seed":6,"id":"b"}\n' |
    "$run" serve --stdio -q --model "$pack" --plan "$tmp/ways.json" --memory 16MiB --adapt "$1" 2> "$tmp/err" |
    python3 -B -c "
import json, sys
text = {}
for x in map(json.loads, sys.stdin):
    if x.get('type') == 'token':
        text[x['id']] = text.get(x['id'], '') + x['text']
print(sorted(text.items()))" > "$tmp/answers-$1" && [ "$(wc -c < "$tmp/answers-$1")" -gt 60 ]; }
check "serve, in turn" answers cycle
check "serve, without" answers off
check "serve: the same answers" cmp "$tmp/answers-cycle" "$tmp/answers-off"
talk() { printf '{"content":"Hello"}\n{"content":"And then?"}\n' | "$run" chat --json -q --model "$pack" --plan "$tmp/ways.json" --memory 16MiB \
    --chat-template "$tmp/plain.jinja" -n 20 --seed 3 --adapt "$1" > "$tmp/talk-$1" 2> "$tmp/err" || { cat "$tmp/err"; return 1; }; }
printf '%s' "{% for m in messages %}{{ m.content }} {% endfor %}" > "$tmp/plain.jinja"
check "chat, in turn" talk cycle
check "chat, without" talk off
check "chat: the same answers" cmp "$tmp/talk-cycle" "$tmp/talk-off"
check "the second alternative alone" made second --adapt 2
check "the same text" same off second "assert b == dict(a, how='2'), b"
check "one that there is not" says 2 "adapt 8, but of the alternatives of plan .* can be had here" "$run" generate --model "$pack" \
    --plan "$tmp/ways.json" --memory 16MiB -p x --adapt 8
check "another word is refused" says 2 "adapt.*on, off, cycle, 1" "$run" generate --model "$pack" --plan "$plan" -p x --adapt never
check "bench makes passes as the plan says, and has no such option" says 2 "adapt" "$run" bench --model "$pack" --plan "$plan" --adapt on
done_testing
