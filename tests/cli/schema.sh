#!/bin/bash
# Requests with schemas and with tools, through serve: every answer is JSON of its schema whatever is drawn, with guesses the same, beside
# others and alone; calls of tools come out as such, and what is none is text; what is not supported is refused by name.
. tests/run_chain.sh
scratch
chain_start
chain split --max-batch 4 || { echo "not ok 1 - chain"; echo "1..1"; exit 1; }
files=(--model "$tmp/split.thermo" --plan "$tmp/split.json" -q --memory 64MiB)
serve() { "$run" serve --stdio "${files[@]}" "$@" 2> "$tmp/err" || { cat "$tmp/err" >&2; return 1; }; }
cat > "$tmp/llama.jinja" << 'END'
{% for m in messages %}{{ m.content }}{% endfor %}{% if tools %}Environment: ipython {"name": "", "parameters": {}}{% endif %}
END
cat > "$tmp/ask.py" << 'END'
import json, sys
what, out = sys.argv[1], []
name = {'type': 'object', 'properties': {'name': {'type': 'string', 'maxLength': 12}, 'n': {'type': 'integer', 'minimum': 0, 'maximum': 99},
        'tags': {'type': 'array', 'items': {'enum': ['a', 'b', 'c']}, 'maxItems': 4}}, 'required': ['name', 'n'], 'additionalProperties': False}
schemas = [name, {'enum': ['red', 'green', None, 12]}, {'type': 'array', 'items': {'type': 'boolean'}, 'minItems': 2, 'maxItems': 3},
           {'type': 'string', 'pattern': '^[a-z]{1,8}-[0-9]{2}$'}, {'type': 'string', 'format': 'date'}]
if what == 'texts':
    for i in range(int(sys.argv[2])):
        out.append({'id': str(i), 'prompt': 'Once upon a time', 'schema': schemas[i % len(schemas)], 'n': 200, 'seed': i,
                    'temp': [0, 0.7, 1.5, 3][i % 4], 'top_k': [0, 40][i % 2], 'ignore_eos': i % 3 == 0})
    out.append({'id': 'twins', 'prompt': 'Once', 'schema': schemas[2], 'n': 100, 'choices': 3, 'temp': 1})
    out.append({'id': 'cut', 'prompt': 'Once', 'schema': {'type': 'string', 'minLength': 400}, 'n': 20, 'temp': 1})
    out.append({'id': 'json', 'prompt': 'Once', 'json': True, 'n': 3, 'temp': 0})
    out.append({'id': 'free', 'prompt': 'Once', 'json': False, 'n': 3, 'temp': 0})
if what == 'long':
    for i in range(6):
        out.append({'id': str(i), 'prompt': 'Once', 'schema': {'type': 'string', 'minLength': 300, 'maxLength': 400}, 'n': 240, 'seed': i, 'temp': 1})
if what == 'bad':
    for i, more in enumerate([{'schema': {'not': {}}}, {'schema': 3}, {'json': 1}, {'json': True, 'schema': {}}, {'response_format': {'type': 'json_object'}},
                              {'schema': {'type': 'string', 'format': 'email'}}]):
        out.append({'id': str(i), 'prompt': 'a', 'n': 3, **more})
if what == 'calls':
    tools = [{'type': 'function', 'function': {'name': 'f', 'parameters': {'type': 'object', 'properties': {'x': {'type': 'integer'}}}}}]
    ask = {'messages': [{'role': 'user', 'content': 'Hi'}], 'tools': tools, 'n': 200, 'temp': 0, 'seed': 5}
    call = {'name': 'f', 'parameters': {'x': 7}}
    out += [{'id': 'call', **ask, 'schema': {'const': call}}, {'id': 'again', **ask, 'schema': {'const': call}},
            {'id': 'seed', **ask, 'schema': {'const': call}, 'seed': 9},
            {'id': 'other', **ask, 'schema': {'const': {'name': 'g', 'parameters': {}}}},
            {'id': 'none', **ask, 'tools': [], 'schema': {'const': call}}, {'id': 'cut', **ask, 'schema': {'const': call}, 'n': 4}]
print('\n'.join(json.dumps(o) for o in out))
END
cat > "$tmp/look.py" << 'END'
import json, sys
what = sys.argv[1]
asked = {q['id']: q for q in map(json.loads, open(sys.argv[2]))}
texts, stops, calls, errors = {}, {}, {}, {}
for line in open(sys.argv[3]):
    o = json.loads(line)
    key = (o.get('id'), o.get('choice', 0))
    if o['type'] == 'error':
        errors[o['id']] = o['error']
    if 'call' in o:
        calls.setdefault(o['id'], []).append(o['call'])
    if o['type'] in ('token', 'done'):
        texts[key] = texts.get(key, '') + o.get('text', '')
    if o['type'] == 'done':
        stops[key] = o['stop']
if what in ('texts', 'long'):
    import jsonschema
    for (i, choice), text in texts.items():
        q = asked[i]
        if i in ('cut', 'json', 'free'):
            continue
        assert stops[i, choice] == 'eos', (i, stops[i, choice], text)
        jsonschema.Draft202012Validator(q['schema']).validate(json.loads(text))
    assert not errors, errors
    print(json.dumps(sorted([list(k), v] for k, v in texts.items())))
if what == 'texts':
    assert len(texts) == len(asked) + 2
    assert stops['cut', 0] == 'length' and texts['cut', 0][0] == '"' and '"' not in texts['cut', 0][1:].replace('\\"', '')
    assert texts['json', 0][0] == '{' and texts['free', 0][:1] != '{'
if what == 'bad':
    for i, word in enumerate(['"not"', '"schema" is not an object', '"json" is not true', 'one of "schema" and "json"', '"schema" has a JSON Schema', '"email"']):
        assert word in errors[str(i)], (i, errors[str(i)])
if what == 'none':
    assert all('--schemas' in e for e in errors.values()) and len(errors) > 3, errors
if what == 'calls':
    assert [(c['index'], c['name'], json.loads(c['arguments'])) for c in calls['call']] == [(0, 'f', {'x': 7})], calls
    assert texts['call', 0] == '' and stops['call', 0] == 'eos'
    assert calls['call'] == calls['again'] and calls['seed'][0]['id'] != calls['call'][0]['id'] and len(calls['call'][0]['id']) == 9
    assert set(calls) == {'call', 'again', 'seed'}
    for i in ('other', 'none'):
        assert json.loads(texts[i, 0]) == asked[i]['schema']['const'], texts[i, 0]
    assert texts['cut', 0] and json.dumps(asked['cut']['schema']['const'], separators=(',', ':')).startswith(texts['cut', 0]), texts['cut', 0]
END
ask() { python3 "$tmp/ask.py" "$@" > "$tmp/in"; }
look() { python3 "$tmp/look.py" "$1" "$tmp/in" "$tmp/$2"; }
python3 -c 'import jsonschema' 2> /dev/null || { echo "1..0 # SKIP python3-jsonschema is not installed"; exit 77; }

ask texts "$(of 40 12)"
together() { serve --schemas 8 --sequences 4 --seed 1 < "$tmp/in" > "$tmp/four" && look texts four > "$tmp/four.json"; }

check "answers are JSON of their schemas, whatever is drawn" together
guessed() { serve --schemas 8 --sequences 4 --seed 1 --guess lookup < "$tmp/in" > "$tmp/guess" && look texts guess > "$tmp/guess.json"; }
check "with guesses they are, too" guessed
check "and the same" cmp "$tmp/four.json" "$tmp/guess.json"
waiting() { serve --schemas 1 --sequences 4 --seed 1 < "$tmp/in" > "$tmp/one" && look texts one > "$tmp/one.json" && cmp "$tmp/four.json" "$tmp/one.json"; }
check "where there is memory for one schema, requests wait for it" waiting
ask long
way()
{
    serve --schemas 1 --sequences 1 < "$tmp/in" > "$tmp/one" && look long one > "$tmp/one.json" || return 1
    serve --schemas 1 --sequences 4 --kv-positions 288 < "$tmp/in" > "$tmp/small" && look long small > "$tmp/small.json" || return 1
    grep -q '"gave_way":[1-9]' "$tmp/small" || { echo "none gave way"; return 1; }
    cmp "$tmp/one.json" "$tmp/small.json"
}
check "texts that give way to others are the same" way
ask bad
refused() { serve --schemas 2 < "$tmp/in" > "$tmp/bad"; look bad bad; }
check "what is not supported is refused by its name" refused
ask texts 4
without() { serve --sequences 4 < "$tmp/in" > "$tmp/none"; look none none; }
check "without memory for them schemas are refused" without
ask calls
calls() { serve --schemas 4 --sequences 2 --chat --chat-template "$tmp/llama.jinja" --seed 5 < "$tmp/in" > "$tmp/calls" && look calls calls; }
check "calls of tools come out as calls, and what is none as text" calls
done_testing
