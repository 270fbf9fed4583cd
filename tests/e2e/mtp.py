#!/usr/bin/env python3
"""Logits of the layer for multi-token prediction of a small F32 GGUF (glm4moe, deepseek2, qwen3next, qwen35, qwen35moe) in plain Python,
straight from the equations: what the runtime is compared with. Attention is over all heads' keys and values, latent or not; rotation is not
scaled. Layers with a state in place of keys have gated delta nets (arXiv:2412.06464).

mtp.py MODEL.gguf 1,2,3 OUT.json D   after tokens 1,2 and 3, drawn but not taken in: guesses and logits of OUT.json, {"guesses": [...],
                                     "logits": [[...], ...]}, against those here; exit 1 when some logit differs by more than D of a row's
                                     deviation

Standard library only."""
import json
import math
import statistics
import sys

from naive import Gguf, dot, mul, norm, softmax


def add(x, y):
    return [a + b for a, b in zip(x, y)]


def silu(x):
    return x / (1 + math.exp(-x))


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


class Model:
    def __init__(self, path):
        self.g = Gguf(path)
        self.arch = self.g.kv["general.architecture"]
        self.heads, self.eps = self.key("attention.head_count"), self.key("attention.layer_norm_rms_epsilon")
        self.rot, self.theta = self.key("rope.dimension_count"), self.key("rope.freq_base", 1e4)
        self.latent = self.arch == "deepseek2"
        self.depth = self.key("block_count") - self.key("nextn_predict_layers")
        self.states, self.inputs = [None] * self.depth, [None] * self.depth
        self.keys, self.values = [[] for _ in range(self.depth + 1)], [[] for _ in range(self.depth + 1)]

    def key(self, name, default=None):
        return self.g.kv.get("%s.%s" % (self.arch, name), default)

    def at(self, layer, name):
        return self.g.t["blk.%d.%s" % (layer, name)]

    def norm(self, x, w):
        return norm(x, w, self.eps)

    def turn(self, x, pos):
        """Rotates the first rot elements: DeepSeek's in neighbouring pairs, GLM's in halves."""
        x, half = list(x), self.rot // 2
        for i in range(half):
            a, (p, q) = pos * self.theta ** (-2 * i / self.rot), (2 * i, 2 * i + 1) if self.latent else (i, i + half)
            x[p], x[q] = x[p] * math.cos(a) - x[q] * math.sin(a), x[p] * math.sin(a) + x[q] * math.cos(a)
        return x

    def plain(self, layer, n, pos):
        """Queries, keys and values of every head. Gates, which queries' matrices have where layers have states, stay in self.gate."""
        rows = []
        for r in ("q", "k", "v"):
            y = mul(self.at(layer, "attn_%s.weight" % r), n)
            bias = self.g.t.get("blk.%d.attn_%s.bias" % (layer, r))
            y = add(y, bias) if bias else y
            dim = self.key("attention.key_length")
            y = [y[i:i + dim] for i in range(0, len(y), dim)]
            if r == "q" and self.key("ssm.state_size"):
                self.gate, y = sum(y[1::2], []), y[::2]
            w = self.g.t.get("blk.%d.attn_%s_norm.weight" % (layer, r))
            y = [self.norm(h, w) for h in y] if w else y
            rows.append([self.turn(h, pos) for h in y] if r != "v" else y)
        q, k, v = rows
        per = self.heads // len(k)
        return q, [k[h // per] for h in range(self.heads)], [v[h // per] for h in range(self.heads)]

    def made_of_few(self, layer, n, pos):
        """The same of latent attention, keys and values written out."""
        rank = self.key("attention.kv_lora_rank")
        if "blk.%d.attn_q_a.weight" % layer in self.g.t:
            n_q = self.norm(mul(self.at(layer, "attn_q_a.weight"), n), self.at(layer, "attn_q_a_norm.weight"))
            q = mul(self.at(layer, "attn_q_b.weight"), n_q)
        else:
            q = mul(self.at(layer, "attn_q.weight"), n)
        dim = len(q) // self.heads
        q = [q[i:i + dim] for i in range(0, len(q), dim)]
        q = [h[:dim - self.rot] + self.turn(h[dim - self.rot:], pos) for h in q]
        both = mul(self.at(layer, "attn_kv_a_mqa.weight"), n)
        c, turned = self.norm(both[:rank], self.at(layer, "attn_kv_a_norm.weight")), self.turn(both[rank:], pos)
        k = [mul(list(zip(*m)), c) + turned for m in self.at(layer, "attn_k_b.weight")]
        return q, k, [mul(m, c) for m in self.at(layer, "attn_v_b.weight")]

    def attention(self, layer, n, pos):
        q, k, v = (self.made_of_few if self.latent else self.plain)(layer, n, pos)
        keys, values = self.keys[layer], self.values[layer]
        del keys[pos:], values[pos:]
        keys.append(k)
        values.append(v)
        out = []
        for h in range(self.heads):
            w = softmax([dot(q[h], k[h]) / math.sqrt(len(q[h])) for k in keys])
            out += [dot(w, column) for column in zip(*(v[h] for v in values))]
        if self.key("ssm.state_size"):
            out = [a * sigmoid(b) for a, b in zip(out, self.gate)]
        return mul(self.at(layer, "attn_output.weight"), out)

    def delta(self, layer, n):
        """A gated delta net, one token."""
        dim, n_k, n_v = self.key("ssm.state_size"), self.key("ssm.group_count"), self.key("ssm.time_step_rank")
        per, width = n_v // n_k, self.key("ssm.conv_kernel")
        made, z = mul(self.at(layer, "attn_qkv.weight"), n), mul(self.at(layer, "attn_gate.weight"), n)
        seen = (self.inputs[layer] or [[0.0] * len(made)] * (width - 1)) + [made]
        self.inputs[layer] = seen[1:]
        x = [silu(sum(w[i] * seen[i][c] for i in range(width))) for c, w in enumerate(self.at(layer, "ssm_conv1d.weight"))]
        heads = [x[i:i + dim] for i in range(0, len(x), dim)]
        unit = lambda h, by: [a * by / math.sqrt(dot(h, h) + self.eps) for a in h]
        q, k, v = [unit(h, dim ** -0.5) for h in heads[:n_k]], [unit(h, 1) for h in heads[n_k:2 * n_k]], heads[2 * n_k:]
        if self.arch == "qwen3next": # betas and alphas of each key head's value heads
            ba = mul(self.at(layer, "ssm_ba.weight"), n)
            beta, alpha = ([ba[h // per * 2 * per + j * per + h % per] for h in range(n_v)] for j in range(2))
        else:
            beta, alpha = mul(self.at(layer, "ssm_beta.weight"), n), mul(self.at(layer, "ssm_alpha.weight"), n)
        states = self.states[layer] or [[[0.0] * dim for _ in range(dim)] for _ in range(n_v)]
        out, self.states[layer] = [], []
        for h, s in enumerate(states):
            of = h // per if self.arch == "qwen3next" else h % n_k
            decay = math.exp(self.at(layer, "ssm_a")[h] * math.log1p(math.exp(alpha[h] + self.at(layer, "ssm_dt.bias")[h])))
            s = [[decay * a for a in row] for row in s]
            d = [sigmoid(beta[h]) * (v[h][j] - sum(k[of][i] * s[i][j] for i in range(dim))) for j in range(dim)]
            s = [[a + k[of][i] * b for a, b in zip(row, d)] for i, row in enumerate(s)]
            self.states[layer].append(s)
            o = self.norm([sum(q[of][i] * s[i][j] for i in range(dim)) for j in range(dim)], self.at(layer, "ssm_norm.weight"))
            out += [a * silu(b) for a, b in zip(o, z[h * dim:])]
        return mul(self.at(layer, "ssm_out.weight"), out)

    def ffn(self, gate, up, down, n):
        return mul(down, [silu(a) * b for a, b in zip(mul(gate, n), mul(up, n))])

    def experts(self, layer, n):
        z = mul(self.at(layer, "ffn_gate_inp.weight"), n)
        shared = self.g.t.get("blk.%d.ffn_gate_inp_shexp.weight" % layer) # where there is one, experts are weighted by a softmax
        s = softmax(z) if shared else [sigmoid(a) for a in z]
        bias = self.g.t.get("blk.%d.exp_probs_b.bias" % layer)
        biased = add(s, bias) if bias else s
        used = self.key("expert_used_count")
        best = sorted(range(len(z)), key=lambda i: (-biased[i], i))[:used]
        scale = self.key("expert_weights_scale", 1) / sum(s[i] for i in best)
        out = self.ffn(*(self.at(layer, "ffn_%s_shexp.weight" % r) for r in ("gate", "up", "down")), n)
        out = [a * sigmoid(dot(shared, n)) for a in out] if shared else out
        for i in best:
            y = self.ffn(*(self.at(layer, "ffn_%s_exps.weight" % r)[i] for r in ("gate", "up", "down")), n)
            out = [a + s[i] * scale * b for a, b in zip(out, y)]
        return out

    def layer(self, layer, x, pos):
        n = self.norm(x, self.at(layer, "attn_norm.weight"))
        x = add(x, self.delta(layer, n) if "blk.%d.ssm_conv1d.weight" % layer in self.g.t else self.attention(layer, n, pos))
        n = self.norm(x, self.at(layer, "ffn_norm.weight" if self.latent else "post_attention_norm.weight"))
        if layer < self.key("leading_dense_block_count", 0) or not self.key("expert_count"):
            return add(x, self.ffn(*(self.at(layer, "ffn_%s.weight" % r) for r in ("gate", "up", "down")), n))
        return add(x, self.experts(layer, n))

    def trunk(self, token, pos):
        """What the last layer gives, normed."""
        x = list(self.g.t["token_embd.weight"][token])
        for l in range(self.depth):
            x = self.layer(l, x, pos)
        return self.norm(x, self.g.t["output_norm.weight"])

    def mtp(self, hidden, token, pos):
        """The same of the layer for multi-token prediction, and its logits."""
        own = lambda name, other: self.g.t.get("blk.%d.nextn.%s.weight" % (self.depth, name)) or self.g.t[other]
        left = self.norm(own("embed_tokens", "token_embd.weight")[token], self.at(self.depth, "nextn.enorm.weight"))
        right = self.norm(hidden, self.at(self.depth, "nextn.hnorm.weight"))
        x = self.layer(self.depth, mul(self.at(self.depth, "nextn.eh_proj.weight"), left + right), pos)
        x = self.norm(x, self.at(self.depth, "nextn.shared_head_norm.weight"))
        return x, mul(own("shared_head_head", "output.weight" if "output.weight" in self.g.t else "token_embd.weight"), x)


def main():
    m, ids, got, most = Model(sys.argv[1]), [int(i) for i in sys.argv[2].split(",")], json.load(open(sys.argv[3])), float(sys.argv[4])
    hidden, z, worst = None, None, 0.0
    for pos, token in enumerate(ids[:-1]):
        hidden = m.trunk(token, pos)
        own, z = m.mtp(hidden, ids[pos + 1], pos)
    for i, (guess, row) in enumerate(zip(got["guesses"], got["logits"])):
        if i:
            own, z = m.mtp(own, got["guesses"][i - 1], len(ids) - 2 + i)
        assert len(row) == len(z), "%d logits, %d expected" % (len(row), len(z))
        worst = max(worst, max(abs(a - b) for a, b in zip(row, z)) / statistics.pstdev(z))
        assert row[guess] == max(row), "guess %d is %d, which is not likeliest" % (i, guess)
    print("# %d guesses: largest difference %.2g of the deviation of the logits" % (len(got["guesses"]), worst))
    return not (got["guesses"] and worst <= most)


if __name__ == "__main__":
    sys.exit(main())
