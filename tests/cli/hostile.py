#!/usr/bin/env python3
"""hostile.py BIN [SHARE [NTH]]: no value of a file, name or option steers a terminal or forges a line, on standard output or standard error.

Every command of every program, from their own tables, gets every input with hostile strings: a model, its trace, hardware, plan and pack with
hostile names, which belong together, and then files with one hostile string each (keys, tensors, tokens and templates of a model, columns of a
database, leaves and keys of a plan, cells of CSV files, lines of requests), in every option and argument that reads; and every option with a
hostile value. SHARE: of the files with one hostile string every SHAREth; NTH: of all command lines but those with all that is hostile
together every NTHth, as many of each command. Prints TAP."""
import concurrent.futures
import json
import os
import pty
import random
import re
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
import threading
import tty

from outputs import Command

FORGED = 'ok forged'
# A title, a colour, a line of ours, an overwritten one, DEL, C1 as UTF-8, directions, separators and markup; as bytes also what is no UTF-8.
ACTS = '\x1b]0;t\x07\x1b[31m\n' + FORGED + '\r\n' + FORGED + '\x08\x7f\u009b31m\u202eb\u2066\u2028' + FORGED + '\u2029<script>alert(1)</script>'
BYTES = ACTS.encode() + b'\xff\x9b31m\n' + FORGED.encode()
FINE = '\u202eb\u2066'  # what names of keys and tensors may have
DATA = {'generate', 'chat', 'export'}  # what these print is a text or CSV: escaped on a terminal alone, with signs of direction and its own lines
BAD = re.compile('[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]|^\\s*' + FORGED , re.M)
BAD_PAGE = re.compile(BAD.pattern + '|<script>alert', re.M)
BAD_DATA = re.compile('[\x00-\x08\x0b-\x1f\x7f-\x9f]')
NAMES = ('thermo-profile', 'thermo-plan', 'thermo-pack', 'thermo-run', 'thermo-quantize', 'gguf-make', 'gguf-synth')
points = bad = 0
numbers = random.Random(1)


def point(why, name):
    global points, bad
    points += 1
    bad += bool(why)
    print(f'{"not ok" if why else "ok"} {points} - {name}', flush=True)
    for line in why[:10]:
        print('#', ascii(line))


# ---- running ----

def on_terminal(line, stdin, folder):
    """Standard output is a terminal."""
    master, slave = pty.openpty()
    tty.setraw(slave)
    said = []

    def read():
        try:
            while piece := os.read(master, 65536):
                said.append(piece)
        except OSError:
            pass  # the other end is closed
    with subprocess.Popen(line, stdin=stdin, stdout=slave, stderr=subprocess.PIPE, cwd=folder, env=environment) as p:
        os.close(slave)
        reader = threading.Thread(target=read)
        reader.start()
        try:
            err = p.communicate(timeout=120)[1]
        finally:
            p.kill()
    reader.join()
    os.close(master)
    return p.returncode, b''.join(said), err, b''


def run(line, given=b'', terminal=False):
    """Exit status, what standard output got, standard error, and the pages that were written; in a folder of its own, removed then."""
    folder = tempfile.mkdtemp(dir=scratch)
    try:
        with open(folder + '/stdin', 'w+b') as f:
            f.write(given)
            f.seek(0)
            if terminal:
                return on_terminal(line, f, folder)
            p = subprocess.run(line, stdin=f, capture_output=True, cwd=folder, timeout=120, env=environment)
            return p.returncode, p.stdout, p.stderr, b''.join(pages(folder))
    finally:
        shutil.rmtree(folder)


def pages(folder):
    """What a command wrote for people: drawings, HTML and SMT-LIB."""
    for name in os.listdir(folder):
        with open(f'{folder}/{name}', 'rb') as f:
            data = f.read()
            if data[:1] in (b'<', b';') and name != 'stdin':
                yield data if data[:1] == b'<' else data.replace(b'<script>', b'')


def faults(line, given=b'', works=False):
    """What is wrong with what a command line prints; ''. works: it has to end with 0."""
    data = line[1] in DATA and '--json' not in line
    try:
        status, out, err, page = run(line, given, data)
    except subprocess.TimeoutExpired:
        return f'{line}: no end'
    for stream, bad_ in ((out, BAD_DATA if data else BAD), (err, BAD), (page, BAD_PAGE)):
        try:
            found = bad_.search(stream.decode())
        except UnicodeDecodeError as e:
            return f'{line}: {e}'
        if found:
            return f'{line}: {found.group()!r} in {stream.decode()[max(0, found.start() - 150):found.end() + 50]!r}'
    if status < 0 or (works and status) or (status and not err):
        return f'{line}: status {status}: {err[-300:]!r}'
    if status == 0 and '--json' in line:
        try:
            json.loads(out)
        except ValueError:
            try:
                for one in out.splitlines():
                    json.loads(one)
            except ValueError as e:
                return f'{line}: no JSON: {e}: {out[:200]!r}'
    return ''


def try_all(lines, name):
    lines = [line if isinstance(line, tuple) else (line,) for line in lines]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        point([why for why in pool.map(lambda a: faults(*a), lines) if why] if lines else ['nothing was run'], f'{name}: {len(lines)} command lines')


def made(line, given=b''):
    status, out, err, _ = run(line, given)
    if status:
        print(f'Bail out! {line}: status {status}: {ascii(err[-600:].decode(errors="replace"))}')
        sys.exit(1)
    return out


# ---- GGUF ----

FIXED = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


class Gguf:
    """keys: [name, kind, bytes of the value]; tensors: [name, the rest of its entry]."""

    def __init__(self, path):
        with open(path, 'rb') as f:
            self.data = f.read()
        self.at = 8
        n_tensors, n_keys = self.number('Q'), self.number('Q')
        self.keys, self.tensors = [], []
        for _ in range(n_keys):
            name, kind, start = self.string(), self.number('I'), self.at
            self.skip(kind)
            self.keys.append([name, kind, self.data[start:self.at]])
        for _ in range(n_tensors):
            name, start = self.string(), self.at
            n_dims = self.number('I')
            self.at += 8 * n_dims + 12
            self.tensors.append([name, self.data[start:self.at]])
        self.weights = self.data[-(-self.at // 32) * 32:]

    def number(self, form):
        self.at += struct.calcsize(form)
        return struct.unpack_from('<' + form, self.data, self.at - struct.calcsize(form))[0]

    def string(self):
        n = self.number('Q')
        self.at += n
        return self.data[self.at - n:self.at]

    def skip(self, kind):
        if kind == 8:
            self.string()
        elif kind == 9:
            inner, n = self.number('I'), self.number('Q')
            for _ in range(n):
                self.skip(inner)
        else:
            self.at += FIXED[kind]

    def strings(self, name):
        """Of a key that is a list of strings."""
        value = next(k[2] for k in self.keys if k[0] == name)
        n, at, out = struct.unpack_from('<Q', value, 4)[0], 12, []
        for _ in range(n):
            size = struct.unpack_from('<Q', value, at)[0]
            out.append(value[at + 8:at + 8 + size])
            at += 8 + size
        return out

    def put(self, name, kind, value):
        self.keys = [k for k in self.keys if k[0] != name] + [[name, kind, value]]

    def write(self, path):
        out = b'GGUF' + struct.pack('<IQQ', 3, len(self.tensors), len(self.keys))
        for name, kind, value in self.keys:
            out += text(name) + struct.pack('<I', kind) + value
        for name, rest in self.tensors:
            out += text(name) + rest
        with open(path, 'wb') as f:
            f.write(out + bytes(-len(out) % 32) + self.weights)
        return path


def text(s):
    return struct.pack('<Q', len(s)) + s


def texts(list_of):
    return struct.pack('<IQ', 8, len(list_of)) + b''.join(map(text, list_of))


# Keys that are strings or lists of them, whether the small model has them or not.
STRINGS = ['general.architecture', 'general.name', 'tokenizer.ggml.model', 'tokenizer.ggml.pre', 'tokenizer.chat_template', 'llama.hidden_act',
           'llama.rope.scaling.type', 'general.type', 'delta.base', 'general.description', 'llama.expert_gating_func', 'general.file_type',
           'split.no', 'llama.block_count', 'general.alignment', 'llama.embedding_length', 'tokenizer.ggml.bos_token_id']
LISTS = ['tokenizer.ggml.tokens', 'tokenizer.ggml.merges', 'tokenizer.ggml.scores', 'llama.rope.dimension_sections']
TEMPLATES = ['{{ raise_exception(%s) }}' % json.dumps(ACTS), '{{ ' + ACTS + ' }}', '{% ' + ACTS, '{{ messages[0]["' + ACTS + '"].x.y }}', '{{ x | ' + FINE + ' }}',
             '{% for ' + FINE + ' in 5 %}', "{{ '" + ACTS + "' + 1 }}", '{{ ' + FINE + '() }}', '{% set x = "' + ACTS + '" %}{{ x.' + FINE + '.a.b }}',
             "{{ '" + ACTS + "' | int + [] }}", "{{ {}['" + ACTS + "']['a'] }}"]


def hostile_models(good, folder):
    """Files with one hostile string each."""
    n = 0

    def save(change):
        nonlocal n
        g = Gguf(good)
        change(g)
        n += 1
        return g.write(f'{folder}/{n}.gguf')
    for name in STRINGS:
        yield save(lambda g: g.put(name.encode(), 8, text(BYTES)))
        yield save(lambda g: g.put(name.encode(), 8, text(ACTS.encode())))
    for name in LISTS:
        yield save(lambda g: g.put(name.encode(), 9, texts([BYTES] * 512)))
        yield save(lambda g: g.put(name.encode(), 9, texts([ACTS.encode()] * 512)))
    tokens = Gguf(good).strings(b'tokenizer.ggml.tokens')
    yield save(lambda g: g.put(b'tokenizer.ggml.tokens', 9, texts([t + BYTES for t in tokens])))
    yield save(lambda g: g.put(b'tokenizer.ggml.tokens', 9, texts([b'<0x' + FINE.encode() + b'>'] + tokens[1:])))
    yield save(lambda g: g.put(b'tokenizer.ggml.tokens', 9, texts(tokens[:300] + [ACTS.encode()] * 212)))
    for name in (FINE.encode(), BYTES, b'llama.' + FINE.encode()):
        yield save(lambda g: g.keys.append([name, 99, b'']))
        yield save(lambda g: g.keys.extend([[name, 8, text(b'')]] * 2))
        yield save(lambda g: g.tensors[0].__setitem__(0, name))
        yield save(lambda g: g.tensors[0].__setitem__(slice(0, 2), [name, g.tensors[0][1][:-12] + struct.pack('<IQ', 99, 0)]))
        yield save(lambda g: [t.__setitem__(0, name) for t in g.tensors])
        yield save(lambda g: g.tensors[-1].__setitem__(0, b'blk.1.' + name + b'.weight'))
    for template in TEMPLATES:
        yield save(lambda g: g.put(b'tokenizer.chat_template', 8, text(template.encode())))


# ---- other files ----

def write(path, data):
    with open(path, 'wb') as f:
        f.write(data if isinstance(data, bytes) else data.encode())
    return path


def hostile_databases(good, folder):
    """Each column of text, all rows."""
    with sqlite3.connect(good) as db:
        tables = [r[0] for r in db.execute("select name from sqlite_master where type = 'table' and name not like 'sqlite_%'")]
        columns = [(t, c[1]) for t in tables for c in db.execute(f'pragma table_info("{t}")')]
    db.close()
    for i, (table, column) in enumerate(columns):
        for acts in (ACTS, ACTS.replace('\n', ' ')):
            path = shutil.copy(good, f'{folder}/{i}{len(acts)}.sqlite')
            if set_column(path, table, column, acts):
                yield path, table, column


def set_column(path, table, column, acts):
    db = sqlite3.connect(path)
    try:
        db.execute('pragma foreign_keys = off')
        db.execute('pragma ignore_check_constraints = on')
        if not db.execute(f'select count(*) from "{table}" where typeof("{column}") = \'text\'').fetchone()[0]:
            return False
        db.execute(f'update "{table}" set "{column}" = ? || rowid where typeof("{column}") = \'text\'', (acts,))
        db.commit()
        return True
    except sqlite3.Error:
        return False
    finally:
        db.close()


def leaves(value, path=()):
    yield path, value
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from leaves(inner, path + (key,))


def hostile_json(good, folder):
    """One value or key each, of every place by its name."""
    with open(good, encoding='utf-8') as f:
        source = f.read()
    seen, n = set(), 0
    for path, value in leaves(json.loads(source)):
        kind = tuple('#' if isinstance(k, int) else k for k in path)
        if not path or kind in seen:
            continue
        seen.add(kind)
        for how in ('value', 'key', 'member'):
            whole = json.loads(source)
            at = whole
            for k in path[:-1]:
                at = at[k]
            if how == 'value':
                at[path[-1]] = ACTS
            elif how == 'member' and isinstance(value, dict):
                at[path[-1]][ACTS] = 1
            elif how == 'key' and isinstance(at, dict):
                at[ACTS] = at.pop(path[-1])
            else:
                continue
            n += 1
            yield write(f'{folder}/{n}', json.dumps(whole))
    yield write(f'{folder}/no', source[:-3] + ACTS)
    yield write(f'{folder}/twice', '{"%s": 1, "%s": 2}' % (FINE, FINE))
    yield write(f'{folder}/bytes', b'{"' + BYTES + b'": "' + BYTES + b'"}')


def hostile_csv(good, folder):
    with open(good, encoding='utf-8') as f:
        rows = [line.rstrip('\n').split(',') for line in list(f)[:12]]
    n = 0
    for i in (0, 1, len(rows) - 1):
        for k in range(len(rows[i])):
            for acts in (ACTS.encode(), BYTES, FINE.encode()):
                n += 1
                out = [[c.encode() for c in row] for row in rows]
                out[i][k] = b'"' + acts + b'"'
                yield write(f'{folder}/{n}.csv', b''.join(b','.join(row) + b'\n' for row in out))
    yield write(f'{folder}/bytes.csv', BYTES)


def requests():
    """Lines of requests to serve and chat --json, and of --prompts."""
    acts = json.dumps(ACTS)
    for line in ('{"id":%s,"prompt":"a","n":1}', '{"id":"a","prompt":%s,"n":1}', '{"id":"a",%s:1}', '{"id":%s,%s:1}', '{"id":"a","prompt":"a","temp":%s}', '%s',
                 '{"id":"a","messages":[{"role":%s,"content":%s}],"n":1}', '{"id":"a","messages":[{"role":"user",%s:1}]}', '{"id":"a","cancel":%s}',
                 '{"role":%s,"content":"a"}', '{"role":"user","content":%s}', '{"role":"user",%s:1}', '[%s]', '{"id":"a","stop":[%s],"prompt":"a","n":1}',
                 '{"id":"\\ud800","prompt":"a"}', '{"id":"\\u0000","prompt":"a"}', '{"id":"' + FINE + '"', ACTS):
        yield (line.replace('%s', acts) + '\n').encode()
    yield BYTES + b'\n'


# ---- commands ----

ASKED = b'{"id":"a","prompt":"a","n":2}\n'

# Where required files are not all that a command needs to go on.
BESIDE = {('thermo-plan', 'solve'): ['traces', 'memory', 'smt2'], ('thermo-plan', 'sweep'): ['traces', 'svg'], ('thermo-plan', 'check'): ['traces', 'hardware'],
          ('thermo-plan', 'explain'): ['traces'], ('thermo-plan', 'report'): ['traces'], ('thermo-plan', 'calibrate'): ['traces'],
          ('thermo-pack', 'verify'): ['traces'], ('thermo-run', 'generate'): ['prompt', 'n'], ('thermo-run', 'bench'): ['few'],
          ('thermo-run', 'perplexity'): ['file', 'windows'], ('thermo-run', 'logits'): ['prompt'], ('thermo-profile', 'hardware'): ['quick'],
          ('thermo-run', 'chat'): ['n'], ('thermo-run', 'serve'): ['stdio'], ('gguf-synth', None): ['small'], ('thermo-quantize', None): ['again']}
WORDS = {'stdio': ['--stdio'], 'memory': ['--memory', '64MiB'], 'prompt': ['--prompt', 'a'], 'n': ['-n', '2'], 'few': ['-p', '2', '-n', '2', '-r', '1'],
         'quick': ['--dry-run'], 'windows': ['--windows', '1'], 'small': ['--dry-run', '--layers', '1'], 'again': ['--allow-requantize']}
AFTER = {'thermo-quantize': ['Q8_0']} # arguments that are no files
# What the hostile chain has nothing for.
REFUSE = {('thermo-profile', 'silence'), ('thermo-pack', 'mtp'), ('thermo-profile', 'predictors-measure'), ('thermo-profile', 'predictors-import'), ('thermo-plan', 'calibrate'),
          ('gguf-make', 'apply-delta')}
# Commands that take long, or measure, run only with what they refuse.
SLOW = {('thermo-profile', 'hardware'), ('thermo-profile', 'predictors'), ('gguf-make', 'random')}


# What kind of file an option reads, and what the arguments of a program are; '' is any.
KINDS = {'plan': 'plan', 'traces': 'trace', 'hardware': 'db', 'db': 'db', 'prompts': 'csv', 'held-out': 'csv', 'csv': 'csv', 'telemetry': 'telemetry',
         'description': 'description', 'against': 'plan', 'for-pack': 'pack', 'chat-template': 'text', 'draft-plan': 'plan', 'draft': 'pack',
         'prompt-file': 'text', 'text': 'text', 'ids': 'text', 'file': 'text', 'routes': 'csv'}
ARGUMENTS = {'thermo-plan': 'plan', 'thermo-pack': 'pack', 'thermo-quantize': 'gguf', 'gguf-make': 'gguf'}


class Hostile:
    def __init__(self, program, name, world):
        self.c, self.program, self.name, self.world = Command(program, name), os.path.basename(program), name, world
        self.reads = [(p, ARGUMENTS.get(self.program, '')) if isinstance(p, int) else
                      (p['name'], 'pack' if self.program == 'thermo-run' and p['name'] == 'model' else KINDS.get(p['name'], 'gguf' if p['name'] == 'model' else ''))
                      for _, p in self.c.places('read', 'read-db', 'update-db')]

    def value(self, name, i=None):
        """What an option or argument usually gets."""
        w = self.world
        if self.program == 'thermo-run' and name == 'model':
            return w['pack']
        if i is not None:
            return {'thermo-plan': w['plan'] if self.name != 'calibrate' else w['telemetry'], 'thermo-pack': w['pack'],
                    'thermo-profile': w['trace'], 'thermo-quantize': w['gguf'], 'gguf-make': w['gguf'], 'gguf-synth': 'new'}[self.program] if self.c.arguments[i] == 'r' else 'new'
        return {'model': w['gguf'], 'plan': w['plan'], 'traces': w['trace'], 'hardware': w['db'], 'db': w['db'] if self.name == 'export' else w['written'], 'prompts': w['prompts'], 'csv': w['csv'],
                'held-out': w['prompts'], 'telemetry': w['telemetry'], 'file': w['text'], 'device': w['device'], 'memory': '60MiB..64MiB', 'smt2': 'new.smt2', 'svg': 'new.svg'}.get(name)

    def line(self, given, more=()):
        """A command line that runs, but for what is given: {place: value}; values may be several of an argument's."""
        words = []
        for o in self.c.options:
            name = o['name']
            beside = name in BESIDE.get((self.program, self.name), ()) and name not in WORDS
            if name in given:
                words.append(f'--{name}={given[name]}' if isinstance(given[name], str) else b'--' + name.encode() + b'=' + given[name])
            elif o['required'] == '1' or beside:
                words += [f'--{name}', self.value(name) or 'new']
        if (self.program, self.name) == ('thermo-pack', 'verify') and 'model' not in given:
            words += ['--model', self.world['gguf']]
        for name in BESIDE.get((self.program, self.name), ()):
            if name in WORDS and not set(given) & {WORDS[name][0][2:]}:
                words += WORDS[name]
        positional = [given.get(i, self.value(None, i)) for i in range(len(self.c.arguments))]
        return self.c.call + words + list(more) + positional + AFTER.get(self.program, [])

    def has(self, name):
        return any(o['name'] == name for o in self.c.options)

    def deep(self):
        """With all that is hostile together, as text, JSON and at length."""
        if (self.program, self.name) in SLOW:
            return
        given, works = {'serve': ASKED, 'chat': b'a\n'}.get(self.name, b''), (self.program, self.name) not in REFUSE
        yield self.line({}, ['-v']), given, works
        if self.has('json'):
            yield self.line({}, ['--json']), b'{"role":"user","content":"a"}\n' if self.name == 'chat' else given, works
        if self.has('tensors'):
            yield self.line({}, ['--tensors']), given, works
        for o in self.c.options:
            for choice in o['choices'].split(',') if o['name'] in ('output', 'format') and o['type'] == 'choice' else ():
                yield self.line({}, [f'--{o["name"]}', choice]), given, works

    def values(self, share):
        """Every option with a hostile value, of those that are numbers and flags a share; files of hostile names, which are there and which are not."""
        others = 0
        for o in self.c.options:
            others += o['type'] not in ('string', 'list')
            if o['type'] in ('string', 'list'):
                if (self.program, self.name) not in SLOW:
                    yield self.line({o['name']: BYTES})
            elif others % share == 0:
                yield self.c.call + [f'--{o["name"]}=' + ACTS] if o['type'] == 'flag' else self.line({o['name']: '1' + ACTS})
        for k in (BYTES, '-' + ACTS, '--' + ACTS):
            yield self.c.call + [k] * (len(self.c.arguments) + 1)
        for name, _ in self.reads:
            yield from (self.line({name: path}) for path in self.world['named'])

    def files(self, kinds, share):
        """Every input with a share of the files of its kind, and some of another."""
        given = {'serve': ASKED, 'chat': b'a\n'}.get(self.name, b'')
        for name, kind in self.reads:
            if (self.program, self.name) in SLOW and kind == 'csv':
                continue
            other = numbers.sample(sorted(kinds), 2)
            for of, paths in kinds.items():
                mine = of == kind or not kind
                few = numbers.sample(paths, -(-len(paths) // (share if mine else 10 * share))) if mine or of in other else []
                more = ['--chat'] if name == 'chat-template' and self.has('chat') else []
                yield from ((self.line({name: path}, more), given) for path in few)

    def requests(self):
        if self.name in ('serve', 'chat'):
            for given in requests():
                yield self.line({}, ['--json'] * self.has('json')), given


def hostile_columns(tool, w, database, folder):
    """Every column of w's database that commands take: hostile, or with what names may have."""
    for _, table, column in list(hostile_databases(database, folder)):
        for acts in (ACTS, FINE):
            kept = shutil.copy(w['db'], f'{folder}/kept')
            set_column(w['db'], table, column, acts)
            if not any(run([tool['thermo-profile'], command, *more, w['db']])[0] for command, more in (('show', ()), ('export', ('--db',)))):
                break
            shutil.copy(kept, w['db'])
    db = sqlite3.connect(w['db'])
    w['device'] = db.execute('select name from device').fetchone()[0]
    db.close()


def hostile_world(tool, folder):
    """A model of hostile names and what is made of it, and the plain database that its own comes from."""
    good = f'{folder}/{ACTS[:20]}' + ACTS[20:].replace('/', '').replace('\n' + FORGED + '\r', '') + 'é'
    os.mkdir(good)
    w = {k: f'{good}/{FINE}\n{FORGED} {k}' for k in ('gguf', 'prompts', 'trace', 'db', 'plan', 'pack', 'telemetry', 'text', 'csv')}
    plain = f'{folder}/in.gguf'
    made([tool['gguf-make'], 'random', '-q', '--act', 'relu', '--layers', '2', '--vocab', '512', plain])
    g = Gguf(plain)
    g.put(b'general.name', 8, text(ACTS.encode() + b'\n' + FORGED.encode()))
    # The template names no role: texts for chats are made of whatever comes.
    g.put(b'tokenizer.chat_template', 8, text(b'{% for m in messages %}{{ m.content }}{% endfor %}'))
    tokens = g.strings(b'tokenizer.ggml.tokens')
    g.put(b'tokenizer.ggml.tokens', 9, texts(tokens[:300] + [t + ACTS.encode() for t in tokens[300:]]))
    g.write(w['gguf'])
    column = FINE + '"x\n' + FORGED
    write(w['prompts'], 'text,"' + column.replace('"', '""') + '"\na b,a b c abc ab ba\nb a,hello world once upon\n')
    write(w['text'], 'a b c ' * 200)
    shutil.copy('datasets/devices/oneplus-12.csv', w['csv'])
    database = f'{folder}/in.sqlite'
    made([tool['thermo-profile'], 'import', '-q', '--db', database, '--csv', w['csv']])
    shutil.copy(database, w['db'])
    hostile_columns(tool, w, database, folder)
    made([tool['thermo-profile'], 'trace', '-q', '--model', w['gguf'], '--prompts', w['prompts'], '--column', column, '--out', w['trace']])
    made([tool['thermo-plan'], 'solve', '-q', '--traces', w['trace'], '--hardware', w['db'], '--memory', '64MiB', '--out', w['plan']])
    made([tool['thermo-pack'], 'pack', '-q', '--model', w['gguf'], '--traces', w['trace'], '--plan', w['plan'], '--out', w['pack']])
    write(w['telemetry'], made([tool['thermo-run'], 'generate', '-q', '--json', '--model', w['pack'], '--plan', w['plan'], '--prompt', 'a', '-n', '4', '--seed', '1']))
    w['written'] = shutil.copy(w['db'], w['db'] + ' written')
    w['named'] = [f'{good}/none', write(f'{good}/there', BYTES), os.fsencode(good) + b'/\xff\x9b31m', good]
    return w, plain, database


def kinds_of(w, plain, database, folder):
    """{kind: paths}"""
    with open(w['telemetry'], encoding='utf-8') as f:
        last = write(f'{folder}/last', f.read().rstrip('\n').split('\n')[-1])
    makers = {'gguf': lambda at: hostile_models(plain, at), 'db': lambda at: (p for p, _, _ in hostile_databases(database, at)),
              'plan': lambda at: hostile_json(w['plan'], at), 'csv': lambda at: hostile_csv(w['csv'], at), 'telemetry': lambda at: hostile_json(last, at),
              'description': lambda at: hostile_json('datasets/descriptions/small-relu.json', at), 'pack': lambda at: patched(w['pack'], at),
              'trace': lambda at: patched(w['trace'], at),
              'text': lambda at: (write(f'{at}/{i}', t) for i, t in enumerate(TEMPLATES + [BYTES, ACTS] + list(requests())))}
    out = {}
    for kind, make in makers.items():
        os.mkdir(f'{folder}/{kind}')
        out[kind] = list(make(f'{folder}/{kind}'))
    return out


def patched(path, folder):
    """Copies with some text of theirs made hostile, where a checksum does not hold it."""
    with open(path, 'rb') as f:
        data = f.read()
    for m in list(re.finditer(rb'[a-z_ -]{7,}', data))[::40][:12]:
        yield write(f'{folder}/{m.start()}', data[:m.start()] + (BYTES * 4)[:len(m.group())] + data[m.end():])


def main():
    global scratch, environment
    tool = {n: os.path.abspath(f'{sys.argv[1]}/{n}') for n in NAMES}
    share, nth = (int(sys.argv[i]) if len(sys.argv) > i else 1 for i in (2, 3))
    environment = {**os.environ, 'NO_COLOR': '1', 'COLUMNS': '200'}
    with tempfile.TemporaryDirectory(prefix='thermo-hostile-') as folder:
        scratch = f'{folder}/runs-here'
        os.mkdir(scratch)
        w, plain, database = hostile_world(tool, folder)
        point([] if FINE in w['device'] else [w['device']], 'names of model, device, files and columns are hostile, and a chain runs with them')
        kinds = kinds_of(w, plain, database, folder)
        for n in NAMES:
            point([] if BAD.search(run([tool[n], ACTS])[2].decode()) is None else [n], f'{n}: a hostile command')
            names = [line.split('\t')[1] for line in run([tool[n], '--help=table'])[1].decode().splitlines() if line.startswith('command\t')]
            for name in names or [None]:
                h = Hostile(tool[n], name, w)
                one_each = [*h.values(share), *h.files(kinds, share), *h.requests()]
                try_all([*h.deep(), *one_each[numbers.randrange(nth)::nth]], h.c.label)
        generated(tool, w)
    print(f'1..{points}')
    return bad > 0


def generated(tool, w):
    """Text of a model: bytes for a pipe."""
    line = [tool['thermo-run'], 'generate', '--model', w['pack'], '--plan', w['plan'], '--prompt', 'a', '-n', '60', '--seed', '1', '--ignore-eos', '--temp', '5']
    out = run(line)[1]
    point([] if b'\x1b]0;' in out and '\u202e'.encode() in out else [out], 'a pipe gets the bytes of a text')
    shown = run(line, terminal=True)[1]
    point([] if b'\\x1b]0;t\\x07' in shown and b'\x1b' not in shown and b'\r' not in shown and '\u202e'.encode() in shown else [shown],
          'a terminal gets it escaped, with signs of direction')


if __name__ == '__main__':
    sys.exit(main())
