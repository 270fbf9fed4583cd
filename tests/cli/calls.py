#!/usr/bin/env python3
"""calls.py TOOL MODEL TOOLS COUNT: every call that is forced, drawn at random over the model's vocabulary in every form, is read back as
one call of a tool that there is, whose arguments its schema accepts by jsonschema. Forms of pairs may refuse a line of tools as a whole."""
import json
import subprocess
import sys

import jsonschema

tool, model, path, count = sys.argv[1:]
lines = [[t.get('function', t) for t in json.loads(line)] for line in open(path, encoding='utf-8')]
made = subprocess.run([tool, 'calls', model, path, count, '1'], check=True, stdout=subprocess.PIPE).stdout
FORMS = ['hermes', 'xml', 'glm', 'llama', 'mistral', 'deepseek', 'list', 'harmony']
whole, refused, bad = {}, set(), 0
for line in made.decode().splitlines():
    o = json.loads(line)
    where = o['tools'], o['form']
    if 'error' in o:
        refused.add(where)
        if o['form'] not in ('xml', 'glm'):
            print(f'{where}: {o["error"]}')
            bad += 1
        continue
    if 'text' not in o:
        continue
    try:
        schema = next(f for f in lines[o['tools']] if f['name'] == o['name']).get('parameters')
        arguments = json.loads(o['arguments'])
        assert o['calls'] == 1 and o['rest'] == 0, f'{o["calls"]} calls, {o["rest"]} bytes of text'
        assert isinstance(arguments, dict) and (schema or not arguments), 'no object, or arguments of a tool that has none'
        jsonschema.Draft202012Validator(schema or {}).validate(arguments)
        whole.setdefault(where, set()).add(o['name'])
    except (ValueError, AssertionError, StopIteration, jsonschema.ValidationError) as e:
        print(f'{where}: {o}\n  {e!r}')
        bad += 1
for i, tools in enumerate(lines):
    for form in FORMS:
        called = whole.get((i, form), set())
        if (i, form) not in refused and (not called or (int(count) >= 60 and called != {f['name'] for f in tools})):
            print(f'tools {i} in {form}: of {len(tools)} were called: {called}')
            bad += 1
if {form for i, form in refused} != {'xml', 'glm'} or not all((0, form) in whole for form in FORMS):
    print(f'refused: {refused}')
    bad += 1
print(f'{len(made.splitlines())} calls of {len(lines)} lines of tools')
sys.exit(1 if bad else 0)
