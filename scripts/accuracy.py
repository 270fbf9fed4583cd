#!/usr/bin/env python3
"""accuracy.py [--dry-run]          (or: make accuracy NAME=VALUE...)

Predicted against measured: one plan for all memory limits, each limit run several times in a memory cgroup of that size, and
predicted beside measured, as a whole and term by term, as thermo-plan calibrate compares them. Nothing is corrected by
what was measured. The machine should have nothing else to do. --dry-run prints the runs.

Machines drift, virtual ones by a third within minutes. So their figures are measured before the first run and after each,
and what stands beside a run is the plan's choice at the mean of the prices before and after it, at the positions that
the run had (thermo-plan calibrate --reprice). Rounds go there and back over the limits, so that a slow moment of the
machine meets all equally; medians of the runs are compared. The plan's context is TOKENS. Writes OUT/accuracy.json,
OUT/accuracy.md and OUT/accuracy.csv; a model's results replace those of the same NAME.

Settings, as environment variables or make's NAME=VALUE:
  MODEL=FILE        a packed model (.thermo), or a GGUF: it is packed as the plan says
  TRACES=FILE       its trace
  MEMORY=LIST       sizes, resident and floor (the least that can be planned): "resident 2500MB 2GiB floor"
  HARDWARE=FILE     hardware database, the same for all runs; where not set, the machine is measured beside each of them
  HARDWARE_FLAGS=   of thermo-profile hardware. Default: --quick --range 1GiB
  PLAN_FLAGS=       more flags of thermo-plan solve: "--mode predicted --act q8"
  TOKENS=N          of a run, after as many to warm up. Default: 48
  RUN_SECONDS=S     fewer tokens, at least 8, where warming up and running would take longer by the plan. Default: 30
  RUNS=N            of each limit. Default: 3
  TEXT=FILE         what runs decode, for figures of text like the trace's: which neurons fire, and so what is read, is a matter
                    of the text. The plan's context is 2 TOKENS then, and runs go on where their warm-up ended. Default: what
                    the model itself says, after the beginning of text
  STEAL=PERCENT     of the processors that the host of a virtual machine may take during a run; else it is repeated, TRIES
                    times in all, and the least disturbed counts, whatever it measured. Default: 3 and 3
  NAME=TEXT         of these results. Default: MODEL's file name
  OUT=DIR           Default: docs.        WORK=DIR   plan, telemetry and the like. Default: build/accuracy/NAME
  TIMEOUT=S         of one run. Default: 600
"""
import csv
import json
import math
import os
import re
import shlex
import signal
import statistics
import subprocess
import sys
import time

from bench_runner import Runner
from bench_settings import Interrupted, count, die, env, say, size

BIN = os.environ.get("BIN") or "build/bin"
LEAST_TOKENS = 8
TERMS = (("attention", "attention"), ("predict", "prediction"), ("ffn", "FFN"), ("io_wait", "waiting for storage"),
         ("head", "head"), ("rest", "rest"))


def tell(text):
    say(f"accuracy: {text}")


def call(command, codes=(0,)):
    """A program of ours, whose complaint is ours too."""
    p = subprocess.run(command, capture_output=True, text=True, check=False)
    if p.returncode not in codes:
        sys.stderr.write(p.stderr)
        die(p.returncode, f"exit status {p.returncode}: {shlex.join(command)}")
    return p


# ---- what to run ----

class Job:
    def __init__(self):
        self.model, self.traces = env("MODEL"), env("TRACES")
        for name in ("MODEL", "TRACES"):
            if not os.access(env(name), os.R_OK):
                die(3, f"{name}: cannot read '{env(name)}'; --help tells the settings")
        self.name = env("NAME", re.sub(r"\.(thermo|gguf)$", "", os.path.basename(self.model)))
        self.work = env("WORK", f"build/accuracy/{self.name}")
        self.tokens, self.runs, self.seconds = count("TOKENS", 48, LEAST_TOKENS), count("RUNS", 3, 1), count("RUN_SECONDS", 30, 1)
        self.steal, self.tries = count("STEAL", 3, 0), count("TRIES", 3, 1)
        self.hardware, self.text = env("HARDWARE"), env("TEXT")
        if self.text and not os.access(self.text, os.R_OK):
            die(3, f"TEXT: cannot read '{self.text}'")
        self.words = env("MEMORY").replace(",", " ").split()
        if not self.words:
            die(2, "MEMORY names no limit, such as MEMORY='resident 2GiB floor'")
        for word in self.words:
            if word not in ("resident", "floor") and size(word) is None:
                die(2, f"MEMORY: '{word}' is neither resident, floor nor a size such as 2500MB or 2GiB")
        self.plan, self.telemetry = f"{self.work}/plan.json", f"{self.work}/runs.jsonl"
        self.fresh = not self.hardware

    def measure_hardware(self, path, *flags):
        """Beside the model, for that disk is what reads come from."""
        if os.path.exists(path):
            os.unlink(path)
        call([f"{BIN}/thermo-profile", "hardware", "-q", "--db", path, "--device", "this-machine", "--storage",
              os.path.dirname(self.model) or "."] + list(flags))

    def measure_now(self, after):
        """The machine as it is after so many runs; what was given where it is not to be measured."""
        if not self.fresh:
            return self.hardware
        path = f"{self.work}/hardware-{after}.sqlite"
        self.measure_hardware(path, *shlex.split(env("HARDWARE_FLAGS", "--quick --range 1GiB")))
        return path

    def solve(self, memory, codes=(0,)):
        pack = ["--for-pack", self.model] if self.model.endswith(".thermo") else []
        return call([f"{BIN}/thermo-plan", "solve", "--traces", self.traces, "--hardware", self.hardware, *pack, "--context",
                     str(self.tokens * (2 if self.text else 1)), "--memory", memory, "--out", self.plan] + shlex.split(env("PLAN_FLAGS")), codes)

    def limits(self):
        """Bytes by word; resident surely holds everything."""
        out = {}
        for word in self.words:
            if word == "resident":
                out[word] = os.path.getsize(self.model) * 9 // 8 + (32 << 20)
            elif word == "floor":
                m = re.search(r"below the floor of ([0-9]+) bytes", self.solve("1MiB", (4,)).stderr)
                out[word] = int(m[1]) if m else die(1, "thermo-plan names no floor")
            else:
                out[word] = size(word)
        return out

    def prepare(self):
        os.makedirs(self.work, exist_ok=True)
        if self.fresh:
            tell("measuring the machine")
            self.hardware = self.measure_now(0)
        limits = self.limits()
        tell("planning")
        self.solve(",".join(str(n) for n in limits.values()))
        if not self.model.endswith(".thermo"):
            packed = f"{self.work}/model.thermo"
            tell("packing")
            call([f"{BIN}/thermo-pack", "pack", "-q", "--model", self.model, "--traces", self.traces, "--plan", self.plan, "--out",
                  packed])
            self.model = packed
        with open(self.plan) as f:
            speed = {x["memory_bytes"]: x["batches"][0]["predicted"]["tokens_per_s"] for x in json.load(f)["limits"]}
        return [(word, n, speed[n]) for word, n in limits.items()]

    def tokens_at(self, speed):
        return max(LEAST_TOKENS, min(self.tokens, int(speed * self.seconds / 2)))

    def command(self, limit, tokens):
        return [f"{BIN}/thermo-run", "bench", "--model", self.model, "--plan", self.plan, "-q", "--output", "json", "-p", "0",
                "-n", str(tokens), "-r", "1", "--memory", str(limit)] + (["--text", self.text] if self.text else [])


def bandwidth(path):
    """GB/s of memory, all threads in order."""
    d = json.loads(call([f"{BIN}/thermo-profile", "show", path, "--json"]).stdout)["devices"][0]
    return max(p["bytes_per_s_p50"] for p in d["memory"] if p["pattern"] == "seq") / 1e9


def stolen():
    """Ticks that the host of a virtual machine took from it, and ticks in all."""
    try:
        with open("/proc/stat") as f:
            ticks = [int(x) for x in f.readline().split()[1:9]]
        return ticks[7], sum(ticks)
    except (OSError, ValueError, IndexError):
        return 0, 0


def run_undisturbed(job, runner, limit, speed):
    """A run; where the host took more than STEAL percent of the processors meanwhile, the least disturbed of up to TRIES."""
    best = None
    for _ in range(job.tries):
        before = stolen()
        text, facts = runner.run(job.command(limit, job.tokens_at(speed)), limit if runner.group.path else None,
                                 drop=[job.model])
        taken, ticks = (b - a for a, b in zip(before, stolen()))
        share = 100 * taken / ticks if ticks > 0 else 0.0
        if best is None or share < best[2]:
            best = text, facts, share
        if "failed" in facts or share <= job.steal:
            break
    return best


def measure(job, limits):
    """Every run's telemetry, and the figures of the machine before and after it; and what failed."""
    runner = Runner(job.work, None, "", count("TIMEOUT", 600, 1))
    runs, failed = [], []
    if not runner.group.path:
        tell(f"no limit is enforced by a cgroup: {runner.group.why}")
    order = [(k, x) for k in range(job.runs) for x in (limits if k % 2 == 0 else limits[::-1])]
    start, before = time.monotonic(), job.hardware
    try:
        with open(job.telemetry, "w") as out:
            for i, (k, (word, limit, speed)) in enumerate(order):
                text, facts, share = run_undisturbed(job, runner, limit, speed)
                if share > job.steal and "failed" not in facts:
                    failed.append(f"{word}, round {k + 1}: the host took {share:.0f} % of the processors meanwhile")
                after = job.measure_now(i + 1)
                if "failed" in facts:
                    failed.append(f"{word}, round {k + 1}: {facts['failed']}")
                else:
                    out.write(text)
                    out.flush()
                    runs.append((limit, text, sorted({before, after})))
                before = after
                got = facts.get("failed") or f"{json.loads(text)['tests'][0]['tokens_per_s']:.3g} tokens/s, planned {speed:.3g}"
                left = (time.monotonic() - start) / (i + 1) * (len(order) - i - 1)
                tell(f"[{i + 1}/{len(order)}] {word}: {got}; about {left / 60:.0f} min {left % 60:02.0f} s left")
    finally:
        enforced = bool(runner.group.path)
        runner.close()
    return runs, failed, enforced, before


# ---- what came out ----

def price(job, limit, text, hardware):
    """The terms of a run, predicted with these figures and measured; why there are none."""
    path = f"{job.work}/run.jsonl"
    with open(path, "w") as f:
        f.write(text)
    p = call([f"{BIN}/thermo-plan", "calibrate", "--reprice", "--plan", job.plan, "--traces", job.traces, "--hardware", hardware,
              "--telemetry", path, "--json"], (0, 5))
    if p.returncode:
        return None, p.stderr.strip()
    found = next(x for x in json.loads(p.stdout)["limits"] if x["memory_bytes"] == limit)
    return {t["term"]: t for t in found["terms"]}, None


def row_of(word, limit, runs):
    """One limit: medians over its runs of every term, predicted (the mean of the prices beside a run) and measured."""
    prices = [x["step"]["predicted"] for r in runs for x in r]
    steps = [(statistics.mean(x["step"]["predicted"] for x in r), r[0]["step"]["median"]) for r in runs]
    row = {"limit": word, "memory_bytes": limit, "runs": len(runs),
           "predicted_tokens_per_s": 1e9 / statistics.median(p for p, _ in steps),
           "measured_tokens_per_s": 1e9 / statistics.median(m for _, m in steps),
           "deviation": statistics.median(m / p - 1 for p, m in steps),
           "prices_tokens_per_s": [1e9 / max(prices), 1e9 / min(prices)]}
    for name, t in runs[0][0].items():
        scale = 1e-6 if t["unit"] == "ns" else 1
        measured = [r[0][name]["median"] * scale for r in runs]
        row[name + ("_ms" if t["unit"] == "ns" else "")] = {
            "predicted": statistics.median(statistics.mean(x[name]["predicted"] for x in r) * scale for r in runs),
            "measured": statistics.median(measured), "least": min(measured), "most": max(measured)}
    return row


def collect(job, limits, runs, failed, enforced, before, after):
    tell("pricing")
    rows, notes, priced = [], list(failed), {n: [] for _, n, _ in limits}
    for limit, text, hardware in runs:
        found = [price(job, limit, text, h) for h in hardware]
        notes += sorted({f"not compared: {why}" for _, why in found if why} - set(notes))
        if all(terms for terms, _ in found):
            priced[limit].append([terms for terms, _ in found])
    for word, n, _ in limits:
        if priced[n]:
            rows.append(row_of(word, n, priced[n]))
        else:
            notes.append(f"{word}: no run can be compared")
    if not rows:
        die(1, "no run can be compared with the plan: " + "; ".join(notes))
    if not enforced:
        notes.append("no cgroup enforced the limits")
    with open(job.plan) as f:
        plan = json.load(f)
    flags = " ".join(f"{k}={shlex.quote(env(k))}" for k in ("PLAN_FLAGS", "TOKENS", "RUNS", "MEMORY", "TEXT") if env(k))
    return {"name": job.name, "date": time.strftime("%F %T", time.gmtime()), "model": plan["model"]["name"],
            "modes": sorted({x["mode"] for x in plan["limits"]}), "settings": flags, "rows": rows, "notes": notes,
            "fresh_hardware": job.fresh, "gb_per_s_before": before, "gb_per_s_after": after,
            "commit": subprocess.run(["git", "describe", "--always", "--dirty", "--exclude", "*"], capture_output=True,
                                     text=True, check=False).stdout.strip() or "unknown",
            "median_deviation": statistics.median(abs(r["deviation"]) for r in rows)}


def number(x, digits=3):
    return f"{x:.{max(0, digits - 1 - int(math.floor(math.log10(abs(x)))))}f}" if abs(x) >= 1e-3 else "0"


def pair(row, key, scale=1.0, show=number):
    v = row.get(key)
    return f"{show(v['predicted'] * scale)} / {show(v['measured'] * scale)}" if v else "–"


def span(v):
    """From the least to the most; results of before there were several have none."""
    return "–" if not v else number(v[0]) if v[0] == v[1] else f"{number(v[0])} … {number(v[1])}"


def percent(x):
    return f"{100 * x:.1f} %"


def page(results):
    out = ["# Predicted against measured", "",
           "Written by `make accuracy` (scripts/accuracy.py; `--help` tells the settings) from [accuracy.json](accuracy.json); the",
           "same figures are in [accuracy.csv](accuracy.csv). Cells of two numbers are predicted / measured, medians of runs, per",
           "token; times in ms. *Deviation*: predicted over measured speed, less 1. No correction was applied.", "",
           "The machine drifts. Where its figures were *measured beside the runs*, that is before the first and after each, a prediction",
           "is the plan's choice at the mean of the prices before and after its run, `thermo-plan calibrate --reprice`; *prices*: the",
           "least and the most tokens/s that all figures beside a limit's runs give. Predictions are for the positions that runs had.", ""]
    for r in results:
        out += [f"## {r['name']}", "",
                f"{r['model']}, {', '.join(r['modes'])} mode; {r['date']}; revision {r['commit']}; hardware figures "
                f"{'measured beside the runs' if r['fresh_hardware'] else 'taken from before'}; memory read at "
                f"{r['gb_per_s_before']:.1f} GB/s before the runs and {r['gb_per_s_after']:.1f} after.", "",
                f"**Median deviation, regardless of sign: {percent(r['median_deviation'])}** over {len(r['rows'])} limits; largest "
                f"{percent(max(abs(x['deviation']) for x in r['rows']))}.", "",
                "| memory | tokens/s | deviation | prices | MB read | hit rate | " + " | ".join(label for _, label in TERMS) +
                " | whole step | runs |", "|--" * (8 + len(TERMS)) + "|"]
        for x in r["rows"]:
            name = x["limit"] if x["limit"] not in ("resident", "floor") else f"{x['limit']} ({x['memory_bytes'] / 1e6:.0f} MB)"
            out.append("| " + " | ".join(
                [name, f"{number(x['predicted_tokens_per_s'])} / {number(x['measured_tokens_per_s'])}",
                 f"{100 * x['deviation']:+.1f} %", span(x.get("prices_tokens_per_s")), pair(x, "read_bytes", 1e-6), pair(x, "hit_rate", 1, percent)] +
                [pair(x, f"{t}_ms") for t, _ in TERMS] + [pair(x, "step_ms"), str(x["runs"])]) + " |")
        out += [""] + [f"- {n}" for n in r["notes"]] + ([""] if r["notes"] else []) + [f"Settings: `{r['settings']}`", ""]
    return "\n".join(out).rstrip() + "\n"


def table(results, path):
    keys = [f"{t}_ms" for t, _ in TERMS] + ["step_ms", "read_bytes", "hit_rate"]
    with open(path, "w", newline="") as f:
        w = csv.writer(f, lineterminator="\n")
        w.writerow(["name", "limit", "memory_bytes", "runs", "predicted_tokens_per_s", "measured_tokens_per_s", "deviation"] +
                   [f"{k}_{side}" for k in keys for side in ("predicted", "measured")])
        for r in results:
            for x in r["rows"]:
                w.writerow([r["name"], x["limit"], x["memory_bytes"], x["runs"]] +
                           [f"{x[k]:.6g}" for k in ("predicted_tokens_per_s", "measured_tokens_per_s", "deviation")] +
                           [f"{x[k][side]:.6g}" if k in x else "" for k in keys for side in ("predicted", "measured")])


def publish(result, folder):
    os.makedirs(folder, exist_ok=True)
    path = f"{folder}/accuracy.json"
    results = []
    if os.path.exists(path):
        with open(path) as f:
            results = json.load(f)["models"]
    results = [r for r in results if r["name"] != result["name"]] + [result]
    results.sort(key=lambda r: r["name"])
    with open(f"{path}.new", "w") as f:
        json.dump({"models": results}, f, indent=1)
        f.write("\n")
    os.replace(f"{path}.new", path)
    with open(f"{folder}/accuracy.md", "w") as f:
        f.write(page(results))
    table(results, f"{folder}/accuracy.csv")


def main():
    if sys.argv[1:] in (["--help"], ["-h"]):
        print(f"usage: {__doc__.strip()}")
        return 0
    dry = sys.argv[1:] == ["--dry-run"]
    if sys.argv[1:] and not dry:
        die(2, f"unknown option {sys.argv[1]}; --help lists them")

    def stop(number_, frame):
        raise Interrupted(number_)
    for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(s, stop)
    try:
        job = Job()
        limits = job.prepare()
        if dry:
            for word, n, speed in limits:
                print(f"{word}, {job.runs} runs, planned {speed:.3g} tokens/s: " +
                      shlex.join(job.command(n, job.tokens_at(speed))))
            return 0
        before = bandwidth(job.hardware)
        runs, failed, enforced, last = measure(job, limits)
        if not job.fresh:
            last = f"{job.work}/after.sqlite"
            job.measure_hardware(last, *shlex.split(env("HARDWARE_FLAGS", "--quick")), "--only", "memory")
        result = collect(job, limits, runs, failed, enforced, before, bandwidth(last))
    except Interrupted as e:
        tell(f"interrupted (signal {e})")
        return 130
    publish(result, env("OUT", "docs"))
    tell(f"median deviation {percent(result['median_deviation'])} over {len(result['rows'])} limits")
    return 0


if __name__ == "__main__":
    sys.exit(main())
