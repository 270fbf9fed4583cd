#!/usr/bin/env python3
"""Low-rank changes of a SwiGLU model's FFNs that make up for neurons which thresholds silence.

The model is read from its GGUF. Its FFN matrices get changes of low rank and its norms are trained, so that with silent neurons it
predicts what it predicts without: the loss is the Kullback-Leibler divergence from the model as it was. Each step silences another share
of the neurons, so that one set of changes serves all shares. A neuron is silent where |act(gate)| < tau / (E|up| |down|), as in
`thermo-profile trace --silence`; tau is a running quantile of each layer, gradients pass through the neurons that fire.

Prints a line of JSON for each step; writes a checkpoint, for export.py. One thread, bfloat16; torch 2.6, gguf 0.19.
"""
import argparse
import json
import math
import time

import gguf
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("--model", required=True, help="GGUF of architecture llama")
ap.add_argument("--tokens", required=True, help="texts to train on: rows of token ids, uint16, .npy (texts.py)")
ap.add_argument("--held", action="append", default=[], metavar="NAME=FILE", help="texts to measure on, likewise")
ap.add_argument("--out", required=True, help="checkpoint")
ap.add_argument("--rank", type=int, default=48)
ap.add_argument("--rows", type=int, default=4, help="of a step")
ap.add_argument("--steps", type=int, default=2000)
ap.add_argument("--minutes", type=float, default=60, help="end after this time; the rate falls to 0 until then")
ap.add_argument("--lr", type=float, default=1e-3)
ap.add_argument("--shares", default="0.5,0.6,0.7,0.8", help="of silent neurons")
ap.add_argument("--measure", type=int, default=80, help="every so many steps")
ap.add_argument("--save", type=int, default=40, help="every so many steps")
ap.add_argument("--seed", type=int, default=1)
a = ap.parse_args()
torch.manual_seed(a.seed)
torch.set_num_threads(1)
shares = [float(s) for s in a.shares.split(",")]
bf = torch.bfloat16

reader = gguf.GGUFReader(a.model)
weights = {t.name: torch.from_numpy(np.array(gguf.dequantize(t.data, t.tensor_type))).float() for t in reader.tensors}


def key(name):
    return reader.fields["llama." + name].contents()


N_LAYERS, D, N_HEADS, N_KV = key("block_count"), key("embedding_length"), key("attention.head_count"), key("attention.head_count_kv")
EPS, ROPE_BASE, HEAD_DIM = key("attention.layer_norm_rms_epsilon"), key("rope.freq_base"), D // N_HEADS
later = torch.triu(torch.full((1024, 1024), -torch.inf), 1)
step = 0


@torch.compile(dynamic=True)
def norm(x, w):
    f = x.float()
    return (f * torch.rsqrt(f.square().mean(-1, keepdim=True) + EPS) * w).to(x.dtype)


@torch.compile(dynamic=True)
def gated(g, u, t):
    s = F.silu(g)
    return torch.where(s.abs() >= t, s * u, 0)


@torch.compile(dynamic=True)
def rope(x, cos, sin):  # neighbours are pairs, as in the file
    x1, x2 = x[..., 0::2], x[..., 1::2]
    return torch.stack((x1 * cos - x2 * sin, x1 * sin + x2 * cos), -1).flatten(-2)


class Layer(nn.Module):
    """A transformer layer with its changes: n_a [rows, rank], n_b [rank, columns] for n of gate, up, down."""

    def __init__(self, i):
        super().__init__()
        b = f"blk.{i}."
        self.fixed("qkv", torch.cat([weights[b + f"attn_{n}.weight"] for n in "qkv"]).to(bf))
        self.fixed("o", weights[b + "attn_output.weight"].to(bf))
        for n in ("gate", "up", "down"):
            w = weights[b + f"ffn_{n}.weight"]
            g = torch.Generator().manual_seed(1000 * a.seed + 10 * i + len(n))
            self.fixed(n, w.to(bf))
            setattr(self, n + "_a", nn.Parameter(torch.zeros(w.shape[0], a.rank)))
            setattr(self, n + "_b", nn.Parameter(torch.randn(a.rank, w.shape[1], generator=g) / math.sqrt(w.shape[1])))
        self.n1 = nn.Parameter(weights[b + "attn_norm.weight"].clone())
        self.n2 = nn.Parameter(weights[b + "ffn_norm.weight"].clone())
        self.fixed("o1", self.n1.detach().clone())
        self.fixed("o2", self.n2.detach().clone())
        self.tau, self.mean_up, self.density = {}, None, None

    def fixed(self, name, tensor):
        self.register_buffer(name, tensor, persistent=False)

    def product(self, x, n, changed):
        y = x @ getattr(self, n).T
        if changed:
            y = y + (x @ getattr(self, n + "_b").to(bf).T) @ getattr(self, n + "_a").to(bf).T
        return y

    def attention(self, x, cos, sin, changed):
        n, t, _ = x.shape
        q, k, v = (norm(x, self.n1 if changed else self.o1) @ self.qkv.T).split([D, N_KV * HEAD_DIM, N_KV * HEAD_DIM], -1)
        q, k, v = (m.view(n, t, -1, HEAD_DIM).transpose(1, 2) for m in (q, k, v))
        q, k = rope(q, cos, sin), rope(k, cos, sin)
        k, v = (m.repeat_interleave(N_HEADS // N_KV, 1) for m in (k, v))
        p = torch.softmax((q @ k.transpose(-1, -2)).float() / math.sqrt(HEAD_DIM) + later[:t, :t], -1).to(bf)
        return (p @ v).transpose(1, 2).reshape(n, t, D) @ self.o.T

    @torch.no_grad()
    def thresholds(self, g, u, share, changed):
        if self.mean_up is None or share not in self.tau or (self.training and changed and step % 8 < len(shares)):
            m = u.abs().float().mean((0, 1))
            self.mean_up = m if self.mean_up is None else 0.8 * self.mean_up + 0.2 * m
            down = self.down.float() + self.down_a @ self.down_b if changed else self.down.float()
            self.size = self.mean_up * down.norm(dim=0)
            s = (F.silu(g[:, ::11].float()).abs() * self.size).flatten()
            tau = s.kthvalue(max(1, int(share * s.numel()))).values
            self.tau[share] = 0.8 * self.tau[share] + 0.2 * tau if share in self.tau else tau
        t = (self.tau[share] / self.size).to(bf)
        self.density = (F.silu(g[0, ::32]).abs() >= t).float().mean()
        return t

    def forward(self, x, cos, sin, share, changed):
        x = x + self.attention(x, cos, sin, changed)
        h = norm(x, self.n2 if changed else self.o2)
        g, u = self.product(h, "gate", changed), self.product(h, "up", changed)
        h = gated(g, u, self.thresholds(g, u, share, changed)) if share else F.silu(g) * u
        return x + self.product(h, "down", changed)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer(i) for i in range(N_LAYERS))
        self.register_buffer("emb", weights["token_embd.weight"].to(bf), persistent=False)
        self.no = nn.Parameter(weights["output_norm.weight"].clone())
        self.register_buffer("oo", self.no.detach().clone(), persistent=False)

    def forward(self, ids, share=0, changed=True):
        """States that the head sees. share: of silent neurons; changed False: the model as it was."""
        f = torch.arange(ids.shape[1])[:, None] / ROPE_BASE ** (torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
        cos, sin = f.cos().to(bf), f.sin().to(bf)
        x = self.emb[ids]
        for layer in self.layers:
            x = layer(x, cos, sin, share, changed)
        return norm(x, self.no if changed else self.oo)


m = Model()
weights = None
data = torch.from_numpy(np.load(a.tokens).astype(np.int64))
held = {k: torch.from_numpy(np.load(f).astype(np.int64)) for k, f in (x.split("=") for x in a.held)}


def log_probs(h):
    return F.log_softmax((h @ m.emb.T).float(), -1)


@torch.no_grad()
def measure(changed, of, rows=8):
    """name@share: perplexity, divergence from the model as it was, density of layer 7."""
    m.eval()
    out = {}
    for name, ids in held.items():
        ids = ids[:rows]
        for s in of:
            nll = kl = density = 0
            for i in range(0, len(ids), 2):
                b = ids[i:i + 2]
                p = log_probs(m(b, s, changed)[:, :-1])
                nll += -p.gather(-1, b[:, 1:, None]).mean().item() * len(b)
                density += (m.layers[7].density.item() if s else 1) * len(b)
                t = log_probs(m(b, 0, False)[:, :-1])
                kl += (t.exp() * (t - p)).sum(-1).mean().item() * len(b)
            out[f"{name}@{s}"] = [round(math.exp(nll / len(ids)), 3), round(kl / len(ids), 4), round(density / len(ids), 3)]
    m.train()
    return out


def gradient_of_loss(h, target):
    """Loss and its gradient by h, row by row, for logits are large."""
    loss, grad, seen = 0, torch.zeros_like(h), h.detach()
    for i in range(a.rows):
        x = seen[i].requires_grad_()
        with torch.no_grad():
            t = log_probs(target[i])
        kl = (t.exp() * (t - log_probs(x))).sum(-1).mean() / a.rows
        kl.backward()
        grad[i] = x.grad
        loss += kl.item()
    return loss, grad


def say(**what):
    print(json.dumps(what), flush=True)


low_rank = [p for n, p in m.named_parameters() if n.endswith(("_a", "_b"))]
norms = [p for n, p in m.named_parameters() if not n.endswith(("_a", "_b"))]
opt = torch.optim.AdamW([dict(params=low_rank, part=1), dict(params=norms, part=0.5)], betas=(0.9, 0.98), weight_decay=0)
order = torch.randperm(len(data))
start = time.time()
m.train()
with torch.no_grad():  # thresholds of the model as it is
    for s in shares:
        m(data[order[:4]], s)
say(tokens=data.numel(), args=vars(a))
say(step=0, held=measure(False, [0] + shares))
for step in range(a.steps):
    done = max(step / a.steps, (time.time() - start) / 60 / a.minutes)
    if done >= 1:
        break
    for g in opt.param_groups:
        g["lr"] = a.lr * g["part"] * min(1, (step + 1) / 20) * (1 - done)
    b = data[order[[(step * a.rows + i) % len(data) for i in range(a.rows)]]]
    share = shares[step % len(shares)]
    with torch.no_grad():
        target = m(b, 0, False)
    h = m(b, share)
    loss, grad = gradient_of_loss(h, target)
    h.backward(grad)
    size = torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    opt.step()
    opt.zero_grad(set_to_none=True)
    say(step=step + 1, share=share, kl=round(loss, 4), grad=round(size.item(), 3), s=round(time.time() - start, 1),
        density=round(sum(x.density.item() for x in m.layers) / N_LAYERS, 3))
    if (step + 1) % a.measure == 0:
        say(step=step + 1, held=measure(True, [0.5, 0.7], 4))
    if (step + 1) % a.save == 0:
        torch.save(m.state_dict(), a.out)
say(step="end", held=measure(True, [0] + shares))
torch.save(m.state_dict(), a.out)
