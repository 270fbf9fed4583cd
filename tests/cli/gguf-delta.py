#!/usr/bin/env python3
"""Deltas for gguf-make apply-delta, written without any of our code, and what they make of a model in plain Python.

gguf-delta.py make DELTA.gguf HASH [half|shape|unknown|both|nan]   a delta of the small F32 model that gguf-delta.sh makes, or a bad one
gguf-delta.py compare BASE.gguf OUT.gguf MAX                   exit 1 unless OUT is what that delta makes of BASE, but for MAX

Standard library only."""
import math
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "e2e"))
sys.dont_write_bytecode = True
from naive import Gguf

D, FF, RANK = 64, 96, 3
noise = lambda k: math.sin(12.9898 * k + 1)
# Nothing here is symmetric: a transposed matrix, a row for a column would show.
SCALE = [1 + 0.3 * noise(i) for i in range(FF)]
A = [[noise(1000 + r * RANK + k) for k in range(RANK)] for r in range(D)]
B = [[0.1 * noise(2000 + k * FF + c) for c in range(FF)] for k in range(RANK)]
BIAS = [0.2 * noise(3000 + i) for i in range(FF)]
NORM = [1 + 0.1 * noise(4000 + i) for i in range(D)]


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def write(path, keys, tensors):
    head, data = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)), b""
    for k, v in keys:
        head += text(k) + struct.pack("<I", 8) + text(v)
    for name, dims, values in tensors:
        head += text(name) + struct.pack("<I%dQIQ" % len(dims), len(dims), *dims, 0, len(data))
        data += struct.pack("<%df" % len(values), *values)
        data += bytes(-len(data) % 32)
    open(path, "wb").write(head + bytes(-len(head) % 32) + data)


def make(path, base, bad=""):
    flat = lambda m: [v for row in m for v in row]
    tensors = [("blk.1.ffn_down.scale", [FF], SCALE), ("blk.1.ffn_down.delta_a", [RANK, D], flat(A)),
               ("blk.1.ffn_down.delta_b", [FF, RANK], flat(B)), ("blk.0.ffn_gate.scale", [D], NORM),
               ("blk.0.ffn_gate.bias", [FF], BIAS), ("output_norm.weight", [D], NORM)]
    if bad == "half":
        del tensors[2]
    if bad == "shape":
        tensors[0] = ("blk.1.ffn_down.scale", [D], NORM)
    if bad == "unknown":
        tensors[3] = ("blk.7.ffn_gate.scale", [D], NORM)
    if bad == "nan":
        tensors[0] = ("blk.1.ffn_down.scale", [FF], SCALE[:-1] + [math.nan])
    if bad == "both":
        tensors.append(("blk.1.ffn_down.weight", [FF, D], [0.0] * (FF * D)))
    write(path, [("delta.base", base), ("llama.hidden_act", "relu"), ("general.name", "changed")], tensors)


def compare(base, out, most):
    a, b, worst = Gguf(base), Gguf(out), 0.0
    want = dict(a.t)
    want["blk.1.ffn_down.weight"] = [[w * s + sum(x * B[k][c] for k, x in enumerate(A[r])) for c, (w, s) in enumerate(zip(row, SCALE))]
                                     for r, row in enumerate(a.t["blk.1.ffn_down.weight"])]
    want["blk.0.ffn_gate.weight"] = [[w * s for w, s in zip(row, NORM)] for row in a.t["blk.0.ffn_gate.weight"]]
    want["blk.0.ffn_gate.bias"], want["output_norm.weight"] = BIAS, NORM
    assert b.t.keys() == want.keys() and b.kv["llama.hidden_act"] == "relu" and b.kv["general.name"] == "changed"
    assert not [k for k in b.kv if k.startswith("delta.")] and b.kv["tokenizer.ggml.tokens"] == a.kv["tokenizer.ggml.tokens"]
    for name, m in want.items():
        have = b.t[name]
        if have == m:
            continue
        assert name in ("blk.1.ffn_down.weight", "blk.0.ffn_gate.weight", "blk.0.ffn_gate.bias", "output_norm.weight"), name + " is another"
        for x, y in zip(have, m):
            worst = max([worst] + [abs(v - w) for v, w in (zip(x, y) if isinstance(x, list) or hasattr(x, "__len__") else [(x, y)])])
    print("largest difference %.3g" % worst)
    return not 0 < worst <= most


if __name__ == "__main__":
    sys.exit(make(*sys.argv[2:]) if sys.argv[1] == "make" else compare(sys.argv[2], sys.argv[3], float(sys.argv[4])))
