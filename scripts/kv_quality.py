#!/usr/bin/env python3
"""What the type of the KV cache costs: perplexity of a text, and the Kullback-Leibler divergence of the next token from that with F32.

usage: kv_quality.py MODEL.thermo PLAN.json TEXT [CONTEXT [PLACES]]

Perplexity is that of PLACES (48) windows of CONTEXT tokens (256); divergence that of the token behind each of as many pieces of the text, of up
to 1.5 characters for a token of a window. Prints a row of a Markdown table for each type."""
import json, math, os, subprocess, sys

RUN = os.path.join(os.environ.get("BIN", "build/bin"), "thermo-run")


def run(command, *flags):
    files = ["--model", sys.argv[1], "--plan", sys.argv[2], "--act", "f32", "-q"]
    return json.loads(subprocess.run([RUN, command, *files, *flags], check=True, capture_output=True, text=True).stdout)


def log_softmax(x):
    most = max(x)
    total = most + math.log(math.fsum(math.exp(v - most) for v in x))
    return [v - total for v in x]


def compare(a, b):
    """(divergence of b from a, whether both have the same likeliest token)"""
    kl = math.fsum(math.exp(p) * (p - q) for p, q in zip(a, b))
    return kl, a.index(max(a)) == b.index(max(b))


def main():
    text = open(sys.argv[3], encoding="utf-8").read()
    context = int(sys.argv[4]) if len(sys.argv) > 4 else 256
    places = int(sys.argv[5]) if len(sys.argv) > 5 else 48
    step = len(text) // (places + 1)
    parts = [text[i * step : i * step + min(step, 3 * context // 2) * (1 + i % 4) // 4] for i in range(places)]
    logits = {kv: [log_softmax(run("logits", "--kv", kv, "--context", str(2 * context), "--prompt", p)["logits"]) for p in parts]
              for kv in ("f32", "f16", "q8_0", "q4_0")}
    print("| `--kv` | perplexity | KL, mean | KL, most | same likeliest token |\n|--|--|--|--|--|")
    for kv, own in logits.items():
        ppl = run("perplexity", "--kv", kv, "--file", sys.argv[3], "--ctx", str(context), "--windows", str(places), "--json")["ppl"]
        got = [compare(a, b) for a, b in zip(logits["f32"], own)]
        kls = [k for k, _ in got]
        print(f"| `{kv}` | {ppl:.4f} | {max(0, sum(kls) / len(kls)):.6f} | {max(0, max(kls)):.6f} | {sum(s for _, s in got)} of {len(got)} |", flush=True)


main()
