#!/usr/bin/env python3
"""properties.py COUNT [SEED]: what holds of plans with --prove, on COUNT random problems (device, model, limits, options). More
memory, more cores, faster storage or memory give no plan that is slower by more than its gap; what fits less memory fits more; no
form, policy, padding, fewer cores or no accelerator that are asked for beats the planner's own choice by more than its gap, but for
forms that a note of the plan says were not compared; a chunk and weights of batch sizes that are asked for are those of the plan; check
accepts every plan. The chunk is not part of what is minimised: plans are compared with that of the first one asked for (--chunk), but
for a smaller one, which leaves memory for no fewer neurons and is to be no slower by more than its gap. TAP.
BIN: the programs. TRACE: a trace of the embedded model to plan from, besides random descriptions. One process at a time."""
import csv
import json
import os
import random
import subprocess
import sys
import tempfile

BIN = os.environ.get('BIN', 'build/bin')
PLAN = os.path.join(BIN, 'thermo-plan')
PROFILE = os.path.join(BIN, 'thermo-profile')
DIGITS = 1e-5  # speeds have six digits


def run(*argv):
    return subprocess.run(argv, capture_output=True, text=True, check=False)


class Device:
    """Random figures; written as a database with storage or memory as many times as fast."""

    def __init__(self, rng):
        self.classes = [(name, rng.randrange(1, 5), rng.uniform(2, 60)) for name in ('big', 'mid', 'little')[:rng.randrange(1, 4)]]
        self.memory = rng.uniform(3, 60)
        self.storage = [(block, depth, rng.uniform(20, 400) * rng.uniform(1, 1.6) ** (depth // 8) * (block / 4) ** rng.uniform(0.3, 0.9))
                        for block in (4, 32, 512) for depth in (1, 8, 32)]
        self.read_ns = rng.choice([0, rng.uniform(1000, 20000)])
        self.accel = None
        if rng.random() < 0.3:
            self.accel = [rng.choice([rng.uniform(0.1, 3), rng.uniform(1, 100)]), rng.uniform(0.01, 3), rng.uniform(2, 60), rng.uniform(1, 1.9)]

    def write(self, path, storage=1.0, memory=1.0):
        head = ['device', 'table', 'key', 'field', 'value', 'unit', 'origin', 'source']
        rows = [['core_class', f'class={n}', 'n_cores', c, ''] for n, c, _ in self.classes]
        rows += [['compute', f'kernel=flops/int8;class={n}', 'flops_per_s', f, 'GFLOP/s'] for n, _, f in self.classes]
        rows += [['memory', 'engines=cpu;pattern=seq', 'bytes_per_s', self.memory * memory, 'GB/s']]
        for pattern in ('random', 'seq'):
            for block, depth, rate in self.storage:
                key = f'pattern={pattern};block={block}KiB;depth={depth};range=1GiB'
                rows.append(['storage', key, 'bytes_per_s', rate * storage, 'MB/s'])
                if self.read_ns:
                    rows.append(['storage', key, 'cpu_ns_per_read', self.read_ns, 'ns'])
        if self.accel: # a launch in us, ns of a row of 256 elements with a token, GB/s, of both together
            launch, row, bw, both = self.accel
            rows += [['accelerator', 'engine=npu', 'launch_ns', launch, 'us'], ['accelerator', 'engine=npu', 'shares_memory', 1, '']]
            for batch in (1, 64):
                for n in (64, 4096):
                    rows.append(['accelerator_point', f'engine=npu;op=matmul/q4;rows={n};cols=256;batch={batch}', 'ns',
                                 1000 * launch + n * row * (1 + batch / 16), 'ns'])
            rows += [['memory', 'engines=npu;pattern=seq', 'bytes_per_s', bw * memory, 'GB/s'],
                     ['memory', 'engines=cpu+npu;pattern=seq', 'bytes_per_s', both * min(bw, self.memory) * memory, 'GB/s']]
        with open(path + '.csv', 'w', encoding='utf-8', newline='') as f:
            csv.writer(f).writerows([head] + [['random', *row, 'estimated', 'invented'] for row in rows])
        if os.path.exists(path):
            os.remove(path)
        said = run(PROFILE, 'import', '-q', '--db', path, '--csv', path + '.csv')
        assert said.returncode == 0, said.stderr


def description(rng, path):
    with open('datasets/descriptions/small-relu.json', encoding='utf-8') as f:
        d = json.load(f)
    d['shape'].update(layers=rng.choice([1, 3, 5]), n_ff=rng.choice([512, 1024, 1536]))
    if rng.random() < 0.3:
        d['shape'].update(experts=4, experts_used=2)
        d['types']['router'] = 'F32'
    rate = rng.uniform(0.02, 0.2)
    d['activation']['rate'] = [{'batch': 1, 'share': rate}, {'batch': 4, 'share': 2.2 * rate}]
    if rng.random() < 0.5:
        ffns = d['shape']['layers'] * d['shape'].get('experts', 1)
        d['predictors'] = {'input': rng.choice(['ffn', 'block', 'residual']), 'rank': 64, 'type': 'Q4_0',
                           'bytes': ffns * 36 * (256 + d['shape']['n_ff'])}
        d['sources'].update({'predictors.bytes': 'Derived.', 'predictors.input': 'Invented.', 'predictors.rank': 'Invented.', 'predictors.type': 'Invented.'})
    with open(path, 'w', encoding='utf-8') as f:
        json.dump(d, f)
    return 'predictors' in d


class Solver:
    def __init__(self, tmp):
        self.out, self.plans, self.notes, self.weights = os.path.join(tmp, 'p.json'), 0, [], [1]

    def floor(self, *args):
        """The least memory of any plan; 0: there is none."""
        said = run(PLAN, 'solve', '-q', '--json', '--no-verify', *args, '--memory', '1KiB', '--out', self.out)
        return json.loads(said.stdout)['nearest'].get('memory_bytes', 0) if said.returncode == 4 else 0

    def solve(self, *args):
        """The limit's plan, None where there is none."""
        said = run(PLAN, 'solve', '-q', '--prove', '--no-verify', *args, '--out', self.out)
        if said.returncode in (2, 4, 6):
            return None
        assert said.returncode == 0, f'{said.returncode} {said.stderr}'
        self.plans += 1
        with open(self.out, encoding='utf-8') as f:
            plan = json.load(f)
        self.notes, self.weights = plan['notes'], plan['request'].get('batch_weights', [1])
        return {**plan['decisions']['limits'][0], **plan['predictions']['limits'][0]}


def cost(limit, weights):
    """What is minimised, but for a factor: common to all plans of one request."""
    return sum(w / b['tokens_per_s'] for w, b in zip(weights, limit['batches']))


def problem(rng, tmp, solver):
    """What is wrong with the plans of one random problem; None: it has no plan."""
    device, hw = Device(rng), os.path.join(tmp, 'hw.sqlite')
    device.write(hw)
    model, predicted = ['--description', os.path.join(tmp, 'd.json')], description(rng, os.path.join(tmp, 'd.json'))
    if 'TRACE' in os.environ and rng.random() < 0.2:
        model, predicted = ['--traces', os.environ['TRACE']], False
    args = [*model, '--context', str(rng.choice([32, 128, 300]))]
    args += ['--mode', rng.choice(['exact', 'dense', 'predicted', 'predicted'] if predicted else ['exact', 'exact', 'dense'])]
    batch = rng.choice(['1', '1', '1', '2', '4'])
    accel = device.accel and ['--engine', 'npu']
    args += ['--cost', 'measured' if accel else rng.choice(['measured', 'measured', 'measured', 'paper'])]
    args += ['--max-batch', batch, *(accel or [])]
    asked = [rng.randrange(1, 9) for _ in range(int(batch).bit_length())] if batch != '1' and rng.random() < 0.5 else None
    if asked:
        args += ['--batch-weights', ','.join(map(str, asked))]
    memory = int(solver.floor(*args, '--hardware', hw) * rng.uniform(1, 1.9))
    if not memory:
        return None
    here = ['--hardware', hw, '--memory', str(memory)]
    best = solver.solve(*args, *here)
    if best is None:
        return None
    weights = solver.weights
    bad, left_out = [], any('were not compared' in note for note in solver.notes)
    if best['account_bytes'] > memory:
        bad.append(f'{best["account_bytes"]} bytes of {memory}')
    if asked and weights != asked:
        bad.append(f'weights {weights}, {asked} were asked for')
    said = run(PLAN, 'check', solver.out, *model, '--hardware', hw)
    if said.returncode:
        bad.append(f'check: {said.stderr}')
    chunk = ['--chunk', str(best['prefill_chunk'])]

    def compare(what, limit, than):
        if limit is None or than is None:
            bad.append(f'{what}: no plan')
        elif cost(limit, weights) * (1 - limit['gap']) > cost(than, weights) * (1 + DIGITS):
            bad.append(f'{what}: {cost(limit, weights):.6g} within {100 * limit["gap"]:.3f} %, {cost(than, weights):.6g} without')

    if best['prefill_chunk'] > 1:
        less = solver.solve(*args, *here, '--chunk', str(rng.randrange(1, best['prefill_chunk'])))
        compare('smaller chunk', less, best)
    more = int(memory * rng.choice([1.003, 1.03, 1.3]))
    compare(f'memory {memory}, {more}', solver.solve(*args, *chunk, '--hardware', hw, '--memory', str(more)), best)
    name, n, _ = rng.choice(device.classes)
    fewer = solver.solve(*args, *here, *chunk, '--cores', f'{name}={rng.randrange(n)}')
    if fewer:
        compare(f'fewer cores {name}', best, fewer)
    for what in ('storage', 'memory'):
        device.write(hw, **{what: rng.uniform(1.05, 2)})
        compare(f'faster {what}', solver.solve(*args, *here, *chunk), best)
    device.write(hw)
    forced = [('--form', f) for f in ('split', 'bundle', 'two-phase') if not left_out] + [('--policy', rng.choice(['lru', 'lfu']))]
    forced += [('--packed', rng.choice(['no', 'yes']))]
    if accel:
        forced.append(('--engine', 'none'))
    for flags in forced:
        limit = solver.solve(*args, *here, *chunk, *flags)
        if limit:
            compare(' '.join(flags), best, limit)
            if limit['prefill_chunk'] != best['prefill_chunk']:
                bad.append(f'{" ".join(flags)}: chunk {limit["prefill_chunk"]}, {best["prefill_chunk"]} was asked for')
    return bad


def main():
    count, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    done = tried = bad = 0
    with tempfile.TemporaryDirectory() as tmp:
        solver = Solver(tmp)
        while done < count and tried < 6 * count:
            tried += 1
            wrong = problem(random.Random(seed * 100003 + tried), tmp, solver)
            if wrong is None:
                continue
            done += 1
            bad += bool(wrong)
            print(f'{"not ok" if wrong else "ok"} {done} - problem {tried}', flush=True)
            for line in wrong:
                print('# ' + line.strip())
    print(f'# {done} problems with {solver.plans} plans, {bad} failed; {tried - done} have no plan')
    print(f'{"ok" if done == count else "not ok"} {done + 1} - {count} were made')
    print(f'1..{done + 1}')
    return bad > 0 or done < count


sys.exit(main())
