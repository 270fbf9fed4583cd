#!/usr/bin/env python3
"""descriptions.py COUNT [SEED]: COUNT random requests, each for a random description of a model (shapes, experts, skews, predictors
with recall below 1 and false positives) on a random device, under random limits. `solve` writes a plan, which it has checked, or
says what contradicts what; `check` then accepts the plan. TAP. BIN: the programs."""
import glob
import json
import os
import random
import subprocess
import sys
import tempfile

BIN = os.environ.get('BIN', 'build/bin')
PLAN = os.path.join(BIN, 'thermo-plan')


def run(*argv):
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def random_shape(rng):
    heads, kv_heads = rng.choice([4, 8]), rng.choice([1, 2, 4])
    shape = {'layers': rng.randint(1, 6), 'd_model': rng.choice([128, 256, 512]), 'heads': heads, 'kv_heads': kv_heads,
             'head_dim': 32, 'n_ff': rng.choice([256, 512, 1000, 1280, 1536]), 'vocab': rng.choice([1000, 8000]),
             'context': rng.choice([256, 1024, 4096]), 'tied_output': rng.random() < 0.5,
             'activation': rng.choice(['relu', 'relu', 'drelu'])}
    types = {role: rng.choice(['Q4_0', 'Q8_0', 'F16']) for role in ('embedding', 'output', 'attention', 'gate', 'up', 'down')}
    if rng.random() < 0.3:
        shape['experts'] = rng.choice([2, 4, 8])
        shape['experts_used'] = rng.randint(1, 2)
        types['router'] = 'F32'
    return shape, types


def random_predictors(rng, shape, rate):
    """Recall and false positives, each there or not."""
    recall = rng.choice([1, round(rng.uniform(0.5, 0.999), 3)])
    rank = rng.choice([32, 64])
    ffns = shape['layers'] * shape.get('experts', 1)
    return {'bytes': 2 * ffns * rank * (shape['d_model'] + shape['n_ff']), 'input': rng.choice(['ffn', 'block', 'residual']),
            'rank': rank, 'type': 'F16', 'recall': recall,
            'predicted_per_firing': max(recall, min(1 / rate, recall * rng.choice([1, 1.01, 1.3, 2, 4])))}


def random_description(rng):
    shape, types = random_shape(rng)
    rate = round(rng.choice([rng.uniform(0.01, 0.1), rng.uniform(0.1, 0.5)]), 4)
    points = [{'neurons': 0.3, 'firings': 0.6 if rate < 0.3 else 0.4}]
    activation = {'rate': [{'batch': 1, 'share': rate}],
                  'skew': rng.choice([{'spread': round(rng.uniform(0, 1.5), 2)}, {'points': points}]),
                  'persistence': [{'share': 0.3, 'period': rng.choice([2, 8])}, {'share': 0.4, 'period': rng.choice([16, 64])}]}
    if rng.random() < 0.4:
        activation['open_per_firing'] = round(rng.uniform(1, 1.5), 2)
    d = {'format': 'thermo-model-description', 'revision': 1, 'name': 'random', 'shape': shape, 'types': types,
         'activation': activation, 'sources': {}}
    if rng.random() < 0.9:
        d['predictors'] = random_predictors(rng, shape, rate)
    return d


def random_request(rng, d):
    modes = ['predicted'] * 4 + ['exact', 'auto'] if 'predictors' in d else ['exact', 'auto', 'dense']
    shape = d['shape']
    ffns = 6 * shape['layers'] * shape.get('experts', 1) * shape['n_ff'] * shape['d_model']
    limits = {int(rng.uniform(0.2, 1.4) * ffns) + 6_000_000 for _ in range(rng.randint(1, 3))}
    args = ['--memory', ','.join(str(m) for m in limits), '--mode', rng.choice(modes), '--max-batch', str(rng.choice([1, 1, 2, 4]))]
    for chance, option, values in ((0.4, '--form', ['split', 'bundle', 'two-phase']), (0.15, '--cost', ['paper']),
                                   (0.3, '--policy', ['lru', 'lfu']), (0.3, '--cluster-neurons', ['8', '32'])):
        if rng.random() < chance:
            args += [option, rng.choice(values)]
    if 'predicted' in args and rng.random() < 0.3:
        args += ['--recall', str(round(rng.uniform(0.3, 1), 2))]
    return args


def main():
    count, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    plans = bad = refused = 0
    with tempfile.TemporaryDirectory() as tmp:
        devices = {}
        for n in range(count):
            rng = random.Random(f'{seed} {n}')
            csv = rng.choice(sorted(glob.glob('datasets/devices/*.csv')))
            if csv not in devices:
                devices[csv] = os.path.join(tmp, os.path.basename(csv) + '.sqlite')
                said = run(os.path.join(BIN, 'thermo-profile'), 'import', '-q', '--db', devices[csv], '--csv', csv)
                assert said.returncode == 0, said.stderr
            d, plan, description = random_description(rng), os.path.join(tmp, 'p.json'), os.path.join(tmp, 'd.json')
            with open(description, 'w', encoding='utf-8') as f:
                json.dump(d, f)
            inputs, args = ['--description', description, '--hardware', devices[csv]], random_request(rng, d)
            said = run(PLAN, 'solve', '-q', *inputs, *args, '--out', plan)
            if said.returncode == 0:
                plans += 1
                said = run(PLAN, 'check', plan, *inputs)
            refused += said.returncode == 4
            ok = said.returncode in (0, 4)
            bad += not ok
            print(f'{"ok" if ok else "not ok"} {n + 1} - {seed} {n}: {os.path.basename(csv)} {" ".join(args)}', flush=True)
            if not ok:
                print(f'# exit status {said.returncode}: {said.stderr.strip()}\n# {json.dumps(d)}')
    print(f'# {plans} plans, {refused} requests without one, {bad} failed')
    print(f'1..{count}')
    return bad > 0


sys.exit(main())
