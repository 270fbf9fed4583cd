#!/bin/bash
# thermo-run chat and generate --chat: what the template makes of messages is what the model reads, a later turn gives what the whole
# conversation gives, Ctrl-C ends an answer alone.
. tests/run_chain.sh
scratch
chain_start
chain split || { echo "not ok 1 - chain"; echo "1..1"; exit 1; }
m=$tmp/split.thermo p=$tmp/split.json t=$tmp/template
files=(--model "$m" --plan "$p")
cat > "$t" <<'T'
{%- for m in messages %}
    {%- if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}
    {{- '[' ~ m.role ~ '] ' ~ m.content | trim ~ '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '[teller]' }}{% endif %}
T

fails() # STATUS PATTERN COMMAND...
{
    local s=$1 p=$2 r=0
    shift 2
    "$@" > "$tmp/out" 2> "$tmp/err" < /dev/null || r=$?
    [ $r -eq "$s" ] && grep -q -- "$p" "$tmp/err" || { echo "exit $r instead of $s, or stderr lacks '$p':"; cat "$tmp/err"; return 1; }
}
gen() { "$run" generate "${files[@]}" --temp 0 -n 12 "$@" 2> "$tmp/err"; }
talk() { "$run" chat "${files[@]}" --temp 0 -n 12 --chat-template "$t" "$@" 2> "$tmp/err"; }
field() { sed -n "$1p" "$tmp/lines" | python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$2"; }

check "a model without a template is refused by key" fails 3 "'tokenizer.chat_template' is absent" "$run" chat "${files[@]}"
check "generate --chat too" fails 3 "'tokenizer.chat_template' is absent" "$run" generate "${files[@]}" --chat --prompt x
check "--system without --chat: usage" fails 2 '--system belongs to --chat' "$run" generate "${files[@]}" --prompt x --system y
printf 'a\n{%% include "x" %%}\n' > "$tmp/bad"
check "what is not known is refused by name and line" fails 3 "line 2: statement 'include' is not known" \
    "$run" chat "${files[@]}" --chat-template "$tmp/bad"
printf '{{ raise_exception("never") }}' > "$tmp/bad"
check "what the template refuses: usage" fails 2 'the template refuses: never' \
    "$run" generate "${files[@]}" --chat --chat-template "$tmp/bad" --prompt x

same_as_rendered()
{
    gen --prompt $'[system] Be kind.\n[user] Once upon a time\n[teller]' --no-echo > "$tmp/plain" &&
    gen --chat --chat-template "$t" --system 'Be kind.' --prompt ' Once upon a time ' > "$tmp/chat" && cmp "$tmp/plain" "$tmp/chat"
}
check "generate --chat: the template's text is what is continued" same_as_rendered

# The same model with a template of its own: a pack of it keeps the key.
with_key()
{
    python3 -B - $model "$tmp/own.gguf" "$t" <<'P' || return 1
import struct, sys
sys.path.insert(0, 'tests')
from split_gguf import Reader
data, text = open(sys.argv[1], 'rb').read(), open(sys.argv[3], 'rb').read()
r = Reader(data)
r.take(8)
n_tensors, n_keys = r.number('Q'), r.number('Q')
for _ in range(n_keys):
    r.string()
    r.skip_value(r.number('I'))
keys = data[24:r.at]
infos = r.at
for _ in range(n_tensors):
    r.string()
    r.take(8 * r.number('I') + 12)
name = b'tokenizer.chat_template'
head = data[:16] + struct.pack('<Q', n_keys + 1) + keys + struct.pack('<Q', len(name)) + name + \
    struct.pack('<IQ', 8, len(text)) + text + data[infos:r.at]
open(sys.argv[2], 'wb').write(head + bytes(-len(head) % 32) + data[r.at + -r.at % 32:])
P
    "$BIN/thermo-pack" pack --model "$tmp/own.gguf" --traces "$tmp/t.h5" --plan "$p" --out "$tmp/own.thermo" > "$tmp/log" 2>&1 ||
        { cat "$tmp/log"; return 1; }
    "$run" generate --model "$tmp/own.thermo" --plan "$p" --temp 0 -n 12 --chat --system 'Be kind.' --prompt 'Once upon a time' \
        > "$tmp/own" 2> "$tmp/err" && cmp "$tmp/own" "$tmp/chat" || { cat "$tmp/err"; return 1; }
}
check "a pack keeps the template of its model" with_key

# The same pack of a model whose converter typed the marks of a chat as text: they are what they were, and it is said.
typed_as_text()
{
    local i
    printf '%s' '{% for m in messages %}<s>{{ m.content }}</s>{% endfor %}' > "$tmp/marked"
    python3 -B - "$tmp/own.gguf" "$tmp/typed.gguf" <<'P' || return 1
import sys
sys.path.insert(0, 'tests')
from split_gguf import Reader
r = Reader(bytearray(open(sys.argv[1], 'rb').read()))
r.take(16)
for _ in range(r.number('Q')):
    name, kind = r.string(), r.number('I')
    if name == b'tokenizer.ggml.token_type':
        assert r.data[r.at + 16] == r.data[r.at + 20] == 3 # <s> and </s>, behind the type and count of the array and <unk>
        r.data[r.at + 16] = r.data[r.at + 20] = 1
        break
    r.skip_value(kind)
open(sys.argv[2], 'wb').write(r.data)
P
    "$BIN/thermo-pack" pack --model "$tmp/typed.gguf" --traces "$tmp/t.h5" --plan "$p" --out "$tmp/typed.thermo" > "$tmp/log" 2>&1 ||
        { cat "$tmp/log"; return 1; }
    for i in own typed; do
        echo '{"id": 1, "n": 12, "temp": 0, "messages": [{"role": "user", "content": "Once upon a time"}]}' |
            "$run" serve --stdio --chat --chat-template "$tmp/marked" --model "$tmp/$i.thermo" --plan "$p" 2> "$tmp/err.$i" |
            grep -e '"token"' -e '"done"' > "$tmp/marked.$i" || { cat "$tmp/err.$i"; return 1; }
    done
    cmp "$tmp/marked.own" "$tmp/marked.typed" && ! grep 'typed as text' "$tmp/err.own" &&
        [ "$(grep -c '2 tokens are typed as text and taken as control tokens: <s>, </s>$' "$tmp/err.typed")" -eq 1 ] ||
        { cat "$tmp/err.typed"; return 1; }
}
check "marks that a converter typed as text are control tokens, which is said once" typed_as_text

turns()
{
    local kind='Be kind, and tell of dogs and of cats that run in the park and see a big red ball.'
    printf '%s\n' "{\"role\": \"system\", \"content\": \"$kind\"}" '{"content": "Once upon a time"}' '{"content": "And then?"}' |
        talk --json > "$tmp/lines" && [ "$(wc -l < "$tmp/lines")" -eq 2 ] || { cat "$tmp/err"; return 1; }
    first=$(field 1 content) second=$(field 2 content)
    gen --prompt "[system] $kind"$'\n[user] Once upon a time\n[assistant] '"$(python3 -c \
        'import sys; print(sys.argv[1].strip())' "$first")"$'\n[user] And then?\n[teller]' --no-echo > "$tmp/whole"
    [ "$second" = "$(cat "$tmp/whole")" ] || { echo "'$second' is not '$(cat "$tmp/whole")'"; return 1; }
    [ "$(field 1 reused_tokens)" -eq 0 ] && [ "$(field 2 reused_tokens)" -ge 32 ] &&
        [ "$(field 1 stop)" = length ] || { cat "$tmp/lines"; return 1; }
}
check "a second turn gives what the whole conversation gives, and reads the new part alone" turns

thoughts()
{
    printf '%s' '{% for m in messages %}{{ m.content }}{% endfor %}<think>' > "$tmp/thinks"
    local think=("$run" chat "${files[@]}" --temp 0 -n 12 --chat-template "$tmp/thinks" --commands)
    echo 'Once upon a time' | "${think[@]}" > "$tmp/shown" 2> "$tmp/err" && head -1 "$tmp/shown" | grep -qx '<think>' &&
        gen --chat --chat-template "$tmp/thinks" --prompt 'Once upon a time' > "$tmp/plain" &&
        [ "$(cat "$tmp/shown")" = "$(cat "$tmp/plain")" ] &&
        printf 'Once upon a time\n/save %s\n' "$tmp/thought.json" | "${think[@]}" --thinking hide > "$tmp/hidden" 2> "$tmp/err" &&
        [ -z "$(cat "$tmp/hidden")" ] && grep -q '"reasoning_content": "..*"' "$tmp/thought.json" ||
        { cat "$tmp/shown" "$tmp/hidden" "$tmp/err"; return 1; }
}
check "a thought is shown as generate --chat shows it; one that is hidden is kept" thoughts

# One parser of messages: serve and chat --json give a template the same, and refuse the same by name.
fields()
{
    printf '%s' '{{ raise_exception(messages[0] | tojson) }}' > "$tmp/shows"
    python3 -B - "$run" "$m" "$p" "$tmp/shows" <<'P'
import json, subprocess, sys
run, model, plan, template = sys.argv[1:]
calls = [{'type': 'function', 'function': {'name': 'f', 'arguments': {'a': 1}}}]
cases = [({'role': 'assistant', 'content': None, 'tool_calls': calls}, dict(role='assistant', content='', tool_calls=calls)),
         ({'role': 'tool', 'content': '7', 'tool_call_id': 'c', 'name': 'f'}, dict(role='tool', content='7', name='f', tool_call_id='c')),
         ({'role': 'a', 'content': 'x', 'reasoning_content': 'y'}, dict(role='a', content='x', reasoning_content='y', thinking='y')),
         ({'role': 'a', 'content': [{'type': 'text', 'text': 'x'}], 'refusal': None}, dict(role='a', content='x')),
         ({'role': 'a', 'content': 'x', 'typo': 1}, 'there is no field "typo"'),
         ({'role': 'a', 'content': 'x', 'tool_call': []}, 'the nearest is "tool_calls"'),
         ({'role': 'a', 'content': [{'type': 'image_url', 'image_url': {'url': 'u'}}]}, '"content"[0] is of type "image_url"'),
         ({'role': 'a', 'content': 'x', 'function_call': {'name': 'f'}}, 'field "function_call" is not supported')]
def thermo(command, text, *more):
    return subprocess.run([run, *command, '--model', model, '--plan', plan, '--chat-template', template, '-q', *more],
                          input=text.encode(), capture_output=True)
def check(where, said, want):
    if isinstance(want, str):
        assert want in said, (where, said, want)
    else:
        assert said.count('the template refuses: ') == 1 and json.loads(said.split('refuses: ')[1]) == want, (where, said, want)
lines = [json.dumps({'id': str(i), 'n': 1, 'messages': [m, {'role': 'user', 'content': 'go'}]}) for i, (m, _) in enumerate(cases)]
more = ['{"cancel": "1", "typo": 1}', '{"id": "t", "prompt": "x", "temperature": 1}', '{"id": "u", "prompt": "x", "user": "me", "tmep": 1}']
said = [json.loads(l) for l in thermo(['serve', '--stdio', '--chat'], '\n'.join(lines + more)).stdout.decode().splitlines()]
said = [x['error'] for x in said if x['type'] == 'error']
assert len(said) == len(cases) + len(more), said
for (_, want), s in zip(cases, said):
    check('serve', s, want)
assert 'a cancellation: there is no field "typo"' in said[-3], said
assert 'its name here is "temp"' in said[-2] and 'the nearest is "temp"' in said[-1], said
for m, want in cases:
    r = thermo(['chat', '--json'], json.dumps(m) + '\n{"content": "go"}\n')
    said = [json.loads(l) for l in r.stdout.decode().splitlines()]
    assert r.returncode == 0 and all(s['type'] == 'error' for s in said) and said[0]['line'] == (1 if isinstance(want, str) else 2), r
    check('chat', said[0]['error'], want)
P
}
check "serve and chat --json give the template the same fields, and refuse the same" fields

lines()
{
    printf '%s\n' 'Once upon\' 'a time' "/save $tmp/saved.json" /reset '"""' 'Another' '' 'day' '"""' "/load $tmp/saved.json" \
        "/save $tmp/again.json" /quit 'never read' | talk --commands > "$tmp/out" || { cat "$tmp/err"; return 1; }
    cmp "$tmp/saved.json" "$tmp/again.json" && [ "$(wc -l < "$tmp/out")" -ge 2 ] &&
    python3 - "$tmp/saved.json" <<'P'
import json, sys
m = json.load(open(sys.argv[1]))['messages']
assert [x['role'] for x in m] == ['user', 'assistant'] and m[0]['content'] == 'Once upon\na time' and m[1]['content'], m
P
}
check "lines, blocks of lines, /save, /load, /reset and /quit" lines
check "an unknown command without a terminal: usage" fails 2 "'/sing' is no command" sh -c \
    "echo /sing | '$run' chat --commands --model '$m' --plan '$p' --chat-template '$t'"
check "a file that holds no conversation is refused" fails 3 'no array "messages"' sh -c \
    "echo '{}' > '$tmp/empty.json'; echo '/load $tmp/empty.json' | '$run' chat --commands --model '$m' --plan '$p' --chat-template '$t'"

# From what is no terminal a command is a message, unless it is asked for.
piped()
{
    printf '%s\n' "/save $tmp/piped.json" /quit | talk > "$tmp/out" || { cat "$tmp/err"; return 1; }
    [ ! -e "$tmp/piped.json" ] && [ "$(wc -l < "$tmp/out")" -ge 2 ] || { cat "$tmp/out" "$tmp/err"; return 1; }
    printf '%s\n' '"""' "/save $tmp/piped.json" '"""' '/reset \' "/save $tmp/piped.json" | talk --commands > "$tmp/out" && [ ! -e "$tmp/piped.json" ]
}
check "lines of a pipe are messages, whatever they begin with; so are blocks" piped
check "--commands with --json: usage" fails 2 'commands is for lines of text' "$run" chat "${files[@]}" --commands --json
check "/save on a terminal: nothing in use or of others is written over, modes are kept" \
    python3 -B tests/cli/save.py "$run" "$m" "$p" "$t" "$tmp/save"

# A context that is full: an answer says so, then the oldest turns go, which is said once, and never the system's message.
full()
{
    local i
    for i in 1 2 3 4 5 6 7 8; do echo "Once upon a time there was a dog. It ran to the park and saw a big red ball on the grass ($i)."; done > "$tmp/turns"
    "$run" chat "${files[@]}" --temp 0 --chat-template "$t" --system 'Be kind.' --commands < <(cat "$tmp/turns"; echo "/save $tmp/full.json") \
        > "$tmp/out" 2> "$tmp/err" && python3 - "$tmp/full.json" "$tmp/err" <<'P'
import json, sys
m, said = json.load(open(sys.argv[1]))['messages'], open(sys.argv[2]).read()
assert m[0] == {'role': 'system', 'content': 'Be kind.'} and m[1]['role'] == 'user' and '(1)' not in m[1]['content'] and '(8)' in m[-2]['content'], m
assert said.count('the oldest turns are forgotten') == 1 and said.count('the answer was cut off: the context of 256 tokens is full') > 1, said
assert f"{len(m)} messages saved in '{sys.argv[1]}'" in said, said
P
}
check "a context that is full is said, and the oldest turns go" full
full_json()
{
    { sed 's/.*/{"content": "&"}/' "$tmp/turns"; printf '{"content": "a\n{"role": 3}\nx\0y\n[]\n{"content": "Hello"}\n'; } |
        talk --json > "$tmp/lines" || { cat "$tmp/err"; return 1; }
    python3 - "$tmp/lines" <<'P'
import json, sys
lines = [json.loads(l) for l in open(sys.argv[1])]
assert [a['type'] for a in lines] == ['answer'] * 8 + ['error'] * 4 + ['answer'], lines
assert [a['line'] for a in lines[8:12]] == [9, 10, 11, 12] and all(a['error'] and a['status'] in (2, 3) for a in lines[8:12]), lines
assert 'forgotten_messages' not in lines[0] and lines[-1]['forgotten_messages'] >= 2, lines
P
}
check "--json: so it is counted, and what is wrong is answered by an object" full_json

# The ceiling holds for the conversation too: more than half of the context in messages, rendered and read turn by turn.
ceiling()
{
    local i peak
    for i in 1 2 3 4 5 6 7 8 9; do echo "Once upon a time there was a dog. It ran to the park and saw a big red ball on the grass."; echo "Then $i?"; done |
        talk -v -n 4 --context 1024 --memory "$1" > "$tmp/long" || { cat "$tmp/err"; return 1; }
    peak=$(sed -n 's/.*peak memory \([0-9.]*\) MiB$/\1/p' "$tmp/err")
    grep -q 'account: beside  *2.1 MiB' "$tmp/err" || { echo "not said"; cat "$tmp/err"; return 1; }
    python3 -c 'import sys; print(sys.argv); assert 4 < float(sys.argv[1]) <= float(sys.argv[2])' "$peak" "${1%MiB}"
}
if [ -z "$SANITIZE" ]; then
    check "a conversation within the ceiling" ceiling 18MiB
fi

# Ctrl-C while an answer comes (or just after: it is short), and while a message is waited for.
interrupted()
{
    local pid r=0
    mkfifo "$tmp/in"
    "$run" chat "${files[@]}" --temp 1 -s 1 --commands --chat-template "$t" < "$tmp/in" > "$tmp/out" 2> "$tmp/err" &
    pid=$!
    exec 9> "$tmp/in"
    printf 'Tell me a long story.\n' >&9
    until [ -s "$tmp/out" ] || ! kill -0 $pid; do sleep 0.01; done
    kill -INT $pid
    printf '/reset\nHello\n/save %s\n' "$tmp/after.json" >&9
    until [ -s "$tmp/after.json" ] || ! kill -0 $pid; do sleep 0.01; done
    sleep 0.1
    kill -INT $pid
    printf '/save %s\n' "$tmp/end.json" >&9
    exec 9>&-
    wait $pid || r=$?
    [ $r -eq 0 ] && grep -q '"Hello"' "$tmp/after.json" && cmp "$tmp/after.json" "$tmp/end.json" || {
        echo "exit $r"; cat "$tmp/err"; return 1; }
}
check "Ctrl-C ends an answer and not the program" interrupted
done_testing
