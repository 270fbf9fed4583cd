"""thermo-serve from outside, by Python's own http.client: forms of answers, each equal to thermo-run's, errors, a client that leaves, memory, the
end. server.py BIN PACK PLAN TEMPLATE."""
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

BIN, PACK, PLAN, TEMPLATE = sys.argv[1:5]


class Server:
    def __init__(self, *more, engine=(), env=None):
        self.process = subprocess.Popen([f'{BIN}/thermo-serve', '--model', PACK, '--plan', PLAN, '--port', '0', '--max-body', '64KiB', '--buffers', '256KiB', '--connections', '16',
                                         *more, '--', '--chat-template', TEMPLATE,
                                         *engine], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
        line = self.process.stdout.readline()
        found = re.match(r'listening on http://127\.0\.0\.1:(\d+)\n$', line)
        if not found:
            raise SystemExit(f'Bail out! no port in {line!r}: {self.process.stderr.read()}')
        self.port = int(found[1])

    def ask(self, path, body=None, method=None, headers=None, timeout=60):
        """(status, headers, text)"""
        c = http.client.HTTPConnection('127.0.0.1', self.port, timeout=timeout)
        data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
        c.request(method or ('GET' if body is None else 'POST'), path, data, headers or {})
        r = c.getresponse()
        text = r.read()
        c.close()
        return r.status, {k.lower(): v for k, v in r.getheaders()}, text.decode()

    def events(self, path, body):
        status, headers, text = self.ask(path, {**body, 'stream': True})
        assert status == 200 and headers['content-type'] == 'text/event-stream', (status, text)
        lines = [e for e in text.split('\n\n') if e]
        assert lines[-1] == 'data: [DONE]' and all(e.startswith('data: ') for e in lines), text
        return [json.loads(e[6:]) for e in lines[:-1]]

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


def user(text, **more):
    return {'messages': [{'role': 'user', 'content': text}], 'temperature': 0, 'max_tokens': 12, **more}


def alone(text, n=12):
    """What thermo-run makes of the same message."""
    return subprocess.run([f'{BIN}/thermo-run', 'generate', '-q', '--model', PACK, '--plan', PLAN, '--temp', '0', '-n', str(n), '--chat',
                           '--chat-template', TEMPLATE, '--no-echo', '--prompt', text], capture_output=True, text=True, check=True).stdout


def error_of(answer, status):
    e = json.loads(answer[2])['error']
    assert answer[0] == status and sorted(e) == ['code', 'message', 'param', 'type'], answer
    return e


def small(s):
    r = s.ask('/health')
    point(r[0] == 200 and json.loads(r[2]) == {'status': 'ok'}, '/health', str(r))
    for path in ('/v1/models', '/models'):
        r = s.ask(path)
        m = json.loads(r[2])
        point(r[0] == 200 and m['data'][0]['id'] == 'model' and m['models'][0]['name'] == 'model', path, str(r))
    point(error_of(s.ask('/v1/nothing'), 404)['type'] == 'not_found_error', 'no such path: 404')
    r = s.ask('/v1/chat/completions')
    point(error_of(r, 405) and r[1]['allow'] == 'POST', 'no such method: 405 with Allow')


def whole(s):
    want = alone('Once upon a time')
    status, _, text = s.ask('/v1/chat/completions', user('Once upon a time', model='anything'))
    a = json.loads(text)
    choice = a['choices'][0]
    point(status == 200 and a['object'] == 'chat.completion' and a['id'].startswith('chatcmpl-') and choice['message']['role'] == 'assistant'
          and choice['finish_reason'] == 'length' and a['usage']['completion_tokens'] == 12
          and a['usage']['total_tokens'] == a['usage']['prompt_tokens'] + 12, 'a whole answer', text)
    point(choice['message']['content'].rstrip('\n') == want.rstrip('\n'), 'is what thermo-run makes', f'{want!r}\n{text}')
    events = s.events('/chat/completions', user('Once upon a time', stream_options={'include_usage': True}))
    first, last, counts = events[0], events[-2], events[-1]
    point(first['choices'][0]['delta'] == {'role': 'assistant', 'content': ''} and last['choices'][0] == {
        'index': 0, 'delta': {}, 'logprobs': None, 'finish_reason': 'length'} and counts['choices'] == [] and counts['usage'] == a['usage']
        and all(e['usage'] is None and e['object'] == 'chat.completion.chunk' and e['id'] == first['id'] for e in events[:-1]),
        'a stream: who speaks, why it ended, counts', str(events))
    text = ''.join(e['choices'][0]['delta'].get('content', '') for e in events[:-1])
    point(text == choice['message']['content'], 'and its text is the same', text)
    point('usage' not in s.events('/v1/chat/completions', user('x'))[-1], 'no counts where none are asked for')
    stop = want.split()[3]
    a = json.loads(s.ask('/v1/chat/completions', user('Once upon a time', stop=[stop]))[2])['choices'][0]
    point(a['finish_reason'] == 'stop' and stop not in a['message']['content'] and want.startswith(a['message']['content'].rstrip('\n')),
          'a stop string', str(a))


def errors(s):
    cases = [(user('x', max_token=3), 'max_token', 'the nearest is "max_tokens"'), (user('x', temperature=-1), 'temperature', 'from 0 to 100'),
             ({'temperature': 0}, 'messages', 'is missing'), (user('x', stream='yes'), 'stream', 'true or false'),
             (user('x', n=2), 'n', '1 alone'), (user('x', tools=[{}]), 'tools', 'not supported'), (user('x', stop=3), 'stop', 'neither'),
             (user('x', max_completion_tokens=5), 'max_tokens', 'differ'), (user('x', response_format={'type': 'json_object'}), 'response_format', 'alone'),
             ({'messages': [{'role': 'user', 'contents': 'x'}]}, 'messages', '"contents"'), ({'messages': 3}, 'messages', 'not an array'),
             (user('x', stream_options={'usage': True}), 'stream_options', '"usage"'), (b'{', None, 'ends in the middle'), (b'[]', None, 'no JSON object'),
             (b'', None, 'ends in the middle')]
    for body, param, message in cases:
        e = error_of(s.ask('/v1/chat/completions', body), 400)
        point(e['param'] == param and message in e['message'] and e['type'] == 'invalid_request_error', f'400: {param}, {message}', str(e))
    e = error_of(s.ask('/v1/chat/completions', user('word ' * 400)), 400)
    point(e['code'] == 'context_length_exceeded', 'more than the context', str(e))
    for extra in ({'store': True, 'user': 'u', 'metadata': {'a': 'b'}, 'n': 1, 'logprobs': False, 'response_format': {'type': 'text'}, 'seed': None},):
        r = s.ask('/v1/chat/completions', user('x', **extra))
        point(r[0] == 200, 'fields without effect, and defaults', r[2])
    e = error_of(s.ask('/v1/chat/completions', b'{"messages": "' + b'x' * (1 << 16) + b'"}'), 413)
    point('--max-body' in e['message'], 'a body that is too large: 413', str(e))


def open_ones(s):
    return [a for a in json.loads(s.ask('/slots')[2]) if a['is_processing']]


def main():
    s = Server()
    small(s)
    whole(s)
    errors(s)
    code, out, err = s.end()
    point(code == 0 and out == '' and 'ending' in err, 'SIGTERM: exit status 0', f'{code}\n{err}')
    return done()


sys.exit(main())
