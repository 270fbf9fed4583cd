#!/bin/bash
# --prefix-cache: what prompts begin with, in a folder. Texts are what they are without it, in one process and after others; what is killed,
# damaged, full, too large or somebody else's costs time alone.
. tests/run_chain.sh
scratch
chain_start
chain split --max-batch 4 || { echo "not ok 1 - chain"; echo "1..1"; exit 1; }
files=(--model "$tmp/split.thermo" --plan "$tmp/split.json")
predicted() # a chain with predictors
{
    "$BIN/thermo-profile" predictors -q --model $model --traces "$tmp/t.h5" --method svd --rank 64 --out "$tmp/p.h5" &&
        cp "$tmp/split.thermo" "$tmp/exact.thermo" && cp "$tmp/split.json" "$tmp/exact.json" && mv "$tmp/t.h5" "$tmp/exact.h5" &&
        mv "$tmp/p.h5" "$tmp/t.h5" && chain split --mode predicted --max-batch 4
}
fails() # STATUS PATTERN COMMAND...
{
    local s=$1 p=$2 r=0
    shift 2
    "$@" > "$tmp/out" 2> "$tmp/err" < /dev/null || r=$?
    [ $r -eq "$s" ] && grep -q -- "$p" "$tmp/err" || { echo "exit $r instead of $s, or stderr lacks '$p':"; cat "$tmp/err"; return 1; }
}
served() # TEST OPTION...
{
    rm -rf "$tmp/work"
    mkdir "$tmp/work" && python3 -B tests/cli/prefix.py "$run" "$1" "$tmp/work" "${files[@]}" "${@:2}"
}

check "two conversations with one place" served turns
check "the same, each turn by a process of its own" served restarts
check "bytes flipped, cut, added, swapped, and a link" served damaged
TRIALS=${short:+9} check "killed while it writes" served killed
check "two processes within one bound; what is used stays" served bounded
check "what a clock that was ahead has dated" served ahead
check "another KV type's pages" served others
check "pages of blocks, each turn by a process of its own" served restarts --kv q8_0
check "no room to write" served full
# ---- sessions ----
gen() { "$run" generate "${files[@]}" -q --temp 0 --ignore-eos --json "$@" 2> "$tmp/err" || { cat "$tmp/err" >&2; return 1; }; }
read_of() { sed -n 's/.*"prompt":{[^}]*"tokens":\([0-9]*\).*/\1/p' "$1" | tail -n 1; }
text_session() # a text in three runs is that of one; each run reads what is new
{
    local start='Once upon a time there was a little girl who had a red ball and a blue ball and she liked to play'
    gen --prompt "$start" -n 60 > "$tmp/whole" && rm -rf "$tmp/s.json" "$tmp/s.json.kv" &&
        gen --prompt "$start" -n 20 --session "$tmp/s.json" > "$tmp/s1" && gen -n 25 --session "$tmp/s.json" > "$tmp/s2" &&
        gen -n 15 --session "$tmp/s.json" > "$tmp/s3" || return 1
    cat "$tmp/s1" "$tmp/s2" "$tmp/s3" | grep -o '"id":[0-9]*' > "$tmp/parts"
    grep -o '"id":[0-9]*' "$tmp/whole" | cmp - "$tmp/parts" || return 1
    [ "$(read_of "$tmp/s3")" -le 33 ] || { echo "read: $(read_of "$tmp/s1") $(read_of "$tmp/s2") $(read_of "$tmp/s3")"; return 1; }
    gen --prompt ' and then' -n 5 --session "$tmp/s.json" > "$tmp/s4" && gen --no-echo -n 5 --session "$tmp/s.json" > "$tmp/s5"
}
check "generate --session goes on where it was" text_session
ends_session() # a text that fills its context goes on in a larger one alone
{
    gen --prompt Once -n 250 --session "$tmp/e.json" > /dev/null && gen -n 20 --session "$tmp/e.json" > /dev/null &&
        fails 2 "'$tmp/e.json': the prompt has 257 tokens; a context of 256 holds 255 .*--context" "$run" generate "${files[@]}" --session "$tmp/e.json"
}
check "a session that fills its context" ends_session
check "a session of nothing" fails 2 'prompt' "$run" generate "${files[@]}" --session "$tmp/new.json"
check "a session and the best of several" fails 2 'does not go with' "$run" generate "${files[@]}" --session "$tmp/new.json" --prompt x --best-of 2
printf '{"tokens": [5, 6], "pieces": "00000000000000000000000000000000"}' > "$tmp/other.json"
check "a session of another model" fails 5 'other tokens' "$run" generate "${files[@]}" --session "$tmp/other.json"
printf '{"tokens": [5, -6], "pieces": ""}' > "$tmp/wrong.json"
check "a file that is no session" fails 3 'tokens\[1\] is no token' "$run" generate "${files[@]}" --session "$tmp/wrong.json"
printf '{%% for m in messages %%}{{ m.content }}. {%% endfor %%}' > "$tmp/template"
talk() { "$run" chat "${files[@]}" -q --json --temp 0 -n 12 --chat-template "$tmp/template" "$@" 2> "$tmp/err" || { cat "$tmp/err" >&2; return 1; }; }
chat_session()
{
    printf '{"content": "%s"}\n' 'Once there was a girl with a ball and a dog who lived in a house by the sea' 'And then she met' 'The end of it' > "$tmp/said"
    talk < "$tmp/said" > "$tmp/whole" && rm -rf "$tmp/c.json" "$tmp/c.json.kv" || return 1
    for i in 1 2 3; do sed -n ${i}p "$tmp/said" | talk --session "$tmp/c.json" || return 1; done > "$tmp/parts"
    python3 -B -c "
import json
a, b = ([json.loads(l) for l in open('$tmp/' + n)] for n in ('whole', 'parts'))
assert [l['content'] for l in a] == [l['content'] for l in b] and len(a) == 3, (a, b)
print([l for l in b])
m = json.load(open('$tmp/c.json'))['messages']
assert [x['role'] for x in m] == ['user', 'assistant'] * 3 and m[5]['content'] == b[2]['content'], m" || return 1
    ls "$tmp/c.json.kv" | grep -q '\.kv$'
}
check "chat --session goes on where it was" chat_session
printf 'no JSON' > "$tmp/d.json"
check "a file that is no conversation" fails 3 'd.json' "$run" chat "${files[@]}" --chat-template "$tmp/template" --session "$tmp/d.json"

check "predictors" predicted
check "predicted mode: no answer is part of a prompt" served predicted --mode predicted

mkdir -m 777 "$tmp/open"
chmod 777 "$tmp/open"
check "a folder that others can write to" fails 2 'can be written to by others' "$run" serve --stdio "${files[@]}" --prefix-cache "$tmp/open"
check "a file in its place" fails 2 'opening the folder' "$run" serve --stdio "${files[@]}" --prefix-cache "$tmp/split.json"
check "a size without a folder" fails 2 'belongs to --prefix-cache' "$run" serve --stdio "${files[@]}" --prefix-cache-size 1GiB
check "smaller than a page" fails 2 'prefix-cache-size' "$run" serve --stdio "${files[@]}" --prefix-cache "$tmp/small" --prefix-cache-size 1KiB
done_testing
