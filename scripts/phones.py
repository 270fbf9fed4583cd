#!/usr/bin/env python3
"""phones.py [--cpu-ns NS]

Mixtral-47B on the OnePlus 12 from 7 to 19 GB as ranges: the best case that docs/phones.md predicts elsewhere (predictors without false
positives, reads that cost no processor time) is left out; the range is from 1.1 times as many neurons predicted as fire to 1.8 times, with
the processor time of a read from 0 to NS. Beside it stands the line between the two published speeds, which is an input of nothing.
Prints the table of docs/phones.md."""
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


def device(tmp, cpu_ns):
    db, table = os.path.join(tmp, "hw.sqlite"), os.path.join(tmp, "d.csv")
    with open(DEVICE, newline="", encoding="utf-8") as f:
        rows = list(csv.reader(f))
    more = [r[:3] + ["cpu_ns_per_read", str(cpu_ns), "ns", "estimated", "Scaled by clock from a measured machine."]
            for r in rows[1:] if r[1] == "storage" and r[3] == "bytes_per_s"] if cpu_ns else []
    with open(table, "w", newline="", encoding="utf-8") as f:
        csv.writer(f).writerows(rows + more)
    subprocess.run([os.path.join(BIN, "thermo-profile"), "import", "-q", "--db", db, "--csv", table], check=True)
    return db


def binds(batch):
    """Which term takes most of a token, and its share."""
    p, spent = batch["predicted"]["layers"], {"arithmetic": 0.0, "memory": 0.0, "reads": 0.0, "attention": 0.0, "prediction": 0.0}
    for total, attention, predict, compute, memory in zip(*(p[k + "_ns"] for k in ("total", "attention", "predict", "ffn_compute", "ffn_memory"))):
        spent["attention"] += attention
        spent["prediction"] += predict
        spent["arithmetic" if compute >= memory else "memory"] += max(compute, memory)
        spent["reads"] += max(0.0, total - attention - predict - max(compute, memory))
    most = max(spent, key=spent.get)
    return f"{most} {100 * spent[most] / batch['predicted']['step_ns']:.0f} %"


def plans(predicted_per_firing, cpu_ns):
    with tempfile.TemporaryDirectory() as tmp:
        with open(MODEL, encoding="utf-8") as f:
            d = json.load(f)
        d["predictors"]["predicted_per_firing"] = predicted_per_firing
        d["sources"]["predictors.predicted_per_firing"] = "A band: what predictors of real models were measured to need."
        path, out = os.path.join(tmp, "m.json"), os.path.join(tmp, "p.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(d, f)
        subprocess.run([os.path.join(BIN, "thermo-plan"), "solve", "-q", "--description", path, "--hardware", device(tmp, cpu_ns), "--memory",
                        ",".join(f"{m}GB" for m in MEMORY), "--mode", "predicted", "--form", "bundle", "--packed", "no", "--act", "q8",
                        "--down-type", "source", "--context", "1024", "--policy", "lru", "--out", out], check=True, stdout=subprocess.DEVNULL)
        with open(out, encoding="utf-8") as f:
            return [limit["batches"][0] for limit in json.load(f)["limits"]]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cpu-ns", type=float, default=1700, metavar="NS", help="processor time of a read at the slow end (default 1700)")
    args = p.parse_args()
    fast, slow = plans(FALSE_ALARMS[0], 0), plans(FALSE_ALARMS[1], args.cpu_ns)
    print("| memory, GB | predicted, tokens/s | published, or the line between | what decides, at the fast end | at the slow end |\n|--|--|--|--|--|")
    (low, a), (high, b) = sorted(PUBLISHED.items())
    for m, x, y in zip(MEMORY, fast, slow):
        line = a + (b - a) * (m - low) / (high - low)
        said = f"**{PUBLISHED[m]}**" if m in PUBLISHED else f"{line:.3g}"
        print(f"| {m} | {y['predicted']['tokens_per_s']:.3g} to {x['predicted']['tokens_per_s']:.3g} | {said} | {binds(x)} | {binds(y)} |")


sys.exit(main())
