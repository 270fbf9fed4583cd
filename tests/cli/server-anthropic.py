"""thermo-serve as Python's anthropic sees it: messages, streams by its helper, calls of tools, thoughts, errors, every parameter that the SDK knows.
server-anthropic.py BIN PACK PLAN TEMPLATE."""
import json
import re
import subprocess
import sys
import typing
import urllib.error
import urllib.request

import anthropic
import pydantic
from anthropic import types
from anthropic.types import message_count_tokens_params, message_create_params
from anthropic.types.beta import message_create_params as beta_params

sys.path.insert(0, 'tests')
from tap import done, point

BIN, PACK, PLAN, TEMPLATE = sys.argv[1:5]
server = subprocess.Popen([f'{BIN}/thermo-serve', '--model', PACK, '--plan', PLAN, '--port', '0', '--max-body', '64KiB', '-q', '--', '--chat-template', TEMPLATE],
                          stdout=subprocess.PIPE, text=True, env={'THERMO_API_KEY': 'secret'})
URL = re.search(r'http\S+', server.stdout.readline())[0]
client = anthropic.Anthropic(base_url=URL, api_key='secret', max_retries=0)
ASK = {'model': 'm', 'max_tokens': 12, 'extra_body': {'temperature': 0}}


def said(text):
    return [{'role': 'user', 'content': text}]


def raw(path, body):
    r = urllib.request.Request(URL + path, json.dumps(body).encode(), {'x-api-key': 'secret'})
    try:
        return 200, json.load(urllib.request.urlopen(r))
    except urllib.error.HTTPError as e:
        return e.code, json.load(e)


def forms():
    a = client.messages.create(messages=said('A cat'), **ASK)
    text = a.content[0].text
    point(a.stop_reason == 'max_tokens' and a.usage.output_tokens == 12 and text, 'messages.create', repr(a))
    with client.messages.stream(messages=said('A cat'), **ASK) as s:
        got = ''.join(s.text_stream)
        b = s.get_final_message()
    point(got == text and b.content[0].text == text and b.stop_reason == 'max_tokens' and b.usage.output_tokens == 12, 'messages.stream', repr(b))
    events = list(client.messages.create(messages=said('A cat'), stream=True, **ASK))
    bad = []
    for e in events:
        try:
            pydantic.TypeAdapter(types.RawMessageStreamEvent).validate_python(e.to_dict())
        except pydantic.ValidationError as x:
            bad.append(str(x))
    status, j = raw('/v1/messages', {'messages': said('A cat'), 'max_tokens': 3})
    try:
        types.Message.model_validate(j)
    except pydantic.ValidationError as x:
        bad.append(str(x))
    point(len(events) > 12 and status == 200 and not bad, 'events and messages are of the SDK\'s types', '\n'.join(bad[:3]))
    n = client.messages.count_tokens(model='m', messages=said('A cat'))
    point(n.input_tokens == b.usage.input_tokens + b.usage.cache_read_input_tokens, 'messages.count_tokens', repr(n))
    c = client.beta.messages.create(messages=said('A cat'), betas=['context-management-2025-06-27'], context_management={'edits': []}, **ASK)
    point(c.content[0].text == text, 'beta.messages.create', repr(c))
    bearer = anthropic.Anthropic(base_url=URL, auth_token='secret', max_retries=0)
    point(bearer.messages.create(messages=said('A cat'), **ASK).content[0].text == text, 'a key as a bearer\'s token')


class Animal(pydantic.BaseModel):
    name: str
    legs: int


def shaped():
    a = client.messages.parse(model='m', max_tokens=200, messages=said('A cat'), output_format=Animal, extra_body={'seed': 2})
    point(isinstance(a.parsed_output, Animal), 'an answer as an object of a class', repr(a))
    tool = {'name': 'f', 'description': 'x', 'input_schema': {'type': 'object', 'properties': {'x': {'type': 'integer'}}, 'required': ['x'], 'additionalProperties': False}}
    ask = {**ASK, 'max_tokens': 100, 'tools': [tool], 'tool_choice': {'type': 'any'}}
    a = client.messages.create(messages=said('A cat'), **ask)
    use = a.content[0]
    point(a.stop_reason == 'tool_use' and use.type == 'tool_use' and use.name == 'f' and list(use.input) == ['x'], 'a call of a tool', repr(a))
    with client.messages.stream(messages=said('A cat'), **ask) as s:
        kinds = [e.type for e in s]
        b = s.get_final_message()
    point(b.content[0].input == use.input and 'input_json' in kinds and b.stop_reason == 'tool_use', 'streamed', repr(b))
    after = [*said('A cat'), {'role': 'assistant', 'content': a.content}, {'role': 'user', 'content': [{'type': 'tool_result', 'tool_use_id': use.id, 'content': '8'}]}]
    point(client.messages.create(messages=after, tools=[tool], **ASK).content, 'a conversation goes on with what came of it')
    with client.messages.stream(messages=said('A cat'), model='m', max_tokens=12, thinking={'type': 'adaptive'}, output_config={'effort': 'high'}) as s:
        kinds = [e.type for e in s]
        b = s.get_final_message()
    point([x.type for x in b.content] == ['thinking'] and b.content[0].signature and b.content[0].thinking and 'thinking' in kinds and 'signature' in kinds, 'a thought, signed', repr(b))
    after = [*said('A cat'), {'role': 'assistant', 'content': b.content}, *said('and?')]
    point(client.messages.create(messages=after, **ASK).content, 'and it is taken back')


def refused():
    for kind, ask, what in ((anthropic.BadRequestError, lambda: client.messages.create(messages=said('x'), model='m', max_tokens=0), 'max_tokens'),
                            (anthropic.BadRequestError, lambda: client.messages.create(messages=said('x'), model='m', max_tokens=3, extra_body={'bogus': 1}), 'bogus'),
                            (anthropic.AuthenticationError, lambda: client.with_options(api_key='x').messages.create(messages=said('x'), **ASK), 'key'),
                            (anthropic.NotFoundError, lambda: client.messages.batches.list(), 'path'),
                            (anthropic.RequestTooLargeError if hasattr(anthropic, 'RequestTooLargeError') else anthropic.APIStatusError,
                             lambda: client.messages.create(messages=said('x' * 70000), **ASK), '--max-body')):
        try:
            ask()
            point(False, f'{kind.__name__}: {what}', 'nothing was raised')
        except anthropic.APIError as e:
            point(isinstance(e, kind) and what in e.body['error']['message'] and e.body['type'] == 'error', f'{kind.__name__}: {what}', repr(e))


def known(path, body, where, name):
    """Whether a field is: an error that names it as one that there is not."""
    status, j = raw(path, body)
    return None if status == 200 else f'{where}: {name}: {j}'


def parameters():
    count = 0
    bad = []
    for path, kind in (('/v1/messages', message_create_params.MessageCreateParamsBase), ('/v1/messages?beta=true', beta_params.MessageCreateParamsBase),
                       ('/v1/messages/count_tokens', message_count_tokens_params.MessageCountTokensParams)):
        for name in sorted({*typing.get_type_hints(kind), 'stream'}):
            count += 1
            bad.append(known(path, {'max_tokens': 1, name: None, 'messages': said('x')}, path, name))
    point(count > 50 and not any(bad), f'messages: the server knows every parameter of the SDK ({count})', '\n'.join(filter(None, bad)))
    use = {'type': 'tool_use', 'id': 'a', 'name': 'f', 'input': {}}
    result = {'type': 'tool_result', 'tool_use_id': 'a', 'content': 'x'}
    turn = [*said('x'), {'role': 'assistant', 'content': [use]}, {'role': 'user', 'content': [result]}]
    nested = [(types.TextBlockParam, {'type': 'text', 'text': 'x'}, lambda b: {'messages': [{'role': 'user', 'content': [b]}]}),
              (types.TextBlockParam, {'type': 'text', 'text': 'x'}, lambda b: {'system': [b], 'messages': said('x')}),
              (types.ToolUseBlockParam, use, lambda b: {'messages': [turn[0], {'role': 'assistant', 'content': [b]}, turn[2]]}),
              (types.ToolResultBlockParam, result, lambda b: {'messages': [*turn[:2], {'role': 'user', 'content': [b]}]}),
              (types.ThinkingBlockParam, {'type': 'thinking', 'thinking': 'x', 'signature': 'y'}, lambda b: {'messages': [*said('x'), {'role': 'assistant', 'content': [b]}, *said('y')]}),
              (types.RedactedThinkingBlockParam, {'type': 'redacted_thinking', 'data': 'x'}, lambda b: {'messages': [*said('x'), {'role': 'assistant', 'content': [b]}, *said('y')]}),
              (types.DocumentBlockParam, {'type': 'document', 'source': {'type': 'text', 'media_type': 'text/plain', 'data': 'x'}}, lambda b: {'messages': [{'role': 'user', 'content': [b]}]}),
              (types.ToolParam, {'name': 'f', 'input_schema': {'type': 'object'}}, lambda b: {'tools': [b], 'messages': said('x')}),
              (types.ToolChoiceAutoParam, {'type': 'auto'}, lambda b: {'tool_choice': b, 'messages': said('x')}),
              (types.ToolChoiceNoneParam, {'type': 'none'}, lambda b: {'tool_choice': b, 'messages': said('x')}),
              (types.OutputConfigParam, {}, lambda b: {'output_config': b, 'messages': said('x')}),
              (types.ThinkingConfigEnabledParam, {'type': 'enabled', 'budget_tokens': 1024}, lambda b: {'thinking': b, 'messages': said('x')}),
              (types.ThinkingConfigAdaptiveParam, {'type': 'adaptive'}, lambda b: {'thinking': b, 'messages': said('x')}),
              (types.ThinkingConfigDisabledParam, {'type': 'disabled'}, lambda b: {'thinking': b, 'messages': said('x')})]
    bad = []
    for kind, base, body in nested:
        for name in sorted(typing.get_type_hints(kind)):
            bad.append(known('/v1/messages', {'max_tokens': 1, **body({name: None, **base})}, kind.__name__, name))
    point(len(bad) > 50 and not any(bad), f'and every field of blocks, tools and settings ({len(bad)})', '\n'.join(filter(None, bad)))


forms()
shaped()
refused()
parameters()
server.terminate()
point(server.wait(60) == 0, 'exit status 0')
sys.exit(done())
