#!/usr/bin/env python3
"""edges.py: which tests reach branches of the programs that no other test reaches.

    edges.py run DIR TEST        run TEST, and keep what gcov counts in DIR/NAME (tests/run.sh's TEST_RUNNER)
    edges.py report BUILD DIR LOGS [--without TEST... | --against DIR]

A build with --coverage is needed; `make edges` does all of it. An edge is a line, or a way that a branch of it takes, of a source of the
programs and the library (not of tests). report lists tests in the order in which they add most edges for their CPU time (LOGS/NAME.log.counts,
of any variant's run): its time, edges, those that it adds to the tests before it, and those that no other test reaches. The tests at the
end add little for much time. --without: what is lost where these are left out, file by file and line by line. --against: what another
run, whose counts are in that DIR, did not reach.
What is killed by a signal leaves no counts.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import subprocess
import sys

SOURCES = ('common/', 'planner/', 'packer/', 'profiler/', 'runtime/')


def name_of(test):
    """As tests/run.sh names logs."""
    return test.split('tests/')[-1].replace('/', '_')


def run(folder, test):
    os.environ['GCOV_PREFIX'] = os.path.abspath(os.path.join(folder, name_of(test)))
    os.execvp(test, [test])


def edges_of(build, folder):
    """Edges that the counts under folder reach, as (file, line, branch); branch -1 is the line itself."""
    root = folder + os.path.abspath(build)
    counts = []
    for path, _, files in os.walk(root):
        place = os.path.relpath(path, root) + '/'
        if not place.startswith(SOURCES):
            continue
        for f in files:
            if f.endswith('.gcda'):
                notes = f[:-5] + '.gcno'
                if not os.path.exists(os.path.join(path, notes)):
                    os.symlink(os.path.abspath(os.path.join(build, place, notes)), os.path.join(path, notes))
                counts.append(os.path.join(path, f))
    reached = set()
    if not counts:
        return reached
    said = subprocess.run(['gcov', '--json-format', '--stdout', '--branch-probabilities', *counts], capture_output=True, check=True)
    for line in said.stdout.splitlines():
        for source in json.loads(line)['files']:
            if not source['file'].startswith(SOURCES):
                continue
            # A line may be told of once for each function that holds it (inlined, or in a header).
            for l in source['lines']:
                if l['count']:
                    reached.add((source['file'], l['line_number'], -1))
                reached.update((source['file'], l['line_number'], i) for i, b in enumerate(l['branches']) if b['count'])
    return reached


def cpu_of(logs, name):
    try:
        with open(os.path.join(logs, name + '.log.counts'), encoding='ascii') as f:
            return int(f.read().split()[4])
    except FileNotFoundError:
        return 0


def read_all(build, folder):
    """Edges of each test whose counts are in folder."""
    names = sorted(os.listdir(folder))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(names, pool.map(lambda n: edges_of(build, os.path.join(folder, n)), names)))


def report(build, folder, logs, without, against):
    edges = read_all(build, folder)
    names = sorted(edges)
    times = collections.Counter(e for n in names for e in edges[n])
    print(f'{len(times)} edges')
    if without or against:
        gone = {name_of(t) for t in without} if without else set(names)
        if unknown := gone - set(names):
            sys.exit(f'edges.py: not in {folder}: {", ".join(sorted(unknown))}')
        kept = set().union(*(read_all(build, against).values() if against else (edges[n] for n in names if n not in gone)))
        lost = sorted(set(times) - kept)
        for file, line, branch in lost:
            print(f'{file}:{line}' + (f' branch {branch}' if branch >= 0 else ''),
                  *(n for n in sorted(gone) if (file, line, branch) in edges[n]))
        print(f'{len(lost)} of {len(times)} edges are lost')
        return
    left, seen = set(names), set()
    print('  cpu  edges  added  alone  without_rest  test')
    while left:
        best = max(left, key=lambda n: (len(edges[n] - seen) / (cpu_of(logs, n) + 0.5), n))
        added = len(edges[best] - seen)
        seen |= edges[best]
        left.remove(best)
        alone = sum(times[e] == 1 for e in edges[best])
        print(f'{cpu_of(logs, best):5} {len(edges[best]):6} {added:6} {alone:6} {len(times) - len(seen):13}  {best}')


def main():
    if sys.argv[1:2] == ['run'] and len(sys.argv) == 4:
        run(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('command', choices=['report'])
    parser.add_argument('build')
    parser.add_argument('folder')
    parser.add_argument('logs')
    parser.add_argument('--without', nargs='+', default=[], metavar='TEST')
    parser.add_argument('--against', metavar='DIR')
    args = parser.parse_args()
    report(args.build, args.folder, args.logs, args.without, args.against)


if __name__ == '__main__':
    main()
