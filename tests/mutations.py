#!/usr/bin/env python3
"""mutations.py EACH [SEED]: plans of several kinds, in each of which leaves of the JSON are changed one at a time: numbers up and
down, texts, truth values, dropped, added. `thermo-plan check` has to refuse the plan, naming the leaf's field (of a choice: what it
contradicts), or to list the field as unverified; a leaf that it lists nowhere fails. EACH: how many leaves of each field are changed,
each in one way; 0: all of them, in every way. TAP.
BIN: the programs. TRACE: a trace of the embedded model. SHARE: of the fields of each plan, 0 to 1."""
import collections
import copy
import json
import os
import random
import re
import subprocess
import sys
import tempfile

BIN = os.environ.get('BIN', 'build/bin')
PLAN = os.path.join(BIN, 'thermo-plan')
# Choices are held against what follows from them, and the message names that. All other fields are named themselves.
CHOICES = re.compile(r'predictions\.(cost|figures)|decisions\.layout\.(block_bytes|cluster_neurons|form|packed|types\..*)|model\.(blocks|d_model|layers|n_ff)|'
                     r'decisions\.limits\[\]\.(act|alternatives\[\]\..*|batches\[\]\.(cold|hot|streamed).*|classes\[\]\.n|cold_policy|context|exempt.*|io\..*|kv|max_batch|'
                     r'memory_bytes|mode|predictor_buffers|predictors.*|prefill_chunk|threads)')
# Texts with a meaning: any other of them.
WORDS = [['split', 'bundle', 'two-phase', 'tiles'], ['exact', 'dense', 'predicted'], ['auto', 'io_uring', 'pread'], ['measured', 'paper'],
         ['typical', 'sustained'], ['lru', 'lfu'], ['ffn', 'block', 'residual', 'none'], ['F16', 'Q8_0', 'Q4_0'], ['f32', 'f16'], ['f32', 'q8']]


def run(*argv):
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def leaves(value, path=()):
    """Paths of all values that hold no others."""
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not isinstance(value, (dict, list)):
        yield path
    for key, v in below:
        yield from leaves(v, path + (key,))


def name(path):
    return re.sub(r'^\.', '', ''.join(f'[{k}]' if isinstance(k, int) else '.' + k for k in path))


def field(path):
    return re.sub(r'\[\d+\]', '[]', name(path))


def speaks_of(entry, leaf):
    """Is the leaf the entry's field, or below it? [] stands for every index."""
    pattern = re.escape(entry).replace(r'\[\]', r'\[\d+\]')
    return re.fullmatch(pattern + r'([.\[].*)?', leaf) is not None


def other_values(value, path, rng):
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int) and 'predictions' in path and path[-1] not in ('account_bytes', 'floor_bytes') and 'best' not in path: # a real number that happens to be whole
        value = float(value)
    if isinstance(value, int):
        return [value + 1, max(0, value - 1), 2 * value + 3]
    if isinstance(value, float):
        return [value * 1.001 + 1e-6, value * 0.999, value * 2 + 0.1]
    if re.fullmatch('[0-9a-f]{32}', value):
        return [('0' if value[0] != '0' else '1') + value[1:]]
    words = [w for group in WORDS if value in group for w in group if w != value]
    return [rng.choice(words)] if words else [value + 'x', value[:-1]]


def mutants(plan, path, rng):
    """(what was done, plan): the leaf changed, dropped, and a sibling added."""
    def parent(p):
        for key in path[:-1]:
            p = p[key]
        return p
    for v in other_values(parent(plan)[path[-1]], path, rng):
        if v == parent(plan)[path[-1]]:
            continue
        p = copy.deepcopy(plan)
        parent(p)[path[-1]] = v
        yield f'{parent(plan)[path[-1]]!r:.60} to {v!r:.60}', p
    p = copy.deepcopy(plan)
    del parent(p)[path[-1]]
    yield 'dropped', p
    p = copy.deepcopy(plan)
    if isinstance(path[-1], int):
        parent(p).insert(path[-1], copy.deepcopy(parent(p)[path[-1]]))
    else:
        parent(p)[path[-1] + '_'] = parent(p)[path[-1]]
    yield 'added to', p


class Run:
    def __init__(self, tmp, each, rng):
        self.tmp, self.each, self.rng = tmp, each, rng
        self.points = self.bad = self.checks = 0
        self.refused, self.unverified = collections.Counter(), collections.Counter()
        self.reasons = collections.defaultdict(set)

    def point(self, text, problems):
        self.points += 1
        self.bad += bool(problems)
        print(f'{"not ok" if problems else "ok"} {self.points} - {text}')
        for p in problems[:40]:
            print(f'# {p}')
        sys.stdout.flush()

    def check(self, path, options):
        self.checks += 1
        return run(PLAN, 'check', path, *options, '--json')

    def mutate(self, plan, path, options, found):
        """Problems with one leaf."""
        leaf, problems = name(path), []
        doubts = [u for u in found['unverified'] if speaks_of(u['field'], leaf)]
        if not doubts and not any(speaks_of(v, leaf) for v in found['verified']):
            return [f'{leaf}: neither verified nor unverified']
        ways = list(mutants(plan, path, self.rng))
        for what, mutant in [self.rng.choice(ways)] if self.each else ways:
            other = os.path.join(self.tmp, 'mutant.json')
            with open(other, 'w', encoding='utf-8') as f:
                json.dump(mutant, f)
            said = self.check(other, options)
            if said.returncode < 0 or said.returncode == 1 or (said.returncode and not re.search(r'[a-z_]{2,}', said.stderr)):
                problems.append(f'{leaf}: {what}: exit status {said.returncode}: {said.stderr.strip()}')
            elif said.returncode and not self.names_field(said.stderr, path):
                problems.append(f'{leaf}: {what}: refused for another reason: {said.stderr.strip()}')
            elif said.returncode:
                self.refused[field(path)] += 1
            elif doubts:
                self.unverified[field(path)] += 1
                self.reasons[field(path)].add(doubts[0]['why'])
            else:
                problems.append(f'{leaf}: {what}: accepted, and listed as verified')
        return problems

    @staticmethod
    def names_field(message, path):
        contradicts = CHOICES.fullmatch(field(path)) and re.search(r'limits\[|layout|model|classes|predicted', message)
        return bool(contradicts) or any(k in message for k in path[-2:] if isinstance(k, str))

    def plan(self, kind, inputs, solve, options=(), share=1.0):
        """Mutations of one plan under what `check` is given, of a share of its fields."""
        path = os.path.join(self.tmp, 'plan.json')
        said = run(PLAN, 'solve', '-q', *inputs, *solve, '--out', path)
        if said.returncode:
            self.point(f'{kind}: a plan', [said.stderr])
            return
        said = self.check(path, options)
        if said.returncode:
            self.point(f'{kind}: check accepts it', [said.stderr])
            return
        found = json.loads(said.stdout)
        with open(path, encoding='utf-8') as f:
            plan = json.load(f)
        of = collections.defaultdict(list)
        for p in leaves(plan):
            of[field(p)].append(p)
        problems, count, before = [], 0, self.checks
        for paths in self.rng.sample(list(of.values()), int(share * float(os.environ.get('SHARE', '1')) * len(of))):
            chosen = paths if not self.each else self.rng.sample(paths, min(self.each, len(paths)))
            count += len(chosen)
            for p in chosen:
                problems += self.mutate(plan, p, options, found)
        self.point(f'{kind}: {count} leaves of {len(of)} fields, {self.checks - before} mutations', problems)


def main():
    each, rng = int(sys.argv[1]), random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    with tempfile.TemporaryDirectory() as tmp:
        hw = os.path.join(tmp, 'hw.sqlite')
        said = run(os.path.join(BIN, 'thermo-profile'), 'import', '-q', '--db', hw, '--csv', 'datasets/devices/oneplus-12.csv')
        assert said.returncode == 0, said.stderr
        small = 'datasets/descriptions/small-relu.json'
        with open(small, encoding='utf-8') as f:
            described = json.load(f)
        described['shape']['experts'], described['shape']['experts_used'], described['types']['router'] = 2, 1, 'F32'
        described['activation']['rate'] = [{'batch': 1, 'share': 0.1}]
        described['predictors'] = {'bytes': 2 * 4 * 2 * 32 * (256 + 1024), 'input': 'block', 'rank': 32, 'type': 'F16',
                                   'recall': 0.93, 'predicted_per_firing': 1.7}
        experts = os.path.join(tmp, 'experts.json')
        with open(experts, 'w', encoding='utf-8') as f:
            json.dump(described, f)
        r = Run(tmp, each, rng)
        device, model, of_experts = ['--hardware', hw], ['--description', small], ['--description', experts]
        asked = ['--context', '256', '--memory', '8MiB', '--rlimit', '200000000', '--min-speed', '0', '--act', 'f32',
                 '--figures', 'typical', '--form', 'split']
        r.plan('exact, two batch sizes', model + device,
               ['--context', '256', '--memory', '8MiB,9MiB', '--max-batch', '2', '--form', 'split'], model + device)
        r.plan('predicted, experts', of_experts + device, ['--context', '256', '--memory', '11MiB', '--mode', 'predicted'], of_experts + device)
        r.plan('solved again', model + device, asked, model + device + ['--solve'] + asked)
        if not each:
            r.plan('the model alone', model + device, ['--context', '256', '--memory', '8MiB'], model)
            r.plan('neither', model + device, ['--context', '256', '--memory', '8MiB'])
            r.plan('predicted, in few buffers, four batch sizes', of_experts + device,
                   ['--context', '256', '--memory', '9MiB,10MiB', '--mode', 'predicted', '--max-batch', '4', '--form', 'two-phase'], of_experts + device)
            r.plan('by the paper', model + device, ['--context', '256', '--memory', '9MiB', '--cost', 'paper'], model + device)
            r.plan('all resident', model + device, ['--context', '256', '--memory', '64MiB', '--mode', 'dense'], model + device)
        if 'TRACE' in os.environ:
            trace = ['--traces', os.environ['TRACE']]
            r.plan('from a trace', trace + device, ['--memory', '15MiB', '--context', '64', '--form', 'split', '--no-verify'], trace + device,
                   1 if not each else 0.3)
        for key in sorted(set(r.refused) | set(r.unverified)):
            print(f'# {key}: {r.refused[key]} refused, {r.unverified[key]} unverified{"".join("; " + w for w in sorted(r.reasons[key]))}')
        print(f'# {r.checks} checks: {sum(r.refused.values())} refused, {sum(r.unverified.values())} unverified')
        print(f'1..{r.points}')
    return r.bad > 0


sys.exit(main())
