#!/usr/bin/env python3
"""Logits of a small F32 GGUF in plain Python, token by token, straight from the equations: what the programs are
compared with. Understands the architectures llama, bamboo and smallthinker, dense or with experts, and PowerInfer's files.

naive.py MODEL.gguf 1,2,3 [--gating softmax|sigmoid]            the logits after the last id, as {"logits": [...]}
naive.py MODEL.gguf 1,2,3 --compare OUT.json --max D [...]      exit 1 when some logit of OUT.json differs by more
naive.py MODEL.gguf 1,2,3/1,5,6 --predictors OUT.json --max D   what the file's predictors do with these sequences, against
                                                                what 'thermo-profile predictors --json' says

Standard library only."""
import argparse
import array
import json
import math
import struct
import sys


class Gguf:
    FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def __init__(self, path):
        self.b, self.at = open(path, "rb").read(), 4
        version, tensors, keys = self.num("I"), self.num("Q"), self.num("Q")
        assert version == 3 and self.b[:4] in (b"GGUF", b"PWRI")
        self.kv = {self.text(): self.value(self.num("I")) for _ in range(keys)}
        table = []
        for _ in range(tensors):
            name = self.text()
            dims = [self.num("Q") for _ in range(self.num("I"))]
            table.append((name, dims, self.num("I"), self.num("Q")))
        base, self.t = -(-self.at // 32) * 32, {}
        self.at_of = {name: base + offset for name, _, _, offset in table}  # where each tensor begins
        for name, dims, kind, offset in table:
            assert kind == 0, "tensor '%s' is not F32" % name
            data = array.array("f", self.b[base + offset:base + offset + 4 * math.prod(dims)])
            for d in dims[:-1]:
                data = [data[i:i + d] for i in range(0, len(data), d)]
            self.t[name] = data

    def num(self, f):
        self.at += struct.calcsize("<" + f)
        return struct.unpack_from("<" + f, self.b, self.at - struct.calcsize("<" + f))[0]

    def text(self):
        n = self.num("Q")
        self.at += n
        return self.b[self.at - n:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            inner, n = self.num("I"), self.num("Q")
            return [self.value(inner) for _ in range(n)]
        return self.num(self.FORMATS[kind])


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def mul(m, x):
    return [dot(row, x) for row in m]


def norm(x, w, eps):
    s = 1 / math.sqrt(dot(x, x) / len(x) + eps)
    return [a * s * b for a, b in zip(x, w)]


def softmax(z):
    e = [math.exp(a - max(z)) for a in z]
    return [a / sum(e) for a in e]


def logits(g, ids, gating, watch=None):
    arch = g.kv["general.architecture"]
    k = lambda name, default=None: g.kv.get("%s.%s" % (arch, name), default)
    small, d, heads = arch == "smallthinker", k("embedding_length"), k("attention.head_count")
    kv_heads, eps, theta = k("attention.head_count_kv", heads), k("attention.layer_norm_rms_epsilon"), k("rope.freq_base", 1e4)
    dim = k("attention.key_length", d // heads)
    experts, used, window = k("expert_count", 0), k("expert_used_count", 0), k("attention.sliding_window", 0)
    act = k("hidden_act", "drelu" if arch == "bamboo" else "relu" if small or g.b[:4] == b"PWRI" else "silu")
    gating = {1: "softmax", 2: "sigmoid"}.get(k("expert_gating_func"), gating or ("softmax" if not small else None))
    assert gating or not experts
    act_of = {"relu": lambda x: max(x, 0.0), "drelu": lambda x: max(x, 0.0), "silu": lambda x: x / (1 + math.exp(-x))}[act]
    layers = k("block_count")
    keys, values = [[] for _ in range(layers)], [[] for _ in range(layers)]

    def rope(x, pos):
        for h in range(0, len(x), dim):
            for i in range(dim // 2):
                a, (p, q) = pos * theta ** (-2 * i / dim), (h + i, h + i + dim // 2) if small else (h + 2 * i, h + 2 * i + 1)
                x[p], x[q] = x[p] * math.cos(a) - x[q] * math.sin(a), x[p] * math.sin(a) + x[q] * math.cos(a)
        return x

    def route(l, x):
        z = mul(g.t["blk.%d.ffn_gate_inp.weight" % l], x)
        best = sorted(range(experts), key=lambda i: (-z[i], i))[:used]
        if gating == "softmax":
            return list(zip(best, softmax([z[i] for i in best])))
        s = [1 / (1 + math.exp(-z[i])) for i in best]
        return [(i, a / sum(s)) for i, a in zip(best, s)]

    def add(x, bias):
        return [a + b for a, b in zip(x, bias)] if bias else x

    def ffn(gate, up, down, n, seen=None, biases=(None, None, None), thresholds=None):
        u, g = add(mul(up, n), biases[1]), add(mul(gate, n), biases[0])
        if thresholds: # a neuron is silent where |act(g)| < t
            g = [x if abs(act_of(x)) >= t else 0.0 for x, t in zip(g, thresholds)]
        if seen:
            seen([a > 0 and (act == "relu" or b > 0) for a, b in zip(g, u)])
        return add(mul(down, [act_of(a) * (max(b, 0.0) if act == "drelu" else b) for a, b in zip(g, u)]), biases[2])

    for pos, token in enumerate(ids):
        x = list(g.t["token_embd.weight"][token])
        for l in range(layers):
            t = lambda name: g.t["blk.%d.%s.weight" % (l, name)]
            chosen = route(l, x) if experts and small else None
            n = norm(x, t("attn_norm"), eps)
            q, key, turns = mul(t("attn_q"), n), mul(t("attn_k"), n), not (small and window and l % 4 == 0)
            keys[l].append(rope(key, pos) if turns else key)
            values[l].append(mul(t("attn_v"), n))
            q = rope(q, pos) if turns else q
            first = max(0, pos - window + 1) if small and window and l % 4 else 0
            o = []
            for h in range(heads):
                c = h // (heads // kv_heads) * dim
                w = softmax([dot(q[h * dim:(h + 1) * dim], r[c:c + dim]) / math.sqrt(dim) for r in keys[l][first:]])
                o += [dot(w, [r[c + i] for r in values[l][first:]]) for i in range(dim)]
            x = [a + b for a, b in zip(x, mul(t("attn_output"), o))]
            n = norm(x, t("ffn_norm"), eps)
            if experts:
                for e, w in chosen or route(l, n):
                    y = ffn(t("ffn_gate_exps")[e], t("ffn_up_exps")[e], t("ffn_down_exps")[e], n)
                    x = [a + w * b for a, b in zip(x, y)]
            else:
                turned = g.t.get("blk.%d.ffn_down_t.weight" % l)
                down = list(zip(*turned)) if turned else t("ffn_down")
                biases = [g.t.get("blk.%d.ffn_%s.bias" % (l, r)) for r in ("gate", "up", "down")]
                seen = watch and (lambda active: watch(l, x, active))
                x = [a + b for a, b in zip(x, ffn(t("ffn_gate"), t("ffn_up"), down, n, seen, biases, g.t.get("blk.%d.ffn_gate.threshold" % l)))]
    return mul(g.t.get("output.weight", g.t["token_embd.weight"]), norm(x, g.t["output_norm.weight"], eps))


def predictors(g, sequences, path, most):
    """Recall, density and precision of each layer's predictor at the file's threshold, against what was reported."""
    threshold, counts = g.kv["powerinfer.sparse_threshold"], {}

    def watch(l, x, active):
        hidden = [max(a, 0.0) for a in mul(g.t["blk.%d.fc1.weight" % l], x)]
        foretold = [s > threshold for s in mul(g.t["blk.%d.fc2.weight" % l], hidden)]
        c = counts.setdefault(l, [0, 0, 0, 0])
        for i, v in enumerate((sum(active), sum(foretold), sum(a and f for a, f in zip(active, foretold)), len(active))):
            c[i] += v

    for ids in sequences:
        logits(g, ids, None, watch)
    worst = 0.0
    for p in json.load(open(path))["predictors"]:
        active, foretold, both, n = counts.pop(p["layer"])
        for name, want in (("recall", both / active), ("density", foretold / n), ("precision", both / foretold),
                           ("true_density", active / n)):
            print("layer %d %s: %.5f reported, %.5f here" % (p["layer"], name, p[name], want))
            worst = max(worst, abs(p[name] - want))
    return bool(counts) or not worst <= most


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("model")
    a.add_argument("ids")
    a.add_argument("--gating")
    a.add_argument("--compare")
    a.add_argument("--predictors")
    a.add_argument("--max", type=float, default=0.0)
    a = a.parse_args()
    if a.predictors:
        return predictors(Gguf(a.model), [[int(i) for i in s.split(",")] for s in a.ids.split("/")], a.predictors, a.max)
    want = logits(Gguf(a.model), [int(i) for i in a.ids.split(",")], a.gating)
    if not a.compare:
        print(json.dumps({"logits": want}))
        return 0
    got = json.load(open(a.compare))["logits"]
    worst = max(abs(x - y) for x, y in zip(got, want)) if len(got) == len(want) else math.inf
    print("largest difference %.3g over %d logits from %.3g to %.3g" % (worst, len(want), min(want), max(want)))
    return not worst <= a.max


if __name__ == "__main__":
    sys.exit(main())
