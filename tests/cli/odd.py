"""Odd files in a model's place. odd.py BIN DIR."""
import gzip
import io
import json
import os
import pickle
import sqlite3
import struct
import subprocess
import sys
import zipfile

sys.path[:0] = ['tests']
from tap import done, point

BIN, DIR = sys.argv[1:3]
MODEL = 'datasets/models/reglu-tales-10m-f16.gguf'
U32, STRING = 4, 8


def text(s):
    return struct.pack('<Q', len(s)) + s.encode()


def gguf(tensors=1, version=3, **keys):
    """A GGUF file of these keys (underscores are dots where two stand together) and a tensor of 32 numbers."""
    out = b'GGUF' + struct.pack('<IQQ', version, tensors, len(keys))
    for name, v in keys.items():
        out += text(name.replace('__', '.')) + (struct.pack('<II', U32, v) if isinstance(v, int) else struct.pack('<I', STRING) + text(v))
    for _ in range(tensors):
        out += text('token_embd.weight') + struct.pack('<IQIQ', 1, 32, 0, 0)
    return out + bytes(-len(out) % 32) + bytes(128 * tensors)


def archive():
    f = io.BytesIO()
    with zipfile.ZipFile(f, 'w') as z:
        z.writestr('archive/data.pkl', b'x')
    return f.getvalue()


def database():
    path = os.path.join(DIR, 'db')
    c = sqlite3.connect(path)
    c.execute('create table t (x)')
    c.commit()
    c.close()
    with open(path, 'rb') as f:
        return f.read()


whole = open(MODEL, 'rb').read()
head = json.dumps({'w': {'dtype': 'F16', 'shape': [2], 'data_offsets': [0, 4]}}).encode()
arch = {'general__architecture': 'llama'}
# file, bytes, what is said of it, and what to do
odd = [
    ('model.safetensors', struct.pack('<Q', len(head)) + head + bytes(4), 'safetensors', 'convert'),
    ('pytorch_model.bin', archive(), 'PyTorch', 'convert'),
    ('old.pt', pickle.dumps(0x1950a86a20f9469cfc6c, 2), 'PyTorch', 'convert'),
    ('lfs.gguf', b'version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 12\n', 'Git LFS pointer', 'git lfs pull'),
    ('page.gguf', b'\n<!DOCTYPE html><html></html>', 'web page', 'download the file again'),
    ('login.gguf', b'Invalid username or password.', 'asks for a login', 'log in'),
    ('absent.gguf', b'Entry not found', 'Entry not found', 'download the file again'),
    ('config.json', b'{"model_type": "llama"}', 'JSON', 'give the model itself'),
    ('model.gguf.gz', gzip.compress(whole[:1000]), 'gzip', 'unpack'),
    ('model.gguf.zst', b'(\xb5/\xfd' + bytes(99), 'zstd', 'unpack'),
    ('zeros.gguf', bytes(4096), 'zeros', 'download'),
    ('empty.gguf', b'', 'empty', 'download it again'),
    ('imatrix.dat', struct.pack('<II', 2, 17) + b'blk.0.attn_q.weig', 'importance matrix', 'give the model itself'),
    ('ggml.bin', b'tjgg' + bytes(99), 'before August 2023', 'convert the model again'),
    ('traces.h5', b'\x89HDF\r\n\x1a\n' + bytes(99), 'HDF5', '--traces'),
    ('hw.sqlite', database(), 'SQLite', '--hardware'),
    ('pack.thermo', b'THCLPACK' + bytes(999), 'packed model', 'thermo-run'),
    ('notes.txt', b'Some notes about models, and nothing else', 'begins with 53 6f 6d 65', '"GGUF"'),
    ('cut.gguf', whole[:len(whole) // 2], 'run past the end', 'download it again'),
    ('shorter.gguf', whole[:100], 'truncated', 'a part has not come'),
    ('lora.gguf', gguf(general__type='adapter', adapter__type='lora', **arch), 'LoRA adapter', 'merge'),
    ('old-lora.gguf', gguf(adapter__type='lora', **arch), 'LoRA adapter', 'merge'),
    ('mmproj.gguf', gguf(general__architecture='clip'), 'mmproj', 'give the file of the language model'),
    ('imatrix.gguf', gguf(general__type='imatrix'), 'importance matrix', 'give the model itself'),
    ('vocab.gguf', gguf(tensors=0, **arch), 'vocabulary', "give the model's file"),
    ('bert.gguf', gguf(general__architecture='nomic-bert'), 'embedding model', 'give a file of one'),
    ('embedding.gguf', gguf(llama__pooling_type=3, **arch), 'makes vectors', 'give a file of one'),
    ('draft.gguf', gguf(general__architecture='eagle3'), 'draft model', 'give a file of one'),
    ('image.gguf', gguf(general__architecture='flux'), 'images', 'give a file of one'),
    ('t5.gguf', gguf(general__architecture='t5'), 'encoder', 'give a file of one'),
    ('first.gguf', gguf(version=1, **arch), 'version 1', 'convert the model again'),
]


def said(program, *args):
    r = subprocess.run([os.path.join(BIN, program), *args], capture_output=True, text=True, check=False)
    return r.returncode, [l for l in r.stderr.splitlines() if 'error: ' in l]


for name, data, what, todo in odd:
    path = os.path.join(DIR, name)
    with open(path, 'wb') as f:
        f.write(data)
    code, lines = said('thermo-profile', 'trace', '--model', path, '--prompts', 'README.md', '--out', os.path.join(DIR, 'out.h5'))
    point(code == 3 and len(lines) == 1 and name in lines[0] and what in lines[0] and todo in lines[0], f'{name}: {what}, {todo}', f'{code} {lines}')
    code, lines = said('thermo-run', 'generate', '--model', path, '--plan', path, '--prompt', 'x')
    mine = data[:4] in (b'GGUF', b'THCL') or not data
    point(code == 3 and len(lines) == 1 and name in lines[0] and (mine or 'not a packed model' in lines[0]) and
          (what in lines[0] or mine or name in ('notes.txt', )), f'{name} is no pack', f'{code} {lines}')
    if data[:4] == b'GGUF' and what not in ('run past the end', 'truncated'):
        point(code == 3 and 'thermo-pack pack' in lines[0], f'{name} in place of a pack', f'{lines}')

sys.exit(done())
