"""thermo-serve as Python's openai sees it: forms, errors, every parameter that the SDK knows, and eight clients that leave at random, each answer
equal to the same request alone, within the limit of memory. server-openai.py BIN PACK PLAN TEMPLATE."""
import json
import os
import random
import re
import subprocess
import sys
import threading
import typing
import urllib.error
import urllib.request

import openai
import pydantic
from openai.types import completion_create_params
from openai.types.chat import completion_create_params as chat_params
from openai.types.responses import ResponseStreamEvent, input_token_count_params, response_create_params

sys.path.insert(0, 'tests')
from tap import done, memory_group, point

BIN, PACK, PLAN, TEMPLATE = sys.argv[1:5]
LIMIT = 40 << 20
ROUNDS = 12


GROUP, FAILS = memory_group(LIMIT)
INSIDE = ['sh', '-c', f'echo $$ > {GROUP}/cgroup.procs; exec "$@"', 'sh'] if GROUP else []
server = subprocess.Popen([*INSIDE, f'{BIN}/thermo-serve', '--model', PACK, '--plan', PLAN, '--port', '0', '--max-body', '64KiB', '--buffers', '1MiB', '--connections', '40',
                           '--memory', f'{LIMIT}B', '-q', '--', '--chat-template', TEMPLATE], stdout=subprocess.PIPE, text=True)
URL = re.search(r'http\S+', server.stdout.readline())[0]


def client(**more):
    return openai.OpenAI(base_url=URL + '/v1', api_key='none', **more)


def said(text):
    return [{'role': 'user', 'content': text}]


def refused(kind, ask, name):
    try:
        ask()
        point(False, name, 'nothing was raised')
    except kind as e:
        return e
    except openai.OpenAIError as e:
        point(False, name, repr(e))
    return None


def forms(c):
    a = c.chat.completions.create(model='m', messages=said('A cat'), max_tokens=8, temperature=0)
    text = a.choices[0].message.content
    point(a.choices[0].finish_reason == 'length' and a.usage.completion_tokens == 8 and text, 'chat.completions', repr(a))
    got, usage = '', None
    for e in c.chat.completions.create(model='m', messages=said('A cat'), max_tokens=8, temperature=0, stream=True, stream_options={'include_usage': True}):
        got += e.choices[0].delta.content or '' if e.choices else ''
        usage = e.usage or usage
    point(got == text and usage.completion_tokens == 8, 'streamed', got)
    with c.chat.completions.stream(model='m', messages=said('A cat'), max_tokens=8, temperature=0) as s:
        e = refused(openai.LengthFinishReasonError, s.get_final_completion, 'LengthFinishReasonError')
        point(e is not None and e.completion.choices[0].message.content == text, 'by the helper of streams')
    a = c.chat.completions.create(model='m', messages=said('A cat'), max_tokens=4, n=3, seed=1, logprobs=True, top_logprobs=2)
    point(len(a.choices) == 3 and all(len(x.logprobs.content) == 4 and len(x.logprobs.content[0].top_logprobs) == 2 for x in a.choices), 'n and logprobs', repr(a))
    a = c.completions.create(model='m', prompt='Once upon', max_tokens=5, temperature=0, logprobs=1)
    point(a.choices[0].text and len(a.choices[0].logprobs.tokens) == 5, 'completions', repr(a))
    point([m.id for m in c.models.list()] == ['split'] and c.models.retrieve('x').id == 'split', 'models')
    e = refused(openai.BadRequestError, lambda: c.chat.completions.create(model='m', messages=said('x'), temperature=-1), 'BadRequestError')
    point(e is not None and e.param == 'temperature' and e.type == 'invalid_request_error', 'an error has its parameter', repr(e))
    e = refused(openai.NotFoundError, lambda: c.embeddings.create(model='m', input='x'), 'NotFoundError')
    point(e is not None, 'a path that is not there: NotFoundError')


class Animal(pydantic.BaseModel):
    name: str
    legs: int


def shaped(c):
    a = c.chat.completions.parse(model='m', messages=said('A cat'), max_tokens=200, seed=2, response_format=Animal)
    point(isinstance(a.choices[0].message.parsed, Animal), 'an answer as an object of a class', repr(a))
    tool = {'type': 'function', 'function': {'name': 'f', 'parameters': {'type': 'object', 'properties': {'x': {'type': 'integer'}}}}}
    call = {'type': 'json_schema', 'json_schema': {'name': 'call', 'schema': {'const': {'name': 'f', 'parameters': {'x': 7}}}}}
    with c.chat.completions.stream(model='m', messages=said('A cat'), max_tokens=100, tools=[tool], response_format=call) as s:
        got = s.get_final_completion().choices[0]
    point(got.finish_reason == 'tool_calls' and got.message.tool_calls[0].function.name == 'f' and json.loads(got.message.tool_calls[0].function.arguments) == {'x': 7},
          'a call of a tool, streamed', repr(got))


def responses(c):
    a = c.responses.create(model='m', input='A cat', max_output_tokens=8, temperature=0)
    text = a.output_text
    point(text == c.chat.completions.create(model='m', messages=said('A cat'), max_tokens=8, temperature=0).choices[0].message.content and a.status == 'incomplete'
          and a.usage.output_tokens == 8, 'responses.create', repr(a))
    schema = {'type': 'json_schema', 'name': 'x', 'schema': {'type': 'object', 'properties': {'n': {'type': 'integer'}}, 'required': ['n'], 'additionalProperties': False}}
    ask = {'model': 'm', 'input': said('A cat'), 'max_output_tokens': 200, 'temperature': 0, 'text': {'format': schema}}
    want = c.responses.create(**ask)
    with c.responses.stream(**ask) as s:
        got = ''.join(e.delta for e in s if e.type == 'response.output_text.delta')
        b = s.get_final_response()
    point(want.status == 'completed' and got == want.output_text == b.output_text and b.status == 'completed' and b.usage.output_tokens == want.usage.output_tokens, 'responses.stream', repr(b))
    a = c.responses.parse(model='m', input='A cat', max_output_tokens=200, text_format=Animal, extra_body={'seed': 2})
    point(isinstance(a.output_parsed, Animal), 'responses.parse', repr(a))
    tool = {'type': 'function', 'name': 'f', 'strict': True, 'parameters': {'type': 'object', 'properties': {'x': {'type': 'integer'}}, 'required': ['x'], 'additionalProperties': False}}
    ask = {'model': 'm', 'input': said('A cat'), 'max_output_tokens': 100, 'tools': [tool], 'tool_choice': 'required', 'extra_body': {'seed': 3}}
    with c.responses.stream(**ask) as s:
        events = list(s)
        b = s.get_final_response()
    call = b.output[0]
    point(call.type == 'function_call' and list(json.loads(call.arguments)) == ['x'] and any(e.type == 'response.function_call_arguments.delta' for e in events), 'a call, streamed', repr(b))
    after = [*said('A cat'), *(x.to_dict() for x in c.responses.create(**ask).output), {'type': 'function_call_output', 'call_id': call.call_id, 'output': '8'}]
    point(c.responses.create(model='m', input=after, tools=[tool], max_output_tokens=3).output_text, 'what came of it goes back')
    point(c.responses.input_tokens.count(model='m', input='A cat').input_tokens == c.responses.create(model='m', input='A cat', max_output_tokens=1).usage.input_tokens, 'responses.input_tokens')
    bad = []
    raw = list(c.responses.create(model='m', input='A cat', max_output_tokens=4, stream=True)) + list(c.responses.create(stream=True, **ask))
    for e in raw:
        try:
            pydantic.TypeAdapter(ResponseStreamEvent).validate_python(e.to_dict())
        except pydantic.ValidationError as x:
            bad.append(f'{e.type}: {x}')
    point(not bad and {e.type for e in raw} >= {'response.created', 'response.in_progress', 'response.output_item.added', 'response.content_part.added', 'response.output_text.done',
                                                'response.content_part.done', 'response.function_call_arguments.done', 'response.output_item.done', 'response.completed', 'response.incomplete'},
          'events are of the SDK\'s types', '\n'.join(bad[:3]))
    e = refused(openai.BadRequestError, lambda: c.responses.create(model='m', input='x', previous_response_id='resp_1'), 'BadRequestError')
    point(e is not None and e.param == 'previous_response_id', 'nothing is kept: previous_response_id is refused', repr(e))


def parameters():
    for path, kind, body in (('chat/completions', chat_params.CompletionCreateParamsBase, {'messages': said('x')}),
                             ('completions', completion_create_params.CompletionCreateParamsBase, {'prompt': 'x'}),
                             ('responses', response_create_params.ResponseCreateParamsBase, {'input': 'x', 'max_output_tokens': 1}),
                             ('responses/input_tokens', input_token_count_params.InputTokenCountParams, {'input': 'x'})):
        names = sorted({*typing.get_type_hints(kind), 'stream'})
        bad = []
        for name in names:
            r = urllib.request.Request(f'{URL}/v1/{path}', json.dumps({**({} if 'input' in body else {'max_tokens': 1}), **{name: None}, **body}).encode())
            try:
                urllib.request.urlopen(r).read()
            except urllib.error.HTTPError as e:
                bad.append(f'{name}: {e.read().decode()}')
        point(len(names) > 10 and not bad, f'{path}: the server knows every parameter of the SDK ({len(names)})', '\n'.join(bad))


def crowd(c):
    prompts = [(f'A {x}', seed) for x in ('cat', 'king', 'boy', 'ship', 'tree', 'bear') for seed in (3, 4)]
    ask = {'model': 'm', 'max_tokens': 40, 'temperature': 0.9, 'extra_body': {'ignore_eos': True}}
    want = {p: c.chat.completions.create(messages=said(p[0]), seed=p[1], **ask).choices[0].message.content for p in prompts}
    bad, left, whole = [], [], []

    def one(k):
        dice, own = random.Random(k), client(max_retries=8)
        for _ in range(ROUNDS):
            p, stop = dice.choice(prompts), dice.choice((None, None, 0, dice.randrange(40)))
            if dice.random() < 0.3:
                got = own.chat.completions.create(messages=said(p[0]), seed=p[1], **ask).choices[0].message.content
            else:
                got = ''
                s = own.chat.completions.create(messages=said(p[0]), seed=p[1], stream=True, **ask)
                for i, e in enumerate(s):
                    if i == stop:
                        break
                    got += e.choices[0].delta.content or ''
                s.close()
                if stop is not None:
                    left.append(p)
                    if not want[p].startswith(got):
                        bad.append((p, got))
                    continue
            whole.append(p)
            if got != want[p]:
                bad.append((p, got))

    threads = [threading.Thread(target=one, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    point(not bad and len(left) + len(whole) == 8 * ROUNDS, f'eight clients, {len(whole)} answers and {len(left)} that leave: each is what it is alone', repr(bad[:3]))
    peak = int(re.search(r'VmHWM:\s+(\d+)', open(f'/proc/{server.pid}/status', encoding='utf-8').read())[1]) << 10
    point(peak <= LIMIT, f'memory: {peak} of {LIMIT} bytes')
    slots = json.load(urllib.request.urlopen(URL + '/slots'))
    point(not any(x['is_processing'] for x in slots), 'all places are free')
    if GROUP:
        with open(f'{GROUP}/{FAILS}', encoding='utf-8') as f:
            text = f.read()
        point(re.search(r'(?:^|\boom_kill )0$', text, re.M) is not None, 'the memory cgroup of the limit never had to kill', text)


forms(client())
shaped(client())
responses(client())
parameters()
crowd(client())
server.terminate()
point(server.wait(60) == 0, 'exit status 0')
if GROUP:
    os.rmdir(GROUP)
sys.exit(done())
