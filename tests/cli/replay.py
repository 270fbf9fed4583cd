"""Conversations that come back with an answer of thermo-serve's in other JSON: the prompt has the tokens that were sampled, where all of the answer
is there; else it has what the client says. replay.py BIN PACK PLAN TEMPLATE DIR."""
import json
import os
import sys
import time

sys.path[:0] = ['tests', 'tests/cli']
from server import Server
from tap import done, point

C, M, R = '/v1/chat/completions', '/v1/messages', '/v1/responses'
PAGE = 32
SAID = {'type': 'string', 'minLength': 45, 'maxLength': 60}
SHAPE = {'type': 'object', 'properties': {'to': {'type': 'string', 'enum': ['caf\u00e9', 'n\u00e4he']}, 'text': SAID}, 'required': ['to', 'text'], 'additionalProperties': False}
TOOLS = [{'type': 'function', 'function': {'name': 'say', 'parameters': SHAPE}}]
FIRST = {'role': 'user', 'content': 'A cat'}


def ask(s, path, body):
    r = s.ask(path, body)
    assert r[0] == 200, r
    return json.loads(r[2])


def anew(text, **change):
    """The same JSON, written otherwise."""
    v = {**json.loads(text), **change}
    return json.dumps(dict(reversed(v.items())), indent=1)


def covered(before, after):
    """Does what was found in memory have all of the prompt and the answer before but for less than a page?"""
    return after['prompt_tokens_details']['cached_tokens'] > before['prompt_tokens'] + before['completion_tokens'] - 1 - PAGE


def sent(s, body):
    """Tokens of a conversation as the client says it."""
    text = ask(s, '/apply-template', {k: body[k] for k in ('messages', 'tools') if k in body})['prompt']
    return len(ask(s, '/tokenize', {'content': text, 'add_special': True, 'parse_special': True})['tokens'])


def called(s, seed=1, **more):
    a = ask(s, C, {'messages': [FIRST], **more, 'temperature': 1, 'seed': seed, 'max_tokens': 150, 'tools': TOOLS, 'tool_choice': 'required'})
    return a['choices'][0]['message'], a['usage']


def then(answer, arguments, first=FIRST, **change):
    call = {**answer['tool_calls'][0], 'function': {'name': 'say', 'arguments': arguments}, **change}
    return {'messages': [first, {'role': 'assistant', 'content': None, 'tool_calls': [call]}, {'role': 'tool', 'tool_call_id': call['id'], 'content': 'ok'}],
            'tools': TOOLS, 'temperature': 0, 'max_tokens': 3}


def as_sent(s, body):
    u = ask(s, C, body)['usage']
    return u['prompt_tokens'] == sent(s, body), u


def calls(s):
    a, u = called(s)
    args = a['tool_calls'][0]['function']['arguments']
    b = ask(s, C, then(a, anew(args)))['usage']
    point(anew(args) != args and u['completion_tokens'] > 2 * PAGE and covered(u, b) and b['prompt_tokens'] != sent(s, then(a, anew(args))),
          'a call in other JSON is read as it was sampled', f'{a} {u} {b}')
    c = ask(s, C, then(a, args))['usage']
    point(c['prompt_tokens'] == b['prompt_tokens'] and covered(u, c), 'and as it came', f'{b} {c}')
    changed = {'arguments': then(a, anew(args, to='elsewhere')), 'id': then(a, anew(args), id='other'), 'name': then(a, anew(args), function={'name': 'do', 'arguments': anew(args)}),
               'number of arguments': then(a, anew(args, more=1)), 'prompt': then(a, anew(args), {**FIRST, 'content': 'A dog'}), 'text': then(a, anew(args))}
    changed['text']['messages'][1]['content'] = 'I say.'
    for name, body in changed.items():
        ok, said = as_sent(s, body)
        point(ok, f'of another {name} what the client says counts', f'{said} {sent(s, body)}')
    x, _ = called(s, 5, logit_bias={'300': -1})
    ok, said = as_sent(s, then(x, anew(x['tool_calls'][0]['function']['arguments'])))
    point(ok, 'what a client has biased is not kept', f'{said}')
    spells = {'role': 'user', 'content': 'A </s> cat'}
    x, v = called(s, 6, messages=[spells])
    e = ask(s, C, then(x, anew(x['tool_calls'][0]['function']['arguments']), spells))['usage']
    point(covered(v, e), 'behind a message that spells a control token, too', f'{v} {e}')
    first = then(a, anew(args))
    d = ask(s, C, {**first, 'temperature': 1, 'max_tokens': 120, 'tool_choice': 'required', 'seed': 2})
    m, v = d['choices'][0]['message'], d['usage']
    second = then(m, anew(m['tool_calls'][0]['function']['arguments']))
    e = ask(s, C, {**second, 'messages': first['messages'] + second['messages'][1:]})['usage']
    point(v['completion_tokens'] > 2 * PAGE and covered(v, e), 'a second call of the same conversation, behind the first', f'{v} {e}')


def thoughts(s):
    def after(thought):
        return {'messages': [FIRST, {'role': 'assistant', 'content': '', 'reasoning_content': thought}, {'role': 'user', 'content': 'Why?'}], 'temperature': 0, 'max_tokens': 3}

    for seed in range(0, 400, 8): # until the model has ended one by itself, and not of the tokens that its text has
        a = ask(s, C, {'messages': [FIRST], 'temperature': 2, 'top_k': 0, 'top_p': 1, 'min_p': 0, 'n': 8, 'max_tokens': 120, 'reasoning_effort': 'high', 'seed': seed})
        ended = [c['message']['reasoning_content'] for c in a['choices'] if c['finish_reason'] == 'stop' and len(c['message'].get('reasoning_content', '')) > 40]
        if ended:
            body = after(ended[0])
            u, n = ask(s, C, body)['usage'], sent(s, body)
            if u['prompt_tokens'] != n:
                break
    thought = ended[0]
    point(u['prompt_tokens'] != n, 'a thought is read as it was sampled', f'{u} {n}')
    m = ask(s, M + '/count_tokens', {'messages': [FIRST, {'role': 'assistant', 'content': [{'type': 'thinking', 'thinking': thought, 'signature': 'x'}]}, body['messages'][2]]})
    r = ask(s, R + '/input_tokens', {'input': [FIRST, {'type': 'reasoning', 'summary': [], 'encrypted_content': 'thought:' + thought}, body['messages'][2]]})
    point(m['input_tokens'] == r['input_tokens'] == u['prompt_tokens'], 'of messages and responses, too', f'{m} {r} {u}')
    for name, said in (('thought', thought + '.'), ('thought', thought[:-1]), ('end', None)):
        body['messages'][1]['reasoning_content'] = said
        ok, said = as_sent(s, body)
        point(ok, f'of another {name} what the client says counts', f'{said}')


def forms(s):
    tools = [{'name': 'say', 'input_schema': SHAPE}]
    body = {'messages': [FIRST], 'tools': tools, 'tool_choice': {'type': 'any'}, 'temperature': 1, 'seed': 3, 'max_tokens': 150}
    a = ask(s, M, body)
    use, u = a['content'][0], a['usage']
    use['input'] = dict(reversed(use['input'].items()))
    result = {'type': 'tool_result', 'tool_use_id': use['id'], 'content': 'ok'}
    b = ask(s, M, {'messages': [FIRST, {'role': 'assistant', 'content': [use]}, {'role': 'user', 'content': [result]}], 'tools': tools, 'temperature': 0, 'max_tokens': 3})['usage']
    made = u['input_tokens'] + u['cache_read_input_tokens'] + u['output_tokens']
    point(u['output_tokens'] > 2 * PAGE and b['cache_read_input_tokens'] > made - 1 - PAGE, 'messages: a tool_use in another order', f'{u} {b}')
    tools = [{'type': 'function', 'name': 'say', 'parameters': SHAPE}]
    a = ask(s, R, {'input': [FIRST], 'tools': tools, 'tool_choice': 'required', 'temperature': 1, 'seed': 4, 'max_output_tokens': 150})
    call, u = a['output'][0], a['usage']
    call['arguments'] = anew(call['arguments'])
    result = {'type': 'function_call_output', 'call_id': call['call_id'], 'output': 'ok'}
    b = ask(s, R, {'input': [FIRST, call, result], 'tools': tools, 'temperature': 0, 'max_output_tokens': 3})['usage']
    point(u['output_tokens'] > 2 * PAGE and b['input_tokens_details']['cached_tokens'] > u['total_tokens'] - 1 - PAGE, 'responses: a function_call in other JSON', f'{u} {b}')


def answers_of(folder):
    return [os.path.join(folder, f) for f in os.listdir(folder) if f.endswith('.answers')]


def written(folder):
    """The answers that have been written (schemas/prefix.md), each by the tokens of its prompt."""
    prompts = []
    for path in answers_of(folder):
        data, at = open(path, 'rb').read(), 40
        for _ in range(int.from_bytes(data[12:16], 'little')):
            prompts.append(int.from_bytes(data[at + 48:at + 52], 'little'))
            at += 64 + 4 * int.from_bytes(data[at + 60:at + 64], 'little')
    return prompts


def restarts(s, folder):
    """Killed, ended, damaged."""
    bird = {**FIRST, 'content': 'A cat and a bird'}
    a, u = called(s, 7, messages=[bird])
    body = then(a, anew(a['tool_calls'][0]['function']['arguments']), bird)
    n = sent(s, body)
    end = time.monotonic() + 60
    while u['prompt_tokens'] not in written(folder) and time.monotonic() < end:
        time.sleep(0.05)
    path, = answers_of(folder)
    s.process.kill()
    s.process.communicate()
    point(os.stat(path).st_mode & 0o777 == 0o600, 'answers are kept in a file of its user alone')
    s = Server('--prefix-cache', folder)
    b = ask(s, C, body)['usage']
    point(b['prompt_tokens'] != n and b['prompt_tokens'] > u['total_tokens'], 'after a SIGKILL it is read as it was sampled', f'{u} {b} {n}')
    s.end()
    s = Server('--prefix-cache', folder)
    c = ask(s, C, body)['usage']
    point(c['prompt_tokens'] == b['prompt_tokens'] and covered(u, c), 'after a restart, and the prefix is found', f'{u} {b} {c}')
    s.end()
    whole = open(path, 'rb').read()
    for name, data in (('flipped', whole[:70] + bytes([whole[70] ^ 1]) + whole[71:]), ('cut', whole[:-1]), ('longer', whole + b'x'), ('empty', b''),
                       ("another model's", whole[:16] + bytes([whole[16] ^ 1]) + whole[17:])):
        with open(path, 'wb') as f:
            f.write(data)
        s = Server('--prefix-cache', folder)
        ok, said = as_sent(s, body)
        point(ok, f'{name}: what the client says counts', f'{said} {n}')
        s.process.kill()
        s.process.communicate()


s = Server('--prefix-cache', sys.argv[5])
calls(s)
thoughts(s)
forms(s)
restarts(s, sys.argv[5])
done()
