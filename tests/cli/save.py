"""save.py THERMO-RUN PACK PLAN TEMPLATE FOLDER: /save in `chat` on a terminal. Copies of the inputs under every name of
tests/cli/outputs.py that leads to them are written over by no /save and no /save!; other files by /save! alone; modes stay."""
import os
import pty
import select
import shutil
import subprocess
import sys
import time

from outputs import FD, OLD, spell, state

run, pack, plan, template, folder = map(os.path.abspath, sys.argv[1:])
PATIENCE = 120


class Chat:
    def __init__(self, *options):
        self.master, slave = pty.openpty()
        line = [run, 'chat', '--model', 'pack', '--plan', 'plan', '--chat-template', 'template', '--temp', '0', '-n', '2', '--no-history', *options]
        self.process = subprocess.Popen(line, cwd=folder, stdin=slave, stdout=slave, stderr=slave, pass_fds=fds, env={**os.environ, 'TERM': 'dumb'})
        os.close(slave)
        self.until('> ')

    def until(self, what):
        said, end = '', time.monotonic() + PATIENCE
        while not said.endswith(what):
            assert time.monotonic() < end, f'no {what!r} came: {said}'
            if select.select([self.master], [], [], 1)[0]:
                said += os.read(self.master, 65536).decode(errors='replace')
        return said

    def type(self, text):
        os.write(self.master, text.encode() + b'\n')
        return self.until('\n> ')

    def end(self):
        os.write(self.master, b'/quit\n')
        assert self.process.wait(PATIENCE) == 0


os.mkdir(folder)
folder = os.path.realpath(folder)
inputs = {'pack': pack, 'plan': plan, 'template': template}
for name, path in inputs.items():
    shutil.copy(path, f'{folder}/{name}')
fds = []
for i, name in enumerate(inputs):
    fd = os.open(f'{folder}/{name}', os.O_RDWR)
    fds.append(os.dup2(fd, FD + i))
    os.close(fd)
chat = Chat()
chat.type('Once upon')
names = []
for i, name in enumerate(inputs):
    for kind in [k for k in OLD if k != 'bind mount']:
        there = f'{folder}/{name}-{len(names)}'
        os.mkdir(there)
        os.link(f'{folder}/{name}', f'{there}/{name}')
        at = spell(there, kind, name).replace(f'/{FD}', f'/{FD + i}').replace('/cwd/', f'/cwd/{os.path.basename(there)}/')
        names.append(at if at.startswith('/') else f'{os.path.basename(there)}/{at}')
before = [(f, state(f'{folder}/{f}')) for f in sorted(os.listdir(folder)) if os.path.isdir(f'{folder}/{f}')]
whole = [open(f'{folder}/{name}', 'rb').read() for name in inputs]
for name in names:
    for command in ('/save', '/save!'):
        said = chat.type(f'{command} {name}')
        assert 'same file' in said or (command == '/save' and 'no conversation' in said), (command, name, said)
assert before == [(f, state(f'{folder}/{f}')) for f, _ in before], 'something changed'
assert whole == [open(f'{folder}/{name}', 'rb').read() for name in inputs], 'an input changed'

# What is nobody's input, but somebody's.
with open(f'{folder}/letter', 'w') as f:
    f.write('Dear sister,')
os.chmod(f'{folder}/letter', 0o600)
assert 'no conversation' in chat.type('/save letter') and open(f'{folder}/letter').read() == 'Dear sister,'
chat.type('/save! letter')
assert 'Once upon' in open(f'{folder}/letter').read() and os.stat(f'{folder}/letter').st_mode & 0o777 == 0o600
chat.type('And then')
chat.type('/save letter') # it is a saved conversation by now
assert 'And then' in open(f'{folder}/letter').read() and os.stat(f'{folder}/letter').st_mode & 0o777 == 0o600
chat.type('/save new')
mask = os.umask(0)
os.umask(mask)
assert os.stat(f'{folder}/new').st_mode & 0o777 == 0o666 & ~mask
assert 'replaces a saved conversation' in chat.type('/help')
chat.end()
