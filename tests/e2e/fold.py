#!/usr/bin/env python3
"""Folds the matrices of a small GGUF, with the keys prism.hadamard.* that say so: what a model that knows nothing of folds gives, the
folded one must give. Products with the matrix H[i][j] = (-1)^popcount(i & j) / sqrt(block) itself, of an F32 model.

fold.py IN.gguf OUT.gguf BLOCK explicit|identity
fold.py IN.gguf OUT.gguf BLOCK explicit|identity --keys    the keys alone, of any types: the weights are taken for folded ones

Standard library only."""
import array
import math
import operator
import random
import re
import struct
import sys

sys.dont_write_bytecode = True
from naive import Gguf

source, to, block, mode = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
keys_alone = sys.argv[5:] == ["--keys"]
g = Gguf.__new__(Gguf)
g.b, g.at = open(source, "rb").read(), 4
version, tensors, n_keys = g.num("I"), g.num("Q"), g.num("Q")
begin = g.at
kv = {g.text(): g.value(g.num("I")) for _ in range(n_keys)}
end = g.at
table = [(g.text(), [g.num("Q") for _ in range(g.num("I"))], g.num("I"), g.num("Q")) for _ in range(tensors)]
base = -(-g.at // 32) * 32
data = bytearray(g.b[base:])

arch = kv["general.architecture"]
kind = re.compile(r"output\.weight|blk\.\d+\.(attn_(q|k|v|qkv|gate|output)|ffn_(gate|up|down)|ssm_out)\.weight")
trunk = kv[arch + ".block_count"] - kv.get(arch + ".nextn_predict_layers", 0)  # layers that predict further tokens are not folded
folded = [t for t in table if kind.fullmatch(t[0]) and not (t[0].startswith("blk.") and int(t[0].split(".")[1]) >= trunk)]
tied = not any(name == "output.weight" for name, *_ in table)
draw = random.Random(11)
widths = sorted({dims[0] for _, dims, *_ in folded})
signs = {w: [draw.choice((1, -1)) if mode == "explicit" else 1 for _ in range(w)] for w in widths}
H = [[(-1) ** bin(i & j).count("1") / math.sqrt(block) for j in range(block)] for i in range(block)]


def fold(row, width):
    row = list(map(operator.mul, row, signs[width]))
    return [sum(map(operator.mul, h, row[at:at + block])) for at in range(0, width, block) for h in H]


def grouped(row):
    """Value heads by key head: [rep][key head][elements] -> [key head][rep][elements]"""
    k, v, d = (kv["%s.ssm.%s" % (arch, s)] for s in ("group_count", "time_step_rank", "state_size"))
    rep = v // k
    return [row[(r * k + i) * d + j] for i in range(k) for r in range(rep) for j in range(d)]


for name, dims, type_, offset in ([] if keys_alone else folded + [t for t in table if t[0] == "token_embd.weight"]):
    assert type_ == 0, "tensor '%s' is not F32" % name
    width = dims[0]
    m = array.array("f", data[offset:offset + 4 * math.prod(dims)])
    for at in range(0, len(m), width):
        row = list(m[at:at + width])
        m[at:at + width] = array.array("f", fold(grouped(row) if name.endswith("ssm_out.weight") else row, width))
    data[offset:offset + 4 * len(m)] = m.tobytes()

text = lambda s: struct.pack("<Q", len(s)) + s.encode()
u32 = lambda v: struct.pack("<II", 4, v)
boolean = lambda v: struct.pack("<I?", 7, v)
string = lambda s: struct.pack("<I", 8) + text(s)
strings = lambda a: struct.pack("<IIQ", 9, 8, len(a)) + b"".join(map(text, a))
ints = lambda a: struct.pack("<IIQ%di" % len(a), 9, 5, len(a), *a)
new = {
    "version": u32(2 if tied else 1), "block_size": u32(block), "transform": string("normalized-sylvester-walsh-hadamard"),
    "axis": string("input-last-dimension"), "sign_mode": string(mode), "weight_names": strings([name for name, *_ in folded]),
    "inverse_weight_names": strings(["token_embd.weight"]), "gdn_v_grouped": boolean(True),
}
if tied:
    new["tied_output"] = boolean(True)
if mode == "explicit":
    new["sign_widths"] = ints(widths)
    new["sign_values"] = ints([s for w in widths for s in signs[w]])
head = g.b[:4] + struct.pack("<IQQ", version, tensors, n_keys + len(new)) + g.b[begin:end]
head += b"".join(text("prism.hadamard." + k) + v for k, v in new.items()) + g.b[end:g.at]
with open(to, "wb") as f:
    f.write(head + bytes(-len(head) % 32) + data)
