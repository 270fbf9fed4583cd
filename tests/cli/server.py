"""thermo-serve from outside, by Python's own http.client: forms of answers, each equal to thermo-run's, errors, a client that leaves, memory, the
end. server.py BIN PACK PLAN TEMPLATE."""
import base64
import hashlib
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
        self.process = subprocess.Popen([f'{BIN}/thermo-serve', '--model', PACK, '--plan', PLAN, '--port', '0', '--max-body', '64KiB', '--buffers', '1MiB', '--connections', '48',
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
        lines = [e for e in text.split('\n\n') if e and not e.startswith(':')]  # a sign of life
        assert lines[-1] == 'data: [DONE]' and all(e.startswith('data: ') for e in lines), text
        return [json.loads(e[6:]) for e in lines[:-1]]

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        out, err = self.process.communicate(timeout=60)
        if self.process.returncode:
            point(False, 'the server ends with exit status 0', f'{self.process.returncode}\n{err}')
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
    point(r[0] == 200 and json.loads(r[2]) == {'status': 'ok', 'model': 'split', 'loading': None}, '/health', str(r))
    r = s.ask('/')
    policy, style, script = r[1]['content-security-policy'], re.search(r'<style>(.*)</style>', r[2], re.S)[1], re.search(r'<script>(.*)</script>', r[2], re.S)[1]
    point(r[0] == 200 and r[1]['content-type'] == 'text/html; charset=utf-8' and int(r[1]['content-length']) < 65536 and "default-src 'none'" in policy
          and all(base64.b64encode(hashlib.sha256(t.encode()).digest()).decode() in policy for t in (style, script)), 'the page: its policy knows its style and its program', policy)
    point(not re.search(r'''innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function|DOMParser|createContextual|(?:src|href)="(?!#|data:)''', r[2]), 'and no text becomes HTML')
    error_of(s.ask('/', {}), 405)
    for path in ('/v1/models', '/models'):
        r = s.ask(path)
        m = json.loads(r[2])
        point(r[0] == 200 and m['data'][0]['id'] == 'split' and m['models'][0]['name'] == 'split', path, str(r))
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


TOOL = {'type': 'function', 'function': {'name': 'f', 'strict': True, 'parameters': {'type': 'object', 'properties': {
    'x': {'type': 'integer', 'minimum': 3, 'maximum': 44}, 'how': {'enum': ['a', 'b']}}, 'required': ['x', 'how'], 'additionalProperties': False}}}


def errors(s):
    cases = [(user('x', max_token=3), 'max_token', 'the nearest is "max_tokens"'), (user('x', temperature=-1), 'temperature', 'from 0 to 100'),
             ({'temperature': 0}, 'messages', 'is missing'), (user('x', stream='yes'), 'stream', 'true or false'),
             (user('x', tools=[{}]), 'tools', 'functions are what'), (user('x', tools=[{'type': 'function', 'function': {}}]), 'tools', '"name"'), (user('x', tool_choice='required'), 'tool_choice', 'no "tools"'),
             (user('x', tools=[TOOL], tool_choice='any'), 'tool_choice', 'is not "none"'), (user('x', tools=[TOOL], tool_choice={'type': 'custom'}), 'tool_choice', 'or a function'),
             (user('x', tools=[TOOL], tool_choice={'type': 'function', 'function': {'name': 'g'}}), 'tool_choice', 'has no "g"'),
             (user('x', tools=[TOOL], tool_choice={'type': 'function', 'name': 'f'}), 'tool_choice', '"name"'), (user('x', parallel_tool_calls=1), 'parallel_tool_calls', 'true or false'),
             (user('x', tools=[{'type': 'function', 'function': {'name': 'f', 'strict': True, 'parameters': {'not': {}}}}], tool_choice='required'), 'tools', 'schema: not supported: "not"'),
             (user('x', tools=[TOOL], tool_choice='required', response_format={'type': 'json_object'}), 'tool_choice', 'an answer is a call'),
             (user('x', stop=3), 'stop', 'neither'),
             (user('x', max_completion_tokens=5), 'max_tokens', 'differ'), (user('x', response_format={'type': 'grammar'}), 'response_format', 'none of'), (user('x', response_format={'type': 'json_schema', 'json_schema': {
                 'schema': {'not': {}}}}), 'response_format', '"not"'),
             ({'messages': [{'role': 'user', 'contents': 'x'}]}, 'messages', '"contents"'), ({'messages': 3}, 'messages', 'not an array'),
             (user('x', stream_options={'usage': True}), 'stream_options', '"usage"'), (b'{', None, 'ends in the middle'), (b'[]', None, 'no JSON object'),
             (b'', None, 'ends in the middle')]
    for body, param, message in cases:
        e = error_of(s.ask('/v1/chat/completions', body), 400)
        point(e['param'] == param and message in e['message'] and e['type'] == 'invalid_request_error', f'400: {param}, {message}', str(e))
    e = error_of(s.ask('/v1/chat/completions', user('word ' * 400)), 400)
    point(e['code'] == 'context_length_exceeded' and e['param'] == 'messages' and re.match(r'prompt is too long: \d+ tokens > 255 maximum', e['message']), 'more than the context', str(e))
    for extra, param in (({'stop': 'x' * 5000}, 'stop'), ({'stop': ['x'] * 3000}, 'stop'), ({'logit_bias': {str(i): 1 for i in range(2000)}}, 'logit_bias')):
        e = error_of(s.ask('/v1/chat/completions', user('x', **extra)), 400)
        point(e['param'] == param and e['code'] is None, f'more than fits of {param}', str(e))
    for extra in ({'store': True, 'user': 'u', 'metadata': {'a': 'b'}, 'n': 1, 'logprobs': False, 'response_format': {'type': 'text'}, 'seed': None},):
        r = s.ask('/v1/chat/completions', user('x', **extra))
        point(r[0] == 200, 'fields without effect, and defaults', r[2])
    for prompt, code in (([7] * 4000, 'context_length_exceeded'), ([1 << 30], None)):
        e = error_of(s.ask('/v1/completions', {'prompt': prompt}), 400)
        point(e['param'] == 'prompt' and e['code'] == code, 'token ids: too many, and one that is none', str(e))
    for extra in ({'seed': -(1 << 63)}, {'seed': (1 << 63) - 1}, {'max_tokens': 2147483647, 'stop': ' '}):
        r = s.ask('/v1/chat/completions', user('x', **{'max_tokens': 2, **extra}))
        point(r[0] == 200, 'seeds of 64 bits, more tokens than a context has', r[2])
    e = error_of(s.ask('/v1/chat/completions', b'{"messages": "' + b'x' * (1 << 16) + b'"}'), 413)
    point('--max-body' in e['message'], 'a body that is too large: 413', str(e))


def open_ones(s):
    return [a for a in json.loads(s.ask('/slots')[2]) if a['is_processing']]


def metric(s, name):
    return float(re.search(rf'^thermo_{name} (\S+)$', s.ask('/metrics')[2], re.M)[1])


def content(answer):
    return json.loads(answer[2])['choices'][0]['message']['content']


def several(s):
    """Choices, log-probabilities, penalties, biases."""
    want = [content(s.ask('/v1/chat/completions', user('A cat', temperature=1, seed=7 + i))) for i in range(3)]
    a = json.loads(s.ask('/v1/chat/completions', user('A cat', temperature=1, seed=7, n=3))[2])
    got = [c['message']['content'] for c in a['choices']]
    point(got == want and [c['index'] for c in a['choices']] == [0, 1, 2] and a['usage']['completion_tokens'] == 36, 'n: each is what it is alone', str(a))
    events = s.events('/v1/chat/completions', user('A cat', temperature=1, seed=7, n=3))
    texts = ['', '', '']
    for e in events:
        texts[e['choices'][0]['index']] += e['choices'][0]['delta'].get('content', '')
    roles = sum('role' in e['choices'][0]['delta'] for e in events)
    ends = sum(e['choices'][0]['finish_reason'] is not None for e in events)
    point(texts == want and roles == ends == 3, 'n, streamed', str(events))
    a = json.loads(s.ask('/v1/chat/completions', user('A cat', logprobs=True, top_logprobs=3))[2])['choices'][0]
    tokens = a['logprobs']['content']
    text = b''.join(bytes(t['bytes']) for t in tokens).decode()
    point(len(tokens) == 12 and text == a['message']['content'] and all(len(t['top_logprobs']) == 3 and t['logprob'] == t['top_logprobs'][0]['logprob']
          and t['logprob'] <= 0 for t in tokens), 'logprobs of a greedy text: each token is the likeliest', str(a))
    events = s.events('/v1/chat/completions', user('A cat', logprobs=True, top_logprobs=3))
    streamed = [t for e in events if e['choices'][0]['logprobs'] for t in e['choices'][0]['logprobs']['content']]
    point(streamed == tokens, 'logprobs, streamed', str(events[:3]))
    ids = json.loads(s.ask('/tokenize', {'content': a['message']['content']})[2])['tokens']
    other = content(s.ask('/v1/chat/completions', user('A cat', logit_bias={str(ids[-1]): 100}, max_tokens=3)))
    point(other == json.loads(s.ask('/detokenize', {'tokens': ids[-1:] * 3})[2])['content'], 'logit_bias', f'{ids} {other}')
    e = error_of(s.ask('/v1/chat/completions', user('x', n=9)), 400)
    point(e['param'] == 'n' and '8 sequences' in e['message'], 'more choices than sequences', str(e))
    e = error_of(s.ask('/v1/chat/completions', user('x', top_logprobs=3)), 400)
    point(e['param'] == 'top_logprobs', 'top_logprobs without logprobs', str(e))


def prompts(s):
    """Several prompts of one request, each as it is alone."""
    ids = json.loads(s.ask('/tokenize', {'content': 'The king', 'add_special': True})[2])['tokens']
    how = {'max_tokens': 12, 'temperature': 1, 'seed': 5}
    asked = ['Once upon', ids, 'A "cat"\n', [ids[0]]]
    alone = [json.loads(s.ask('/v1/completions', {**how, 'prompt': p, 'n': 2})[2]) for p in asked]
    want = [c['text'] for a in alone for c in a['choices']]
    a = json.loads(s.ask('/v1/completions', {**how, 'prompt': asked, 'n': 2})[2])
    point([c['text'] for c in a['choices']] == want and [c['index'] for c in a['choices']] == list(range(8)) and len(set(want)) > 4, 'four prompts, two answers to each: as alone', f'{a}\n{want}')
    point(all(a['usage'][k] == sum(x['usage'][k] for x in alone) for k in ('prompt_tokens', 'completion_tokens', 'total_tokens')), 'usage is of all of them', f"{a['usage']}")
    for echo in (False, True):
        strings = [p for p in asked if isinstance(p, str)] if echo else asked
        events = s.events('/v1/completions', {**how, 'prompt': strings, 'n': 2, 'echo': echo, 'stream_options': {'include_usage': True}})
        got = [''.join(e['choices'][0]['text'] for e in events if e['choices'] and e['choices'][0]['index'] == i) for i in range(2 * len(strings))]
        expect = [strings[i // 2] + want[2 * asked.index(strings[i // 2]) + i % 2] for i in range(len(got))] if echo else want
        ends = sorted(e['choices'][0]['index'] for e in events if e['choices'] and e['choices'][0]['finish_reason'])
        point(got == expect and ends == list(range(len(got))) and events[-1]['usage']['completion_tokens'] >= len(got), f'streamed, echo {echo}', f'{got}\n{expect}\n{ends}')
    events = s.events('/v1/completions', {'prompt': ['a', 'b', 'c'], 'max_tokens': 0, 'echo': True})
    point([e['choices'][0]['text'] for e in events if e['choices'][0]['text']] == ['a', 'b', 'c'] and sum(e['choices'][0]['finish_reason'] == 'length' for e in events) == 3,
          'what ends at once does so after all have been taken', str(events))
    for body, words in (({'prompt': ['a'] * 33}, '32 places'), ({'prompt': ['a'] * 17, 'n': 2}, '32 places')):
        e = error_of(s.ask('/v1/completions', body), 400)
        point(e['param'] == 'prompt' and words in e['message'], f'more prompts than there are places: 400, {words}', str(e))
    while open_ones(s):
        time.sleep(0.01)


def scored(s):
    """Log-probabilities of prompts: those that the same tokens have where they are made."""
    how = {'max_tokens': 10, 'temperature': 0, 'logprobs': 2}
    tokens = json.loads(s.ask('/tokenize', {'content': 'Once upon a', 'add_special': True})[2])['tokens']
    made = json.loads(s.ask('/v1/completions', {**how, 'prompt': tokens})[2])['choices'][0]
    ids = json.loads(s.ask('/tokenize', {'content': 'Once upon a' + made['text'], 'add_special': True})[2])['tokens']
    assert len(ids) == len(tokens) + 10, (ids, made)
    a = json.loads(s.ask('/v1/completions', {**how, 'prompt': ids, 'echo': True, 'max_tokens': 0})[2])
    c, u = a['choices'][0], a['usage']
    p = c['logprobs']
    point(p['token_logprobs'][0] is None and p['top_logprobs'][0] is None and p['token_logprobs'][len(tokens):] == made['logprobs']['token_logprobs']
          and p['tokens'][len(tokens):] == made['logprobs']['tokens'] and p['top_logprobs'][len(tokens):] == made['logprobs']['top_logprobs'] and all(x < 0 for x in p['token_logprobs'][1:]),
          'echo and logprobs: of a prompt, as of what is made', f'{a} {made}')
    point(c['text'] == ''.join(p['tokens']) and c['finish_reason'] == 'length' and u['completion_tokens'] == 0 and u['prompt_tokens'] == len(ids) and u['prompt_tokens_details']['cached_tokens'] == 0,
          'the text is that of the tokens; nothing of it counts as read before', str(a))
    ask = {**how, 'prompt': ['Once upon a', 'The king', tokens], 'echo': True, 'n': 2, 'max_tokens': 4, 'temperature': 1, 'seed': 3}
    a = json.loads(s.ask('/v1/completions', ask)[2])['choices']
    plain = json.loads(s.ask('/v1/completions', {**ask, 'echo': False})[2])['choices']
    for x, y in zip(a, plain):
        p, n = x['logprobs'], len(y['logprobs']['tokens'])
        assert all(len(v) == len(p['tokens']) for v in p.values()), x
        at = x['text'].index(y['text'], 4) if y['text'] else 0
        point(all(p[k][-n:] == y['logprobs'][k] for k in ('tokens', 'token_logprobs')) and x['text'].endswith(y['text']) and (not n or p['text_offset'][-n] == at)
              and p['tokens'][1].strip() == x['text'].split()[0][:len(p['tokens'][1].strip())], f"choice {x['index']}: what is made is as it is without", f'{x}\n{y}')
    events = s.events('/v1/completions', ask)
    got = [{'text': '', 'logprobs': {k: [] for k in a[0]['logprobs']}} for _ in a]
    for c in (e['choices'][0] for e in events):
        got[c['index']]['text'] += c['text']
        for k, v in (c['logprobs'] or {}).items():
            got[c['index']]['logprobs'][k] += v
    point([(x['text'], x['logprobs']) for x in got] == [(x['text'], x['logprobs']) for x in a], 'streamed: all of that', f'{got}\n{a}')
    e = error_of(s.ask('/v1/completions', {'prompt': [7] * 250, 'echo': True, 'max_tokens': 0, 'logprobs': 20, 'n': 8}), 400)
    point('--max-body' in e['message'], 'more of them than an answer may have: 400', str(e))
    point(json.loads(s.ask('/v1/completions', {'prompt': tokens, 'echo': True, 'max_tokens': 0})[2])['choices'][0]['text'] == ' Once upon a', 'echo of tokens')
    while open_ones(s):
        time.sleep(0.01)


def shaped(s):
    """Answers that are JSON of a schema; calls of tools."""
    schema = {'type': 'object', 'properties': {'name': {'type': 'string', 'maxLength': 8}, 'n': {'type': 'integer', 'minimum': 0, 'maximum': 99}},
              'required': ['name', 'n'], 'additionalProperties': False}
    ask = user('A cat', max_tokens=100, temperature=1, seed=3, response_format={'type': 'json_schema', 'json_schema': {'name': 'x', 'strict': True, 'schema': schema}})
    c = json.loads(s.ask('/v1/chat/completions', ask)[2])['choices'][0]
    a = json.loads(c['message']['content'])
    point(sorted(a) == ['n', 'name'] and 0 <= a['n'] <= 99 and len(a['name']) <= 8 and c['finish_reason'] == 'stop', 'response_format: json_schema', str(c))
    text = ''.join(e['choices'][0]['delta'].get('content', '') for e in s.events('/v1/chat/completions', ask))
    point(text == c['message']['content'], 'streamed', text)
    tools = [{'type': 'function', 'function': {'name': 'f', 'parameters': {'type': 'object', 'properties': {'x': {'type': 'integer'}}}}}]
    made = {'type': 'json_schema', 'json_schema': {'schema': {'const': {'name': 'f', 'parameters': {'x': 7}}}}} # what the model would write
    ask = user('A cat', max_tokens=100, tools=tools, response_format=made, seed=5)
    c = json.loads(s.ask('/v1/chat/completions', ask)[2])['choices'][0]
    call = c['message']['tool_calls'][0]
    point(c['finish_reason'] == 'tool_calls' and c['message']['content'] is None and call['type'] == 'function' and call['function']['name'] == 'f'
          and json.loads(call['function']['arguments']) == {'x': 7} and call['id'], 'a call of a tool', str(c))
    events = [e['choices'][0] for e in s.events('/v1/chat/completions', ask)]
    calls = [x for e in events for x in e['delta'].get('tool_calls', [])]
    point(calls == [{'index': 0, **call}] and events[-1]['finish_reason'] == 'tool_calls', 'streamed, the same', str(events))
    c = json.loads(s.ask('/v1/chat/completions', {**ask, 'tool_choice': 'none'})[2])['choices'][0]
    point('tool_calls' not in c['message'] and json.loads(c['message']['content']) == {'name': 'f', 'parameters': {'x': 7}}, 'tool_choice none: it is text', str(c))
    other = {'type': 'function', 'function': {'name': 'get_time', 'parameters': {'type': 'object', 'properties': {}}}}
    named = {'type': 'function', 'function': {'name': 'f'}}
    for choice, seed in [('required', 1), ('required', 2), (named, 3), (named, 4)]:
        forced = user('A cat', max_tokens=200, temperature=1.5, seed=seed, tools=[TOOL, other], tool_choice=choice, parallel_tool_calls=seed == 2)
        c = json.loads(s.ask('/v1/chat/completions', forced)[2])['choices'][0]
        made = c['message'].get('tool_calls', [])
        a = json.loads(made[0]['function']['arguments']) if made else None
        fits = a == {} if made and made[0]['function']['name'] == 'get_time' else a and list(a) == ['x', 'how'] and 3 <= a['x'] <= 44 and a['how'] in 'ab'
        point(len(made) == 1 and c['finish_reason'] == 'tool_calls' and c['message']['content'] is None and fits and (choice == 'required' or made[0]['function']['name'] == 'f'),
              f'a forced call, {choice}', str(c))
        events = [e['choices'][0] for e in s.events('/v1/chat/completions', forced)]
        point([x for e in events for x in e['delta'].get('tool_calls', [])] == [{'index': 0, **x} for x in made], 'streamed, the same', str(events))
    after = [{'role': 'user', 'content': 'A cat'}, {'role': 'assistant', 'content': None, 'tool_calls': [call]}, {'role': 'tool', 'tool_call_id': call['id'], 'content': '8'}]
    r = s.ask('/v1/chat/completions', {'messages': after, 'max_tokens': 4, 'tools': tools})
    point(r[0] == 200, 'a conversation with a call and what came of it', r[2])


def texts(s):
    want = content(s.ask('/v1/chat/completions', user('Once upon a time')))
    prompt = json.loads(s.ask('/apply-template', {'messages': user('Once upon a time')['messages']})[2])['prompt']
    point(prompt == '[user] Once upon a time\n[teller]', '/apply-template', prompt)
    a = json.loads(s.ask('/v1/completions', {'prompt': prompt, 'max_tokens': 12, 'temperature': 0, 'logprobs': 2})[2])
    c = a['choices'][0]
    point(a['object'] == 'text_completion' and c['text'] == want and len(c['logprobs']['tokens']) == 12 and len(c['logprobs']['top_logprobs'][0]) == 2
          and c['logprobs']['text_offset'][1] == len(c['logprobs']['tokens'][0]), '/v1/completions of that text', str(a))
    events = s.events('/completions', {'prompt': [prompt], 'max_tokens': 12, 'temperature': 0})
    point(''.join(e['choices'][0]['text'] for e in events) == want and events[-1]['choices'][0]['finish_reason'] == 'length', 'streamed', str(events))
    for n in (1, 2):
        a = json.loads(s.ask('/v1/completions', {'prompt': prompt, 'max_tokens': 12, 'temperature': 0, 'echo': True, 'n': n})[2])
        events = s.events('/v1/completions', {'prompt': [prompt], 'max_tokens': 12, 'temperature': 0, 'echo': True, 'n': n})
        got = [''.join(e['choices'][0]['text'] for e in events if e['choices'][0]['index'] == i) for i in range(n)]
        point([c['text'] for c in a['choices']] == got == [prompt + want] * n, f'echo: the prompt before each of {n}', f'{a} {got}')
    held = {'prompt': prompt, 'max_tokens': 12, 'temperature': 0, 'logprobs': 0, 'stop': [t + 'Q' for t in want.split(' ') if t][:8]}
    whole = json.loads(s.ask('/v1/completions', held)[2])['choices'][0]['logprobs']
    parts = [e['choices'][0]['logprobs'] for e in s.events('/completions', held) if e['choices'] and e['choices'][0]['logprobs']]
    at = [sum(map(len, whole['tokens'][:i])) for i in range(len(whole['tokens']))]
    point(whole['text_offset'] == at and [p['text_offset'][0] for p in parts] == at, 'offsets are of the tokens, also while text is held back', str(whole))
    a = json.loads(s.ask('/v1/completions', {'prompt': 'Once'})[2])
    point(a['usage']['completion_tokens'] <= 16, 'sixteen tokens where it says no number', str(a))
    tokens = json.loads(s.ask('/tokenize', {'content': prompt, 'add_special': True})[2])['tokens']
    plain = json.loads(s.ask('/tokenize', {'content': prompt, 'with_pieces': True})[2])['tokens']
    point([t['id'] for t in plain] == tokens[len(tokens) - len(plain):] and ''.join(t['piece'] for t in plain).strip() == prompt.strip(), '/tokenize', f'{tokens}\n{plain}')
    back = json.loads(s.ask('/detokenize', {'tokens': [t['id'] for t in plain]})[2])['content']
    point(back.strip() == prompt.strip(), '/detokenize', back)
    a = json.loads(s.ask('/v1/completions', {'prompt': tokens, 'max_tokens': 12, 'temperature': 0})[2])
    point(a['choices'][0]['text'] == want, '/v1/completions of its tokens', str(a))
    spelled = 'a</s><s>b'
    special = len(json.loads(s.ask('/tokenize', {'content': spelled, 'parse_special': True})[2])['tokens'])
    plain = json.loads(s.ask('/tokenize', {'content': f'[user] {spelled}\n[teller]', 'add_special': True})[2])['tokens']
    a = json.loads(s.ask('/v1/chat/completions', user(spelled, max_tokens=1))[2])
    point(special < len(json.loads(s.ask('/tokenize', {'content': spelled})[2])['tokens']) and a['usage']['prompt_tokens'] == len(plain),
          'control tokens that a message spells are text', f'{special} {plain} {a}')
    forced = json.loads(s.ask('/v1/completions', {'prompt': spelled, 'max_tokens': 1, 'parse_special': True})[2])['usage']['prompt_tokens']
    free = json.loads(s.ask('/v1/completions', {'prompt': spelled, 'max_tokens': 1})[2])['usage']['prompt_tokens']
    point(forced < free, 'and are found in a prompt that asks for it', f'{forced} {free}')
    for path, body, param in (('/tokenize', {'content': 3}, 'content'), ('/tokenize', {'content': 'x', 'add_special': 1}, 'add_special'), ('/tokenize', {'content': 'x', 'with_pieces': 'no'}, 'with_pieces'),
                              ('/v1/completions', {'prompt': 'x', 'parse_special': 1}, 'parse_special'), ('/v1/completions', {'prompt': 'x', 'suffix': 'y'}, 'suffix'), ('/v1/chat/completions', user('x', parse_special=True), 'parse_special'), ('/detokenize', {'tokens': ['a']}, 'tokens'), ('/tokenize', {'text': 'x'}, 'text'),
                              ('/v1/completions', {'prompt': ['a', 3]}, 'prompt'), ('/v1/completions', {'prompt': []}, 'prompt'), ('/v1/completions', {'prompt': ['a', []]}, 'prompt'), ('/v1/completions', {'prompt': ['a', 'word ' * 400]}, 'prompt'),
                              ('/v1/completions', {}, 'prompt'), ('/apply-template', {}, 'messages')):
        e = error_of(s.ask(path, body), 400)
        point(e['param'] == param, f'{path} {body}: 400', str(e))
    for path in ('/props', '/v1/props'):
        p = json.loads(s.ask(path)[2])
        point(p['total_slots'] == 8 and p['engine']['sequences'] == 8, path, str(p))
    m = s.ask('/metrics')
    point(m[1]['content-type'].startswith('text/plain') and metric(s, 'tokens_total') > 0 and metric(s, 'read_bytes_total') >= 0 and metric(s, 'decode_tokens_total') > 0 and metric(s, 'tokens_per_second') > 0
          and metric(s, 'decode_seconds_total') > 0 and 0 <= metric(s, 'cache_hit_rate') <= 1, '/metrics', m[2])
    point(json.loads(s.ask('/v1/models/any')[2])['id'] == 'split', '/v1/models/NAME')


def raw(s, text, wait=b'\r\n\r\n'):
    """What comes for these bytes, at least to the end of the headers."""
    c = socket.create_connection(('127.0.0.1', s.port), timeout=60)
    c.sendall(text)
    got = b''
    while wait not in got and (more := c.recv(65536)):
        got += more
    c.close()
    return got.decode()


def targets(s):
    """A target that names its host; a body that waits to be asked for."""
    for host, status in (('localhost', 200), (f'127.0.0.1:{s.port}', 200), ('evil.example', 403)):
        r = raw(s, f'GET http://{host}/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n'.encode())
        point(r.startswith(f'HTTP/1.1 {status} '), f'http://{host}/: {status}', r)
    r = raw(s, b'GET http://localhost HTTP/1.1\r\nHost: evil.example\r\n\r\n')
    point(r.startswith('HTTP/1.1 200 ') and 'text/html' in r, 'the target\'s host counts, and no path is /', r)
    r = raw(s, b'GET http://' + b'a' * 300 + b'/ HTTP/1.1\r\nHost: localhost\r\n\r\n')
    point(r.startswith('HTTP/1.1 414 '), 'one that is too long', r)
    for headers, status in (('Content-Length: 100000', 413), ('Content-Length: 5\r\nOrigin: https://evil.example', 403), ('Content-Length: 2', 100)):
        r = raw(s, f'POST /tokenize HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n{headers}\r\n\r\n'.encode())
        point(r.startswith(f'HTTP/1.1 {status} ') and r.count('HTTP/1.1') == 1, f'Expect: 100-continue: {status} comes before the body', r)


def starting():
    """What is wrong in a command line; an end while the model is loaded."""
    for more in (['--memory', '1GiB'], ['--plan=x'], ['-m', 'x'], ['--sequences', '2']):
        r = subprocess.run([f'{BIN}/thermo-serve', '--model', PACK, '--plan', PLAN, '--', '--threads', '1', *more], capture_output=True, text=True)
        point(r.returncode == 2 and 'before --' in r.stderr, f'{more[0]} after --: exit status 2', r.stderr)
    for how in (signal.SIGTERM, signal.SIGINT):
        p = subprocess.Popen([f'{BIN}/thermo-serve', '--model', PACK, '--plan', PLAN, '--port', '0'], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while p.poll() is None and not int(re.search(r'SigCgt:\s+(\S+)', open(f'/proc/{p.pid}/status', encoding='utf-8').read())[1], 16) >> how - 1 & 1:
            time.sleep(0.001)
        p.send_signal(how)
        out, err = p.communicate(timeout=60)
        point(p.returncode == 0, f'signal {int(how)} while the model is loaded: exit status 0', f'{p.returncode} {out} {err}')


def leaving(s):
    """A client that closes its connection: its place is free, and its neighbours' bytes are what they are."""
    want = content(s.ask('/v1/chat/completions', user('A dog', max_tokens=60)))
    took, cancelled = [], metric(s, 'requests_cancelled_total')
    for stream in (True, False, True, False, True):
        c = socket.create_connection(('127.0.0.1', s.port))
        body = json.dumps(user('A bird', max_tokens=230, ignore_eos=True, stream=stream)).encode()
        c.sendall(b'POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n' % len(body) + body)
        while not any(a['n_decoded'] for a in open_ones(s)):
            time.sleep(0.002)
        since = time.monotonic()
        c.close()
        while open_ones(s):
            time.sleep(0.001)
        took.append(time.monotonic() - since)
    point(metric(s, 'requests_cancelled_total') == cancelled + 5, 'five clients that leave: five requests are cancelled')
    point(min(took) < 0.1, 'within 100 ms', str(took))
    neighbours = []
    threads = [threading.Thread(target=lambda: neighbours.append(content(s.ask('/v1/chat/completions', user('A dog', max_tokens=60))))) for _ in range(4)]
    leavers = []
    for t in threads:
        c = socket.create_connection(('127.0.0.1', s.port))
        body = json.dumps(user('A bird', max_tokens=200, ignore_eos=True, stream=True)).encode()
        c.sendall(b'POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n' % len(body) + body)
        leavers.append(c)
        t.start()
    for c in leavers:
        c.recv(100)
        c.close()
    for t in threads:
        t.join()
    point(neighbours == [want] * 4, 'texts beside them are what they are alone', str(neighbours))


def full(s):
    """All places are taken: 429, which says when to come back; what waits is answered."""
    open_, statuses, after = [], [], []
    while open_ones(s):
        time.sleep(0.01)
    time.sleep(0.2)
    body = json.dumps(user('A bird', max_tokens=230, ignore_eos=True, stream=True)).encode()
    for _ in range(40):
        c = socket.create_connection(('127.0.0.1', s.port))
        c.sendall(b'POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n' % len(body) + body)
        open_.append(c)
    for c in open_:
        c.settimeout(60)
        head = c.recv(400).decode()
        statuses.append(int(head.split()[1]))
        after += [int(x) for x in re.findall(r'Retry-After: (\d+)', head)]
        if statuses[-1] != 200:
            c.close()
    point(statuses.count(200) == 32 and statuses.count(429) == 8 and len(after) == 8 and all(1 <= x <= 60 for x in after), '32 places, 40 requests: 8 are 429',
          f'{statuses} {after}')
    for c in open_[:1]:
        c.close()
    while len(open_ones(s)) > 31:
        time.sleep(0.01)
    failed = metric(s, 'requests_refused_total')
    for stream in (False, True):
        r = s.ask('/v1/completions', {'prompt': ['a', 'b', 'c'], 'stream': stream})
        point(r[0] == 429 and 'retry-after' in r[1], f'three prompts where one place is free: 429, stream {stream}', str(r))
    for c in open_:
        c.close()
    while open_ones(s):
        time.sleep(0.01)
    a = json.loads(s.ask('/v1/completions', {'prompt': ['a'] * 32, 'max_tokens': 2})[2])
    point(len(a['choices']) == 32 and metric(s, 'requests_refused_total') == failed + 2, 'and no place was kept', str(a))


def slow():
    """A client that does not read is ended after a while, and the others go on meanwhile."""
    s = Server(engine=['--kv-positions', '1024'])
    c = socket.socket()
    c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    c.connect(('127.0.0.1', s.port))
    body = json.dumps(user('A bird', max_tokens=200, ignore_eos=True, stream=True, logprobs=True, top_logprobs=20, n=4)).encode()
    c.sendall(b'POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n' % len(body) + body)
    time.sleep(1)
    point(s.ask('/v1/chat/completions', user('x'))[0] == 200, 'beside a client that does not read, another is answered')
    c.settimeout(60)
    got = b''
    while (more := c.recv(65536)):
        got += more
        if b'data: [DONE]' in got:
            break
    point(got.count(b'"finish_reason":"length"') == 4, 'one that reads later has all of it', got[-600:].decode(errors='replace'))
    c.close()
    s.end()


def doors():
    key = os.path.join(os.path.dirname(TEMPLATE), 'keys')
    with open(key, 'w', encoding='utf-8') as f:
        f.write('# two\nsecret-one\n\nsecret-two\n')
    s = Server('--api-key-file', key, '--allow-host', 'my.example', '--allow-origin', 'https://page.example')
    point(s.ask('/health')[0] == 200 and s.ask('/')[0] == 200, '/health and the page without a key')
    r = s.ask('/v1/models')
    point(error_of(r, 401)['type'] == 'authentication_error' and r[1]['www-authenticate'] == 'Bearer', 'no key: 401')
    for headers, status in (({'Authorization': 'Bearer secret-one'}, 200), ({'authorization': 'bearer secret-two'}, 200), ({'x-api-key': 'secret-two'}, 200),
                            ({'Authorization': 'Bearer secret'}, 401), ({'x-api-key': 'secret-one1'}, 401), ({'x-api-key': ''}, 401), ({'Authorization': 'secret-one'}, 401)):
        point(s.ask('/v1/models', headers=headers)[0] == status, f'{headers}: {status}')
    k = {'x-api-key': 'secret-one'}
    for host, status in (('evil.example', 403), ('my.example:80', 200), (f'localhost:{s.port}', 200), ('[::1]:5', 200), ('10.0.0.1', 200), ('my.example.evil', 403)):
        r = s.ask('/v1/models', headers={**k, 'Host': host})
        point(r[0] == status, f'Host {host}: {status}', str(r))
    for origin, status in (('https://evil.example', 403), ('null', 403), ('https://page.example', 200), (f'http://127.0.0.1:{s.port}', 200)):
        r = s.ask('/v1/models', headers={**k, 'Origin': origin})
        point(r[0] == status and r[1].get('access-control-allow-origin') == (origin if status == 200 else None), f'Origin {origin}: {status}', str(r))
    r = s.ask('/v1/chat/completions', method='OPTIONS', headers={'Origin': 'https://page.example', 'Access-Control-Request-Method': 'POST'})
    point(r[0] == 204 and 'POST' in r[1]['access-control-allow-methods'] and 'authorization' in r[1]['access-control-allow-headers'], 'OPTIONS', str(r))
    s.end()
    s = Server(env={'THERMO_API_KEY': 'of-the-environment'})
    point([s.ask('/v1/models', headers={'x-api-key': x})[0] for x in ('of-the-environment', 'x')] == [200, 401], 'a key of the environment')
    s.end()
    r = subprocess.run([f'{BIN}/thermo-serve', '--model', PACK, '--plan', PLAN, '--host', '0.0.0.0'], capture_output=True, text=True)
    point(r.returncode == 2 and '--api-key-file' in r.stderr, 'an address that others reach needs a key: exit status 2', r.stderr)


def memory():
    """The limit changes while a text is made, with a key alone, and the text does not."""
    key = os.path.join(os.path.dirname(TEMPLATE), 'keys')
    s = Server('--memory', '40MiB', engine=['--elastic', '30MiB'])
    ask = user('A dog', max_tokens=200, ignore_eos=True)
    want = s.ask('/v1/chat/completions', ask)[2]
    point('--api-key-file' in error_of(s.ask('/v1/memory', {'memory': '30MiB'}), 403)['message'], 'without keys nobody changes the memory limit')
    s.end()
    s = Server('--memory', '40MiB', '--api-key-file', key, engine=['--elastic', '30MiB'])
    k = {'x-api-key': 'secret-one'}
    point(s.ask('/memory', {'memory': '30MiB'})[0] == 401, 'nor one without a key')
    got, asked = [], 0
    t = threading.Thread(target=lambda: got.append(s.ask('/v1/chat/completions', ask, headers=k)))
    t.start()
    bad = []
    while asked < 2 or (t.is_alive() and asked < 8):
        size = (30 << 20, '40MiB')[asked % 2]
        r = s.ask('/memory', {'memory': size}, headers=k)
        props = json.loads(s.ask('/props', headers=k)[2])['engine']
        if r[0] != 200 or json.loads(r[2])['memory_bytes'] != props['memory_bytes'] or props['memory_bytes'] not in (30 << 20, 40 << 20):
            bad.append(f'{r} {props}')
        asked += 1
    t.join()
    text = [json.loads(x)['choices'][0]['message']['content'] for x in (want, got[0][2])]
    point(not bad and text[0] == text[1], f'{asked} changes of the memory limit beside a text, which stays what it is', '\n'.join([*bad, *text]))
    for size, words in (('29MiB', 'below that of --elastic'), ('much', 'not a size'), ([1], 'is a size'), (0, 'is a size'), ('900TiB', '900TiB')):
        e = error_of(s.ask('/memory', {'memory': size}, headers=k), 400)
        point(words in e['message'] and e['param'] == 'memory', f'a memory limit of {size}: 400', str(e))
    point(error_of(s.ask('/memory', {'memory': '30MiB', 'x': 1}, headers=k), 400)['param'] == 'x', 'another field: 400')
    s.end()


def service():
    """As a service manager starts it: a socket that listens, READY, STOPPING; requests that are open when it ends are finished."""
    folder = os.path.dirname(TEMPLATE)
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    told.bind(folder + '/notify')
    told.settimeout(60)
    listens = socket.create_server(('127.0.0.1', 0))
    port = listens.getsockname()[1]
    code = ('import os, sys; os.dup2(int(sys.argv[1]), 3); os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid())); os.execv(sys.argv[2], sys.argv[2:])')
    p = subprocess.Popen([sys.executable, '-c', code, str(listens.fileno()), f'{BIN}/thermo-serve', '--model', PACK, '--plan', PLAN, '--', '--chat-template', TEMPLATE],
                         pass_fds=[listens.fileno()], env={**os.environ, 'NOTIFY_SOCKET': folder + '/notify'}, stderr=subprocess.PIPE, text=True)
    point(told.recv(100) == b'READY=1', 'the service manager is told that it is ready')
    listens.close()
    s = Server.__new__(Server)
    s.process, s.port = p, port
    point(s.ask('/health')[0] == 200, 'a socket that was handed over')
    got = []
    t = threading.Thread(target=lambda: got.append(s.ask('/v1/chat/completions', user('A dog', max_tokens=200, ignore_eos=True))))
    t.start()
    while not open_ones(s):
        time.sleep(0.002)
    p.send_signal(signal.SIGTERM)
    point(told.recv(100) == b'STOPPING=1', 'and that it ends')
    t.join()
    status, _, text = got[0]
    point(status == 200 and json.loads(text)['usage']['completion_tokens'] == 200 and p.wait(60) == 0, 'what was open is finished: exit status 0', text)


def main():
    s = Server()
    small(s)
    whole(s)
    errors(s)
    several(s)
    prompts(s)
    scored(s)
    shaped(s)
    texts(s)
    targets(s)
    leaving(s)
    full(s)
    code, out, err = s.end()
    point(code == 0 and out == '' and 'ending' in err, 'SIGTERM: exit status 0', f'{code}\n{err}')
    slow()
    doors()
    memory()
    service()
    starting()
    return done()


if __name__ == '__main__':
    sys.exit(main())
