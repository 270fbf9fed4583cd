#!/usr/bin/env python3
"""quality.py [options]                                             (or: make quality QUALITY="--memory 14MiB")

What does a budget of quality bring? The embedded model, or --model, is traced, gets predictors and is packed; each limit of --memory is
planned for a published device (two middle cores), so that the same figures come out everywhere:

  recall       --recall, nothing in memory always computed but what pays
  resident     --recall --always-resident
  budget       --max-kl X --always-resident, X the divergence that the trace promises of `recall`; and of each of --kl

Each is run: KL against exact mode, on text like the trace's and on other text (datasets/heldout), and what a token misses and reads. A table in Markdown."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

BIN = os.environ.get("BIN") or "build/bin"
MODEL = "datasets/models/reglu-tales-10m-f16.gguf"
TEXTS = {"stories": ["--ids", "datasets/heldout/held_tiny.bin"], "fairy tales": ["--ids", "datasets/heldout/held_fairy.bin"]}


def run(program, *words, out=False):
    done = subprocess.run([f"{BIN}/{program}", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"quality.py: {program} {' '.join(map(str, words))}: {done.stderr.strip()[-600:]}")
    return done.stdout if out else None


class Bench:
    def __init__(self, tmp, args):
        self.tmp, self.args = tmp, args
        self.trace, self.hw, self.pack = f"{tmp}/t.h5", f"{tmp}/hw.sqlite", f"{tmp}/m.thermo"

    def prepare(self):
        a = self.args
        run("thermo-profile", "trace", "-q", "--model", a.model, "--prompts", "datasets/prompts/stories-profile.csv", "--out", self.trace,
            "--samples", a.samples)
        run("thermo-profile", "predictors", "-q", "--model", a.model, "--traces", self.trace, "--method", a.method, "--loss-weighting",
            a.loss_weighting)
        run("thermo-profile", "import", "-q", "--db", self.hw, "--csv", "datasets/devices/oneplus-12.csv")
        self.solve("64MiB", f"{self.tmp}/pack.json", ["--form", "bundle"], [])
        run("thermo-pack", "pack", "--model", a.model, "--traces", self.trace, "--plan", f"{self.tmp}/pack.json", "--out", self.pack)

    def solve(self, memory, out, how, pack):
        run("thermo-plan", "solve", "--traces", self.trace, "--hardware", self.hw, "--mode", "predicted", "--predictor", "ffn", "--context", 256,
            "--cores", "mid=2,big=0,little=0", "--memory", memory, "--out", out, *how, *pack)
        with open(out, encoding="utf-8") as f:
            return json.load(f)

    def kl(self, plan, text):
        o = json.loads(run("thermo-run", "perplexity", "-q", "--model", self.pack, "--plan", plan, "--ctx", 256, "--against", "exact", "--json",
                           "--windows", self.args.windows, *TEXTS[text], out=True))
        return o["against"]

    def row(self, name, memory, how):
        path = f"{self.tmp}/plan.json"
        plan = self.solve(memory, path, how, ["--for-pack", self.pack])
        limit = plan["decisions"]["limits"][0]
        recalls = limit.get("recalls", [limit["recall"]])
        made = [json.loads(x) for x in run("thermo-run", "generate", "-q", "--model", self.pack, "--plan", path, "--prompt", "Once upon a time",
                                           "-n", self.args.tokens, "--temp", 0, "--ignore-eos", "--json", out=True).splitlines()][-1]["decode"]
        seen = {t: self.kl(path, t) for t in TEXTS}
        n = made["tokens"]
        promised = [float(x.split("mean KL ")[1].split(" nats")[0]) for x in plan["notes"] if "mean KL " in x]
        misses = (made["cold_lookups"] - made["cold_hits"]) / n
        print(f"| {memory} | {name} | {min(recalls):g}{f' to {max(recalls):g}' if len(recalls) > 1 else ''} | {promised[0]:.2g} | "
              + " | ".join(f"{x['kl_mean']:.2g} | {100 * x['top1_agreement']:.2f} %" for x in seen.values())
              + f" | {misses:.0f} | {made['read_bytes'] / n / 1e6:.2f} | "
              f"{plan['predictions']['limits'][0]['batches'][0]['tokens_per_s']:.3g} |", flush=True)
        if self.args.verbose:
            print(recalls, limit["exempt"], file=sys.stderr)
        return promised[0]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", default=MODEL)
    p.add_argument("--memory", default="14MiB,18MiB", help="limits, with commas (default: %(default)s)")
    p.add_argument("--recall", type=float, default=0.99)
    p.add_argument("--kl", default="", help="further budgets, with commas")
    p.add_argument("--method", default="svd", help="of predictors (default: %(default)s)")
    p.add_argument("--loss-weighting", type=float, default=0)
    p.add_argument("--samples", type=int, default=20000)
    p.add_argument("--folder", help="keep trace and pack here, and use those that are there (default: a temporary one)")
    p.add_argument("--windows", type=int, default=16, help="of 256 tokens of each text at most (default: %(default)s)")
    p.add_argument("--tokens", type=int, default=177, help="generated (default: %(default)s)")
    p.add_argument("--verbose", action="store_true")
    args = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="thermo-quality-") as tmp:
        if args.folder:
            os.makedirs(args.folder, exist_ok=True)
        bench = Bench(args.folder or tmp, args)
        if not os.path.exists(bench.pack):
            bench.prepare()
        print("| memory | plan | recall | promised KL | " + " | ".join(f"KL, {t} | same first choice" for t in TEXTS) +
              " | missing a token | MB read a token | tokens/s, planned |\n|" + "--|" * (7 + 2 * len(TEXTS)))
        for memory in args.memory.split(","):
            kl = bench.row("recall", memory, ["--recall", args.recall])
            bench.row("resident", memory, ["--recall", args.recall, "--always-resident"])
            for x in [kl, *map(float, filter(None, args.kl.split(",")))]:
                bench.row(f"budget {x:.2g}", memory, ["--max-kl", x, "--always-resident"])


main()
