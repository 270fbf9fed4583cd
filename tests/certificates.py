#!/usr/bin/env python3
"""certificates.py COUNT [SEED]: certificates of COUNT random requests. Each must be refuted whole by Z3 (`thermo-plan check`, and
the program `z3` where it is installed), and must not be once a number that matters is changed: the claim, or a point's time. TAP.
BIN: the programs. TRACE: a trace of the embedded model to plan from, besides the descriptions."""
import glob
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

BIN = os.environ.get('BIN', 'build/bin')
PLAN = os.path.join(BIN, 'thermo-plan')
Z3 = shutil.which('z3')
GB = 10 ** 9


def run(*argv):
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def request(rng, devices):
    model = rng.choice(['embedded', 'bamboo', 'mixtral'])
    if model == 'embedded':
        args = ['--traces', os.environ['TRACE'], '--context', str(rng.choice([64, 256]))]
        memory = rng.randrange(14, 40) * 2 ** 20
        modes = ['exact', 'dense']
    else:
        name = {'bamboo': 'bamboo-7b', 'mixtral': 'turbosparse-mixtral-47b'}[model]
        args = ['--description', f'datasets/descriptions/{name}.json', '--context', str(rng.choice([512, 2048]))]
        memory = int((rng.uniform(2, 6) if model == 'bamboo' else rng.uniform(8, 20)) * GB)
        modes = ['exact', 'predicted', 'dense']
    args += ['--hardware', rng.choice(devices), '--memory', str(memory), '--mode', rng.choice(modes), '--cost', rng.choice(['measured', 'measured', 'paper'])]
    if rng.random() < 0.4:
        args += ['--form', rng.choice(['split', 'bundle', 'two-phase'])]
    if model != 'mixtral' and rng.random() < 0.2:
        args += ['--max-batch', '2']
    return args


def refuted_by_z3(path):
    """Answers of the stock program: (all of them unsat, how many)."""
    said = run(Z3, path).stdout.split()
    return bool(said) and set(said) == {'unsat'}, len(said)


def larger_claim(text):
    """The claim no plan can have: that of the best one, and 1 % more."""
    at = re.search(r'\(define-fun claim1 \(\) Int (\d+)\)', text)
    return text[:at.start(1)] + str(int(int(at[1]) * 1.02) + 1) + text[at.end(1):]


def faster_point(text):
    """A point that lies on or near a tangent, for no time at all: then it lies below. None: nothing speaks of time, all
    is refuted by memory alone."""
    for index, q, p, c in re.findall(r'\n  \(d(\d+) (\d+) (\d+) (\d+)\)', text):
        at = text.index(f'(define-fun d{index} ')
        end = text.index('\n(', at)
        for point in re.finditer(r'\(\* q (\d+)\) \(\* p (\d+)\)', text[at:end]) if int(q) else ():
            if int(p) * int(point[2]) < int(c):
                return text[:at + point.start(1)] + '0' + text[at + point.end(1):]
    return None


def main():
    count, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    rng = random.Random(seed)
    points = made = refused = claims = bad = largest = 0
    slowest = 0.0
    with tempfile.TemporaryDirectory() as tmp:
        devices = []
        for csv in sorted(glob.glob('datasets/devices/*.csv')):
            devices.append(os.path.join(tmp, os.path.basename(csv) + '.sqlite'))
            said = run(os.path.join(BIN, 'thermo-profile'), 'import', '-q', '--db', devices[-1], '--csv', csv)
            assert said.returncode == 0, said.stderr
        plan, proof, other = (os.path.join(tmp, n) for n in ('p.json', 'p.smt2', 'o.smt2'))
        while made < count and made + refused < 6 * count:
            args = request(rng, devices)
            said = run(PLAN, 'solve', '-q', *args, '--out', plan, '--certificate', proof)
            if said.returncode in (2, 4): # a mode that the model has not, or no plan
                refused += 1
                continue
            problems = [] if said.returncode == 0 else [f'solve: {said.returncode} {said.stderr}']
            made += 1
            if not problems:
                start = time.monotonic()
                said = run(PLAN, 'check', plan, '--certificate', proof)
                if said.returncode:
                    problems.append(said.stderr)
                if Z3:
                    start = time.monotonic()
                    ok, n = refuted_by_z3(proof)
                    claims += n
                    if not ok:
                        problems.append('z3 does not refute it')
                slowest = max(slowest, time.monotonic() - start)
                with open(proof, encoding='utf-8') as f:
                    text = f.read()
                largest = max(largest, len(text))
                for name, damaged in (('the claim', larger_claim(text)), ('a point', faster_point(text))):
                    if damaged is None:
                        continue
                    with open(other, 'w', encoding='utf-8') as f:
                        f.write(damaged)
                    if run(PLAN, 'check', plan, '--certificate', other).returncode != 5:
                        problems.append(f'{name} was changed, and nothing noticed')
                    if Z3 and refuted_by_z3(other)[0]:
                        problems.append(f'{name} was changed, and z3 refutes it still')
            points += 1
            bad += bool(problems)
            print(f'{"not ok" if problems else "ok"} {points} - {" ".join(os.path.basename(a) for a in args)}', flush=True)
            for p in problems:
                print('# ' + p.strip())
    print(f'# {made} certificates, {claims} claims refuted by z3, {bad} failed; {refused} requests have no plan; largest '
          f'{largest / 1e6:.1f} MB, slowest {slowest:.1f} s')
    points += 1
    print(f'{"ok" if made == count else "not ok"} {points} - {count} were made')
    print(f'1..{points}')
    return bad > 0 or made < count


sys.exit(main())
