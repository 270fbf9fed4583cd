"""thermo-serve fills gaps: what it reads, and makes, is what it makes of the tokens. infill.py BIN PACK PLAN."""
import http.client
import json
import re
import subprocess
import sys

sys.path.insert(0, 'tests')
from tap import done, point

BIN, PACK, PLAN = sys.argv[1:]
server = subprocess.Popen([f'{BIN}/thermo-serve', '-q', '--model', PACK, '--plan', PLAN, '--port', '0'], stdout=subprocess.PIPE, text=True)
port = int(re.search(r':(\d+)$', server.stdout.readline())[1])


def ask(path, **body):
    c = http.client.HTTPConnection('127.0.0.1', port, timeout=60)
    c.request('POST', path, json.dumps(body))
    r = c.getresponse()
    return r.status, json.loads(r.read())


def tokens(text):
    return ask('/tokenize', content=text, add_special=True)[1]['tokens']


begin = tokens('')
before, behind = tokens('Once upon a')[len(begin):], tokens('a lived here')[len(begin) + 1:]
assert len(begin) == 1 and ask('/detokenize', tokens=behind)[1]['content'] == ' lived here', (begin, behind)
how = {'max_tokens': 9, 'temperature': 0}
want = ask('/v1/completions', prompt=[*begin, 301, *before, 302, *behind, 303], **how)[1]
got = ask('/v1/completions', prompt='Once upon a', suffix=' lived here', **how)[1]
point(got['choices'][0]['text'] == want['choices'][0]['text'] and got['usage']['prompt_tokens'] == want['usage']['prompt_tokens'] == 4 + len(before) + len(behind), 'beginning, end, gap: as of the tokens', f'{got} {want}')
plain = ask('/v1/completions', prompt='Once upon a', **how)[1]
point(ask('/v1/completions', prompt='Once upon a', suffix='', **how)[1]['choices'] == plain['choices'] != got['choices'], 'no suffix: a text is continued', str(plain))
two = ask('/v1/completions', prompt=['', 'Once upon a'], suffix=' lived here', echo=True, **how)[1]
point(two['choices'][1]['text'] == 'Once upon a' + got['choices'][0]['text'] and two['usage']['prompt_tokens'] == got['usage']['prompt_tokens'] + 4 + len(behind), 'two beginnings of one end', str(two))
for body in ({'prompt': [1, 2], 'suffix': 'x'}, {'prompt': 'x', 'suffix': 3}):
    status, e = ask('/v1/completions', **body)
    point(status == 400 and e['error']['param'] == 'suffix', f'{body}: 400', str(e))
server.terminate()
point(server.wait(60) == 0, 'exit status 0')
sys.exit(done())
