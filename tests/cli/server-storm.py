"""Thirty-two clients of thermo-serve for a while, in a memory cgroup of the limit where one can be made: streamed and whole answers in all three
forms; some leave in the middle, some read slowly. Each whole answer is what it is alone. Prints times to the first token and between tokens.
server-storm.py BIN PACK PLAN TEMPLATE SECONDS."""
import asyncio
import json
import os
import random
import re
import subprocess
import sys
import time

sys.path.insert(0, 'tests')
from tap import done, memory_group, point

BIN, PACK, PLAN, TEMPLATE, SECONDS = *sys.argv[1:5], float(sys.argv[5])
LIMIT, CLIENTS = 44 << 20, 32
TEXTS = ['A cat', 'The little boat went out', 'A girl who lived by the sea', 'Two birds', 'One day the rain', 'My friend the bear has lost his hat',
         'In the garden', 'Tell me of a dragon who could not sleep at night', 'The king', 'A boy and his dog', 'Snow', 'The old clock said']
LENGTHS = (8, 24, 48)
SANITIZED = bool(os.environ.get('SANITIZE'))


def body_of(form, text, n, stream):
    said = [{'role': 'user', 'content': text}]
    if form == 'responses':
        return '/v1/responses', {'input': text, 'max_output_tokens': n, 'temperature': 0, 'stream': stream, 'store': False, 'model': 'm'}
    body = {'messages': said, 'max_tokens': n, 'temperature': 0, 'stream': stream, 'model': 'm'}
    return ('/v1/messages' if form == 'messages' else '/v1/chat/completions'), body


def piece(form, e):
    """The text of an event."""
    if form == 'chat':
        return ''.join(c['delta'].get('content') or '' for c in e.get('choices', []))
    if form == 'messages':
        return e['delta'].get('text', '') if e.get('type') == 'content_block_delta' else ''
    return e['delta'] if e.get('type') == 'response.output_text.delta' else ''


def whole(form, a):
    if form == 'chat':
        return a['choices'][0]['message']['content']
    if form == 'messages':
        return ''.join(b.get('text', '') for b in a['content'])
    return ''.join(c.get('text', '') for o in a['output'] for c in o.get('content', []))


class Busy(Exception):
    """429 or 503: the queue is full."""


async def ask(port, form, text, n, stream, leave=None, pause=0, times=None):
    """The text of the answer; None where the client left after `leave` pieces."""
    path, body = body_of(form, text, n, stream)
    data = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection('127.0.0.1', port, limit=1 << 20)
    try:
        began = last = time.monotonic()
        writer.write(f'POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n'
                     'Connection: close\r\n\r\n'.encode() + data)
        await writer.drain()
        head = (await reader.readuntil(b'\r\n\r\n')).decode()
        status = int(head.split()[1])
        if status in (429, 503):
            raise Busy
        assert status == 200, head
        if not stream:
            rest = await reader.read(-1)
            return whole(form, json.loads(rest[rest.index(b'{'):rest.rindex(b'}') + 1]))
        got, pieces, first = '', 0, True
        while line := await reader.readline():
            if not line.startswith(b'data: {'):
                continue
            if text_of := piece(form, json.loads(line[6:])):
                now = time.monotonic()
                if times:
                    times[0 if first else 1].append((now - (began if first else last)) * 1e3)
                last, first, got, pieces = now, False, got + text_of, pieces + 1
                if pieces == leave:
                    return None
                if pause:
                    await asyncio.sleep(pause)
        return got
    finally:
        writer.close()


def status_of(pid, name):
    with open(f'/proc/{pid}/status', encoding='utf-8') as f:
        return int(re.search(rf'{name}:\s+(\d+)', f.read())[1]) << 10


async def storm(port, pid, want):
    counts = {'whole': 0, 'left': 0, 'slow': 0, 'busy': 0}
    bad, times, end, rss = [], ([], []), time.monotonic() + SECONDS, []

    async def client(seed):
        r = random.Random(seed)
        while time.monotonic() < end:
            form, text, n, stream = r.choice(('chat', 'messages', 'responses')), r.choice(TEXTS), r.choice(LENGTHS), r.random() < 0.8
            how = r.choices(('whole', 'left', 'slow'), (60, 25, 15))[0] if stream else 'whole'
            try:
                got = await ask(port, form, text, n, stream, r.randrange(1, 6) if how == 'left' else None, 0.05 if how == 'slow' else 0,
                                times if how == 'whole' else None)
                counts[how if got is not None or how == 'left' else 'whole'] += 1
                if got is not None and got != want[form, text, n]:
                    bad.append((form, text, n, stream, got, want[form, text, n]))
            except Busy:
                counts['busy'] += 1
                await asyncio.sleep(r.random() * 0.5)
            except Exception as e:  # whatever it is, it is no answer
                bad.append((form, text, n, stream, repr(e)))

    async def watch():
        while time.monotonic() < end:
            rss.append(status_of(pid, 'VmRSS'))
            await asyncio.sleep(SECONDS / 20)

    await asyncio.gather(watch(), *(client(i) for i in range(CLIENTS)))
    return counts, bad, times, rss


def share(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * p))] if values else float('nan')


async def main():
    group, fails = (None, None) if SANITIZED else memory_group(LIMIT)
    inside = ['sh', '-c', f'echo $$ > {group}/cgroup.procs; exec "$@"', 'sh'] if group else []
    server = subprocess.Popen([*inside, f'{BIN}/thermo-serve', '--model', PACK, '--plan', PLAN, '--port', '0', '--max-body', '64KiB', '--buffers', '2MiB',
                               '--connections', '48', '--memory', f'{LIMIT}B', '-q', '--', '--chat-template', TEMPLATE], stdout=subprocess.PIPE, text=True)
    port = int(re.search(r':(\d+)\s*$', server.stdout.readline())[1])
    want = {(form, text, n): await ask(port, form, text, n, True) for form in ('chat', 'messages', 'responses') for text in TEXTS for n in LENGTHS}
    same = all(want['chat', t, n] == want['messages', t, n] == want['responses', t, n] for t in TEXTS for n in LENGTHS)
    point(same and all(want.values()), 'the three forms have the same text')
    files = len(os.listdir(f'/proc/{server.pid}/fd'))
    counts, bad, times, rss = await storm(port, server.pid, want)
    point(not bad and counts['whole'] > (0 if SANITIZED else CLIENTS) and counts['left'] > 0 and counts['slow'] > 0,
          f'{CLIENTS} clients for {SECONDS:g} s: {counts}; each whole answer is what it is alone', '\n'.join(map(repr, bad[:5])) or repr(counts))
    for name, v in zip(('first token', 'between tokens'), times):
        print(f'# {name}: p50 {share(v, 0.5):.1f} ms, p99 {share(v, 0.99):.1f} ms of {len(v)}')
    peak = status_of(server.pid, 'VmHWM')
    print(f'# resident: {rss[len(rss) // 4] >> 10} KiB after a quarter, {rss[-1] >> 10} at the end; peak {peak} of {LIMIT} bytes')
    if not SANITIZED:
        point(peak <= LIMIT, 'the peak of memory is within the limit', str(peak))
        point(rss[-1] <= rss[len(rss) // 4] + (1 << 20), 'memory does not grow', repr(rss))
    for _ in range(100):
        if len(os.listdir(f'/proc/{server.pid}/fd')) <= files:
            break
        await asyncio.sleep(0.1)
    point(len(os.listdir(f'/proc/{server.pid}/fd')) <= files, 'no descriptor stays', repr(os.listdir(f'/proc/{server.pid}/fd')))
    if group:
        with open(f'{group}/{fails}', encoding='utf-8') as f:
            text = f.read()
        point(re.search(r'(?:^|\boom_kill )0$', text, re.M) is not None, 'the memory cgroup of the limit never had to kill', text)
    server.terminate()
    point(server.wait(60) == 0, 'exit status 0')
    if group:
        os.rmdir(group)
    return done()


sys.exit(asyncio.run(main()))
