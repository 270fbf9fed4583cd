#!/usr/bin/env python3
"""interrupted.py BIN SCRATCH MODEL PACKED PLAN TRACES: one SIGINT while a command reads a large input ends it soon, exit status 130.

Each command that keeps a first signal for itself is given inputs that take it long; the signal comes once the input is open, and in further
runs later. Which commands there are, and what they read, is taken from their option tables:
one that is neither tried here nor named with the reason is a failure. unit/test_interrupted has the functions that read. Prints TAP."""
import os
import re
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from tap import done, point, table as options  # noqa: E402

BIN, SCRATCH, MODEL, PACKED, PLAN, TRACES = map(os.path.abspath, sys.argv[1:])
SOON = 3 * (10 if os.environ.get('SANITIZE') else 1)  # seconds of its own time
RUN = ['--model', PACKED, '--plan', PLAN]
SHORT = os.environ.get('TEST_SHORT') or os.environ.get('SANITIZE')


# ---- inputs ----

def made(name, write):
    path = f'{SCRATCH}/{name}'
    if not os.path.exists(path):
        with open(path, 'wb') as f:
            write(f)
    return path


def fill(f, begin, piece, n, end=b''):
    f.write(begin)
    for _ in range(n):
        f.write(piece)
    f.write(end)


A = b'a' * (1 << 20)


def sparse():
    return made('sparse', lambda f: f.truncate(1 << 36))


def words():
    return made('words', lambda f: fill(f, b'', A, 40))


def table():
    return made('table.csv', lambda f: fill(f, b'text\n', A, 80))


def json():
    return made('large.json', lambda f: fill(f, b'[1', b',{"a":[1,2,3]}' * 4096, 400, b']'))


# Of a command, an input that takes long: its options. The input is `INPUT`; `-` is standard input, which says nothing.
LARGE = RUN + ['--memory', '8GiB']  # or the text is refused: it is one word, and not read in pieces
TRIALS = [
    ('thermo-run', 'generate', '--prompts', sparse, RUN + ['--prompts', 'INPUT', '--output', f'{SCRATCH}/out']),
    ('thermo-run', 'generate', '--prompt-file', words, LARGE + ['--prompt-file', 'INPUT']),
    ('thermo-run', 'generate', '--prompt-file', None, RUN + ['--prompt-file', '-']),
    ('thermo-run', 'generate', '--plan', json, ['--model', PACKED, '--plan', 'INPUT', '--prompt', 'Once']),
    ('thermo-run', 'logits', '--prompt-file', words, LARGE + ['--prompt-file', 'INPUT']),
    ('thermo-run', 'logits', '--prompt-file', None, RUN + ['--prompt-file', '-']),
    ('thermo-run', 'bench', '--text', words, LARGE + ['--text', 'INPUT', '-p', '8', '-n', '8']),
    ('thermo-run', 'perplexity', '--file', words, LARGE + ['--file', 'INPUT']),
    ('thermo-run', 'perplexity', '--file', None, RUN + ['--file', '-']),
    ('thermo-run', 'chat', 'standard input', None, RUN),
    ('thermo-run', 'chat', 'standard input', None, RUN + ['--json']),
    ('thermo-run', 'serve', 'standard input', None, RUN),
    ('thermo-profile', 'trace', '--prompts', table, ['--model', MODEL, '--prompts', 'INPUT', '--out', f'{SCRATCH}/out.h5']),
    ('thermo-profile', 'silence', '--prompts', table, ['--model', MODEL, '--prompts', 'INPUT', '--held-out', 'INPUT']),
    ('thermo-pack', 'pack', '--plan', json, ['--model', MODEL, '--traces', TRACES, '--plan', 'INPUT', '--out', f'{SCRATCH}/out.thermo']),
]


# ---- trials ----

def catches(pid):
    """It keeps SIGINT for itself."""
    with open(f'/proc/{pid}/status') as f:
        caught = int(re.search(r'^SigCgt:\s*(\w+)', f.read(), re.M).group(1), 16)
    return caught >> (signal.SIGINT - 1) & 1


def has_open(pid, path):
    for fd in os.listdir(f'/proc/{pid}/fd'):
        try:
            if os.path.samefile(f'/proc/{pid}/fd/{fd}', path):
                return True
        except OSError:
            pass
    return False


def own_time(pid):
    """Seconds of CPU, which a busy machine does not stretch."""
    with open(f'/proc/{pid}/stat') as f:
        fields = f.read().rsplit(')', 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


def why_not(program, command, make, words, moment):
    """'' where it ends soon after the signal. moment: 'open', or seconds of its time after the input was open and caught."""
    source = make() if make else None
    line = [f'{BIN}/{program}', command, '-q'] + [source if w == 'INPUT' else w for w in words]
    with open(f'{SCRATCH}/err', 'w+') as err:
        p = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=err, cwd=SCRATCH)
        try:
            begun = time.monotonic()
            while p.poll() is None and not (catches(p.pid) and (not source or has_open(p.pid, source))):
                if time.monotonic() - begun > 120:
                    return f'{" ".join(line)}: never reads it'
                time.sleep(0.0005)
            at = own_time(p.pid) if p.poll() is None else 0
            while p.poll() is None and moment and own_time(p.pid) - at < moment and (source or time.monotonic() - begun < 1):
                time.sleep(0.005)
            if p.poll() is not None:
                return '' if moment else f'{" ".join(line)}: ended by itself, {p.returncode}: {open(err.name).read()}'
            at, begun = own_time(p.pid), time.monotonic()
            p.send_signal(signal.SIGINT)
            while p.poll() is None and own_time(p.pid) - at < SOON and time.monotonic() - begun < 20 * SOON and \
                    (source or time.monotonic() - begun < 4 * SOON):
                time.sleep(0.005)
            status = p.poll()
            if status in (130, -signal.SIGINT) or (moment and status is not None):  # it may have been at its end
                return ''
            return f'{" ".join(line)}: {status} {moment} s after it began: {open(err.name).read()}'
        except FileNotFoundError:  # it ended between two looks
            return '' if moment else f'{" ".join(line)}: ended by itself'
        finally:
            p.kill()
            p.wait()
            p.stdin.close()


# What catches a signal and has no trial of its own, and why.
REASONS = {
    'model': 'hashed in pieces (gguf_hash), read by file_pread; its header is a gigabyte at most',
    'plan': 'one reader for all of them', 'draft-plan': 'as --plan', 'chat-template': 'a megabyte at most', 'draft': 'as --model',
    'mtp': 'as --model', 'traces': 'read by trace_h5_set_read', 'check': 'a trace', 'requant-from': 'as --model',
    'ids': 'unit/test_interrupted', 'held-out': 'as --prompts', 'prompt-file': 'one reader for all of them',
    'memory-file': 'a line, when the signal for it comes', 'follow-pressure': 'a line of the kernel, once a second',
}


def main():
    tried = {(p, c, what.lstrip('-')) for p, c, what, _, _ in TRIALS}
    forgotten = []
    for program in ('thermo-profile', 'thermo-pack', 'thermo-run'):
        for command in [r[1] for r in options(f'{BIN}/{program}') if r[0] == 'command']:
            reads = [r[1] for r in options(f'{BIN}/{program}', command) if r[0] == 'option' and r[5] == 'read']
            if any(p == program and c == command for p, c, *_ in TRIALS):
                forgotten += [f'{program} {command} --{o}' for o in reads if (program, command, o) not in tried and o not in REASONS]
    point(not forgotten, 'every input of these commands is tried, or said why not', '\n'.join(forgotten))
    for program, command, what, make, words in TRIALS:
        whys = [why_not(program, command, make, words, moment) for moment in ((0, 0.2, 0.7)[:2 if SHORT else 3] if make else (0.05,))]
        failed = [w for w in whys if w]
        point(not failed, f'{program} {command}: {what}{"" if make else ", which says nothing"}', '\n'.join(failed))
    return done()


if __name__ == '__main__':
    sys.exit(main())
