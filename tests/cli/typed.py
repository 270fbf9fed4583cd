"""typed.py THERMO-RUN PACK PLAN TEMPLATE FOLDER SLOW: `chat` at a terminal: lines are edited, pasted texts are one message, long ones are whole, the
history is the user's alone, Ctrl-C ends an answer at once, the terminal is as it was. SLOW: a library that makes each pread wait, or -."""
import json
import os
import pty
import random
import re
import select
import signal
import stat
import subprocess
import sys
import termios
import time

sys.path.insert(0, 'tests')
from tap import done, point

run, pack, plan, template, folder, slow = sys.argv[1:]
PATIENCE = 120
ESCAPES = re.compile(r'\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>78MDE]|[\x00\x07]')
os.mkdir(folder)
EDITS = 'libedit' in subprocess.run([run, '--version'], capture_output=True, text=True, check=True).stdout


class Chat:
    def __init__(self, *options, term='xterm', home='home', n='2', env=None, memory=None, start=True):
        self.master, self.slave = pty.openpty()
        self.was = termios.tcgetattr(self.slave)
        line = [run, 'chat', '--model', pack, '--plan', plan, '--chat-template', template, '--temp', '0', '-n', n, *(['--memory', memory] if memory else []), *options]
        env = {**{k: v for k, v in os.environ.items() if k != 'XDG_STATE_HOME'}, 'TERM': term, 'HOME': f'{folder}/{home}', **(env or {})}
        os.makedirs(env['HOME'], exist_ok=True)
        self.process = subprocess.Popen(line, stdin=self.slave, stdout=self.slave, stderr=self.slave, env=env, start_new_session=True,
                                        preexec_fn=lambda: __import__('fcntl').ioctl(0, termios.TIOCSCTTY, 0))
        self.said = ''
        if start:
            self.until('> ')

    def read(self, seconds):
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        self.said += os.read(self.master, 65536).decode(errors='replace')
        return True

    def until(self, what):
        """Until that is the end of what is seen, and nothing follows."""
        end = time.monotonic() + PATIENCE
        while not (ESCAPES.sub('', self.said).replace('\r', '').endswith(what) and not self.read(.05)):
            assert time.monotonic() < end and self.process.poll() is None, f'no {what!r} came ({self.process.poll()}): {self.said[-500:]!r}'
            self.read(1)
        said, self.said = self.said, ''
        return ESCAPES.sub('', said).replace('\r', '')

    def seen(self, what):
        end = time.monotonic() + PATIENCE
        while what not in ESCAPES.sub('', self.said):
            assert time.monotonic() < end and self.process.poll() is None, f'no {what!r} came ({self.process.poll()}): {self.said[-500:]!r}'
            self.read(1)

    def send(self, text):
        data = text.encode() if isinstance(text, str) else text
        while data:
            data = data[os.write(self.master, data[:1024]):]
            while self.read(0):
                pass

    def type(self, text):
        self.send(text + '\n')
        return self.until('\n> ')

    def messages(self):
        name = f'{folder}/saved.json'
        if os.path.exists(name):
            os.remove(name)
        said = self.type(f'/save {name}')
        assert 'saved in' in said, said
        return [m['content'] for m in json.load(open(name))['messages'] if m['role'] == 'user']

    def end(self):
        self.send('/quit\n')
        point(self.process.wait(PATIENCE) == 0 and termios.tcgetattr(self.slave) == self.was, 'it ends, and the terminal is as it was')
        while self.read(.05):
            pass
        os.close(self.master)
        os.close(self.slave)
        return self.said


def paste(text):
    return f'\x1b[200~{text}\x1b[201~'


def editing(term):
    c = Chat(term=term)
    c.type('Helo\x7f\x7flo wörld\x7f\x7f\x7fx')
    keys = ['Helo wöx']
    if EDITS and term != 'dumb':
        c.type('there\x01Hi \x05!')          # Ctrl-A, Ctrl-E
        c.type('one two\x1b[D\x1b[D\x1b[DX')  # left
        c.type('\x1b[A\x1b[A')                # up, up
        keys += ['Hi there!', 'one Xtwo', 'Hi there!']
    got = c.messages()
    point(got == keys, f'{term}: a line is edited', str(got))
    c.type('/reset')
    long = ''.join(f'{i:04d} ' for i in range(1200)) + 'the end'
    c.send(long)
    said = c.type('')
    got = c.messages()
    point(got == [long], f'{term}: a line of {len(long)} bytes that is typed is whole', f'{[len(g) for g in got]} {said[-300:]}')
    c.type('/reset')
    text = 'first line\n"""\n/quit\n\n' + 'word ' * 1200 + '\\\nlast line'
    c.send(paste(text.replace('\n', '\r')))
    said = c.type(' - so?')
    got = c.messages()
    point(got == [text + ' - so?'], f'{term}: a pasted text of {len(text)} bytes is one message, with what is typed behind it', str(got)[:300])
    point('[paste 1: 6 lines, ' in said, f'{term}: and stands in the line as a mark', said[:300])
    c.type('/reset')
    c.send('a ' + paste('one\rtwo') + ' b ' + paste('short') + ' c ' + paste('/save x\n') + '\x01' + paste('é' * 150) + '\x05')
    c.type('')
    got = c.messages()
    point(got == [('é' * 150 if EDITS and term != 'dumb' else '') + 'a one\ntwo b short c /save x' + ('' if EDITS and term != 'dumb' else 'é' * 150)], f'{term}: several, short ones as if typed, and no command', str(got))
    c.type('/reset')
    c.send(paste('/reset'))
    c.type('')
    got = c.messages()
    point(got == ['/reset'], f'{term}: what is pasted is no command', str(got))
    c.send(paste('x' * 200000))
    said = c.type('')
    point('longer than' in said and c.messages() == ['/reset'], f'{term}: what the context has no room for is refused, and the talk goes on', said[-300:])
    c.send(paste('a\x1b[20b\x1b[201c\x1b\x00'))
    said = c.type('')
    point('NUL' in said and c.messages() == ['/reset'], f'{term}: a NUL is refused', said[-300:])
    c.type('/reset')
    c.send(paste('a\x1b[20b\x1b[201c\n'))
    c.type('')
    got = c.messages()
    point(got == ['a\x1b[20b\x1b[201c\n'], f'{term}: what looks like the end of a paste is none', str(got))
    c.type('/reset')
    c.send('\x1b[20' + paste('a\nb')[:-3]) # its end is lost by Ctrl-C
    time.sleep(.2)
    c.send('\x03')
    said = c.until('\n> ')
    point('Ctrl-D ends' in said and not c.messages(), f'{term}: Ctrl-C drops what is being pasted', said)
    c.send('half a li')
    time.sleep(.2)
    c.send('\x03')
    said = c.until('\n> ')
    c.type('whole')
    got = c.messages()
    point('Ctrl-D ends' in said and got == ['whole'], f'{term}: Ctrl-C drops a line', f'{said} {got}')
    c.type('/reset')
    c.send('"""\n')
    c.until('… ')
    c.send('a\n')
    c.until('… ')
    c.send('b\\\n')
    c.until('… ')
    c.type('"""')
    c.send('c\\\n')
    c.until('… ')
    c.type('d')
    got = c.messages()
    point(got == ['a\nb\\', 'c\nd'], f'{term}: blocks, and lines that go on', str(got))
    c.end()
    c = Chat('--no-history', term=term)
    random.seed(7)
    pieces = [b'\x1b', b'\x1b[200~', b'\x1b[201~', b'\x1b[20', b'\x1b[A', b'\x1b[D', b'\x01', b'\x05', b'\x7f', b'\x15', b'\x17', b'\x0b', b'\x19', b'\xff', b'\xc3', b'\xe2\x82', 'é'.encode(),
              '日本'.encode(), '\u0301'.encode(), b'\t', b'abc ', b'/', b'\xf0\x9f\x98\x80', b'\x00', b'\xed\xa0\x80', b'\r', b'x' * 300]
    for _ in range(5 if os.environ.get('TEST_SHORT') else 25):
        c.send(b''.join(random.choice(pieces) for _ in range(random.randrange(1, 60))) + b'\x1b[201~\x15')
    c.send('\x1b[201~\n')
    for _ in range(60): # answers to all that became messages, and what waits is dropped
        c.send('\x03')
        c.said = ''
        while c.process.poll() is None and c.read(.5):
            pass
        if c.process.poll() is not None or ESCAPES.sub('', c.said).endswith('> '):
            break
    point(c.process.poll() is None, f'{term}: keys at random', f'{c.process.poll()} {c.said[-300:]!r}')
    c.type('/reset')
    c.type('whole')
    got = c.messages()
    point(got[-1:] == ['whole'], f'{term}: after keys at random it goes on', str(got))  # behind what became messages late
    c.end()
    c = Chat(term=term)
    c.send('\x04')
    point(c.process.wait(PATIENCE) == 0 and termios.tcgetattr(c.slave) == c.was, f'{term}: Ctrl-D ends')
    c = Chat(term=term)
    c.process.send_signal(signal.SIGTERM)
    point(c.process.wait(PATIENCE) == 130 and termios.tcgetattr(c.slave) == c.was, f'{term}: SIGTERM ends, and the terminal is as it was')


def held(term):
    """A terminal that Ctrl-S holds does not hold the end; a second signal leaves the terminal as it was."""
    c = Chat(term=term, n='60')
    c.send('\x13')
    time.sleep(.1)
    c.send('Tell me a story\n')
    time.sleep(1)
    c.process.send_signal(signal.SIGTERM)
    end = time.monotonic() + PATIENCE
    while c.process.poll() is None and time.monotonic() < end:
        c.read(.05)
    point(c.process.poll() == 130 and termios.tcgetattr(c.slave) == c.was, f'{term}: SIGTERM ends one whose terminal is held by Ctrl-S', f'{c.process.poll()}')
    c.process.kill()
    c = Chat(term=term)
    os.kill(c.process.pid, signal.SIGSTOP)  # so that both come at once
    for how in (signal.SIGTERM, signal.SIGHUP):
        os.kill(c.process.pid, how)
    os.kill(c.process.pid, signal.SIGCONT)
    got = c.process.wait(PATIENCE)
    point(got in (130, -signal.SIGTERM, -signal.SIGHUP) and termios.tcgetattr(c.slave) == c.was, f'{term}: and a second signal leaves the terminal as it was', f'{got}')


def jobs(term):
    """Ctrl-Z gives the shell its terminal, and after fg the line is there and goes on."""
    c = Chat.__new__(Chat)
    c.master, c.slave = pty.openpty()
    c.said = ''
    env = {**{k: v for k, v in os.environ.items() if k != 'XDG_STATE_HOME'}, 'TERM': term, 'HOME': f'{folder}/home', 'PS1': 'shell: ', 'HISTFILE': '/dev/null'}
    c.process = subprocess.Popen(['bash', '--norc', '--noprofile', '--noediting', '-i'], stdin=c.slave, stdout=c.slave, stderr=c.slave, env=env, start_new_session=True,
                                 preexec_fn=lambda: __import__('fcntl').ioctl(0, termios.TIOCSCTTY, 0))
    c.until('shell: ')
    usual = termios.tcgetattr(c.slave)
    c.send(f'{run} chat --model {pack} --plan {plan} --chat-template {template} --temp 0 -n 2 --no-history\n')
    c.until('> ')
    ours = termios.tcgetattr(c.slave)
    c.send('half a li')
    c.seen('half a li')
    c.send('\x1a')
    c.until('shell: ')
    point(termios.tcgetattr(c.slave) == usual != ours, f'{term}: Ctrl-Z leaves the terminal to the shell')
    c.send('fg\n')
    said = c.until('half a li')
    point(termios.tcgetattr(c.slave) == ours and '> half a li' in said, f'{term}: fg takes it back and shows the line', repr(said))
    c.type('ne')
    got = c.messages()
    point(got == ['half a line'], f'{term}: which goes on', str(got))
    c.send('/quit\n')
    c.until('shell: ')
    point(termios.tcgetattr(c.slave) == usual, f'{term}: and at the end it is as it was')
    c.send('exit\n')
    c.process.wait(PATIENCE)


def history():
    path = f'{folder}/own/.local/state/thermocline/chat-history'
    c = Chat(home='own')
    c.type('the first')
    c.type(' a secret')
    c.send(paste('a\nb'))
    c.type('pasted')
    c.end()
    mode = lambda p: stat.S_IMODE(os.stat(p).st_mode)
    point(open(path).read() == 'the first\n/quit\n' and mode(path) == 0o600 and mode(os.path.dirname(path)) == 0o700, 'the history has what was typed, and is the user\'s alone', open(path).read())
    c = Chat(home='own')
    c.type('\x1b[A\x1b[A')
    c.type('\x12fir\n')
    got = c.messages()
    point(got == ['the first', 'the first'], 'Up and Ctrl-R find lines of earlier runs', str(got))
    c.end()
    before = open(path).read()
    c = Chat('--no-history', home='own')
    c.type('unseen')
    c.end()
    point(open(path).read() == before, '--no-history keeps none')
    with open(path, 'w') as f:
        f.write(''.join(f'line {i} {"x" * 50}\n' for i in range(3000)))
    os.chmod(path, 0o644)
    a, b = Chat(home='own'), Chat(home='own')
    point(os.path.getsize(path) <= 32768 and mode(path) == 0o600, 'it is bounded, and made private', f'{os.path.getsize(path)} {mode(path):o}')
    a.type('by a')
    b.type('by b')
    a.end()
    b.end()
    lines = open(path).read().splitlines()
    point('by a' in lines and 'by b' in lines and f'line 2999 {"x" * 50}' in lines, 'two runs at once both keep theirs', str(lines[-5:]))
    os.remove(path)
    os.symlink(f'{folder}/elsewhere', path)
    c = Chat(home='own', start=False)
    said = c.until('> ')
    point('no history' in said and '--no-history' in said and not os.path.exists(f'{folder}/elsewhere'), 'a link in its place is not followed, which is said', said)
    c.end()


def at_once():
    """Each read waits 20 ms: a pass takes a dozen seconds, and Ctrl-C does not wait for it."""
    gate = f'{folder}/gate'
    c = Chat('--io', 'pread', '--no-history', '-t', '1', n='60', memory='13MiB', env={'LD_PRELOAD': slow, 'SLOW_GATE': gate, 'SLOW_MS': '20'})
    c.send('Tell me a long story.\n')
    c.seen('.\r\n')
    while not c.read(0):
        pass
    open(gate, 'w').close()
    time.sleep(1)
    while c.read(.2):
        pass
    t = time.monotonic()
    c.send('\x03')
    c.until('\n> ')
    took = time.monotonic() - t
    os.remove(gate)
    print(f'# Ctrl-C took {took:.2f} s')
    point(took < 5, 'Ctrl-C ends an answer in the middle of a pass', f'{took}')
    c.type('And then?')
    point(len(c.messages()) == 2, 'and the talk goes on')
    c.end()


for kind in ('xterm', 'dumb'):
    editing(kind)
    held(kind)
    jobs(kind)
if EDITS:
    history()
if slow != '-':
    at_once()
done()
