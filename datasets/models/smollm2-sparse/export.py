"""A checkpoint of train.py to a delta for `gguf-make apply-delta`: changes of the FFN's matrices by truncated SVD, in Q8_0, and norms."""
import argparse

import gguf
import numpy as np
import torch

p = argparse.ArgumentParser(description=__doc__)
p.add_argument("checkpoint")
p.add_argument("delta")
p.add_argument("--base", required=True, help="hash of the base model's tensors, as gguf-make apply-delta prints it where another is given")
p.add_argument("--rank", type=int, default=32, help="a multiple of 32")
a = p.parse_args()

s = torch.load(a.checkpoint)
w = gguf.GGUFWriter(a.delta, "llama")
w.add_string("delta.base", a.base)
w.add_string("general.name", "SmolLM2 135M Instruct, FFN changed for thresholds")
w.add_string("general.license", "apache-2.0")


def q8(name, x):
    w.add_tensor(name, gguf.quantize(np.ascontiguousarray(x), gguf.GGMLQuantizationType.Q8_0), raw_dtype=gguf.GGMLQuantizationType.Q8_0)


kept = total = 0
for i in range(sum(k.endswith(".n1") for k in s)):
    for n in ("gate", "up", "down"):
        A, B = s[f"layers.{i}.{n}_a"].float(), s[f"layers.{i}.{n}_b"].float()
        qa, ra = torch.linalg.qr(A)
        qb, rb = torch.linalg.qr(B.T)
        u, d, v = torch.linalg.svd(ra @ rb.T)
        total += (d ** 2).sum().item()
        d = d[:a.rank]
        kept += (d ** 2).sum().item()
        q8(f"blk.{i}.ffn_{n}.delta_a", (qa @ u[:, :a.rank] * d.sqrt()).numpy())
        q8(f"blk.{i}.ffn_{n}.delta_b", ((qb @ v.T[:, :a.rank]) * d.sqrt()).T.numpy())
    w.add_tensor(f"blk.{i}.attn_norm.weight", s[f"layers.{i}.n1"].float().numpy())
    w.add_tensor(f"blk.{i}.ffn_norm.weight", s[f"layers.{i}.n2"].float().numpy())
w.add_tensor("output_norm.weight", s["no"].float().numpy())
w.write_header_to_file()
w.write_kv_data_to_file()
w.write_tensors_to_file()
w.close()
print("%.1f %% of the changes' squares kept" % (100 * kept / total))
