#!/usr/bin/env python3
"""outputs.py PROGRAM...: no command writes over what it reads, nor two outputs into one file.

Everything is taken from the option tables (PROGRAM COMMAND --help=table), so that a new option takes part by itself, and
one that names a file without saying so in its row is found. Prints TAP."""
import os
import shutil
import subprocess
import sys
import tempfile

# What the value of an option is called in --help when it names no file. A new name has to be added here, or the row
# has to say which kind of file it is.
NO_FILE = {'NAME', 'LIST', 'P,N', 'TEXT', 'TIER', 'I/N', 'N', 'SIZE', 'SIZES', 'DIR', 'TYPE', 'IDS', 'LOW..HIGH', 'VALUE', 'SHARE', 'PATTERN=TYPE'}
CONTENT = b'somebody needs this\n'
SHARED = 'shared.file'
FD = 77 # every command has it open on the file that is there
points = bad = 0


def point(ok, name, why=''):
    global points, bad
    points += 1
    bad += not ok
    print(f'{"ok" if ok else "not ok"} {points} - {name}')
    for line in why.splitlines()[:20] if not ok else []:
        print('#', line)


class Command:
    def __init__(self, program, name):
        self.call = [program] + ([name] if name else [])
        self.label = ' '.join([os.path.basename(program)] + ([name] if name else []))
        text = subprocess.run(self.call + ['--help=table'], capture_output=True, text=True, check=True).stdout
        rows = [line.split('\t') for line in text.splitlines()]
        keys = 'name short type arg file required low high beside in_place choices'.split()
        self.options = [dict(zip(keys, r[1:])) for r in rows if r[0] == 'option']
        self.arguments = [r[1] for r in rows if r[0] == 'argument']

    def places(self, *kinds):
        """(how a message calls it, what leads to it) of each place for a file of these kinds."""
        of = {'r': 'read', 'w': 'write'}
        return ([(f'--{o["name"]}', o) for o in self.options if o['file'] in kinds] +
                [('the argument', i) for i, k in enumerate(self.arguments) if of[k] in kinds])

    def line(self, given):
        """A command line that parses; given: [(place, path)]; the rest that is required is made up."""
        words, positional = [], {}
        for _, place, path in given:
            if isinstance(place, int):
                positional.setdefault(place, []).append(path)
            else:
                words += [f'--{place["name"]}', path]
        named = {p['name'] for _, p, _ in given if not isinstance(p, int)}
        if any(o['file'] == 'update-db' for o in self.options):
            words += [f'--{o["name"]}' for o in self.options if o['name'] == 'store']
        for o in self.options:
            if o['required'] == '1' and o['name'] not in named:
                value = {'choice': o['choices'].split(',')[0], 'string': 'made-up-' + o['name']}.get(o['type'], o['low'])
                words += [f'--{o["name"]}', value]
        for i in range(len(self.arguments)):
            words += positional.get(i, [f'made-up-{i}'])
        return self.call + words


def spell(folder, kind, target):
    """Another name for target (a path in folder), as it is given on a command line that runs there, with descriptor FD open on it."""
    alias = f'{target}.alias'
    if kind == 'symbolic link':
        os.symlink(target, f'{folder}/{alias}')
    elif kind == 'link to a link':
        os.symlink(target, f'{folder}/{alias}1')
        os.symlink(f'{folder}/{alias}1', f'{folder}/{alias}')
    elif kind == 'hard link':
        os.link(f'{folder}/{target}', f'{folder}/{alias}')
    elif kind == 'linked folder':
        os.symlink('.', f'{folder}/here')
        return f'here/{target}'
    elif kind == 'bind mount':
        open(f'{folder}/{alias}', 'w').close()
    return {'same': target, './': f'./{target}', '..': f'../{os.path.basename(folder)}//{target}',
            'absolute': f'{folder}/{target}', '/proc/self/cwd': f'/proc/self/cwd/{target}',
            '/proc/self/root': f'/proc/self/root{folder}/{target}', '/proc/self/fd': f'/proc/self/fd/{FD}',
            '/proc/thread-self/fd': f'/proc/thread-self/fd/{FD}', '/dev/fd': f'/dev/fd/{FD}'}.get(kind, alias)


def state(folder):
    return sorted((n, os.readlink(f'{folder}/{n}') if os.path.islink(f'{folder}/{n}') else
                   open(f'{folder}/{n}', 'rb').read(), os.lstat(f'{folder}/{n}').st_ino) for n in os.listdir(folder))


def refused(command, given, labels, setup, stdout=None):
    """Why it was not refused with exit status 2, by a message that names both, with nothing touched; '' when it was."""
    folder = os.path.realpath(tempfile.mkdtemp(prefix='thermo-outputs-'))
    out = subprocess.PIPE
    try:
        line = command.line(setup(folder, given))
        if os.path.exists(f'{folder}/{SHARED}.alias') and not os.path.getsize(f'{folder}/{SHARED}.alias'):
            line = BOUND + line
        if stdout:
            out = open(f'{folder}/{stdout}', 'ab')
        there = os.path.exists(f'{folder}/{SHARED}')
        if there:
            fd = os.open(f'{folder}/{SHARED}', os.O_RDWR)
            os.dup2(fd, FD)
            os.close(fd)
        before = state(folder)
        got = subprocess.run(line, cwd=folder, stdout=out, stderr=subprocess.PIPE, timeout=120, stdin=subprocess.DEVNULL,
                             pass_fds=[FD] if there else [])
        said = got.stderr.decode(errors='replace')
        if got.returncode != 2 or 'are the same file' not in said or any(label not in said for label in labels):
            return f'{" ".join(line)}\nexit status {got.returncode}: {said}'
        return '' if state(folder) == before else f'{" ".join(line)}\nchanged what was there'
    finally:
        if stdout and out != subprocess.PIPE:
            out.close()
        if os.path.exists(f'/proc/self/fd/{FD}'):
            os.close(FD)
        shutil.rmtree(folder)


# A command line in a mount namespace of its own, where a file is mounted on the last of these names as well; None: not allowed here.
BOUND = ['unshare', '-Urm', 'sh', '-c', f'mount --bind {SHARED} {SHARED}.alias && exec "$@"', 'sh']
if subprocess.run(['unshare', '-Urm', 'true'], stderr=subprocess.DEVNULL).returncode != 0:
    BOUND = None


def existing(kind, name=SHARED, reads=SHARED):
    """given[0] is spelled in this way, given[1] read as it is."""
    def setup(folder, given):
        with open(f'{folder}/{name}', 'wb') as f:
            f.write(CONTENT)
        return [(*given[0], spell(folder, kind, name)), (*given[1], reads)]
    return setup


def new(kind, name, reads):
    def setup(folder, given):
        if kind == 'linked folder':
            os.symlink('.', f'{folder}/here')
        at = {'./': f'./{name}', 'absolute': f'{folder}/{name}', 'linked folder': f'here/{name}',
              '/proc/self/cwd': f'/proc/self/cwd/{name}'}.get(kind, name)
        return [(*given[0], at), (*given[1], reads)]
    return setup


def beside(suffix):
    def setup(folder, given):
        with open(f'{folder}/x{suffix}', 'wb') as f:
            f.write(CONTENT)
        return [(*given[0], 'x'), (*given[1], f'./x{suffix}')]
    return setup


OLD = ['same', './', '..', 'absolute', 'symbolic link', 'link to a link', 'hard link', 'linked folder', '/proc/self/cwd', '/proc/self/root',
       '/proc/self/fd', '/proc/thread-self/fd', '/dev/fd'] + ['bind mount'] * (BOUND is not None)
NEW = ['same', './', 'absolute', 'linked folder', '/proc/self/cwd']
DATABASE = ['-journal', '-wal', '-shm']


def pair_trials(c, w, other, old, fresh):
    """Why each command line was not refused in which w is written and other is the same file, spelled in these ways."""
    option = other[1] if isinstance(other[1], dict) else {'name': None, 'file': 'argument', 'beside': '-'}
    wrote = w[1] if isinstance(w[1], dict) else {'beside': '-', 'in_place': '-'}
    pair, labels = [w, other], [w[0], other[0]]
    for kind in old:
        yield refused(c, pair, labels, existing(kind))
    for kind in fresh:
        yield refused(c, pair, labels, new(kind, 'new.file', 'new.file'))
    if option['file'] in ('read-db', 'update-db'):
        for suffix in DATABASE:
            yield refused(c, pair, labels, new('./', 'hw.sqlite' + suffix, 'hw.sqlite'))
    if option['file'] == 'read' or option['file'] == 'argument' and c.arguments[other[1]] == 'r':
        yield refused(c, pair, labels, existing('./', 'm-00002-of-00003.gguf', 'm-00001-of-00003.gguf'))
    if wrote['beside'] != '-':
        yield refused(c, pair, labels, beside(wrote['beside']))
    if wrote['in_place'] not in ('-', option['name']):
        source = next(o for o in c.options if o['name'] == wrote['in_place'])
        label = f'--{source["name"]}'
        yield refused(c, [(label, source), other], [label, other[0]], existing('hard link'))


def unnamed(c, w):
    """Why an empty name for what is written was not refused before anything is done, with nothing left behind; '' when it was."""
    with tempfile.TemporaryDirectory(prefix='thermo-outputs-') as folder:
        line = c.line([(*w, '')])
        got = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
        right = got.returncode == 2 and f'{w[0]} is empty' in got.stderr and not os.listdir(folder)
        return '' if right else f'{line}\nexit status {got.returncode}: {got.stderr}'


def try_command(c):
    unmarked = [o['name'] for o in c.options if o['type'] in ('string', 'list') and o['file'] == 'none' and
                o['arg'] not in NO_FILE]
    point(not unmarked, f'{c.label}: every option that names a file says so', ' '.join(unmarked))
    writes, places = c.places('write', 'update-db'), c.places('read', 'read-db', 'write', 'update-db')
    whys = [unnamed(c, w) for w in writes]
    for w in writes:
        whys.append(refused(c, [w], [w[0], 'standard output'], lambda folder, given: [(*given[0], './said')], 'said'))
        # Every pair, in every spelling somewhere: all of them for an output's first pair, then some in turn.
        others = [o for o in places if o[1] is not w[1] and o[1] != w[1]]
        for i, other in enumerate(others):
            some = (OLD, NEW) if i == 0 else ([OLD[i % len(OLD)], OLD[(i + 4) % len(OLD)]], [NEW[i % len(NEW)]])
            whys += pair_trials(c, w, other, *some)
    failed = [w for w in whys if w]
    if writes:
        point(not failed, f'{c.label}: {len(whys)} command lines that would write over a file, or into one without a name, are refused',
              f'{len(failed)} of {len(whys)} were not; the first:\n{failed[0]}' if failed else '')


def main():
    for program in map(os.path.abspath, sys.argv[1:]):
        names = [line.split('\t')[1] for line in subprocess.run([program, '--help=table'], capture_output=True, text=True,
                 check=True).stdout.splitlines() if line.startswith('command\t')]
        for name in names or [None]:
            try_command(Command(program, name))
    print(f'1..{points}')
    return bad > 0


if __name__ == '__main__':
    sys.exit(main())
