"""thermo-serve as litellm and llm see it. server-clients.py BIN PACK PLAN TEMPLATE litellm|llm..."""
import json
import os
import re
import subprocess
import sys
import urllib.request

sys.path.insert(0, 'tests')
from tap import done, point

BIN, PACK, PLAN, TEMPLATE = sys.argv[1:5]
FOLDER = os.path.dirname(TEMPLATE)
server = subprocess.Popen([f'{BIN}/thermo-serve', '--model', PACK, '--plan', PLAN, '--port', '0', '-q', '--', '--chat-template', TEMPLATE], stdout=subprocess.PIPE, text=True)
URL = re.search(r'http\S+', server.stdout.readline())[0]
SAID = [{'role': 'user', 'content': 'A cat'}]
CHAT = urllib.request.Request(URL + '/v1/chat/completions', json.dumps({'messages': SAID, 'max_tokens': 8, 'temperature': 0}).encode())
WANT = json.load(urllib.request.urlopen(CHAT))['choices'][0]['message']['content']
PARAMETERS = {'type': 'object', 'properties': {'x': {'type': 'integer'}}, 'required': ['x'], 'additionalProperties': False}


def with_litellm():
    os.environ['LITELLM_LOCAL_MODEL_COST_MAP'] = 'True'  # nothing is asked of other machines
    import litellm
    litellm.suppress_debug_info = True
    tool = {'type': 'function', 'function': {'name': 'f', 'parameters': PARAMETERS}}
    for model, base in (('openai/any', URL + '/v1'), ('anthropic/any', URL), ('text-completion-openai/any', URL + '/v1')):
        at = {'model': model, 'api_base': base, 'api_key': 'none', 'max_retries': 0}
        if model.startswith('text'):
            a = litellm.text_completion(prompt='[user] A cat\n[teller]', max_tokens=8, temperature=0, **at)
            point(a.choices[0].text == WANT, f'litellm, {model}', repr(a))
            continue
        a = litellm.completion(messages=SAID, max_tokens=8, temperature=0, **at)
        point(a.choices[0].message.content == WANT and a.choices[0].finish_reason == 'length' and a.usage.completion_tokens == 8, f'litellm, {model}', repr(a))
        got = ''.join(e.choices[0].delta.content or '' for e in litellm.completion(messages=SAID, max_tokens=8, temperature=0, stream=True, **at))
        point(got == WANT, f'litellm, {model}: streamed', got)
        a = litellm.completion(messages=SAID, max_tokens=90, temperature=0, tools=[tool], tool_choice='required', **at)
        call = a.choices[0].message.tool_calls[0]
        point(call.function.name == 'f' and list(json.loads(call.function.arguments)) == ['x'] and a.choices[0].finish_reason == 'tool_calls', f'litellm, {model}: a call', repr(a))
        after = [*SAID, a.choices[0].message.model_dump(), {'role': 'tool', 'tool_call_id': call.id, 'content': '8'}]
        a = litellm.completion(messages=after, max_tokens=3, tools=[tool], **at)
        point(a.usage.completion_tokens == 3, f'litellm, {model}: what came of it', repr(a))
        try:
            litellm.completion(messages=[{'role': 'user', 'content': 'word ' * 400}], max_tokens=3, **at)
            point(False, f'litellm, {model}: more than the context', 'nothing was raised')
        except litellm.ContextWindowExceededError as e:
            point(e.status_code == 400, f'litellm, {model}: more than the context', repr(e))
        except Exception as e:
            point(False, f'litellm, {model}: more than the context', repr(e))
    a = litellm.responses(model='openai/any', api_base=URL + '/v1', api_key='none', input='A cat', max_output_tokens=8, temperature=0)
    point(a.output[0].content[0].text.startswith(WANT), 'litellm: responses', repr(a))  # it asks for 16 tokens at least
    kinds = [getattr(e.type, 'value', e.type) for e in litellm.responses(model='openai/any', api_base=URL + '/v1', api_key='none', input='A cat', max_output_tokens=8, temperature=0, stream=True)]
    point(kinds[0] == 'response.created' and kinds[-1] in ('response.completed', 'response.incomplete'), 'litellm: responses, streamed', repr(kinds))


def with_llm():
    folder = f'{FOLDER}/llm'
    os.mkdir(folder)
    with open(f'{folder}/extra-openai-models.yaml', 'w', encoding='utf-8') as f:
        f.write(f'- model_id: here\n  model_name: any\n  api_base: "{URL}/v1"\n  supports_schema: true\n  supports_tools: true\n')

    def llm(*more):
        r = subprocess.run([sys.executable, '-m', 'llm', '-m', 'here', *more], capture_output=True, text=True, env={**os.environ, 'LLM_USER_PATH': folder})
        return r.stdout.rstrip('\n'), r.stderr

    for how in ([], ['--no-stream']):
        out, err = llm('-o', 'temperature', '0', '-o', 'max_tokens', '8', *how, 'A cat')
        point(out == WANT.rstrip('\n'), f'llm {how}', f'{out!r} {err}')
    out, err = llm('-o', 'temperature', '0', '-o', 'max_tokens', '120', '--schema', 'name, legs int', 'A cat')
    try:
        fits = sorted(json.loads(out)) == ['legs', 'name']
    except ValueError:
        fits = False
    point(fits, 'llm --schema', f'{out!r} {err}')
    out, err = llm('-o', 'max_tokens', '8', '-c', 'and?')
    point(out != '', 'llm -c: a conversation goes on', err)


for name in sys.argv[5:]:
    (with_litellm if name == 'litellm' else with_llm)()
server.terminate()
point(server.wait(60) == 0, 'exit status 0')
sys.exit(done())
