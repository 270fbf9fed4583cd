#!/usr/bin/env python3
"""schemas.py TOOL MODEL SCHEMAS COUNT: every text that a mask lets through, drawn at random over the model's vocabulary, is JSON that the
schema accepts by jsonschema, with formats; each schema has texts."""
import datetime
import json
import re
import subprocess
import sys

import jsonschema

tool, model, path, count = sys.argv[1:]
schemas = [json.loads(line) for line in open(path, encoding='utf-8')]
made = subprocess.run([tool, 'texts', model, path, count, '1'], check=True, stdout=subprocess.PIPE).stdout
texts, bad = [0] * len(schemas), 0
for line in made.decode().splitlines():
    o = json.loads(line)
    schema = schemas[o['schema']]
    if 'text' not in o:
        if 'error' in o:
            print(f'schema {schema}: {o["error"]}')
            bad += 1
        continue
    try:
        value = json.loads(o['text'])
        jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER).validate(value)
        if schema.get('format') in ('date-time', 'time'):
            text = value if schema['format'] == 'date-time' else '2024-01-01T' + value
            datetime.datetime.strptime(re.sub(r'\.\d+', '', text), '%Y-%m-%dT%H:%M:%S%z')
        texts[o['schema']] += 1
    except (ValueError, jsonschema.ValidationError) as e:
        print(f'{schema}: {o["text"]}\n  {e}')
        bad += 1
for schema, n in zip(schemas, texts):
    if n == 0:
        print(f'no whole text of {schema}')
        bad += 1
print(f'{sum(texts)} texts of {len(schemas)} schemas')
sys.exit(1 if bad else 0)
