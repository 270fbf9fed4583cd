"""thermo-serve with several models, and with one that is unloaded when nobody asks. server-models.py BIN FOLDER, which has models/, plans, packs, template."""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, 'tests')
from tap import done, point

BIN, DIR = sys.argv[1:3]
SANITIZED = bool(os.environ.get('SANITIZE'))
LOOKS = ('/health', '/props', '/metrics', '/slots', '/v1/models', '/v1/models/a', '/')
FORMS = {'a': 'split', 'b 2': 'bundle'}


class Server:
    def __init__(self, *more, models=True, engine=()):
        of = ['--models', f'{DIR}/models'] if models else ['--model', f'{DIR}/split.thermo', '--plan', f'{DIR}/split.json']
        self.process = subprocess.Popen([f'{BIN}/thermo-serve', *of, '--port', '0', '--max-body', '64KiB', '--buffers', '1MiB', '--connections', '60', *more,
                                         '--', '--chat-template', f'{DIR}/template', *engine], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        found = re.match(r'listening on http://127\.0\.0\.1:(\d+)\n$', line)
        if not found:
            raise SystemExit(f'Bail out! no port in {line!r}: {self.process.stderr.read()}')
        self.port = int(found[1])

    def ask(self, path, body=None, headers=None):
        c = http.client.HTTPConnection('127.0.0.1', self.port, timeout=120)
        c.request('GET' if body is None else 'POST', path, body and json.dumps(body).encode(), headers or {})
        r = c.getresponse()
        text = r.read().decode()
        c.close()
        return r.status, {k.lower(): v for k, v in r.getheaders()}, text

    def chat(self, model, **more):
        return self.ask('/v1/chat/completions', user(model, **more))

    def raw(self, path, body, buffer=None):
        """A connection that has asked."""
        c = socket.socket()
        if buffer:
            c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        c.settimeout(120)
        c.connect(('127.0.0.1', self.port))
        data = json.dumps(body).encode()
        c.sendall(b'POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n' % (path.encode(), len(data)) + data)
        return c

    def health(self):
        return json.loads(self.ask('/health')[2])

    def metric(self, name):
        return float(re.search(rf'^thermo_{name} (\S+)$', self.ask('/metrics')[2], re.M)[1])

    def until(self, name, value):
        end = time.monotonic() + 60
        while self.metric(name) != value and time.monotonic() < end:
            time.sleep(0.005)
        return self.metric(name) == value

    def kib(self, row):
        return int(re.search(rf'^{row}:\s+(\d+) kB', open(f'/proc/{self.process.pid}/status', encoding='utf-8').read(), re.M)[1])

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        out, err = self.process.communicate(timeout=120)
        point(self.process.returncode == 0, 'SIGTERM: exit status 0', f'{self.process.returncode} {out}\n{err}')
        return err


def user(model, text='A dog', **more):
    return {**({'model': model} if model else {}), 'messages': [{'role': 'user', 'content': text}], 'temperature': 0, 'max_tokens': 12, **more}


def alone(form, n=12):
    return subprocess.run([f'{BIN}/thermo-run', 'generate', '-q', '--model', f'{DIR}/{form}.thermo', '--plan', f'{DIR}/{form}.json', '--temp', '0', '-n', str(n), '--chat',
                           '--chat-template', f'{DIR}/template', '--no-echo', '--prompt', 'A dog'], capture_output=True, text=True, check=True).stdout.rstrip('\n')


def content(r):
    return json.loads(r[2])['choices'][0]['message']['content'].rstrip('\n') if r[0] == 200 else f'{r[0]}: {r[2]}'


def rest(c):
    got = b''
    try:
        while (more := c.recv(65536)):
            got += more
    except OSError as e:
        got += repr(e).encode()
    c.close()
    return got.decode(errors='replace')


def body_of(text):
    """Of a whole answer; one in chunks without what is around them."""
    head, _, left = text.partition('\r\n\r\n')
    got = ''
    while 'chunked' in head and left:
        size, _, left = left.partition('\r\n')
        got, left = got + left[:int(size, 16)], left[int(size, 16) + 2:]
    return got + left


def apart(f, *args, **more):
    got = []
    t = threading.Thread(target=lambda: got.append(f(*args, **more)))
    t.start()
    return t, got


def names(s, want):
    m = json.loads(s.ask('/v1/models')[2])
    point([x['id'] for x in m['data']] == ['a', 'b 2', 'torn'] == [x['name'] for x in m['models']], '/v1/models lists all', str(m))
    for path in LOOKS:
        s.ask(path)
    props = json.loads(s.ask('/props')[2])
    point(s.health() == {'status': 'ok', 'model': None, 'loading': None} and props['engine'] is None and json.loads(s.ask('/slots')[2]) == []
          and s.metric('model_loads_total') == 0, 'none is loaded, whoever looks', str(props))
    for model in ('a', 'b 2', 'a'):
        r = s.chat(model)
        a = json.loads(r[2])
        point(content(r) == want[model] and a['model'] == model, f"a request for '{model}' has what its model makes alone", r[2])
        loaded = [x['id'] for x in json.loads(s.ask('/v1/models')[2])['data'] if x['loaded']]
        point(s.health()['model'] == model and loaded == [model] and s.metric(re.escape(f'model_loaded{{model="{model}"}}')) == 1
              and json.loads(s.ask('/props')[2])['model_alias'] == model, 'and that is the one that is loaded', str(loaded))
    point(s.metric('model_loads_total') == 3, 'three loads')
    point(content(s.chat(None)) == want['a'] and s.metric('model_loads_total') == 3, 'without a name: the one that was used last')
    one = json.loads(s.ask('/v1/models/b%202')[2])
    point(one['id'] == 'b 2' and one['loaded'] is False and one['meta']['n_ctx'] == 256, '/v1/models/NAME', str(one))
    for r in (s.ask('/v1/models/c'), s.chat('c'), s.ask('/tokenize', {'model': 'c', 'content': 'x'})):
        point(r[0] == 404 and json.loads(r[2])['error']['code'] == 'model_not_found', 'a name that is none: 404', str(r))
    r = s.chat(5)
    point(r[0] == 400 and json.loads(r[2])['error']['param'] == 'model', 'a name that is no text: 400', str(r))
    point(s.metric('model_loads_total') == 3, 'none of these loads anything')
    ids = [s.ask('/tokenize', {'model': m, 'content': 'A dog'})[2] for m in ('a', 'b 2')]
    point(ids[0] == ids[1] and s.health()['model'] == 'b 2', '/tokenize has a model, too', str(ids))


def torn(s, want):
    for more in ({}, {'stream': True}):
        r = s.chat('torn', **more)
        e = json.loads(r[2])['error']
        point(r[0] == 500 and "'torn' cannot be opened" in e['message'] and e['param'] == 'model', 'a model that cannot be opened: 500, which says why', str(r))
    point(s.health()['model'] is None and content(s.chat('b 2')) == want['b 2'], 'and the others are served')


def waiting(s, want):
    s.chat('a')
    loads = s.metric('model_loads_total')
    long_one, first = apart(s.chat, 'a', max_tokens=200, ignore_eos=True)
    s.until('requests_open', 1)
    other, second = apart(s.chat, 'b 2')
    met = s.until('requests_waiting', 1)
    again, third = apart(s.chat, 'a', stream=True)
    met = s.until('requests_waiting', 2) and met and s.metric('requests_open') == 1
    point(met and s.health()['model'] == 'a', 'a request for another waits for what is open, and one that comes later behind it')
    leaves = s.raw('/v1/chat/completions', user('torn'))
    point(s.until('requests_waiting', 3), 'and a third')
    leaves.close()
    point(s.until('requests_waiting', 2), 'whose client leaves')
    for t in (long_one, other, again):
        t.join()
    point(json.loads(first[0][2])['usage']['completion_tokens'] == 200 and content(second[0]) == want['b 2'], 'both have what they asked for', f'{first}\n{second}')
    text = ''.join(json.loads(e[6:])['choices'][0]['delta'].get('content', '') for e in third[0][2].split('\n\n') if e.startswith('data: {'))
    point(text.rstrip('\n') == want['a'] and s.metric('model_loads_total') == loads + 2 and s.metric('requests_waiting') == 0,
          'and the later one, too, after two loads', str(third))


def held(s, want):
    """A client that reads slowly keeps a model for longer than others are patient."""
    s.chat('a')
    keeps = s.raw('/v1/chat/completions', user('a', max_tokens=230, ignore_eos=True, stream=True, logprobs=True, top_logprobs=20, n=8), 2048)
    s.until('requests_open', 8)
    message = {'messages': [{'role': 'user', 'content': 'A dog'}], 'max_tokens': 12, 'temperature': 0, 'stream': True}
    asks = [('/v1/chat/completions', user('b 2')), ('/v1/chat/completions', user('b 2', stream=True)), ('/v1/messages', {**message, 'model': 'b 2'}),
            ('/v1/messages', {**message, 'model': 'torn'}), ('/v1/chat/completions', user('torn', stream=True)), ('/v1/chat/completions', user('torn'))]
    waits = [s.raw(*a) for a in asks] + [s.raw('/v1/chat/completions', user('b 2')) for _ in range(26)]
    point(s.until('requests_waiting', 32), '32 requests wait')
    r = s.chat('b 2')
    point(r[0] == 503 and 1 <= int(r[1]['retry-after']) <= 60 and 'wait for a model' in r[2], 'one more: 503 with Retry-After', str(r))
    point(s.health()['model'] == 'a' and s.chat('a', stream=True)[0] == 503, 'also for the model that is loaded, which would go before them')
    end = time.monotonic() + 11.5
    while time.monotonic() < end:
        keeps.recv(1000)
        time.sleep(0.2)
    point(s.metric('requests_waiting') == 32, 'they wait for 11 s')
    keeps.close()
    texts = [rest(c) for c in waits]
    body = [body_of(t) for t in texts]
    point(' 200 ' in texts[0].split('\r\n')[0] and body[0].startswith(' ') and json.loads(body[0])['choices'][0]['message']['content'].rstrip('\n') == want['b 2'],
          'a whole answer: white space before it', texts[0])
    point(re.search(r'^: ', body[1], re.M) and 'data: [DONE]' in body[1] and 'no-cache' in texts[1], 'a stream: a comment', texts[1])
    point(body[2].index('event: ping') < body[2].index('event: message_start') and 'event: message_stop' in body[2], 'messages: a ping', texts[2])
    point('event: ping' in body[3] and re.search(r'event: error\ndata: \{"type":"error".*cannot be opened.*\}\n\n', body[3]), 'a ping, and an error as an event', texts[3])
    point(re.search(r'^data: \{"error".*cannot be opened.*\}\n\n', body[4], re.M), 'an error in a stream of a chat', texts[4])
    point('cannot be opened' in body[5] and ' 200 ' in texts[5].split('\r\n')[0], 'an error behind white space', texts[5])
    point(all('chat.completion' in t for t in texts[6:]), 'all others are answered')


def ending(s):
    """What is open is finished; what waits for a model is told."""
    s.chat('a')
    long_one, first = apart(s.chat, 'a', max_tokens=200, ignore_eos=True)
    s.until('requests_open', 1)
    other, second = apart(s.chat, 'b 2')
    s.until('requests_waiting', 1)
    s.end()
    long_one.join()
    other.join()
    point(json.loads(first[0][2])['usage']['completion_tokens'] == 200, 'what is open is finished', str(first))
    point(second[0][0] == 503 and 'about to end' in second[0][2], 'what waits has 503', str(second))


def early():
    """An end while a model is loaded, sooner and later."""
    bad, seen = [], set()
    for ms in (0, 2, 5, 10, 20, 40, 80):
        s = Server()
        c = s.raw('/v1/chat/completions', user('a'))
        time.sleep(ms / 1000)
        s.process.send_signal(signal.SIGTERM)
        text = rest(c)
        code = s.process.wait(120)
        what = text.split('\r\n')[0]
        seen.add(what)
        s.process.communicate()
        if code or (text and what not in ('HTTP/1.1 200 OK', 'HTTP/1.1 503 Service Unavailable') and 'ResetError' not in text):
            bad.append(f'{ms} ms: {code} {text}')
    point(not bad, f'SIGTERM while a model is loaded: exit status 0, an answer or 503 (seen: {sorted(seen)})', '\n'.join(bad))


def often(want):
    s = Server('--memory', '64MiB')
    bad, sizes = [], []
    for i in range(50):
        for model in ('a', 'b 2'):
            if (text := content(s.chat(model))) != want[model]:
                bad.append(f'{i} {model}: {text}')
        sizes.append(s.kib('VmRSS'))
        props = json.loads(s.ask('/props')[2])['engine']
        if not SANITIZED and props['peak_bytes'] > props['memory_bytes']:
            bad.append(f'{i}: {props["peak_bytes"]} bytes')
    point(not bad and s.metric('model_loads_total') == 100, 'two models in turn, a hundred loads, each with its text, within the memory limit', '\n'.join(bad))
    if not SANITIZED:
        point(max(sizes[40:]) <= max(sizes[:10]) + 1024, 'and memory does not grow', str(sizes))
    s.end()


def idle(want):
    s = Server('--idle-unload', '1', models=False)
    point(s.health()['model'] == 'split', 'one model is loaded before the port is said')
    size = s.kib('VmRSS')
    for turn in range(3):
        point(content(s.chat('any')) == want['a'], 'a text')
        end = time.monotonic() + 30
        while s.health()['model'] and time.monotonic() < end:
            for path in LOOKS:
                s.ask(path)
            time.sleep(0.05)
        point(s.health()['model'] is None, 'after a second without a request the model is unloaded, whoever looks', str(turn))
    for path in LOOKS:
        point(s.ask(path)[0] == 200, f'{path} while none is loaded')
    end = time.monotonic() + 10
    while (left := s.kib('VmRSS')) >= size / 2 and not SANITIZED and time.monotonic() < end:
        time.sleep(0.05)
    point(s.metric('model_loads_total') == 3 and json.loads(s.ask('/v1/models')[2])['data'][0]['loaded'] is False, 'that loads nothing')
    if not SANITIZED:
        point(left < size / 2 and left < 16384, 'its memory is free', f'{size} KiB, then {left}')
    many = [apart(s.chat, 'any') for _ in range(8)]
    for t, _ in many:
        t.join()
    point(all(content(got[0]) == want['a'] for _, got in many) and s.metric('model_loads_total') == 4, 'eight requests at once load it once', str(many))
    long_one, got = apart(s.chat, 'any', max_tokens=230, ignore_eos=True)
    long_one.join()
    point(got[0][0] == 200, 'a long one')
    s.end()


def limit():
    with open(f'{DIR}/keys', 'w', encoding='utf-8') as f:
        f.write('secret\n')
    s = Server('--idle-unload', '1', '--memory', '40MiB', '--api-key-file', f'{DIR}/keys', models=False, engine=['--elastic', '30MiB'])
    k = {'x-api-key': 'secret'}
    point(s.ask('/memory', {'memory': '30MiB'}, k)[0] == 200, 'another memory limit')
    while json.loads(s.ask('/health')[2])['model']:
        time.sleep(0.05)
    r = s.ask('/memory', {'memory': '40MiB'}, k)
    point(r[0] == 503 and 'no model is loaded' in r[2], 'none is changed while nothing is loaded: 503', str(r))
    s.ask('/v1/chat/completions', user(None), k)
    point(json.loads(s.ask('/props', headers=k)[2])['engine']['memory_bytes'] == 30 << 20, 'the limit holds over a load')
    s.end()


def lines():
    pair = ['--model', f'{DIR}/split.thermo', '--plan', f'{DIR}/split.json']
    for args, code, words in ((['--models', f'{DIR}/models', *pair], 2, 'does not go with it'), (['--models', f'{DIR}/models', '--name', 'x'], 2, '--name does not'),
                              ([], 2, '--model FILE is required, or --models'), (pair[:2], 2, '--plan FILE is required'), (['--models', f'{DIR}/empty'], 3, 'no subfolder'),
                              (['--models', f'{DIR}/none'], 3, 'No such file'), ([*pair, '--idle-unload', '0'], 2, 'idle-unload')):
        r = subprocess.run([f'{BIN}/thermo-serve', *args, '--port', '0'], capture_output=True, text=True, timeout=60)
        point(r.returncode == code and words in r.stderr, f'{" ".join(args[:1] + args[2:])}: exit status {code}', f'{r.returncode} {r.stderr}')


def main():
    want = {name: alone(form) for name, form in FORMS.items()}
    s = Server(engine=['--kv-positions', '2048'])
    names(s, want)
    torn(s, want)
    waiting(s, want)
    held(s, want)
    err = s.end()
    point("'torn' cannot be opened" in err and "half' has no model.thermo" in err and '/other' not in err, 'what is left out is said', err)
    ending(Server())
    early()
    often(want)
    idle(want)
    limit()
    lines()
    return done()


if __name__ == '__main__':
    sys.exit(main())
