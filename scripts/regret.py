#!/usr/bin/env python3
"""regret.py [options]          (or: make regret REGRET="--quick")

How true are plans on this machine, and how good are their choices? For models of several kinds, at three memory limits each: figures of
the machine measured now, one plan for each limit, its run, and beside it runs that differ from the plan in one choice that changes no bit of
any result: threads, read back end, queue depth, coalescing, experts ahead. The best three of these run again, alternating with the plan.

  error    promised / measured speed of the plan's choice (1: the plan is true)
  regret   best measured / measured speed of the plan's choice (1: no other choice was faster)
  spread   fastest / slowest of the plan's repeated runs

Each run is a process of its own in a memory cgroup of the limit, its model out of the page cache; what the host of a virtual machine
disturbs is run again. Nothing is corrected by what was measured. The machine should have nothing else to do. What is made is kept in the
working folder and used again: models, traces; figures are measured for each case anew."""
import argparse
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import time

from bench_runner import Runner
from bench_settings import Interrupted, die, say, size

BIN = os.environ.get("BIN") or "build/bin"
STORIES, HELD_OUT = "datasets/prompts/stories-profile.csv", "datasets/heldout/heldout.txt"
EMBEDDED = "datasets/models/reglu-tales-10m-f16.gguf"
LEAST_TOKENS, MOST_TOKENS = 8, 200
STOLEN_MOST, TRIES = 0.03, 3
DEPTH_MOST = 128
CONTEXT = 512  # of plans, whose speeds are for its half: runs go from MOST_TOKENS to twice that
TERMS = ("attention", "ffn", "head")

# How each case's model is made ({model}, {words}, {routes}: paths), traced, and what its runs decode.
CASES = {
    "embedded": {"limits": "14MiB 18MiB 28MiB", "trace": ["--prompts", STORIES], "text": HELD_OUT},
    "smollm2": {"limits": "68MiB 80MiB 128MiB", "trace": ["--prompts", STORIES, "--max-tokens", "1024"], "text": HELD_OUT},
    "1b": {"limits": "340MB 470MB 800MB", "make": ["--shape", "llama-1b", "--setting", "trained"], "text": HELD_OUT,
           "trace": ["--prompts", STORIES, "--max-tokens", "4096", "--ctx", "256", "--samples", "0"]},
    "7b": {"limits": "2000MB 2500MB 4800MB", "make": ["--shape", "mistral-7b", "--setting", "trained"], "text": HELD_OUT,
           "trace": ["--prompts", STORIES, "--max-tokens", "2048", "--ctx", "256", "--samples", "0"]},
    "experts": {"limits": "1500MB 2000MB 6000MB", "make": ["--shape", "qwen3-30b", "--layers", "12", "--act", "silu"],
                "routed": ["--routes", "{routes}", "--prompts", "{words}"], "trace": ["--prompts", "{words}", "--samples", "0"]},
}


def tell(text):
    say(f"regret: {text}")


def call(command, codes=(0,)):
    """A program of ours, whose complaint is ours too."""
    p = subprocess.run(command, capture_output=True, text=True, check=False)
    if p.returncode not in codes:
        sys.stderr.write(p.stderr)
        die(p.returncode, f"exit status {p.returncode}: {shlex.join(command)}")
    return p.stdout


def whole(path, make):
    """path, made by make(temporary path) where it is not there."""
    if not os.path.exists(path):
        new = f"{path}.new"
        make(new)
        os.replace(new, path)
    return path


# ---- what runs ----

class Case:
    def __init__(self, name, args):
        self.name, self.args, self.facts = name, args, CASES.get(name, {"trace": ["--prompts", STORIES]})
        self.dir = os.path.join(args.work, name)
        self.text = args.text or self.facts.get("text")
        self.model, self.traces = args.model, args.traces
        words = args.memory or self.facts.get("limits") or die(2, "--memory is needed with --model")
        self.limits = [(w, size(w) or die(2, f"--memory: '{w}' is no size such as 2500MB or 2GiB")) for w in words.replace(",", " ").split()]
        if args.quick:
            self.limits = self.limits[len(self.limits) // 2:][:1]

    def model_file(self):
        path = f"{self.dir}/model.gguf"
        if self.name == "embedded":
            return EMBEDDED
        if self.name == "smollm2":
            return call(["scripts/real.sh", "--dir", f"{self.args.work}/real", "--fetch"]).strip() or None
        flags = list(self.facts["make"])
        if self.args.routes and "routed" in self.facts:
            flags += self.filled(self.facts["routed"])
        return whole(path, lambda new: call([f"{BIN}/gguf-synth", "-q", *flags, new]))

    def filled(self, flags):
        words = f"{self.dir}/words.csv" if self.args.routes else STORIES
        return [f.replace("{words}", words).replace("{routes}", self.args.routes or "") for f in flags]

    def prepare(self):
        """False where the model cannot be had here."""
        os.makedirs(self.dir, exist_ok=True)
        self.model = self.model or self.model_file()
        if not self.model:
            return False
        if not self.traces:
            tell(f"{self.name}: trace")
            self.traces = whole(f"{self.dir}/trace.h5", lambda new: call(
                [f"{BIN}/thermo-profile", "trace", "-q", "--model", self.model, *self.filled(self.facts["trace"]), "--out", new]))
        if self.name == "experts" and self.args.routes and not self.text:
            self.text = f"{self.dir}/words.txt"
            with open(self.text, "w") as f:
                f.write(text_of(f"{self.dir}/words.csv"))
        self.hardware = self.args.hardware
        if not self.hardware:
            self.hardware = f"{self.dir}/hardware.sqlite"
            if os.path.exists(self.hardware):
                os.unlink(self.hardware)
            tell(f"{self.name}: the machine's figures")
            call([f"{BIN}/thermo-profile", "hardware", "-q", "--quick", "--db", self.hardware, "--device", "this-machine", "--storage",
                  self.dir, *shlex.split(self.args.hardware_flags)])
        return True

    def plan(self, limit):
        """Plans and packs; the limit of the plan."""
        self.plan_file, self.pack = f"{self.dir}/plan.json", f"{self.dir}/model.thermo"
        call([f"{BIN}/thermo-plan", "solve", "-q", "--traces", self.traces, "--hardware", self.hardware, "--memory", str(limit), "--out",
              self.plan_file, "--context", str(CONTEXT), *shlex.split(self.args.plan_flags)])
        call([f"{BIN}/thermo-pack", "pack", "-q", "--quality-tokens", "0", "--model", self.model, "--traces", self.traces, "--plan",
              self.plan_file, "--out", self.pack])
        with open(self.plan_file) as f:
            return json.load(f)


def text_of(table):
    """The longest text of a table of prompts: a recorded route."""
    import csv
    with open(table, newline="") as f:
        return max((row["text"] for row in csv.DictReader(f)), key=len)


class Choice:
    """The plan's choices with one of them changed: by options of thermo-run, or in a copy of the plan."""

    def __init__(self, name, flags=(), change=None):
        self.name, self.flags, self.change, self.speeds, self.failed = name, list(flags), change, [], None

    def plan_file(self, case, plan):
        if not self.change:
            return case.plan_file
        copy = json.loads(json.dumps(plan))
        for half in ("decisions", "predictions"):
            copy[half]["limits"][0].pop("alternatives", None) # one choice, and no other
        self.change(copy["decisions"]["limits"][0])
        path = f"{case.dir}/plan-changed.json"
        with open(path, "w") as f:
            json.dump(copy, f)
        return path

    def speed(self):
        return statistics.median(self.speeds)


def choices(plan):
    """The plan's, then what differs from it in one dimension."""
    limit = plan["decisions"]["limits"][0]
    io, depth, threads = limit["io"], limit["io"]["queue_depth"], limit["threads"]
    reads = any(x > 0 for x in plan["predictions"]["limits"][0]["batches"][0]["layers"]["read_bytes"])
    out = [Choice("plan")]
    counts = range(1, os.cpu_count() + 1) if os.cpu_count() <= 4 else sorted({1, threads // 2, threads - 1, threads + 1, os.cpu_count()})
    out += [Choice(f"threads {n}", ["-t", str(n)]) for n in counts if 0 < n <= os.cpu_count() and n != threads]
    if not reads:
        return out
    out += [Choice(f"io {b}", ["--io", b]) for b in ("pread", "io_uring") if b != io["backend"]]

    def with_depth(n):
        return lambda x: x["io"].update(queue_depth=n)
    out += [Choice(f"depth {n}", change=with_depth(n)) for n in (depth // 4, depth // 2, depth * 2, depth * 4) if 1 <= n <= DEPTH_MOST]
    if io.get("joins"):
        out.append(Choice("no coalescing", change=lambda x: x["io"].pop("joins")))
    if plan["model"]["blocks"] > 1:
        on = io.get("experts_ahead", True)
        out.append(Choice(f"experts ahead {'off' if on else 'on'}", ["--experts-ahead", "off" if on else "on"]))
    return out


def command(case, choice, plan, limit, tokens):
    return [f"{BIN}/thermo-run", "bench", "-q", "--model", case.pack, "--plan", choice.plan_file(case, plan), "--memory", str(limit),
            "--json", "-p", "0", "-n", str(tokens), "-r", "1", *choice.flags, *(["--text", case.text] if case.text else [])]


def stolen():
    """Ticks that the host of a virtual machine took from it, and ticks in all."""
    try:
        with open("/proc/stat") as f:
            ticks = [int(x) for x in f.readline().split()[1:9]]
        return ticks[7], sum(ticks)
    except (OSError, ValueError, IndexError):
        return 0, 0


def run(case, runner, choice, plan, limit, tokens):
    """Adds a run to the choice; of up to TRIES the one that the host disturbed least. What the run printed, or None."""
    best, least = None, 2.0
    for _ in range(TRIES):
        before = stolen()
        text, facts = runner.run(command(case, choice, plan, limit, tokens), limit if runner.group.path else None, drop=[case.pack])
        taken, ticks = (b - a for a, b in zip(before, stolen()))
        if "failed" in facts:
            choice.failed = facts["failed"]
            return None
        share = taken / ticks if ticks > 0 else 0.0
        if share < least:
            best, least = json.loads(text), share
        if share <= STOLEN_MOST:
            break
    choice.speeds.append(best["tests"][0]["tokens_per_s"])
    return best


# ---- one limit ----

def terms(plan, seen):
    """(term, predicted ms, measured ms) of a token, and what it reads."""
    p = plan["predictions"]["limits"][0]["batches"][0]
    layers, ms = p["layers"], seen["tests"][0]["ms_per_token"]
    predicted = {"attention": sum(layers["attention_ns"]), "head": p["head_ns"]}
    predicted["ffn"] = p["step_ns"] - predicted["attention"] - predicted["head"] - sum(layers["predict_ns"])
    out = {t: {"predicted_ms": predicted[t] / 1e6, "measured_ms": ms[t]} for t in TERMS}
    out["read_mib"] = {"predicted": p["read_bytes"] / 2**20, "measured": seen["tests"][0]["read_bytes_per_token"] / 2**20}
    out["hit_rate"] = {"predicted": p["hit_rate"], "measured": seen["tests"][0]["hit_rate"]}
    return out


def measure(case, runner, word, limit):
    tell(f"{case.name}, {word}: plan and pack")
    plan = case.plan(limit)
    x = plan["decisions"]["limits"][0]
    promised = plan["predictions"]["limits"][0]["batches"][0]["tokens_per_s"]
    tokens = max(LEAST_TOKENS, min(MOST_TOKENS, int(promised * case.args.seconds / 2), x["context"] // 2))
    all_choices = choices(plan)
    seen, start = None, time.monotonic()
    for i, c in enumerate(all_choices):
        got = run(case, runner, c, plan, limit, tokens)
        seen = got if i == 0 else seen
        if i == 0 and not got:
            tell(f"{case.name}, {word}: the plan's run failed: {c.failed}")
            return {"case": case.name, "limit": word, "failed": c.failed}
        tell(f"{case.name}, {word}: [{i + 1}/{len(all_choices)}] {c.name}: {f'{c.speeds[0]:.3g} tokens/s' if got else c.failed}"
             f"{f', promised {promised:.3g}' if i == 0 else ''}; {tokens} tokens")
    others = sorted((c for c in all_choices[1:] if c.speeds), key=lambda c: -c.speeds[0])[:3]
    final = [all_choices[0], *others]
    first = {c.name: c.speeds[0] for c in all_choices if c.speeds}
    failures = {c.name: c.failed for c in all_choices if c.failed}
    for c in final:
        c.speeds = []
    for k in range(case.args.runs):
        for c in final if k % 2 == 0 else final[::-1]:
            run(case, runner, c, plan, limit, tokens)
    final = [c for c in final if c.speeds]
    mine, best = final[0], max(final, key=Choice.speed)
    row = {"case": case.name, "limit": word, "memory_bytes": limit, "tokens": tokens, "promised": promised, "measured": mine.speed(),
           "best": best.speed(), "best_choice": best.name, "error": promised / mine.speed(), "regret": best.speed() / mine.speed(),
           "spread": max(mine.speeds) / min(mine.speeds), "runs": {c.name: c.speeds for c in final}, "grid": first, "failures": failures,
           "plan": {"mode": x["mode"], "form": plan["decisions"]["layout"]["form"], "threads": x["threads"], "io": x["io"]["backend"],
                    "depth": x["io"]["queue_depth"], "joins": len(x["io"].get("joins", []))}, "terms": terms(plan, seen)}
    tell(f"{case.name}, {word}: promised {promised:.4g}, measured {mine.speed():.4g}, best {best.speed():.4g} ({best.name}); "
         f"error {row['error']:.2f}, regret {row['regret']:.2f}, spread {row['spread']:.2f}; {time.monotonic() - start:.0f} s")
    return row


# ---- what came out ----

def page(results):
    rows = [r for r in results["rows"] if "failed" not in r]
    off = sorted(max(r["error"], 1 / r["error"]) for r in rows)
    regrets = sorted(r["regret"] for r in rows)
    out = [f"{results['machine']}; {results['date']}; commit {results['commit']}.", ""]
    if rows:
        out += [f"Error, either way: median {statistics.median(off):.2f}, nine in ten within {off[max(0, -(-len(off) * 9 // 10) - 1)]:.2f}, all within "
                f"{off[-1]:.2f}. Regret: median {statistics.median(regrets):.2f}, worst {regrets[-1]:.2f}.", ""]
    out += ["| model | limit | plan | promised, tokens/s | measured | error | best choice | best | regret | spread |", "|--|--|--|--|--|--|--|--|--|--|"]
    for r in results["rows"]:
        if "failed" in r:
            out.append(f"| {r['case']} | {r['limit']} | failed: {r['failed']} | | | | | | | |")
            continue
        p = r["plan"]
        out.append(f"| {r['case']} | {r['limit']} | {p['mode']}, {p['form']}, {p['threads']} threads, {p['io']}, depth {p['depth']} | "
                   f"{r['promised']:.4g} | {r['measured']:.4g} | {r['error']:.2f} | {r['best_choice']} | {r['best']:.4g} | {r['regret']:.2f} | "
                   f"{r['spread']:.2f} |")
    out += ["", "Terms of a token, planned / measured: ms of attention, FFN (stalls included) and head; MiB read; hits.", "",
            "| model | limit | attention | FFN | head | read | hits |", "|--|--|--|--|--|--|--|"]
    for r in rows:
        t = r["terms"]
        cells = [f"{t[k]['predicted_ms']:.3g} / {t[k]['measured_ms']:.3g}" for k in TERMS]
        cells += [f"{t['read_mib']['predicted']:.3g} / {t['read_mib']['measured']:.3g}",
                  f"{100 * t['hit_rate']['predicted']:.0f} / {100 * t['hit_rate']['measured']:.0f} %"]
        out.append(f"| {r['case']} | {r['limit']} | " + " | ".join(cells) + " |")
    out += [""] + [f"- {r['case']}, {r['limit']}, {name}: {why}" for r in rows for name, why in r["failures"].items()]
    return "\n".join(out).rstrip("\n") + "\n"


def write(path, text):
    if path:
        with open(f"{path}.new", "w") as f:
            f.write(text)
        os.replace(f"{path}.new", path)


def machine():
    model = "processor not known"
    try:
        with open("/proc/cpuinfo") as f:
            model = next(line.split(":", 1)[1].strip() for line in f if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{os.cpu_count()} cores of {model}"


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cases", default=",".join(CASES), help=f"of {', '.join(CASES)} (default: all)")
    p.add_argument("--quick", action="store_true", help="the embedded model at one limit, three runs: about two minutes")
    p.add_argument("--model", metavar="GGUF", help="a model of yours in place of the cases; with --memory")
    p.add_argument("--traces", metavar="H5", help="with --model: its trace (default: made from stories)")
    p.add_argument("--memory", metavar="LIST", help="limits in place of the case's: '2000MB 2500MB'")
    p.add_argument("--text", metavar="FILE", help="what runs decode (default: held-out stories; experts: what the model samples)")
    p.add_argument("--routes", metavar="CSV", help="experts: a recorded route, as gguf-synth --routes reads it")
    p.add_argument("--hardware", metavar="DB", help="a hardware database in place of measuring")
    p.add_argument("--hardware-flags", metavar="FLAGS", default="--range 1GiB", help="more of thermo-profile hardware (default: %(default)s)")
    p.add_argument("--plan-flags", metavar="FLAGS", default="", help="more of thermo-plan solve")
    p.add_argument("--runs", type=int, metavar="N", help="alternating runs at the end (default: 5)")
    p.add_argument("--seconds", type=float, default=6, metavar="S", help="of a run, by the plan, warm-up included (default: %(default)s)")
    p.add_argument("--timeout", type=int, default=600, metavar="S", help="of a run (default: %(default)s)")
    p.add_argument("--work", default="build/regret", metavar="DIR", help="models, traces and the rest (default: %(default)s)")
    p.add_argument("--json", metavar="FILE", help="every figure (default: WORK/regret.json)")
    p.add_argument("--markdown", metavar="FILE", help="the tables (default: WORK/regret.md)")
    args = p.parse_args()
    if args.quick and args.cases == ",".join(CASES):
        args.cases = "embedded"
    if args.model:
        args.cases = "own"
    elif args.traces or (args.memory and "," in args.cases):
        p.error("--traces goes with --model, --memory with --model or one of --cases")
    args.runs = args.runs or (3 if args.quick else 5)
    if args.runs < 1 or args.seconds <= 0 or args.timeout < 1:
        p.error("--runs, --seconds and --timeout are greater than 0")
    for c in args.cases.split(","):
        if c not in CASES and not args.model:
            p.error(f"--cases '{c}': known are {', '.join(CASES)}")
    for path in (args.model, args.traces, args.text, args.routes, args.hardware):
        if path and not os.access(path, os.R_OK):
            die(3, f"cannot read '{path}'")
    args.json, args.markdown = args.json or f"{args.work}/regret.json", args.markdown or f"{args.work}/regret.md"
    return args


def interrupted(signum, frame):
    raise Interrupted


def main():
    args = arguments()
    signal.signal(signal.SIGTERM, interrupted)
    cases = [Case(name, args) for name in args.cases.split(",")]
    os.makedirs(args.work, exist_ok=True)
    commit = subprocess.run(["git", "describe", "--always", "--dirty", "--exclude", "*"], capture_output=True, text=True, check=False)
    results = {"format": "thermo-regret", "revision": 1, "machine": machine(), "date": time.strftime("%F %T", time.gmtime()),
               "commit": commit.stdout.strip() or "unknown", "rows": []}
    runner = Runner(args.work, None, "", args.timeout)
    try:
        if not runner.group.path:
            tell(f"no limit is enforced by a cgroup: {runner.group.why}")
        for case in cases:
            if not case.prepare():
                tell(f"{case.name}: skipped, its model cannot be had here")
                continue
            for word, limit in case.limits:
                results["rows"].append(measure(case, runner, word, limit))
                write(args.json, json.dumps(results, indent=1) + "\n")
                write(args.markdown, page(results))
            for path in (case.pack, f"{case.dir}/plan-changed.json"):
                if os.path.exists(path):
                    os.unlink(path)
    except (Interrupted, KeyboardInterrupt):
        tell(f"interrupted; what is there: {args.markdown}")
        return 130
    finally:
        runner.close()
    print(page(results), end="")
    return 1 if any("failed" in r for r in results["rows"]) or not results["rows"] else 0


if __name__ == "__main__":
    sys.exit(main())
