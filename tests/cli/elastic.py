#!/usr/bin/env python3
"""elastic.py BIN PACK PLAN: the limit of the embedded model between 28 and 14 MiB, every 50 tokens. Where a memory cgroup can be made the
process is in one of its limit: a smaller one is written when the answer says that it holds, a larger one before it is asked for. Prints TAP."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from tap import done, point  # noqa: E402

BIN, PACK, PLAN = sys.argv[1:4]
MIB = 1 << 20
LARGE, SMALL = 28 * MIB, 14 * MIB
SANITIZED = bool(os.environ.get('SANITIZE'))
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
        words = [f'{BIN}/thermo-run', 'serve', '--stdio', '--model', PACK, '--plan', PLAN, '--memory', f'{memory}B', '-q', *options]
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
    s.say({'id': 1, **REQUEST})
    text = text_of(s.until('done'))
    s.end()
    return text


def moves(group, *options, every=50, limits=(SMALL, LARGE, SMALL, LARGE), request=None):
    """The text, and what was wrong."""
    s, bad, lines, left = Serve('--elastic', f'{SMALL}B', *options, group=group), [], [], list(limits)
    if s.ready['type'] != 'ready':
        return '', [f'did not start: {s.ready}']
    s.say({'id': 1, **(request or REQUEST)})
    now, most = LARGE, 0
    while not lines or lines[-1]['type'] not in ('done', 'gone'):
        lines.append(s.next())
        if lines[-1]['type'] == 'token' and lines[-1]['n'] % every == 0 and left:
            to = left.pop(0)
            if group and to > now:
                group.set(to)
            s.say({'id': 'm', 'memory': to})
            lines += s.until('memory', 'error', 'done')
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
        most = max(most, group.used() if group else 0)
    if lines[-1]['type'] == 'gone':
        bad.append(f'ended: {s.p.wait()} {lines[-1]}')
        return text_of(lines), bad
    status, last = s.end()
    if status or last.get('memory_bytes') != now:
        bad.append(f'exit status {status}, {last}')
    if left:
        bad.append(f'limits that were not tried: {left}')
    return text_of(lines), bad


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
    p = subprocess.run([f'{BIN}/thermo-run', 'serve', '--stdio', '--model', PACK, '--plan', PLAN, '-q', *options], capture_output=True, text=True,
                       stdin=subprocess.DEVNULL, check=False)
    return p.returncode and words in p.stderr, f'{p.returncode} {p.stderr}'


def main():
    want = fixed(LARGE)
    point(len(want) > 200 and want == fixed(SMALL), 'the text does not depend on the limit')
    group = None if SANITIZED else Group.make()
    where = 'in a memory cgroup that is moved with it' if group else 'without a cgroup'
    if not group:
        print('# no memory cgroup:', 'a sanitizer takes memory of its own' if SANITIZED else 'none can be made here')
    try:
        for io in ('pread', 'io_uring'):
            for lock in ((), ('--no-mlock',)):
                text, bad = moves(group, '--io', io, *lock)
                point(text == want and not bad, f'28 and 14 MiB by turns, {where}, {io} {" ".join(lock)}', '\n'.join(bad) or f'{text!r}\n{want!r}')
        many = tuple(MIB * (14 + (i * 5) % 15) for i in range(1, 36))
        text, bad = moves(group, every=6, limits=many)
        point(text == want and not bad, f'35 limits from 14 to 28 MiB, {where}', '\n'.join(bad))
    finally:
        if group:
            group.close()
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
