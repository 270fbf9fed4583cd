#!/usr/bin/env python3
"""ceiling.py PROGRAM PACK PLAN HOSTILE-PACK: no input of any command makes the process larger than --memory.

Commands and options are those of the program's own tables (PROGRAM COMMAND --help=table): one that takes a file or a text for which no
large input is known here fails, and so does one that runtime/README.md has no bound for. Every run is in a memory cgroup of the limit, where
one can be made, and its peak is measured. Prints TAP."""
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from tap import done, point, table  # noqa: E402

PROGRAM, PACK, PLAN, HOSTILE = map(os.path.abspath, sys.argv[1:5])
SHORT = bool(os.environ.get('TEST_SHORT'))
LIMIT = {'chat': 18 << 20}  # its template has a share
MIB = 1 << 20
ARGUMENT = 120000  # the kernel takes 128 KiB


# ---- a cgroup of our own ----

def make_group():
    for base, file in (('/sys/fs/cgroup/memory', 'memory.limit_in_bytes'), ('/sys/fs/cgroup', 'memory.max')):
        path = f'{base}/thermo-ceiling-{os.getpid()}'
        try:
            os.mkdir(path)
        except OSError:
            continue
        if os.access(f'{path}/{file}', os.W_OK):
            return path, file
        os.rmdir(path)
    return None, None


GROUP, GROUP_FILE = make_group()


def enter(limit):
    if not GROUP:
        return ['env']
    with open(f'{GROUP}/{GROUP_FILE}', 'w') as f:
        f.write(str(limit))
    if os.path.exists(f'{GROUP}/memory.swap.max'):
        with open(f'{GROUP}/memory.swap.max', 'w') as f:
            f.write('0')
    return ['sh', '-c', f'echo $$ > {GROUP}/cgroup.procs; exec "$@"', 'sh']


def serve_runs(pipe):
    """Runs what comes by the pipe, in a process that was small when it began and stays so: a program's peak begins with its parent's."""
    while True:
        words, stdin = pipe.recv()
        with open('out', 'wb') as out, open('err', 'wb') as err, open(stdin or os.devnull, 'rb') as data:
            child = subprocess.Popen(words, stdin=data, stdout=out, stderr=err)
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = status
        pipe.send((os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024))


def run(words, limit, stdin=None):
    """(status, peak in bytes, stderr, stdout's first MiB)"""
    RUNNER.send((enter(limit) + words, stdin))
    code, peak = RUNNER.recv()
    with open('err', 'rb') as e, open('out', 'rb') as o:
        return code, peak, e.read(2000).decode(errors='replace'), o.read(MIB)


# ---- large inputs ----

def write(name, *parts):
    """parts: (bytes, times) each; never all of it in our own memory, which the child's peak begins with."""
    with open(name, 'wb') as f:
        for text, times in parts:
            many = max(1, 65536 // max(1, len(text)))
            while times > 0:
                f.write(text * min(many, times))
                times -= many
    return name


def of_file(option, *names):
    return [([f'--{option}', n], None) for n in names]


def of_text(option):
    return [([f'--{option}', 'Once upon a time. ' * (ARGUMENT // 18)], None), ([f'--{option}', 'x' * ARGUMENT], None)]


def texts():
    return [write('text', (b'Once upon a time there was a girl. ', 240000)), write('word', (b'x', 8 * MIB)), write('zeros', (b'\0', 8 * MIB)),
            write('lines', (b'a\n', 200000))]


def documents(name, begin, end):
    """JSON of all shapes behind `begin`."""
    shapes = {'numbers': (b'[', (b'1,', 4 * MIB), b'1]'), 'objects': (b'[', (b'{},', 2 * MIB), b'1]'), 'deep': (b'', (b'[', MIB), b''),
              'text': (b'"', (b'x', 24 * MIB), b'"'), 'blanks': (b'1', (b' ', 24 * MIB), b''),
              'members': (b'{"a":', (b'{"a":', 1500), b'1' + b'}' * 1501), 'escapes': (b'"', (b'\\u00e9', 4 * MIB), b'"')}
    return [write(f'{name}-{k}', (begin + a, 1), many, (b + end, 1)) for k, (a, many, b) in shapes.items()]


def plans():
    with open(PLAN, 'rb') as f:
        plan = f.read().rstrip()
    begin = plan[:plan.rindex(b'}')]
    return [write('plan-behind', (plan, 1), (b' ', 200 * MIB)), write('plan-blanks', (plan, 1), (b'\n', 30 * MIB))] + \
        documents('plan', begin + b',"x":', b'}')


def prompt_files():
    rows = write('rows.csv', (b'id,text\n1,"', 1), (b'x', 24 * MIB), (b'"\n2,Once\n', 1))
    many = write('many.csv', (b'id,text\n', 1), (b'1,\n', 20))
    return [rows, many] + documents('prompts', b'{"id":1,"prompt":', b'}\n{"id":2,"prompt":"Once","n":1}\n')


def stdin_of(name):
    """Lines of chat --json and of serve."""
    both = b'{"role":"user","id":1,"%s":"hi","n":1,"x":' % (b'content' if name == 'chat' else b'prompt')
    return documents(f'{name}-line', both, b'}\n{"id":2,"content":"Once","prompt":"Once","n":1}\n' if name == 'chat' else
                     b'}\n{"id":2,"prompt":"Once","n":1}\n')


def conversations():
    return documents('talk', b'{"messages":[{"role":"user","content":"hi"}],"x":', b'}') + \
        [write('talk-many', (b'{"messages":[', 1), (b'{"role":"user","content":"hi"},', 400000), (b'{"role":"user","content":"hi"}]}', 1))]


def results():
    write('r.partial', (b'x', 24 * MIB))
    return [(['--prompts', write('few.jsonl', (b'{"prompt":"Once","n":1}\n', 2)), '--output', 'r', '--resume'], None)]


def templates():
    return [write('t-long', (b'{{ "x" }}', MIB)), write('t-nested', (b'{% if 1 %}', 40000)), write('t-text', (b'x', MIB - 1)),
            write('t-loop', (b'{% set ns = namespace(s="x") %}{% for i in range(30) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}', 1)),
            write('t-sets', (b'{% set a = "xxxxxxxxxxxxxxxx" %}', 25000))]


INPUTS = {
    'model': lambda c: of_file('model', HOSTILE, write('noise', (b'TLPK\0\0\0\1', MIB))),
    'plan': lambda c: of_file('plan', *plans()),
    'draft': lambda c: [(['--guess', 'draft', '--draft', HOSTILE, '--draft-plan', PLAN], None)],
    'draft-plan': lambda c: [(['--guess', 'draft', '--draft', PACK, '--draft-plan', p], None) for p in plans()],
    'mtp': lambda c: [(['--guess', 'mtp', '--mtp', HOSTILE], None)],
    'prompt': lambda c: of_text('prompt'),
    'prompt-file': lambda c: of_file('prompt-file', *texts()) + ([] if c == 'bench' else [(['--prompt-file', '-'], n) for n in texts()]),
    'prompts': lambda c: of_file('prompts', *prompt_files()),
    'output': lambda c: results(),
    'column': lambda c: [(['--prompts', write('few.csv', (b'a,text\n1,x\n', 1)), '--column', 'x' * ARGUMENT], None)],
    'system': lambda c: [(w + (['--chat'] if c != 'chat' else []), s) for w, s in of_text('system')],
    'chat-template': lambda c: [(w + (['--chat'] if c != 'chat' else []), s) for w, s in of_file('chat-template', *templates())],
    'stop': lambda c: [(['--stop', 'x' * ARGUMENT] * 8, None)],
    'file': lambda c: [(w + ['--windows', '2'], s) for w, s in of_file('file', *texts())] + of_file('file', *texts()) +
    [(['--file', '-'], 'text')],
    'ids': lambda c: [(w + x, s) for w, s in of_file('ids', write('ids', (b'\5\0', 12 * MIB))) for x in ([], ['--windows', '2'])],
    'text': lambda c: of_file('text', *texts()) + [(['--text', 'text', '-n', '8', '-r', '100'], None)],
    'tokens': lambda c: [(['--tokens', ','.join(['1'] * (ARGUMENT // 2))], None)],
    'sequences': lambda c: [(['--sequences', ','.join(['1'] * (ARGUMENT // 2))], None)],
    **{o: lambda c, o=o: [([f'--{o}', '1,' * (ARGUMENT // 2) + '1'], None)] for o in ('n-prompt', 'n-gen', 'n-depth')},
    'prompt-gen': lambda c: [(['--prompt-gen', '1,1;' * (ARGUMENT // 4) + '1,1'], None)],
    'store': lambda c: [(['--against', 'exact', '--store', 'x' * ARGUMENT], None)],
    'cpu': lambda c: of_text('cpu'),
    'engine': lambda c: [(['--engine', 'opencl'], None), (['--engine', 'x' * ARGUMENT], None)],
    'engine-height': lambda c: [(['--engine', 'opencl', '--engine-height', ','.join(['1:1'] * (ARGUMENT // 4))], None)],
    'memory-file': lambda c: [(['--elastic', str(LIMIT.get(c, 16 << 20)), '--memory-file', write('limit', (b'x', 24 * MIB))], None)],
    'follow-pressure': lambda c: [(['--elastic', str(LIMIT.get(c, 16 << 20)), '--follow-pressure', write('pressure', (b'some total=0 ', 2 * MIB))], None)],
    'prefix-cache': lambda c: [(['--prefix-cache', 'x' * ARGUMENT], None), (['--prefix-cache', 'prefixes'], None)],
    'session': lambda c: of_file('session', *(conversations() if c == 'chat' else [write('ids.json', (b'{"tokens": [', 1), (b'5,', MIB),
                                                                                         (b'5], "pieces": ""}', 1))])),
    'engine-cache': lambda c: [(['--engine', 'opencl', '--engine-cache', 'x' * ARGUMENT], None)],
}
# What comes without an option: name, extra words, standard input.
BESIDE = {
    'chat': lambda: [('--json', ['--json'], s) for s in stdin_of('chat')] +
    [('lines', [], s) for s in texts()[:-1] + [write('messages', (b'a\n', 1000))]] + [('blocks', [], write('block', (b'"""\n', 1), (b'Once upon\n', MIB), (b'"""\nhi\n', 1)))] +
    [('/load', ['--commands'], write(f'load-{i}', (b'/load %s\nhi\n' % s.encode(), 1))) for i, s in enumerate(conversations())],
    'serve': lambda: [('lines', [], s) for s in stdin_of('serve') + texts()],
}


def base(command, given):
    own = {'generate': ['-n', '2', '--temp', '0', '--no-echo'], 'chat': ['-n', '2', '--temp', '0'], 'serve': ['--stdio', '-n', '2'],
           'bench': ['-p', '4', '-n', '4', '-r', '1'], 'perplexity': ['--ctx', '16'], 'logits': []}[command]
    words = [PROGRAM, command, '-q', '--memory', str(LIMIT.get(command, 16 << 20))] + own
    words = [w for w in words if not (w == '--no-echo' and '--prompts' in given)]
    for option, value in (('--model', PACK), ('--plan', PLAN)):
        if option not in given:
            words += [option, value]
    needs = {'generate': (['--prompt', '--prompt-file', '--prompts'], ['--prompt', 'Once']), 'chat': (['--chat-template'], ['--chat-template', 'tiny']),
             'perplexity': (['--file', '--ids'], ['--file', 'small', '--windows', '1']),
             'logits': (['--prompt', '--prompt-file', '--tokens'], ['--tokens', '1'])}
    if command in needs and not set(needs[command][0]) & set(given):
        words += needs[command][1]
    if '--chat' in given and '--chat-template' not in given:
        words += ['--chat-template', 'tiny']
    return words + given


def try_input(command, label, trials):
    limit, whys, most, start = LIMIT.get(command, 16 << 20), [], 0, time.monotonic()
    for given, stdin, *before in trials:
        usual = {'chat': 'hello', 'serve': 'request'}.get(command)
        code, peak, said, out = run((before[0] if before else []) + base(command, given), limit, stdin or usual)
        most = max(most, peak)
        what = ' '.join(w if len(w) < 60 else w[:20] + '...' for w in given) + (f' < {stdin}' if stdin else '')
        if code not in (0, 1, 2, 3, 4, 5, 6) or (code == 1 and 'out of memory' not in said) or peak > limit or (code and not said):
            whys.append(f'{what}: exit status {code}, peak {peak} of {limit}: {said[-200:]}')
        elif command == 'serve' and stdin and b'"id":"2"' not in out and stdin.startswith('serve-line') and 'deep' not in stdin:
            whys.append(f'{what}: the next line was not answered: {out[-300:]!r}')
    point(not whys, f'{command}: {len(trials)} of {label}: the largest is {most / MIB:.1f} MiB of {limit / MIB:.0f}', '\n'.join(whys))
    if os.environ.get('CEILING_TIMES'):
        print(f'# {time.monotonic() - start:.1f} s')


def documented():
    """Options with a row in the table of runtime/README.md."""
    with open(f'{HERE}/runtime/README.md') as f:
        rows = [line for line in f if line.startswith('| ')]
    return set(re.findall(r'`--([a-z-]+)`', ' '.join(row.split('|')[2] for row in rows)))


HERE = os.getcwd()
SETUP = set()
RUNNER = None


def main():
    global RUNNER
    commands = [row[1] for row in table(PROGRAM) if row[0] == 'command']
    told = documented()
    with tempfile.TemporaryDirectory(prefix='thermo-ceiling-') as folder:
        os.chdir(folder)
        RUNNER, there = multiprocessing.Pipe()
        runner = multiprocessing.Process(target=serve_runs, args=(there,), daemon=True)
        runner.start()
        write('tiny', (b'{% for m in messages %}{{ m.content }} {% endfor %}', 1))
        write('small', (b'Once upon a time there was a girl. ', 20))
        write('hello', (b'hello\n', 1))
        write('request', (b'{"id":1,"prompt":"Once","n":1}\n', 1))
        if not GROUP:
            print('# no memory cgroup can be made here: peaks alone')
        for command in commands:
            options = [dict(zip('name short type arg file'.split(), r[1:])) for r in table(PROGRAM, command) if r[0] == 'option']
            if not any(o['name'] == 'memory' for o in options):
                continue
            takes = [o['name'] for o in options if o['type'] in ('string', 'list')]
            unknown, untold = [o for o in takes if o not in INPUTS], [o for o in takes if o not in told]
            point(not unknown, f'{command}: a large input is known for every option that takes one', ' '.join(unknown))
            point(not untold, f'{command}: runtime/README.md states a bound for each', ' '.join(untold))
            for o in takes:
                if o in INPUTS and not (SHORT and o in SETUP):
                    try_input(command, f'--{o}', INPUTS[o](command))
                SETUP.add(o)
            for label, *trial in BESIDE.get(command, list)():
                try_input(command, f'{label} {trial[1]}', [trial])
            if command == 'generate':
                large = f'v=$(printf %{ARGUMENT}d 0); for i in 1 2 3 4 5 6 7 8 9 a b c; do export X$i=$v; done; unset v; exec "$@"'
                try_input(command, 'the environment', [([], None, ['sh', '-c', large, 'sh'])])
    if GROUP:
        os.rmdir(GROUP)
    return done()


if __name__ == '__main__':
    sys.exit(main())
