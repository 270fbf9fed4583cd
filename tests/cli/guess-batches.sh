#!/bin/bash
# Guesses for several texts at once (--guess lookup, draft with --best-of, --prompts and serve): each text is the one without them, greedy
# and drawn, where neurons are read, whatever joins and leaves; what became of them is in the summary; a draft model's memory is a part of
# the limit.
. tests/run_chain.sh
scratch
chain_start
chain split --max-batch 4 || { echo "not ok 1 - chain"; echo "1..1"; exit 1; }
chain bundle || { echo "not ok 1 - chain"; echo "1..1"; exit 1; }
files=(--model "$tmp/split.thermo" --plan "$tmp/split.json")
itself=(--guess draft --draft "$tmp/split.thermo" --draft-plan "$tmp/split.json" --draft-memory 24MiB) # guesses right, whatever is drawn
other=(--guess draft --draft "$tmp/bundle.thermo" --draft-plan "$tmp/bundle.json" --draft-memory 24MiB) # planned for one text at a time

fails() # STATUS PATTERN COMMAND...
{
    local s=$1 p=$2 r=0
    shift 2
    "$@" > "$tmp/out" 2> "$tmp/err" < /dev/null || r=$?
    [ $r -eq "$s" ] && grep -q -- "$p" "$tmp/err" || { echo "exit $r instead of $s, or stderr lacks '$p':"; cat "$tmp/err"; return 1; }
}
gen() { "$run" generate "${files[@]}" --memory 96MiB "$@" 2> "$tmp/err" || { cat "$tmp/err" >&2; return 1; }; }
py() { python3 -B -c "import json, sys
def lines(name): return [json.loads(l) for l in open('$tmp/' + name)]
$1" "${@:2}"; }

# ---- a file of prompts: texts that repeat, of different lengths, so that some end while others go on ----
texts=$(of 9 6)
py "
with open('$tmp/p.jsonl', 'w') as f:
    for i in range($texts):
        words = 'One day a red cat sat on a %s mat. ' % 'big wet old'.split()[i % 3]
        print(json.dumps({'prompt': words * (1 + i % 3) + 'One day', 'n': 5 + 7 * i % 31, 'seed': i, 'ignore_eos': i % 2 == 0}), file=f)"
prompts() { gen -q --prompts "$tmp/p.jsonl" --seed 3 "$@"; }
same() # OPTION... -- GUESSES...
{
    local how=()
    while [ "$1" != -- ]; do how+=("$1"); shift; done
    shift
    prompts "${how[@]}" > "$tmp/plain" && prompts "${how[@]}" "$@" > "$tmp/guessed" && [ "$(wc -l < "$tmp/plain")" -eq $((texts + 1)) ] &&
        cmp "$tmp/plain" "$tmp/guessed"
}
check "lookup, greedy" same --temp 0 -- --guess lookup
check "lookup, random draws and a penalty" same --temp 0.9 --repeat-penalty 1.2 -- --guess lookup --guess-most 15
check "lookup, where neurons are read" same --temp 0 --memory 20MiB -- --guess lookup
check "lookup, three at a time in a small pool, in chunks of 5" same --temp 0 --sequences 3 --kv-positions 320 --prefill-chunk 5 -- --guess lookup
check "lookup, dense mode" same --temp 0.7 --mode dense -- --guess lookup
check "a draft that is the model" same --temp 0.8 -- "${itself[@]}"
check "a draft that was planned for one text" same --temp 0 -- "${other[@]}"
check "what is said of them" eval 'gen --prompts "$tmp/p.jsonl" --temp 0 --guess lookup > "$tmp/out" && grep -q "guesses: [0-9]* of [0-9]* came true, in [0-9]* of [0-9]* passes" "$tmp/err"'

# ---- best-of ----
best()
{
    local b=(--prompt 'One day a red cat sat on a red mat. One day a red' -n 40 --seed 5 --best-of 3 --json --ignore-eos --temp 1 -q)
    gen "${b[@]}" > "$tmp/none" && gen "${b[@]}" --guess lookup > "$tmp/lookup" && gen "${b[@]}" "${itself[@]}" --verbose > "$tmp/draft" || return 1
    py "
none, lookup, draft = lines('none'), lines('lookup'), lines('draft')
assert none[:3] == lookup[:3] == draft[:3] and [l['tokens'] for l in none[:3]] == [40] * 3, (none, lookup, draft)
assert 'guesses' not in none[3]
for s in lookup[3], draft[3]:
    g = s['guesses']
    assert g['accepted'] <= g['tried'] <= g['guessed'] and g['passes'] <= g['of'] <= s['passes'], s
g = draft[3]['guesses']
assert g['accepted'] == g['guessed'] > 0, g # all come true, and each text makes a token in every pass beside those
assert draft[3]['passes'] < none[3]['passes'] and g['passes'] > 0, (draft[3], none[3])"
}
check "the best of three: the same candidates; counted" best
memory() # of both within the limit
{
    gen --prompt 'One day' -n 20 --seed 5 --best-of 4 --temp 0 "${itself[@]}" --memory 56MiB --json -q > "$tmp/m" && py "
s = lines('m')[-1]
assert '${SANITIZE:-}' or s['peak_bytes'] <= s['memory_bytes'] == 56 << 20, s"
}
check "memory: the draft's is a part of it" memory
check "a draft that leaves none: infeasible" fails 4 'the draft model takes' "$run" generate "${files[@]}" --prompt x --best-of 4 --memory 30MiB "${itself[@]}"

# ---- serve ----
requests()
{
    "$run" serve --stdio "${files[@]}" --memory 96MiB -q --temp 0.8 --seed 4 "$@" < "$tmp/lines" 2> "$tmp/err" || { cat "$tmp/err" >&2; return 1; }
}
serves()
{
    py "
for i in range(7):
    print(json.dumps({'id': i, 'prompt': 'One day a red cat sat on a red mat. ' * (i % 3 + 1), 'n': 4 + 9 * i % 25}))
print(json.dumps({'cancel': 6}))" > "$tmp/lines"
    requests > "$tmp/none" && requests --guess lookup > "$tmp/lookup" && requests "${itself[@]}" > "$tmp/draft" || return 1
    py "
def told(name): # of each request its lines in their order; one that was cancelled may be further than another time
    by = {}
    for l in lines(name):
        if l['type'] in ('token', 'done') and l['id'] != '6':
            by.setdefault(l['id'], []).append({k: v for k, v in l.items() if k != 'shared_tokens'})
    return by
assert len(told('none')) == 6 and told('none') == told('lookup') == told('draft')
assert 'guesses' not in lines('none')[-1] and lines('draft')[-1]['guesses']['accepted'] == lines('draft')[-1]['guesses']['guessed']"
}
check "serve: the same tokens" serves

# ---- options ----
check "serve --draft without --guess" fails 2 'belongs to --guess draft' "$run" serve --stdio "${files[@]}" --draft "$tmp/split.thermo"
check "serve --guess draft without --draft" fails 2 'belongs to --draft' "$run" serve --stdio "${files[@]}" --guess draft
check "serve --guess-most without --guess" fails 2 'belongs to --guess' "$run" serve --stdio "${files[@]}" --guess-most 3
check "serve --guess mtp without --mtp" fails 2 'belongs to --mtp' "$run" serve --stdio "${files[@]}" --guess mtp
check "--best-of with a model in place of its layer" fails 2 'is a packed model' "$run" generate "${files[@]}" --prompt x --best-of 2 --guess mtp \
    --mtp "$tmp/split.thermo"
done_testing
