#!/usr/bin/env python3
"""elastic.py BIN PACK PLAN OTHER: the limit of the embedded model between 28 and 14 MiB, every 50 tokens; OTHER is a plan whose limits are in
no elastic group. elastic.py BIN PACK PLAN --moves SMALL LARGE: of any model between two sizes, in MiB, by turns, and no more. Where a memory
cgroup can be made the process is in one of its limit: a smaller one is written when the answer says that it holds, a larger one before it
is asked for. Prints TAP."""
import json
import os
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from tap import done, point  # noqa: E402

BIN, PACK, PLAN = sys.argv[1:4]
MIB = 1 << 20
MOVES = sys.argv[4] == '--moves'
SMALL, LARGE = (MIB * int(n) for n in sys.argv[5:7]) if MOVES else (14 * MIB, 28 * MIB)
SANITIZED = bool(os.environ.get('SANITIZE'))
SHORT = SANITIZED or bool(os.environ.get('TEST_SHORT'))
REQUEST = {'prompt': 'Once upon a time', 'n': 240, 'temp': 0.9, 'seed': 3, 'ignore_eos': True}


class Group:
    """A memory cgroup of our own, v1 or v2; None where none can be made."""
    def __init__(self, path, limit, usage):
        self.path, self.limit, self.usage = path, limit, usage
        swap = f'{path}/memory.swap.max'
        if os.path.exists(swap):
            with open(swap, 'w', encoding='ascii') as f:
                f.write('0')

    @staticmethod
    def make():
        for base, limit, usage in (('/sys/fs/cgroup/memory', 'memory.limit_in_bytes', 'memory.usage_in_bytes'),
                                   ('/sys/fs/cgroup', 'memory.max', 'memory.current')):
            path = f'{base}/thermo-elastic-{os.getpid()}'
            try:
                os.mkdir(path)
            except OSError:
                continue
            if os.access(f'{path}/{limit}', os.W_OK):
                return Group(path, limit, usage)
            os.rmdir(path)
        return None

    def set(self, n):
        """The kernel takes what can be taken back, and says no (v1) or kills (v2) where the rest is more."""
        with open(f'{self.path}/{self.limit}', 'w', encoding='ascii') as f:
            f.write(str(n))

    def used(self):
        with open(f'{self.path}/{self.usage}', encoding='ascii') as f:
            return int(f.read())

    def close(self):
        for _ in range(50):
            try:
                os.rmdir(self.path)
                return
            except OSError:
                subprocess.run(['sleep', '0.1'], check=False)


class Serve:
    def __init__(self, *options, group=None, memory=LARGE):
        plan = [] if '--plan' in options else ['--plan', PLAN]
        words = [f'{BIN}/thermo-run', 'serve', '--stdio', '--model', PACK, *plan, '--memory', f'{memory}B', *([] if '-v' in options else ['-q']), *options]
        if group:
            group.set(memory)
            words = ['sh', '-c', 'echo $$ > "$0/cgroup.procs"; exec "$@"', group.path, *words]
        self.p = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.ready = self.next()

    def next(self):
        line = self.p.stdout.readline()
        return json.loads(line) if line else {'type': 'gone', 'stderr': self.p.stderr.read()}

    def say(self, o):
        self.p.stdin.write(json.dumps(o) + '\n')
        self.p.stdin.flush()

    def resident(self):
        with open(f'/proc/{self.p.pid}/status', encoding='ascii') as f:
            return next(int(line.split()[1]) * 1024 for line in f if line.startswith('VmRSS'))

    def until(self, *types):
        """Lines up to the first of a type."""
        seen = []
        while True:
            seen.append(self.next())
            if seen[-1]['type'] in types or seen[-1]['type'] == 'gone':
                return seen

    def end(self):
        self.p.stdin.close()
        last = self.until('summary')[-1]
        self.p.stdout.read()
        self.p.stderr.read()
        return self.p.wait(), last


def text_of(lines):
    return ''.join(line['text'] for line in lines if line['type'] == 'token')


def fixed(memory):
    s = Serve(memory=memory)
    if s.ready['type'] != 'ready':
        return f'did not start: {s.ready}'
    s.say({'id': 1, **REQUEST})
    text = text_of(s.until('done'))
    s.end()
    return text


def moves(group, want, *options, every=50, limits=(SMALL, LARGE, SMALL, LARGE)):
    """What was wrong: the text is made again until all limits were tried."""
    s, bad, left, now = Serve('--elastic', f'{SMALL}B', *options, group=group), [], list(limits), LARGE
    if s.ready['type'] != 'ready':
        return [f'did not start: {s.ready}']
    while left and not bad:
        lines = []
        s.say({'id': 1, **REQUEST})
        while not any(line['type'] in ('done', 'gone') for line in lines):
            lines.append(s.next())
            if lines[-1]['type'] != 'token' or lines[-1]['n'] % every or not left:
                continue
            to = left.pop(0)
            if group and to > now:
                group.set(to)
            s.say({'id': 'm', 'memory': to})
            lines += s.until('memory', 'error')
            if lines[-1]['type'] != 'memory' or lines[-1]['memory_bytes'] != to or lines[-1]['account_bytes'] > to:
                bad.append(f'limit {to}: {lines[-1]}')
                break
            if not SANITIZED and s.resident() > to:
                bad.append(f'resident {s.resident()} in a limit of {to}')
            if group and to < now:
                try:
                    group.set(to)
                except OSError as e:
                    bad.append(f'a group of {to} with {group.used()} in it: {e}')
                    break
            now = to
        if lines[-1]['type'] == 'gone':
            return [*bad, f'ended: {s.p.wait()} {lines[-1]}']
        if not bad and text_of(lines) != want:
            bad.append(f'{text_of(lines)!r} is not {want!r}')
    status, last = s.end()
    return bad if not status and last.get('memory_bytes') == now else [*bad, f'exit status {status}, {last}']


def log_of(s, words):
    """Lines of standard error up to one that has these words."""
    seen = []
    while not seen or words not in seen[-1]:
        seen.append(s.p.stderr.readline())
        if not seen[-1]:
            return seen
    return seen


def signalled(folder, want):
    """SIGUSR1 has the file read again, while a text is made and when none is."""
    name, bad = os.path.join(folder, 'limit'), []
    s = Serve('--elastic', f'{SMALL}B', '--memory-file', name, '-v')
    s.say({'id': 1, **REQUEST})
    lines = [s.next()]
    for text, words in (('14MiB\n', 'the memory limit is 14MiB'), ('13MiB', 'is below that of --elastic'), (f'{LARGE}', 'the memory limit is 28MiB'),
                        ('much', 'much'), (None, 'No such file'), ('16MiB', 'the memory limit is 16MiB')):
        if text is None:
            os.remove(name)
        else:
            with open(name, 'w', encoding='ascii') as f:
                f.write(text)
        os.kill(s.p.pid, signal.SIGUSR1)
        said = log_of(s, 'SIGUSR1')
        if words not in said[-1]:
            bad.append(f'{text}: {said}')
    lines += s.until('done')
    status, last = s.end()
    if text_of(lines) != want or status or last['memory_bytes'] != 16 * MIB:
        bad.append(f'{status} {last} {text_of(lines)!r}')
    return bad


def pressed(folder, want):
    """Programs wait for memory: down by a quarter of the way each half second; and up when none does."""
    name, bad, total = os.path.join(folder, 'pressure'), [], 1000
    def put():
        with open(name + '.new', 'w', encoding='ascii') as f:
            f.write(f'some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n')
        os.replace(name + '.new', name)
    put()
    s = Serve('--elastic', f'{SMALL}B', '--follow-pressure', name, '-v')
    s.say({'id': 1, **REQUEST})
    limits = []
    while not limits or limits[-1] != '14MiB':
        total += 2000000
        put()
        said = log_of(s, 'wait for memory')
        if not said[-1]:
            return [f'ended: {said}']
        limits.append(said[-1].split()[-1])
    if limits != [size(LARGE - i * (LARGE - SMALL) // 4) for i in (1, 2, 3, 4)]:
        bad.append(str(limits))
    lines = s.until('done')
    said = log_of(s, 'no program waits') if not SHORT else ['the memory limit is']
    if 'the memory limit is' not in said[-1]:
        bad.append(str(said))
    status, _ = s.end()
    return bad if text_of(lines) == want and not status else [*bad, f'{status} {text_of(lines)!r}']


def chats(folder):
    """A conversation whose limit changes while it waits for the next message."""
    name, answers, said = os.path.join(folder, 'limit'), [], []
    with open(os.path.join(folder, 'template'), 'w', encoding='ascii') as f:
        f.write('{% for m in messages %}{{ m.content }} {% endfor %}')
    with open(name, 'w', encoding='ascii') as f:
        f.write('18MiB')
    for options in ((), ('--elastic', '18MiB', '--memory-file', name)):
        p = subprocess.Popen([f'{BIN}/thermo-run', 'chat', '--json', '--model', PACK, '--plan', PLAN, '--memory', '28MiB', '-v', '-n', '40', '--seed', '1',
                              '--chat-template', os.path.join(folder, 'template'), *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
        answers.append([])
        for i in range(3):
            p.stdin.write(json.dumps({'content': 'Once upon a time'}) + '\n')
            p.stdin.flush()
            answers[-1].append(json.loads(p.stdout.readline() or '{}').get('content'))
            if options and i == 0:
                os.kill(p.pid, signal.SIGUSR1)
                while said[-1:] != [''] and 'SIGUSR1' not in ''.join(said):
                    said.append(p.stderr.readline())
        p.stdin.close()
        p.stdout.read()
        said.append(p.stderr.read())
        p.wait()
    return answers[0] == answers[1] and all(answers[0]) and 'the memory limit is 18MiB' in ''.join(said), f'{answers}\n{"".join(said)}'


def size(n):
    """As messages have it."""
    return f'{n // MIB}MiB' if n % MIB == 0 else f'{n // 1024}KiB' if n % 1024 == 0 else f'{n}B'


def refused():
    s, bad = Serve('--elastic', f'{SMALL}B'), []
    before = s.ready
    for ask, words in (({'memory': SMALL - 1}, 'is below that of --elastic, 14MiB'), ({'memory': '13MiB'}, 'a memory limit of 13MiB is below'),
                       ({'memory': '900TiB'}, 'a memory limit of 900TiB, but'), ({'memory': 'much'}, 'much'), ({'memory': []}, 'a size is needed'),
                       ({'memory': 0}, 'a size is needed'), ({'memory': -5}, 'a size is needed'), ({'memory': LARGE, 'limit': 1}, 'limit')):
        s.say({'id': 'x', **ask})
        got = s.next()
        if got['type'] != 'error' or words not in got['error'] or got['id'] != 'x':
            bad.append(f'{ask}: {got}')
    s.say({'id': 1, **REQUEST})
    text = text_of(s.until('done'))
    status, last = s.end()
    same = all(before[k] == last[k] for k in ('memory_bytes', 'account_bytes', 'account'))
    return text, bad + ([] if same and not status else [f'exit status {status}: {before} {last}'])


def without():
    s = Serve()
    s.say({'memory': SMALL})
    got = s.next()
    s.end()
    return got['type'] == 'error' and '--elastic SIZE' in got['error'] and got['id'] is None, 'without --elastic the limit stays', str(got)


def option(words, *options):
    plan = [] if '--plan' in options else ['--plan', PLAN]
    p = subprocess.run([f'{BIN}/thermo-run', 'serve', '--stdio', '--model', PACK, *plan, '-q', *options], capture_output=True, text=True,
                       stdin=subprocess.DEVNULL, check=False)
    return p.returncode and words in p.stderr, f'{p.returncode} {p.stderr}'


def passes(folder):
    """Threads and reads in flight are those of the limit that holds; a plan's limits that are in no group are refused."""
    name, bad = os.path.join(folder, 'plan.json'), []
    with open(PLAN, encoding='utf-8') as f:
        plan = json.load(f)
    limits = plan['decisions']['limits']
    group = limits[0]['elastic']
    if any(l['elastic'] != group or l['prefill_chunk'] != limits[0]['prefill_chunk'] for l in limits) or \
            any(group[key] != max(at(l)[key] for l in limits) for key, at in (('threads', lambda l: l), ('queue_depth', lambda l: l['io']))):
        bad.append(f'{limits}')
    last, first = limits[-1], limits[0]
    last['threads'] = last['classes'][0]['n'] = 1
    last['classes'][1:] = []
    last['io']['queue_depth'] = 1
    depth = first['io']['queue_depth']
    group['threads'], group['queue_depth'] = max(l['threads'] for l in limits), max(l['io']['queue_depth'] for l in limits)
    for l in limits:
        l['elastic'] = group
    with open(name, 'w', encoding='utf-8') as f:
        json.dump(plan, f)
    s = Serve('--elastic', f'{SMALL}B', '--plan', name, '-v')
    for to, words in ((SMALL, f'passes by {first["threads"]} threads, {depth} reads'), (LARGE, 'passes by 1 threads, 1 reads'),
                      (SMALL, f'passes by {first["threads"]} threads, {depth} reads')):
        s.say({'memory': to})
        said = log_of(s, 'passes by ')
        if words not in said[-1]:
            bad.append(f'{to}: {said}')
    s.say({'id': 1, **REQUEST})
    text = text_of(s.until('done'))
    s.end()
    return text, bad


def main():
    want = fixed(LARGE)
    point(len(want) > 200 and want == fixed(SMALL), 'the text does not depend on the limit')
    if MOVES:
        group = None if SANITIZED else Group.make()
        try:
            bad = moves(group, want)
            point(not bad, f'{LARGE // MIB} and {SMALL // MIB} MiB by turns, {"in a memory cgroup that is moved with it" if group else "without a cgroup"}',
                  '\n'.join(bad))
        finally:
            if group:
                group.close()
        return done()
    group = None if SANITIZED else Group.make()
    where = 'in a memory cgroup that is moved with it' if group else 'without a cgroup'
    if not group:
        print('# no memory cgroup:', 'a sanitizer takes memory of its own' if SANITIZED else 'none can be made here')
    try:
        for io in ('pread', 'io_uring'):
            for lock in ((), ('--no-mlock',)):
                bad = moves(group, want, '--io', io, *lock)
                point(not bad, f'28 and 14 MiB by turns, {where}, {io} {" ".join(lock)}', '\n'.join(bad))
        many = tuple(MIB * (14 + (i * 5) % 15) for i in range(1, 36))
        bad = moves(group, want, every=6, limits=many)
        point(not bad, f'35 limits from 14 to 28 MiB, {where}', '\n'.join(bad))
    finally:
        if group:
            group.close()
    with tempfile.TemporaryDirectory() as folder:
        bad = signalled(folder, want)
        point(not bad, 'SIGUSR1: the file is read again', '\n'.join(bad))
        bad = pressed(folder, want)
        point(not bad, 'programs that wait for memory take the limit down', '\n'.join(bad))
        ok, why = chats(folder)
        point(ok, 'chat: the limit changes between two messages', why)
        for words, ask in (('belongs to --elastic', ['--memory-file', 'x']), ('belongs to --elastic', ['--follow-pressure', 'x']),
                           ('nowhere', ['--elastic', '14MiB', '--follow-pressure', 'nowhere']),
                           ('no file of pressure', ['--elastic', '14MiB', '--follow-pressure', 'tests/tap.sh'])):
            ok, why = option(words, '--memory', '16MiB', *ask)
            point(ok, f'{" ".join(ask)}: {words}', why)
        text, bad = passes(folder)
        point(text == want and not bad, 'threads and reads in flight are those of the limit', '\n'.join(bad))
    ok, why = option('is not in one elastic group with that of', '--memory', '22MiB', '--elastic', '14MiB', '--plan', sys.argv[4])
    point(ok, 'limits of a plan that are in no group', why)
    text, bad = refused()
    point(text == want and not bad, 'what is refused changes nothing', '\n'.join(bad))
    point(*without())
    ok, why = option('is above the memory limit of 16MiB', '--memory', '16MiB', '--elastic', '17MiB')
    point(ok, '--elastic above --memory', why)
    ok, why = option('below the floor', '--memory', '16MiB', '--elastic', '2MiB')
    point(ok, '--elastic below the floor', why)
    ok, why = option('does not go with --engine opencl', '--memory', '16MiB', '--elastic', '14MiB', '--engine', 'opencl')
    point(ok, '--elastic with an accelerator', why)
    return done()


sys.exit(main())
