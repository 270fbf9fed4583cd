"""thermo-serve in the forms of Anthropic's messages and OpenAI's responses, by Python's own http.client: what a conversation becomes for the
template, answers whole and streamed, each that of chat/completions, calls, thoughts, counts, errors. server-forms.py BIN PACK PLAN TEMPLATE."""
import json
import os
import re
import sys

sys.path[:0] = ['tests', 'tests/cli']
from server import Server, content
from tap import done, point

TEMPLATE = sys.argv[4]
M, R = '/v1/messages', '/v1/responses'


def events(s, path, body):
    """[(event, data)]; the two say the same."""
    status, headers, text = s.ask(path, {**body, 'stream': True})
    assert status == 200 and headers['content-type'] == 'text/event-stream', (status, text)
    found = [re.fullmatch(r'event: (\S+)\ndata: (.*)', e) for e in text.split('\n\n') if e and not e.startswith(':')]
    assert all(found) and all(json.loads(m[2])['type'] == m[1] for m in found), text
    return [json.loads(m[2]) for m in found]


def said(text, /, **more):
    return {'messages': [{'role': 'user', 'content': text}], 'temperature': 0, 'max_tokens': 12, **more}


def put(input_, **more):
    return {'input': input_, 'temperature': 0, 'max_output_tokens': 12, **more}


def of_message(all_):
    """The message that events make."""
    got = None
    for e in all_:
        kind = e['type']
        if kind == 'message_start':
            got = {**e['message'], 'content': []}
        elif kind == 'content_block_start':
            assert e['index'] == len(got['content'])
            got['content'].append({**e['content_block'], 'json': ''})
        elif kind == 'content_block_delta':
            assert e['index'] == len(got['content']) - 1
            block, d = got['content'][-1], e['delta']
            key = {'text_delta': 'text', 'thinking_delta': 'thinking', 'signature_delta': 'signature', 'input_json_delta': 'partial_json'}[d['type']]
            to = 'json' if key == 'partial_json' else key
            block[to] += d[key]
        elif kind == 'content_block_stop':
            block = got['content'][e['index']]
            text = block.pop('json')
            if block['type'] == 'tool_use':
                block['input'] = json.loads(text)
        elif kind == 'message_delta':
            got.update(e['delta'])
            got['usage'] = e['usage']
    assert all_[0]['type'] == 'message_start' and all_[-1]['type'] == 'message_stop' and not any('json' in b for b in got['content']), all_
    return got


def same(a, b):
    """Two answers but for ids and times."""
    def bare(v):
        return json.loads(re.sub(r'(msg|resp|rs|fc)_[0-9a-f]{24}', r'\1_', json.dumps({**v, 'created_at': 0, 'usage': 0})))
    return bare(a) == bare(b) and (a['usage'].get('output_tokens'), a['usage'].get('total_tokens')) == (b['usage'].get('output_tokens'), b['usage'].get('total_tokens'))


def of_response(all_):
    """The response that events make, checked on the way."""
    assert [e['sequence_number'] for e in all_] == list(range(len(all_))), all_
    assert [e['type'] for e in all_[:2]] == ['response.created', 'response.in_progress'], all_
    last = all_[-1]['response']
    assert len({e['response']['id'] for e in all_ if 'response' in e}) == 1
    items = []
    for e in all_[2:-1]:
        kind = e['type'].removeprefix('response.')
        if kind == 'output_item.added':
            assert e['output_index'] == len(items) and e['item']['status'] == 'in_progress', e
            items.append({'item': e['item'], 'text': '', 'parts': 0, 'done': 0})
            continue
        i = items[e['output_index']]
        assert e['output_index'] == len(items) - 1 and e.get('item_id', i['item']['id']) == i['item']['id'], e
        if kind == 'content_part.added':
            i['parts'] += 1
        elif kind.endswith('.delta'):
            assert i['parts'] or i['item']['type'] == 'function_call', e
            i['text'] += e['delta']
        elif kind == 'content_part.done':
            assert e['part']['text'] == i['text'], e
        elif kind == 'output_item.done':
            text = e['item']['arguments'] if e['item']['type'] == 'function_call' else e['item']['content'][0]['text']
            assert text == i['text'] and e['item']['id'] == i['item']['id'], e
            i['item'], i['done'] = e['item'], 1
        else:
            assert kind.endswith('.done') and i['text'] == e.get('text', e.get('arguments')), e
    assert all(i['done'] for i in items) and last['output'] == [i['item'] for i in items], all_
    return last


def error(s, path, body, status, **headers):
    r = s.ask(path, body, headers=headers)
    assert r[0] == status, r
    e = json.loads(r[2])
    if path.startswith(M):
        assert e['type'] == 'error' and sorted(e['error']) == ['message', 'type'], e
    return e['error']


def plain(s):
    want = content(s.ask('/v1/chat/completions', said('Once upon')))
    a = json.loads(s.ask(M + '?beta=true', said('Once upon', model='x'))[2])
    point(a['type'] == 'message' and a['role'] == 'assistant' and a['id'].startswith('msg_') and a['content'] == [{'type': 'text', 'text': want}]
          and a['stop_reason'] == 'max_tokens' and a['usage']['output_tokens'] == 12 and a['usage']['input_tokens'] + a['usage']['cache_read_input_tokens'] > 3,
          'a message is what a chat has', str(a))
    all_ = events(s, M, said('Once upon'))
    b = of_message(all_)
    start = all_[0]['message']
    point(same(a, b) and start['usage']['output_tokens'] == 0
          and start['usage']['input_tokens'] + start['usage']['cache_read_input_tokens'] == a['usage']['input_tokens'] + a['usage']['cache_read_input_tokens'],
          'streamed, the same, and it begins with counts', str(all_))
    n = json.loads(s.ask(M + '/count_tokens', {'model': 'x', 'messages': said('Once upon')['messages']})[2])
    m = json.loads(s.ask(R + '/input_tokens', {'model': 'x', 'input': 'Once upon'})[2])
    point(n == {'input_tokens': a['usage']['input_tokens'] + a['usage']['cache_read_input_tokens']} and m == {'object': 'response.input_tokens', **n}, 'counts of tokens', f'{n} {m}')
    spelled = said('a</s><s>b', max_tokens=1)
    n = json.loads(s.ask(M + '/count_tokens', spelled)[2])
    u = json.loads(s.ask(M, spelled)[2])['usage']
    point(n['input_tokens'] == u['input_tokens'] + u['cache_read_input_tokens'], 'what spells control tokens counts as the text that it is', f'{n} {u}')
    stop = want.split()[3]
    c = json.loads(s.ask(M, said('Once upon', stop_sequences=[stop, 'zz9']))[2])
    point(c['stop_reason'] == 'stop_sequence' and c['stop_sequence'] == stop and want.startswith(c['content'][0]['text']), 'a stop sequence, and which', str(c))
    d = json.loads(s.ask(R, put('Once upon'))[2])
    point(d['object'] == 'response' and d['status'] == 'incomplete' and d['incomplete_details'] == {'reason': 'max_output_tokens'}
          and [(i['type'], i['status'], i['content'][0]['text']) for i in d['output']] == [('message', 'incomplete', want)] and d['usage']['total_tokens'] == d['usage']['input_tokens'] + 12
          and d['store'] is False and d['max_output_tokens'] == 12, 'a response is what a chat has', str(d))
    all_ = events(s, R, put('Once upon'))
    point(same(d, of_response(all_)) and all_[-1]['type'] == 'response.incomplete', 'streamed, the same', str(all_))
    schema = {'type': 'object', 'properties': {'n': {'type': 'integer'}}, 'required': ['n'], 'additionalProperties': False}
    e = json.loads(s.ask(M, said('A cat', max_tokens=60, output_config={'format': {'type': 'json_schema', 'schema': schema}}))[2])
    f = json.loads(s.ask(R, put('A cat', max_output_tokens=60, text={'format': {'type': 'json_schema', 'name': 'x', 'schema': schema}}))[2])
    point(list(json.loads(e['content'][0]['text'])) == ['n'] and e['stop_reason'] == 'end_turn' and f['status'] == 'completed'
          and f['output'][0]['content'][0]['text'] == e['content'][0]['text'], 'JSON of a schema', f'{e}\n{f}')
    g = of_response(events(s, R, put('A cat', max_output_tokens=60, text={'format': {'type': 'json_schema', 'name': 'x', 'schema': schema}})))
    point(same(f, g), 'streamed, the same', str(g))


CALL = {'type': 'object', 'properties': {'x': {'type': 'integer', 'minimum': 3, 'maximum': 44}}, 'required': ['x'], 'additionalProperties': False}
CLAUDE = [{'name': 'f', 'description': 'does', 'input_schema': CALL, 'cache_control': {'type': 'ephemeral'}}, {'type': 'web_search_20250305', 'name': 'web_search'}]
CODEX = [{'type': 'function', 'name': 'f', 'description': 'does', 'parameters': CALL, 'strict': False}, {'type': 'web_search'}]


def logprobs(s):
    """Of responses, as of chats."""
    want = json.loads(s.ask('/v1/chat/completions', said('Once upon', logprobs=True, top_logprobs=3))[2])['choices'][0]['logprobs']['content']
    ask = put('Once upon', include=['message.output_text.logprobs'], top_logprobs=3)
    a = json.loads(s.ask(R, ask)[2])
    point(a['output'][0]['content'][0]['logprobs'] == want and len(want) > 5, 'log-probabilities of a response', f'{a} {want}')
    all_ = events(s, R, {**ask, 'stream': True})
    deltas = [t for e in all_ if e['type'] == 'response.output_text.delta' for t in e['logprobs']]
    done = [e['logprobs'] for e in all_ if e['type'] == 'response.output_text.done']
    point(same(a, of_response(all_)) and done == [want] and deltas == want, 'and streamed', str(all_))
    stop = {'input': 'Once upon', 'max_output_tokens': 12, 'temperature': 0}
    a = json.loads(s.ask(R, {**stop, 'include': ['message.output_text.logprobs']})[2])['output'][0]['content'][0]
    point([t['token'] for t in a['logprobs']] == [t['token'] for t in want[:len(a['logprobs'])]] and not a['logprobs'][0]['top_logprobs'], 'without likeliest ones', str(a))
    point(json.loads(s.ask(R, {**stop, 'top_logprobs': 0})[2])['output'][0]['content'][0]['logprobs'] == [], 'none where none are asked for')


def tools(s):
    a = json.loads(s.ask(M, said('A cat', max_tokens=100, tools=CLAUDE, tool_choice={'type': 'any', 'disable_parallel_tool_use': True}, seed=4, temperature=1))[2])
    use = a['content'][-1]
    point(len(a['content']) == 1 and use['type'] == 'tool_use' and use['name'] == 'f' and list(use['input']) == ['x'] and a['stop_reason'] == 'tool_use' and use['id'], 'a call: tool_use', str(a))
    b = of_message(events(s, M, said('A cat', max_tokens=100, tools=CLAUDE, tool_choice={'type': 'tool', 'name': 'f'}, seed=4, temperature=1)))
    point(same(a, b), 'streamed, the same', str(b))
    for choice in ('required', {'type': 'function', 'name': 'f'}, {'type': 'allowed_tools', 'mode': 'required', 'tools': [{'type': 'function', 'name': 'f'}]}):
        c = json.loads(s.ask(R, put('A cat', max_output_tokens=100, tools=CODEX, tool_choice=choice, seed=4, temperature=1))[2])
        i = c['output'][0]
        point(c['status'] == 'completed' and i['type'] == 'function_call' and i['name'] == 'f' and json.loads(i['arguments']) == use['input'] and i['call_id'] == use['id'], f'function_call, {choice}', str(c))
    d = of_response(events(s, R, put('A cat', max_output_tokens=100, tools=CODEX, tool_choice='required', seed=4, temperature=1)))
    point(d['output'][0]['arguments'] == i['arguments'] and d['output'][0]['call_id'] == i['call_id'] and d['status'] == 'completed', 'streamed, the same', str(d))
    after = [{'role': 'user', 'content': 'A cat'}, {'role': 'assistant', 'content': a['content']},
             {'role': 'user', 'content': [{'type': 'tool_result', 'tool_use_id': use['id'], 'content': [{'type': 'text', 'text': '8'}], 'is_error': False}]}]
    r = s.ask(M, {'messages': after, 'max_tokens': 4, 'tools': CLAUDE})
    point(r[0] == 200, 'a conversation goes on with what came of it', r[2])
    r = s.ask(R, {'input': [{'role': 'user', 'content': 'A cat'}, *c['output'], {'type': 'function_call_output', 'call_id': i['call_id'], 'output': '8'}], 'tools': CODEX, 'max_output_tokens': 4})
    point(r[0] == 200, 'and of a response', r[2])


def counted(s, path, body):
    r = s.ask(path + ('/count_tokens' if path == M else '/input_tokens'), body)
    return json.loads(r[2])['input_tokens'] if r[0] == 200 else r


def rendered(s, path, body, want, name):
    """A conversation has as many tokens as the text that it should become, and the answer is the same."""
    tokens = json.loads(s.ask('/tokenize', {'content': want, 'add_special': True})[2])['tokens']
    n = counted(s, path, body)
    text = json.loads(s.ask('/v1/completions', {'prompt': want, 'max_tokens': 6, 'temperature': 0})[2])['choices'][0]['text']
    key = 'max_tokens' if path == M else 'max_output_tokens'
    a = json.loads(s.ask(path, {**body, key: 6, 'temperature': 0})[2])
    got = ''.join(x['text'] for x in a['content']) if path == M else ''.join(p['text'] for i in a['output'] for p in i['content'])
    point(n == len(tokens) and got == text, name, f'{n} {len(tokens)} {got!r} {text!r}')


def conversations(s):
    """What the template is given."""
    use = {'type': 'tool_use', 'id': 'c1', 'name': 'f', 'input': {'x': 3}}
    body = {'system': [{'type': 'text', 'text': 'x-anthropic-billing-header: cc_version=2.1; cch=1f3ab;'}, {'type': 'text', 'text': 'Be brief.', 'cache_control': {'type': 'ephemeral'}}],
            'messages': [{'role': 'user', 'content': [{'type': 'text', 'text': 'One'}, {'type': 'text', 'text': 'two'}]}, {'role': 'user', 'content': 'three'},
                         {'role': 'assistant', 'content': [{'type': 'thinking', 'thinking': 'hm', 'signature': 's'}, {'type': 'redacted_thinking', 'data': 'x'}, {'type': 'text', 'text': 'So'}, use]},
                         {'role': 'user', 'content': [{'type': 'tool_result', 'tool_use_id': 'c1', 'content': [{'type': 'text', 'text': 'eight'}, {'type': 'tool_reference', 'tool_name': 'g'}]}, {'type': 'text', 'text': 'Go on'},
                                                      {'type': 'document', 'source': {'type': 'text', 'media_type': 'text/plain', 'data': 'file'}},
                                                      {'type': 'search_result', 'title': 'Cats', 'source': 'https://c.example', 'content': [{'type': 'text', 'text': 'They purr'}], 'citations': {'enabled': True}}]}]}
    head = '[system] x-anthropic-billing-header: cc_version=2.1; cch=00000;\nBe brief.\n'
    rest = '[user] One\ntwo\nthree\n[assistant] (hm) So call c1 f {"x":3}\n[tool] eight\ng of c1\n[user] Go on\nfile\nCats\nhttps://c.example\nThey purr\n[teller]'
    rendered(s, M, body, head + rest, 'messages: blocks, calls, results; what changes at each call is masked')
    items = [{'role': 'developer', 'content': 'Be brief.'}, {'type': 'message', 'role': 'user', 'content': [{'type': 'input_text', 'text': 'One'}, {'type': 'input_text', 'text': 'two'}]},
             {'role': 'user', 'content': 'three'}, {'type': 'reasoning', 'id': 'rs_1', 'summary': [], 'encrypted_content': 'thought:hm'},
             {'type': 'message', 'role': 'assistant', 'content': [{'type': 'output_text', 'text': 'So', 'annotations': []}], 'id': 'msg_1', 'status': 'completed'},
             {'type': 'function_call', 'call_id': 'c1', 'name': 'f', 'arguments': '{"x":3}'}, {'type': 'function_call_output', 'call_id': 'c1', 'output': [{'type': 'input_text', 'text': 'eight'}]},
             {'role': 'user', 'content': 'Go on'}]
    want = '[system] Always.\nBe brief.\n[user] One\ntwo\nthree\n[assistant] (hm) So call c1 f {"x":3}\n[tool] eight of c1\n[user] Go on\n[teller]'
    rendered(s, R, {'instructions': 'Always.', 'input': items}, want, 'responses: items of a turn are one message')
    a = json.loads(s.ask(M, {**body, 'max_tokens': 2})[2])['usage']
    body['system'][0]['text'] = body['system'][0]['text'].replace('1f3ab', '0c4de')
    b = json.loads(s.ask(M, {**body, 'max_tokens': 2})[2])['usage']
    point(b['cache_read_input_tokens'] >= 32 and a['input_tokens'] + a['cache_read_input_tokens'] == b['input_tokens'] + b['cache_read_input_tokens'], 'and its prefix is found in memory', f'{a} {b}')


def thoughts(s):
    """The template begins a thought where effort is high; the model never ends it."""
    a = json.loads(s.ask(M, said('A cat', output_config={'effort': 'max'}))[2])
    point([b['type'] for b in a['content']] == ['thinking'] and a['content'][0]['signature'] and a['content'][0]['thinking'] and a['usage']['output_tokens'] == 12, 'thinking', str(a))
    b = of_message(events(s, M, said('A cat', output_config={'effort': 'high'}, thinking={'type': 'enabled', 'budget_tokens': 1024})))
    point(same(a, b), 'streamed, the same, signed', str(b))
    hidden = json.loads(s.ask(M, said('A cat', output_config={'effort': 'high'}, thinking={'type': 'adaptive', 'display': 'omitted'}))[2])
    point(hidden['content'] == [] and hidden['usage']['output_tokens'] == 12, 'left out where that is asked for', str(hidden))
    c = json.loads(s.ask(R, put('A cat', reasoning={'effort': 'high', 'summary': 'auto'}, include=['reasoning.encrypted_content']))[2])
    i = c['output'][0]
    point(i['type'] == 'reasoning' and i['content'][0]['text'] == a['content'][0]['thinking'] and i['encrypted_content'] == 'thought:' + i['content'][0]['text']
          and c['usage']['output_tokens_details']['reasoning_tokens'] == 12, 'reasoning', str(c))
    d = of_response(events(s, R, put('A cat', reasoning={'effort': 'high', 'summary': 'auto'}, include=['reasoning.encrypted_content'])))
    point(same(c, d), 'streamed, the same', str(d))


def refused(s):
    cases = [({'max_token': 3}, 'max_token'), ({'messages': 3}, 'messages'), ({'messages': []}, 'messages'), ({'messages': [{'role': 'bot', 'content': 'x'}]}, '"messages"[0]'),
             ({'messages': [{'role': 'user', 'content': [{'type': 'image', 'source': {}}]}]}, '"content"[0] is of type "image"'),
             ({'messages': [{'role': 'user', 'content': [{'type': 'text', 'txt': 'x'}]}]}, '"txt"'), ({'messages': [{'role': 'user', 'contents': 'x'}]}, '"contents"'),
             ({'messages': [{'role': 'user', 'content': 'x'}, {'role': 'assistant', 'content': 'y'}]}, 'the last one is the assistant'), ({'max_tokens': 0}, 'max_tokens'),
             ({'messages': [{'role': 'user', 'content': [{'type': 'tool_use', 'id': 'a', 'name': 'f', 'input': {}}]}]}, 'role "user"'),
             ({'system': 3}, 'system'), ({'thinking': {'type': 'deep'}}, 'thinking'), ({'thinking': 'on'}, 'thinking'), ({'tool_choice': {'type': 'any'}}, 'no "tools"'), ({'tool_choice': 'any'}, 'tool_choice'),
             ({'tools': [{'name': 'f', 'parameters': {}}]}, '"parameters"'), ({'tools': [{'input_schema': {}}]}, '"name"'), ({'stop_sequences': [3]}, 'stop_sequences'), ({'output_config': {'effort': 'x'}}, 'effort'),
             ({'mcp_servers': [{'url': 'x'}]}, 'mcp_servers'), ({'output_config': {'format': {'type': 'json_schema', 'schema': {'not': {}}}}}, '"not"')]
    for more, what in cases:
        e = error(s, M, said('x', **more), 400)
        point(e['type'] == 'invalid_request_error' and what in e['message'], f'messages, 400: {more}', str(e))
    e = error(s, M, said('word ' * 400), 400)
    point(re.match(r'prompt is too long: \d+ tokens > 255 maximum', e['message']), 'more than the context', str(e))
    point(error(s, M + '/nothing', said('x'), 404)['type'] == 'not_found_error' and error(s, M, None, 405)['type'] == 'invalid_request_error', '404 and 405 in that form')
    point(error(s, M, b'{"messages": "' + b'x' * (1 << 16) + b'"}', 413)['type'] == 'request_too_large', '413: request_too_large')
    cases = [({'previous_response_id': 'resp_1'}, 'previous_response_id'), ({'conversation': 'c'}, 'conversation'), ({'background': True}, 'background'), ({'inputs': 'x'}, 'inputs'), ({'input': []}, 'input'),
             ({'input': [{'type': 'item_reference', 'id': 'x'}]}, '"item_reference"'), ({'input': [{'role': 'user', 'content': [{'type': 'input_image'}]}]}, '"input_image"'), ({'truncation': 'auto'}, 'truncation'),
             ({'input': [{'type': 'function_call', 'name': 'f'}]}, '"call_id"'), ({'instructions': 3}, 'instructions'), ({'text': {'format': {'type': 'json_schema'}}}, '"schema"'), ({'tools': [{'name': 'f'}]}, 'tools'),
             ({'reasoning': {'effort': 3}}, 'effort'), ({'top_logprobs': 2}, 'top_logprobs'), ({'include': ['message.output_text.logprobs'], 'top_logprobs': 21}, 'top_logprobs'), ({'max_output_tokens': 0}, 'max_output_tokens'), ({'tool_choice': 'any'}, 'tool_choice')]
    for more, what in cases:
        e = error(s, R, put('x', **more), 400)
        point(e['type'] == 'invalid_request_error' and what in e['message'] and e['param'], f'responses, 400: {more}', str(e))
    for more in ({'store': True, 'metadata': {'a': 'b'}, 'prompt_cache_key': 'k', 'client_metadata': {}, 'include': [], 'parallel_tool_calls': True, 'stream_options': {'include_obfuscation': False}},
                 {'tools': [{'type': 'custom', 'name': 'apply_patch'}, {'type': 'local_shell'}], 'service_tier': 'auto', 'user': 'u'}):
        r = s.ask(R, put('x', **more))
        point(r[0] == 200, f'without effect: {list(more)}', r[2])
    r = s.ask(M, said('x', metadata={'user_id': 'u'}, context_management={'edits': []}, cache_control={'type': 'ephemeral'}, output_config={}, service_tier='auto'), headers={'anthropic-beta': 'a,b'})
    point(r[0] == 200, 'without effect: what Claude Code sends', r[2])


def limits():
    """An answer that is said again at its end is no longer than a quarter of --max-body."""
    s = Server('--max-body', '2KiB')
    long = {'ignore_eos': True, 'temperature': 1, 'seed': 1}
    all_ = [json.loads(e.split('\ndata: ')[1]) for e in s.ask(R, put('A cat', stream=True, **{**long, 'max_output_tokens': 220}))[2].split('\n\n') if e]
    point(all_[-1]['type'] == 'response.failed' and 'quarter of --max-body' in all_[-1]['response']['error']['message'] and all_[-1]['sequence_number'] == len(all_) - 1, 'a stream of a response that is too long', str(all_[-1]))
    m = of_message(events(s, M, said('A cat', **{**long, 'max_tokens': 220})))
    point(m['usage']['output_tokens'] == 220, 'one of a message has no such end', str(m))
    s.end()


def doors():
    key = os.path.join(os.path.dirname(TEMPLATE), 'keys')
    with open(key, 'w', encoding='utf-8') as f:
        f.write('secret\n')
    s = Server('--api-key-file', key)
    e = error(s, M, said('x'), 401)
    point(e['type'] == 'authentication_error' and [s.ask(M, said('x'), headers=h)[0] for h in ({'x-api-key': 'secret'}, {'Authorization': 'Bearer secret'})] == [200, 200], 'a key, in both ways', str(e))
    s.end()


def main():
    s = Server()
    plain(s)
    logprobs(s)
    tools(s)
    conversations(s)
    thoughts(s)
    refused(s)
    s.end()
    limits()
    doors()
    return done()


sys.exit(main())
