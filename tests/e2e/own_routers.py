#!/usr/bin/env python3
"""Routers of each layer's own: own_routers.py MODEL.gguf draws the F32 routers of a model anew, so that a layer's choice is foreseen
from the layer before in part."""
import random
import struct
import sys

sys.dont_write_bytecode = True
from naive import Gguf

g = Gguf.__new__(Gguf)
g.b, g.at = open(sys.argv[1], "rb").read(), 4
version, tensors, keys = g.num("I"), g.num("Q"), g.num("Q")
kv = {g.text(): g.value(g.num("I")) for _ in range(keys)}
table = [(g.text(), [g.num("Q") for _ in range(g.num("I"))], g.num("I"), g.num("Q")) for _ in range(tensors)]
base, draw, n = -(-g.at // 32) * 32, random.Random(5), 0
with open(sys.argv[1], "r+b") as f:
    for name, dims, kind, offset in table:
        if name.endswith(".ffn_gate_inp.weight"):
            assert kind == 0, name
            f.seek(base + offset)
            f.write(b"".join(struct.pack("<f", draw.gauss(0, 0.1)) for _ in range(dims[0] * dims[1])))
            n += 1
assert n == kv["llama.block_count"]
