#!/usr/bin/env python3
"""phones.py [--cpu-ns NS] [--npu | --prompts [--launch-us US]]

Mixtral-47B on the OnePlus 12 from 7 to 19 GB as ranges: the best case that docs/phones.md predicts elsewhere (predictors without false
positives, reads that cost no processor time) is left out; the range is from 1.1 times as many neurons predicted as fire to 1.8 times, with
the processor time of a read from 0 to NS. Beside it stands the line between the two published speeds, which is an input of nothing.
With --npu instead: what the phone's NPU adds to decoding, by sequences decoded together, in the same band, its launches from 0 to US at the
slow end; beside the plan's choice stands what the shares that the paper publishes would make. With --prompts: what it adds to prompts, in the
same band, the cores' rate with many tokens taken to be the stated one; and to those of one sequence in less memory, at the slow end. Prints the tables of docs/phones.md."""
import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile

BIN = os.environ.get("BIN", "build/bin")
MEMORY = (7, 8, 9, 10, 11, 12, 13, 15, 17, 19)
PUBLISHED = {7: 2.13, 19: 11.68}
FALSE_ALARMS = (1.1, 1.8)
MODEL, DEVICE = "datasets/descriptions/turbosparse-mixtral-47b-paper.json", "datasets/devices/oneplus-12.csv"
NPU_MODELS = (("Bamboo-7B, in memory", "datasets/descriptions/bamboo-7b.json", 10, 32), ("Mixtral-47B, 19 GB", MODEL, 19, 4))
PROMPTS = (64, 128, 256, 512)
LESS = (2, 2.92, 4, 5) # GB, of Bamboo-7B for one sequence
SHARES = (8, 11) # sixteenths: half of the neurons at one sequence, about 70 % at many


def many_tokens(rows):
    """Row kernels of one token and of 512 at the stated rate of each class: what a plan takes without them, but for prompts it wants them."""
    more = []
    for r in rows:
        if r[1] == "compute" and r[2].startswith("kernel=flops/int8;"):
            rate = float(r[4]) * {"GFLOP/s": 1e9, "FLOP/s": 1}[r[5]]
            for tokens in 1, 512:
                key = f"kernel=rows/q4_0/q8;{r[2].split(';')[1]};pattern=seq;resident=cache;threads=1;row_len=4096;batch={tokens}"
                more += [r[:2] + [key, field, repr(value), unit, "estimated", "The class's stated rate, whatever the tokens."]
                         for field, value, unit in (("ns_per_row", 2e9 * 4096 * tokens / rate, "ns"), ("flops_per_s", rate, "FLOP/s"),
                                                    ("rows", 64, ""))]
    return more


def device(tmp, cpu_ns, launch_us=0, prompts=False):
    db, table = os.path.join(tmp, "hw.sqlite"), os.path.join(tmp, "d.csv")
    with open(DEVICE, newline="", encoding="utf-8") as f:
        rows = list(csv.reader(f))
    more = [r[:3] + ["cpu_ns_per_read", str(cpu_ns), "ns", "estimated", "Scaled by clock from a measured machine."]
            for r in rows[1:] if r[1] == "storage" and r[3] == "bytes_per_s"] if cpu_ns else []
    if launch_us: # of the measured products the time that they take is known whole
        more.append([rows[1][0], "accelerator", "engine=npu", "launch_ns", str(1000 * launch_us), "ns", "estimated", "Not published; taken."])
        for r in rows:
            if r[1] == "accelerator_point":
                r[4:6] = [repr(float(r[4]) * {"ms": 1e6, "us": 1e3, "ns": 1}[r[5]] + 1000 * launch_us), "ns"]
    if prompts:
        more += many_tokens(rows)
    with open(table, "w", newline="", encoding="utf-8") as f:
        csv.writer(f).writerows(rows + more)
    subprocess.run([os.path.join(BIN, "thermo-profile"), "import", "-q", "--db", db, "--csv", table], check=True)
    return db


def binds(step):
    """Which term takes most of a token, and its share."""
    p, spent = step["layers"], {"arithmetic": 0.0, "memory": 0.0, "NPU": 0.0, "reads": 0.0, "attention": 0.0, "prediction": 0.0}
    both = p.get("ffn_engine_ns", [0.0] * len(p["total_ns"]))
    for total, attention, predict, compute, memory, npu in zip(*(p[k + "_ns"] for k in ("total", "attention", "predict", "ffn_compute",
                                                                                        "ffn_memory")), both):
        spent["attention"] += attention
        spent["prediction"] += predict
        spent["NPU" if npu > max(compute, memory) else "arithmetic" if compute >= memory else "memory"] += max(compute, memory, npu)
        spent["reads"] += max(0.0, total - attention - predict - max(compute, memory, npu))
    most = max(spent, key=spent.get)
    return f"{most} {100 * spent[most] / step['step_ns']:.0f} %"


def described(tmp, model, predicted_per_firing):
    """The model's description with such predictors: its path."""
    with open(model, encoding="utf-8") as f:
        d = json.load(f)
    d["predictors"]["predicted_per_firing"] = predicted_per_firing
    d["sources"]["predictors.predicted_per_firing"] = "A band: what predictors of real models were measured to need."
    path = os.path.join(tmp, "m.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(d, f)
    return path


def plans(predicted_per_firing, cpu_ns):
    with tempfile.TemporaryDirectory() as tmp:
        path, out = described(tmp, MODEL, predicted_per_firing), os.path.join(tmp, "p.json")
        subprocess.run([os.path.join(BIN, "thermo-plan"), "solve", "-q", "--description", path, "--hardware", device(tmp, cpu_ns), "--memory",
                        ",".join(f"{m}GB" for m in MEMORY), "--mode", "predicted", "--form", "bundle", "--packed", "no", "--act", "q8",
                        "--down-type", "source", "--context", "1024", "--policy", "lru", "--out", out], check=True, stdout=subprocess.DEVNULL)
        with open(out, encoding="utf-8") as f:
            return [limit["batches"][0] for limit in json.load(f)["predictions"]["limits"]]


def npu_plan(model, gb, most, predicted_per_firing, cpu_ns, launch_us, prompts=False):
    """A plan with the NPU, and what explain says of it."""
    with tempfile.TemporaryDirectory() as tmp:
        path, out = described(tmp, model, predicted_per_firing), os.path.join(tmp, "p.json")
        source = ["--description", path, "--hardware", device(tmp, cpu_ns, launch_us, prompts)]
        subprocess.run([os.path.join(BIN, "thermo-plan"), "solve", "-q", *source, "--memory", f"{gb}GB", "--mode", "predicted", "--form", "bundle",
                        "--packed", "no", "--act", "q8", "--down-type", "source", "--context", "1024", "--policy", "lru", "--max-batch", str(most),
                        "--engine", "npu", "--out", out], check=True, stdout=subprocess.DEVNULL)
        said = subprocess.run([os.path.join(BIN, "thermo-plan"), "explain", "-q", out, *source, "--no-gains", "--json"], check=True,
                              stdout=subprocess.PIPE)
        with open(out, encoding="utf-8") as f:
            return json.load(f), json.loads(said.stdout)["engine"]


def span(low, high, say):
    """Both ends of the band, or one, if they print the same."""
    low, high = say.format(low), say.format(high)
    return low if low == high else f"{low} to {high}"


def also(slow, fast):
    """What it computes beside neurons."""
    return span(*("" if x["work"] == "ffn" else "attention, head" if x["work"] == "all" else x["work"] for x in (slow, fast)), "{}")


def prompt_table(args):
    print("| | tokens | NPU's neurons | and | first token without it, s | with it | of which attention | it adds |")
    print("|--|--|--|--|--|--|--|--|")
    for name, model, gb, most in NPU_MODELS:
        first, fast = npu_plan(model, gb, most, FALSE_ALARMS[0], 0, 0, True)
        other, slow = npu_plan(model, gb, most, FALSE_ALARMS[1], args.cpu_ns, args.launch_us, True)
        for x in fast["prompts"]:
            same = [y for y in slow["prompts"] if y["tokens"] == x["tokens"]]
            if x["tokens"] not in PROMPTS or not same:
                continue
            y, n_ff = same[0], x["heights"][-1]["neurons"]
            attention = []
            for p in (other, first):
                at = p["decisions"]["limits"][0]["prompt"]["tokens"].index(x["tokens"])
                attention.append(p["predictions"]["limits"][0]["prompt"]["attention_ns"][at] / 1e9)
            print("|", " | ".join((name, str(x["tokens"]), span(y["neurons"] / n_ff, x["neurons"] / n_ff, "{:.0%}"), also(y, x),
                                   span(y["without_first_token_ns"] / 1e9, x["without_first_token_ns"] / 1e9, "{:.3g}"),
                                   span(y["first_token_ns"] / 1e9, x["first_token_ns"] / 1e9, "{:.3g}"), span(*attention, "{:.3g}"),
                                   span(y["without_first_token_ns"] / y["first_token_ns"] - 1,
                                        x["without_first_token_ns"] / x["first_token_ns"] - 1, "{:+.0%}"))), "|", flush=True)
            name = ""


def single_table(args):
    """Bamboo-7B for one sequence, with the NPU and without: decoding, and prompts of 512 tokens."""
    print("\n| memory, GB | tokens/s without the NPU | with it | prompts, tokens/s without it | with it |\n|--|--|--|--|--|")
    with tempfile.TemporaryDirectory() as tmp:
        source = ["--description", described(tmp, NPU_MODELS[0][1], FALSE_ALARMS[1]), "--hardware", device(tmp, args.cpu_ns, args.launch_us, True)]
        out, speeds = os.path.join(tmp, "p.json"), []
        for engine in "none", "npu":
            subprocess.run([os.path.join(BIN, "thermo-plan"), "solve", "-q", *source, "--memory", ",".join(f"{m}GB" for m in LESS), "--mode",
                            "predicted", "--form", "bundle", "--packed", "no", "--act", "q8", "--down-type", "source", "--context", "1024",
                            "--policy", "lru", "--engine", engine, "--out", out], check=True, stdout=subprocess.DEVNULL)
            with open(out, encoding="utf-8") as f:
                plan = json.load(f)
            limits = plan["predictions"]["limits"]
            lengths = [l["prompt"]["tokens"][-1] for l in plan["decisions"]["limits"]]
            speeds.append([(l["batches"][0]["tokens_per_s"],
                            1e9 * n / (l["prompt"]["attention_ns"][-1] + l["prompt"]["ffn_ns"][-1] + l["prompt"]["wait_ns"][-1]))
                           for l, n in zip(limits, lengths)])
    for m, a, b in zip(LESS, *speeds):
        print(f"| {m} | {a[0]:.3g} | {b[0]:.3g} | {a[1]:.3g} | {b[1]:.3g} |")


def npu_table(args):
    print("| | sequences | NPU's neurons | and | tokens/s without it | with it | it adds | with a half | with 11/16 | what decides, slow and fast |")
    print("|--|--|--|--|--|--|--|--|--|--|")
    for name, model, gb, most in NPU_MODELS:
        fast, by_fast = npu_plan(model, gb, most, FALSE_ALARMS[0], 0, 0)
        slow, by_slow = npu_plan(model, gb, most, FALSE_ALARMS[1], args.cpu_ns, args.launch_us)
        sizes = (b["batch"] for b in slow["decisions"]["limits"][0]["batches"])
        steps = (p["predictions"]["limits"][0]["batches"] for p in (slow, fast))
        for batch, a, x, b, y in zip(sizes, next(steps), by_slow["batches"], next(steps), by_fast["batches"]):
            n_ff = y["heights"][-1]["neurons"]
            shares = [span(x["heights"][k - 1]["tokens_per_s"], y["heights"][k - 1]["tokens_per_s"], "{:.3g}") for k in SHARES]
            print("|", " | ".join((name, str(batch), span(x["neurons"] / n_ff, y["neurons"] / n_ff, "{:.0%}"), also(x, y),
                                   span(x["without_tokens_per_s"], y["without_tokens_per_s"], "{:.3g}"),
                                   span(x["tokens_per_s"], y["tokens_per_s"], "{:.3g}"),
                                   span(x["tokens_per_s"] / x["without_tokens_per_s"] - 1,
                                        y["tokens_per_s"] / y["without_tokens_per_s"] - 1, "{:+.0%}"), *shares,
                                   f"{binds(a)}; {binds(b)}")), "|", flush=True)
            name = ""


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cpu-ns", type=float, default=1700, metavar="NS", help="processor time of a read at the slow end (default 1700)")
    p.add_argument("--npu", action="store_true", help="what the NPU adds, by sequences decoded together")
    p.add_argument("--prompts", action="store_true", help="what it adds to prompts, by their tokens")
    p.add_argument("--launch-us", type=float, default=100, metavar="US", help="a launch of the NPU at the slow end (default 100)")
    args = p.parse_args()
    if args.npu:
        npu_table(args)
        return 0
    if args.prompts:
        prompt_table(args)
        single_table(args)
        return 0
    fast, slow = plans(FALSE_ALARMS[0], 0), plans(FALSE_ALARMS[1], args.cpu_ns)
    print("| memory, GB | predicted, tokens/s | published, or the line between | what decides, at the fast end | at the slow end |\n|--|--|--|--|--|")
    (low, a), (high, b) = sorted(PUBLISHED.items())
    for m, x, y in zip(MEMORY, fast, slow):
        line = a + (b - a) * (m - low) / (high - low)
        said = f"**{PUBLISHED[m]}**" if m in PUBLISHED else f"{line:.3g}"
        print(f"| {m} | {y['tokens_per_s']:.3g} to {x['tokens_per_s']:.3g} | {said} | {binds(x)} | {binds(y)} |")


sys.exit(main())
