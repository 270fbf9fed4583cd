"""What prefix.sh asks thermo-run serve: conversations whose beginnings a folder keeps. prefix.py RUN TEST DIR [--model M --plan P ...]"""
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

run, test, tmp, files = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
folder = os.path.join(tmp, 'prefixes')
PAGE = 32


class Served:
    def __init__(self, *more, where=folder, loud=False):
        cache = ['--prefix-cache', where] if where else []
        self.p = subprocess.Popen([run, 'serve', '--stdio', *files, *([] if loud else ['-q']), '--sequences', '1', '--temp', '0.7', *cache, *more],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.ready = self.line()
        assert self.ready.get('type') == 'ready', self.p.stderr.read()

    def line(self):
        line = self.p.stdout.readline()
        return json.loads(line) if line else {}

    def send(self, tokens, n=20, id='x'):
        self.p.stdin.write(json.dumps({'id': id, 'tokens': tokens, 'n': n, 'seed': 7, 'ignore_eos': True}) + '\n')
        self.p.stdin.flush()

    def ask(self, tokens, n=20, id='x'):
        self.send(tokens, n, id)
        made = []
        while (l := self.line())['type'] == 'token' or l['id'] != id:
            if l['id'] == id:
                made.append(l['token'])
        assert l['type'] == 'done', l
        return made, l

    def close(self):
        self.p.stdin.close()
        l = self.line()
        err = self.p.stderr.read()
        assert l['type'] == 'summary' and self.p.wait() == 0, (l, err)
        return l, err

    def kill(self):
        self.p.send_signal(signal.SIGKILL)
        self.p.wait()


def alone(tokens, n=20):
    s = Served(where=None)
    made, done = s.ask(tokens, n)
    assert done['shared_tokens'] == 0
    s.close()
    return made


def records(where=folder):
    return sorted(n for n in os.listdir(where) if n.endswith('.kv'))


def conversation(turns, restart, whole=True):
    """Two conversations in turns with one place; turn n begins with all of turn n - 1 and its answer."""
    said = {'a': list(range(5, 45)), 'b': list(range(60, 100))}
    s = Served()
    had = {'a': 0, 'b': 0}
    for turn in range(turns):
        for who in 'ab':
            made, done = s.ask(said[who])
            assert made == alone(said[who]), (turn, who)
            assert done['shared_tokens'] >= (had[who] - had[who] % PAGE), (turn, who, done, had)
            assert turn == 0 or done['shared_tokens'] >= PAGE
            assert whole or done['shared_tokens'] <= had[who], 'an answer that was decoded by predictions is shared'
            had[who] = len(said[who]) + (len(made) - 1 if whole else 0)
            said[who] += made + [7]
            if restart:
                s.close()
                s = Served()
    s.close()


def damaged():
    tokens = list(range(5, 5 + 4 * PAGE + 3))
    s = Served()
    expected, _ = s.ask(tokens)
    s.close()
    assert expected == alone(tokens)
    all_of = {n: open(os.path.join(folder, n), 'rb').read() for n in records()}
    assert len(all_of) >= 4
    chain = sorted(all_of, key=lambda n: len(all_of[n]))
    rnd = random.Random(3)
    for trial in range(24):
        for n, data in all_of.items():
            path = os.path.join(folder, n)
            if os.path.lexists(path):
                os.unlink(path)
            with open(path, 'wb') as f:
                f.write(data)
        name = chain[rnd.randrange(4)]
        data = bytearray(all_of[name])
        kind = trial % 6
        if kind == 0:
            data[rnd.randrange(80)] ^= 1 << rnd.randrange(8)
        elif kind == 1:
            data[rnd.randrange(80, len(data))] ^= 1 << rnd.randrange(8)
        elif kind == 2:
            data = data[:rnd.randrange(len(data))]
        elif kind == 3:
            data += b'x'
        elif kind == 4:
            data = bytearray(all_of[chain[(chain.index(name) + 1) % 4]])
        path = os.path.join(folder, name)
        os.unlink(path)
        if kind == 5: # a link to what is right: not followed, and what it leads to stays
            with open(os.path.join(tmp, 'elsewhere'), 'wb') as f:
                f.write(data)
            os.symlink(os.path.join(tmp, 'elsewhere'), path)
        else:
            with open(path, 'wb') as f:
                f.write(data)
        os.makedirs(os.path.join(folder, 'mine'), exist_ok=True)
        s = Served()
        made, done = s.ask(tokens)
        assert made == expected, (trial, kind)
        assert done['shared_tokens'] == chain.index(name) * PAGE, (trial, kind, done)
        s.close()
        with open(path, 'rb') as f:
            assert f.read() == all_of[name], (trial, 'is not there again')
        assert not os.path.islink(path)
        if kind == 5:
            with open(os.path.join(tmp, 'elsewhere'), 'rb') as f:
                assert f.read() == all_of[name]
    assert os.path.isdir(os.path.join(folder, 'mine'))


def killed():
    """At random moments while it writes: what is there then is right, and goes on being used."""
    rnd = random.Random(int(os.environ.get('SEED', '1')))
    texts = [[rnd.randrange(5, 200) for _ in range(6 * PAGE + 5)] for _ in range(3)]
    expected = [alone(t, 4) for t in texts]
    shared = 0
    for trial in range(int(os.environ.get('TRIALS') or 12)):
        s = Served()
        for t in rnd.sample(range(3), 3):
            s.send(texts[t], 4)
        time.sleep(rnd.random() * (0.06 if trial % 2 else 0.4))
        s.kill()
        for n in records():
            assert os.path.getsize(os.path.join(folder, n)) > 80
        if trial % 3 == 2:
            s = Served()
            for t in range(3):
                made, done = s.ask(texts[t], 4)
                assert made == expected[t], (trial, t)
                shared += done['shared_tokens']
            _, err = s.close()
            assert 'damaged' not in err, err
            assert not [n for n in os.listdir(folder) if n.endswith('.tmp')]
            for n in rnd.sample(records(), len(records()) // 4):
                os.unlink(os.path.join(folder, n))
    assert shared > 0


def there(fn):
    """fn of each record's path, but for those that a server removes meanwhile."""
    for n in records():
        try:
            yield fn(os.path.join(folder, n))
        except FileNotFoundError:
            pass


def size():
    return sum(there(os.path.getsize))


def older():
    def one(path):
        st = os.stat(path)
        os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns - 3600 * 10 ** 9))

    list(there(one))


def bounded():
    """Two processes, three conversations each of three pages, room for eight pages: the sum is kept at any time, what is used stays."""
    text = lambda k: [k] * (3 * PAGE) + list(range(5, 30))
    s = Served()
    s.ask(text(39)[:PAGE + 1], 1)
    s.close()
    most = 9 * os.path.getsize(os.path.join(folder, records()[0])) - PAGE * 4
    shutil.rmtree(folder)
    serve = lambda: Served('--prefix-cache-size', '%dB' % most)
    two = [serve(), serve()]
    for k in range(40, 46):
        made, _ = two[k % 2].ask(text(k), 4)
        time.sleep(0.2)
        assert k % 3 or made == alone(text(k), 4)
        older()
        assert size() <= most
        if k >= 41:
            s = serve()
            assert s.ask(text(40), 1)[1]['shared_tokens'] == 3 * PAGE, k
            s.close()
    for s in two:
        s.close()
    assert most // 2 < size() <= most, (size(), most)
    s = serve()
    assert s.ask(text(40), 4)[1]['shared_tokens'] == 3 * PAGE
    assert s.ask(text(41), 4)[1]['shared_tokens'] < 3 * PAGE
    s.close()


def ahead():
    """A clock that was ahead is set right: what was kept by it gives way to what is used now."""
    text = lambda k: [k] * (PAGE + 5)
    s = Served()
    s.ask(text(39), 1)
    s.close()
    most = 2 * os.path.getsize(os.path.join(folder, records()[0])) + 256 * 4
    shutil.rmtree(folder)
    for k in 40, 50:
        for n in records() if os.path.isdir(folder) else []:
            os.utime(os.path.join(folder, n), (time.time() + 86400,) * 2)
        s = Served('--prefix-cache-size', '%dB' % most)
        s.ask(text(k), 1)
        s.ask(text(k + 1), 1)
        s.close()
    s = Served('--prefix-cache-size', '%dB' % most)
    assert s.ask(text(50), 1)[1]['shared_tokens'] == PAGE and size() <= most
    s.close()


def others():
    """Another model's, another mode's and another KV type's records are not this one's."""
    tokens = list(range(5, 5 + 3 * PAGE))
    s = Served('--kv', 'f32')
    s.ask(tokens, 1)
    s.close()
    there = records()
    s = Served('--kv', 'f16')
    _, done = s.ask(tokens, 1)
    s.close()
    assert done['shared_tokens'] == 0 and len(records()) == 2 * len(there) > 0, (there, records())


def full():
    """No file may be larger than 4 KiB: nothing is kept, it is said once, and the texts are what they are."""
    import resource
    tokens = list(range(5, 5 + 4 * PAGE))
    expected = alone(tokens)
    was = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, was[1]))
    s = Served(loud=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, was)
    for _ in range(3):
        assert s.ask(tokens)[0] == expected
    last, err = s.close()
    assert err.count('--prefix-cache') == 1 and 'File too large' in err, err
    assert records() == [] and not [n for n in os.listdir(folder) if n.endswith('.tmp')]


def states(restart):
    """A prompt goes on from the last whole page of the one before it; without a restart from its end."""
    said = {'a': list(range(5, 45)), 'b': list(range(60, 100))}
    where = folder if restart else None
    s = Served(where=where)
    had = {'a': 0, 'b': 0}
    for turn in range(4):
        for who in 'ab':
            made, done = s.ask(said[who])
            assert made == alone(said[who]), (turn, who)
            assert done['shared_tokens'] == had[who], (turn, who, done, had)
            had[who] = (len(said[who]) - 1) // PAGE * PAGE
            said[who] += made + [7]
            if restart:
                s.close()
                s = Served()
    s.close()
    if not restart: # the same again, and one that ends elsewhere
        s = Served(where=None)
        s.ask(said['a'])
        made, done = s.ask(said['a'][:70] + [9, 8])
        assert made == alone(said['a'][:70] + [9, 8]) and done['shared_tokens'] == 0, done
        made, done = s.ask(said['a'])
        assert made == alone(said['a']) and done['shared_tokens'] == (len(said['a']) - 1) // PAGE * PAGE, done
        s.close()


def given_up():
    """A request that is cancelled while it reads its prompt, in small chunks, and comes again."""
    tokens = [5 + k % 90 for k in range(230)]
    s = Served('--prefill-chunk', '2', where=None)
    s.ask(tokens[:97], 1)
    for trial in range(6):
        name = 'given up %d' % trial
        text = tokens[:97] + [7 + trial] + tokens[98:]
        s.send(text, 4, name)
        time.sleep(0.004 * trial)
        s.p.stdin.write(json.dumps({'cancel': name}) + '\n')
        s.p.stdin.flush()
        made, done = s.ask(text, 4)
        assert made == alone(text, 4) and done['shared_tokens'] >= 96, done
    s.close()


def state_damaged():
    tokens = [5 + k % 90 for k in range(4 * PAGE + 3)]
    s = Served()
    expected, _ = s.ask(tokens, 4)
    s.close()
    assert expected == alone(tokens, 4)
    all_of = {n: open(os.path.join(folder, n), 'rb').read() for n in records()}
    is_state = lambda n: all_of[n][12] == 2
    assert sorted(map(is_state, all_of)) == [False] * 4 + [True]
    rnd = random.Random(5)
    for trial in range(10):
        for n, data in all_of.items():
            with open(os.path.join(folder, n), 'wb') as f:
                f.write(data)
        name = rnd.choice(list(all_of)) if trial % 2 else next(filter(is_state, all_of))
        data = bytearray(all_of[name])
        data[rnd.randrange(len(data))] ^= 4
        with open(os.path.join(folder, name), 'wb') as f:
            f.write(data)
        s = Served()
        made, done = s.ask(tokens, 4)
        assert made == expected and done['shared_tokens'] == 0, (trial, done)
        s.close()
    s = Served()
    made, done = s.ask(tokens, 4)
    assert made == expected and done['shared_tokens'] == 4 * PAGE, done
    s.close()


if test == 'turns':
    conversation(4, False)
elif test in ('restarts', 'predicted'):
    conversation(3, True, test == 'restarts')
else:
    {'states': lambda: states(False), 'state-restarts': lambda: states(True), 'given-up': given_up, 'state-damaged': state_damaged,
     'damaged': damaged, 'killed': killed, 'bounded': bounded, 'others': others, 'full': full, 'ahead': ahead}[test]()
