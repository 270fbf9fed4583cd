#!/usr/bin/env python3
"""Compare what thermo-run prints with the reference results in tests/golden/reference (see its README).

compare.py prompts REF.json
    one line per prompt: its number, a blank, its ids with commas between (as --tokens takes them)
compare.py logits REF.json N OUT.json [--vector FILE.f32] [--max D]
    OUT.json is {"logits": [...]} after prompt N. Prints the largest absolute difference over the reference's
    twenty largest logits and, with --vector, over the whole last row of FILE.f32.
compare.py perplexity REF.json TEXT PROTOCOL OUT.json [--max R]
    OUT.json is {"nll":, "ppl":, "scored":, "windows":, ...}. Prints the relative difference of ppl; the
    counts have to be equal.

Exit 0: within --max (or none given); 1: beyond it; 3: OUT.json is not what it should be. Standard
library only.
"""
import argparse
import array
import json
import math
import sys


def die(message):
    print("compare.py: " + message)
    sys.exit(3)


def load(path):
    try:
        with open(path) as f:
            return json.load(f)
    except (OSError, ValueError) as e:
        die("%s: %s" % (path, e))


def number(x):
    return isinstance(x, (int, float)) and not isinstance(x, bool) and math.isfinite(x)


def logits(a):
    prompt = next((p for p in load(a.ref)["prompts"] if p["n"] == a.n), None)
    if prompt is None:
        die("%s has no prompt %d" % (a.ref, a.n))
    out = load(a.out)
    got = out.get("logits") if isinstance(out, dict) else None
    if not isinstance(got, list) or not all(map(number, got)):
        die("%s: 'logits' is not an array of finite numbers" % a.out)
    want = dict(zip(prompt["top20_ids"], prompt["top20_logits"]))
    rounding = 5e-6  # the reference's five decimals
    if max(want) >= len(got):
        die("%s: %d logits, the reference has id %d" % (a.out, len(got), max(want)))
    if a.vector:
        rows = array.array("f")
        with open(a.vector, "rb") as f:
            rows.frombytes(f.read())
        if sys.byteorder == "big":
            rows.byteswap()
        if len(rows) != len(got) * len(prompt["ids"]):
            die("%s: %d values are not %d rows of %d" % (a.vector, len(rows), len(prompt["ids"]), len(got)))
        want = dict(enumerate(rows[-len(got):]))
        rounding = 0.0
    worst = max(want, key=lambda i: abs(got[i] - want[i]))
    d = max(0.0, abs(got[worst] - want[worst]) - rounding)
    print("max abs difference %.3g over %d logits (id %d: %.6f, reference %.6f)"
          % (d, len(want), worst, got[worst], want[worst]))
    return d


def perplexity(a):
    want = load(a.ref)["perplexity"].get(a.text, {}).get(a.protocol)
    if want is None:
        die("%s has no perplexity of %s by protocol %s" % (a.ref, a.text, a.protocol))
    got = load(a.out)
    for key in ("nll", "ppl", "scored", "windows"):
        if not isinstance(got, dict) or not number(got.get(key)):
            die("%s: '%s' is missing or no finite number" % (a.out, key))
    for key in ("scored", "windows"):
        if key in want and got[key] != want[key]:
            die("%s: %s is %s, the reference has %s" % (a.out, key, got[key], want[key]))
    if abs(math.exp(got["nll"]) / got["ppl"] - 1) > 1e-5:
        die("%s: ppl %s is not exp(nll %s)" % (a.out, got["ppl"], got["nll"]))
    d = abs(got["ppl"] / want["ppl"] - 1)
    print("ppl %.5f, reference %.5f: %+.4f %%" % (got["ppl"], want["ppl"], 100 * (got["ppl"] / want["ppl"] - 1)))
    return d


def main():
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = top.add_subparsers(dest="what", required=True)
    p = sub.add_parser("prompts")
    p.add_argument("ref")
    p = sub.add_parser("logits")
    p.add_argument("ref")
    p.add_argument("n", type=int)
    p.add_argument("out")
    p.add_argument("--vector")
    p.add_argument("--max", type=float)
    p = sub.add_parser("perplexity")
    for name in ("ref", "text", "protocol", "out"):
        p.add_argument(name)
    p.add_argument("--max", type=float)
    a = top.parse_args()
    if a.what == "prompts":
        for p in load(a.ref)["prompts"]:
            print(p["n"], ",".join(map(str, p["ids"])))
        return 0
    d = logits(a) if a.what == "logits" else perplexity(a)
    return a.max is not None and not d <= a.max


if __name__ == "__main__":
    sys.exit(main())
