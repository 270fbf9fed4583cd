#!/usr/bin/env python3
"""What quantize.sh looks at. Standard library only.

quantize.py imatrix MODEL.gguf OUT gguf|binary [WHAT]    an importance matrix of MODEL's matrices; WHAT: missing NAME, short NAME, negative NAME
quantize.py types OUT.gguf TENSOR:TYPE...                types in the file itself, as numbers
quantize.py key OUT.gguf KEY VALUE                       a key's value; VALUE '-': it is absent
quantize.py error SOURCE.gguf OUT.gguf IMATRIX.gguf      of files in F32: the weighted error, as a share of the weights
quantize.py damage BINARY N COMMAND...                   N damaged importance matrices in place of @: exit status 3, 5, 0 or 2, and no other"""
import array
import math
import random
import struct
import subprocess
import sys

sys.path.insert(0, "tests/e2e")
from naive import Gguf  # noqa: E402


def table(path):
    """keys, {tensor: (dims, type, offset)} and where tensors begin"""
    g = object.__new__(Gguf)
    g.b, g.at = open(path, "rb").read(), 4
    _, tensors, keys = g.num("I"), g.num("Q"), g.num("Q")
    kv = {}
    for _ in range(keys):
        name = g.text()
        kv[name] = g.value(g.num("I"))
    t = {}
    for _ in range(tensors):
        name = g.text()
        dims = [g.num("Q") for _ in range(g.num("I"))]
        t[name] = (dims, g.num("I"), g.num("Q"))
    return g, kv, t, -(-g.at // 32) * 32


def importance(name, n):
    r = random.Random(name)
    return [math.exp(r.gauss(0, 1.5)) for _ in range(n)]


def string(s):
    return struct.pack("<Q", len(s)) + s.encode()


def imatrix(model, out, form, what="", which=""):
    _, _, t, _ = table(model)
    entries = []
    for name, (dims, _, _) in t.items():
        if len(dims) < 2 or "embd" in name or "gate_inp" in name or (what == "missing" and name == which):
            continue
        n, experts = dims[0], math.prod(dims[2:])
        if what == "short" and name == which:
            n -= 1
        means = importance(name, n * experts)
        if what == "negative" and name == which:
            means[3] = -1
        entries.append((name, n, experts, means))
    if form == "binary":
        data = struct.pack("<i", len(entries))
        for name, n, experts, means in entries:
            data += struct.pack("<i", len(name)) + name.encode() + struct.pack("<ii", 4, n * experts) + array.array("f", [4 * m for m in means]).tobytes()
        data += struct.pack("<ii", 7, 8) + b"some.txt"
    else:
        head, body, at = b"", b"", 0
        for name, n, experts, means in entries:
            for suffix, dims, values in ((".in_sum2", [n, experts], [4 * m for m in means]), (".counts", [1, experts], [4] * experts)):
                head += string(name + suffix) + struct.pack("<I2QIQ", 2, *dims, 0, at)
                raw = array.array("f", values).tobytes()
                body += raw + bytes(-len(raw) % 32)
                at = len(body)
        keys = (string("general.type") + struct.pack("<I", 8) + string("imatrix") + string("imatrix.chunk_count") + struct.pack("<II", 4, 7) +
                string("imatrix.chunk_size") + struct.pack("<II", 4, 512) + string("imatrix.datasets") + struct.pack("<IIQ", 9, 8, 1) + string("some.txt"))
        data = b"GGUF" + struct.pack("<IQQ", 3, 2 * len(entries), 4) + keys + head
        data += bytes(-len(data) % 32) + body
    open(out, "wb").write(data)


def types(path, *wanted):
    _, _, t, _ = table(path)
    for w in wanted:
        name, kind = w.rsplit(":", 1)
        assert t[name][1] == int(kind), "%s is %d, not %s" % (name, t[name][1], kind)


def key(path, name, value):
    _, kv, _, _ = table(path)
    assert (name not in kv) if value == "-" else str(kv[name]) == value, kv.get(name)


def error(source, made, weights):
    (a, _, ta, at_a), (b, _, tb, at_b) = table(source), table(made)
    _, _, tw, at_w = w = table(weights)
    lost = all_of_it = 0.0
    for name, (dims, _, offset) in ta.items():
        if name + ".in_sum2" not in tw:
            continue
        n = math.prod(dims)
        x = array.array("f", a.b[at_a + offset:at_a + offset + 4 * n])
        y = array.array("f", b.b[at_b + tb[name][2]:at_b + tb[name][2] + 4 * n])
        wd, _, wo = tw[name + ".in_sum2"]
        by = array.array("f", w[0].b[at_w + wo:at_w + wo + 4 * math.prod(wd)])
        cols, per = dims[0], math.prod(dims[:2])
        for i in range(0, n, 7):
            k = by[i // per * cols + i % cols]
            lost += k * (x[i] - y[i]) ** 2
            all_of_it += k * x[i] ** 2
    print("%.6f" % math.sqrt(lost / all_of_it))


def damage(path, n, *command):
    whole, r = open(path, "rb").read(), random.Random(1)
    for i in range(int(n)):
        data = bytearray(whole)
        if i % 2:
            del data[r.randrange(len(data)):]
        else:
            at = r.randrange(min(len(data), 400))
            data[at] ^= 1 << r.randrange(8)
        open(path + ".bad", "wb").write(data)
        p = subprocess.run([w.replace("@", path + ".bad") for w in command], capture_output=True)
        assert p.returncode in (0, 2, 3, 5), (i, p.returncode, p.stderr)
        assert p.returncode == 0 or p.stderr.count(b"\n") == 1, p.stderr


globals()[sys.argv[1]](*sys.argv[2:])
