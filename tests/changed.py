#!/usr/bin/env python3
"""changed.py LOGDIR TEST...: print those of the tests whose inputs are others than when they passed last, and keep the
inputs' hashes.

A test's inputs are hashed. Of a program they are the program: builds are reproducible and the linker takes from an archive only
the members that are named, so a change elsewhere leaves its bytes as they are. Of a script they are the script, the scripts that it
sources or calls, the programs and tools that these name, and every file or folder of the repository that they name; a script that
looks at sources (its text names a folder of the programs, or *.c, *.h, *.mk) depends on every file that git knows.
The hash is left as LOGDIR/log/NAME.log.inputs.new; tests/run.sh drops ".new" when the test passes, and removes both when it fails.
"""
import hashlib
import os
import re
import subprocess
import sys

BIN = os.environ.get('BIN', 'build/bin')
B = os.environ.get('B', 'build/' + os.uname().machine)
PROGRAMS = re.compile(r'thermo-(?:profile|plan|pack|run)|gguf-(?:make|synth)')
NAMED = re.compile(r'[\w./][\w./-]*')
SOURCES = re.compile(r'\*\.[ch]\b|\*\.mk|\bgit\b|GNUmakefile|\$MAKE|\$\{MAKE|(?<![\w/-])(?:common|profiler|planner|packer|runtime|server)/')
hashes = {}


def of_file(path):
    if path not in hashes:
        h = hashlib.blake2b(digest_size=16)
        with open(path, 'rb') as f:
            while piece := f.read(1 << 20):
                h.update(piece)
        hashes[path] = h.hexdigest()
    return hashes[path]


def of_tree():
    """All that git knows, and what it does not know and does not ignore."""
    if '' not in hashes:
        said = subprocess.run(['git', 'ls-files', '-z', '--cached', '--others', '--exclude-standard'], capture_output=True, check=False)
        names = said.stdout.decode().split('\0') if said.returncode == 0 else walk('.')
        text = '\n'.join(n + ' ' + of_file(n) for n in sorted(set(names)) if os.path.isfile(n))
        hashes[''] = hashlib.blake2b(text.encode()).hexdigest()
    return hashes['']


def walk(folder):
    for at, below, names in os.walk(folder):
        below[:] = [d for d in below if d not in ('.git', 'build', '__pycache__')]
        yield from (os.path.join(at, n) for n in names)


def inputs_of_script(path, seen):
    """Every path that a script depends on; '' for the whole tree."""
    if path in seen:
        return
    seen.add(path)
    if not os.path.isfile(path):
        return
    with open(path, encoding='utf-8', errors='replace') as f:
        text = f.read()
    if SOURCES.search(text):
        seen.add('')
    for name in PROGRAMS.findall(text):
        seen.add(os.path.join(BIN, name))
    for name in re.findall(r'tests/tools/([\w-]+)', text):
        seen.add(os.path.join(B, 'tests/tools', name))
    if re.search(r'\$\{?BIN\}?["\']?/?\$|for \w+ in .*\$\{?BIN', text): # a program whose name is computed
        seen.update(os.path.join(BIN, n) for n in os.listdir(BIN))
    for name in set(NAMED.findall(text)):
        name = name.rstrip('./')
        if name.startswith('/') and not name.endswith('.sh'):
            continue
        if '/' not in name and name not in ('README.md', 'schemas', 'docs', 'scripts', 'datasets'):
            continue
        if os.path.isdir(name):
            seen.update(walk(name))
        elif os.path.isfile(name):
            if name.endswith(('.sh', '.py')):
                inputs_of_script(name, seen)
            else:
                seen.add(name)


def is_script(path):
    with open(path, 'rb') as f:
        return f.read(2) == b'#!'


def key(test):
    if os.path.isfile(test) and not is_script(test):
        names = {test}
        name = os.path.basename(test)
        if name.startswith('fuzz_'): # replays its corpus
            names.update(walk(os.path.join('tests/fuzz/corpus', name[5:])))
        source = os.path.join('tests', test.rsplit('tests/', 1)[-1] + '.c')
        if os.path.isfile(source):
            with open(source, encoding='utf-8') as f:
                for p in re.findall(r'"((?:tests|datasets|schemas)/[\w./-]+)"', f.read()):
                    names.update(walk(p) if os.path.isdir(p) else [p])
    else:
        names = set()
        inputs_of_script(test, names)
    env = ' '.join(os.environ.get(k, '') for k in ('SANITIZE', 'TEST_SHORT', 'TEST_RUNNER', 'CC'))
    text = env + '\n'.join(n + ' ' + (of_file(n) if n else of_tree()) for n in sorted(names) if not n or os.path.isfile(n))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def main():
    logs, tests = sys.argv[1], sys.argv[2:]
    for t in tests:
        kept = os.path.join(logs, 'log', t.rsplit('tests/', 1)[-1].replace('/', '_') + '.log.inputs')
        now = key(t)
        before = ''
        if os.path.isfile(kept):
            with open(kept, encoding='utf-8') as f:
                before = f.read()
        with open(kept + '.new', 'w', encoding='utf-8') as f:
            f.write(now)
        if before != now:
            print(t)


main()
