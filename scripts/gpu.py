#!/usr/bin/env python3
"""gpu.py [options]          (or: make gpu GPU="--device 1")

What an accelerator does, on one OpenCL device, within ten minutes: unit tests of the back end and of the engine beside it, whole programs
on the embedded model, measured products, and the speed of two models by how much of them it computes, beside the processor alone and
beside what the plan says. Prints tables (Markdown). Exit status 1 where a test failed, 77 where there is no such device."""
import argparse
import csv
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time

BIN = os.environ.get("BIN") or "build/bin"
B = os.environ.get("B") or f"build/{os.uname().machine}"
UNITS = ("test_opencl", "test_engine_accel", "test_engine_rest")
SCRIPTS = ("tests/e2e/engines.sh", "tests/e2e/engines-rest.sh", "tests/e2e/engines-prompts.sh", "tests/cli/engines-plan.sh")
STORIES = "datasets/prompts/stories-profile.csv"
# Shapes (gguf-synth), tokens of their traces, and limits: all in memory, and half of the weights beside what a driver takes.
MODELS = {"1b": (["--shape", "llama-1b", "--setting", "trained"], 512, "1800MB"),
          "7b": (["--shape", "mistral-7b", "--setting", "trained"], 256, "6GB,3GB")}
HEIGHTS = (("25%", "ffn"), ("50%", "ffn"), ("100%", "ffn"), ("100%", "all"), ("100%+", "all"))
# Decoding of the first model with so many of the processor's threads, for a driver has threads too; in at most so many seconds.
THREADS, THREADS_SECONDS = (12, 14, 15, 16), 60


class Gpu:
    def __init__(self, args):
        self.args, self.dir, self.bad, self.start = args, args.work, 0, time.monotonic()
        self.log = open(os.path.join(self.dir, "log"), "w", encoding="utf-8")

    def left(self):
        return self.args.seconds - (time.monotonic() - self.start)

    def run(self, command, most=300, env=None):
        """Exit status (None: no time left, or it took longer) and standard output; everything into the log."""
        most = min(most, self.left())
        if most < 2:
            return None, ""
        began = time.monotonic()
        print(f"\n$ {shlex.join(command)}", file=self.log, flush=True)
        with tempfile.TemporaryFile("w+") as out:
            with subprocess.Popen(command, stdout=out, stderr=self.log, text=True, env={**os.environ, **(env or {})},
                                  start_new_session=True) as p:
                try:
                    status = p.wait(most)
                except subprocess.TimeoutExpired:
                    os.killpg(p.pid, 9)
                    status = None
            out.seek(0)
            text = out.read()
        print(text, f"[exit status {status}, {time.monotonic() - began:.1f} s]", file=self.log, flush=True)
        return status, text

    def say(self, text=""):
        print(text, flush=True)

    # ---- steps ----

    def device(self):
        """Number of the device that is asked for, or of the first GPU; None: there is none."""
        _, text = self.run([f"{BIN}/thermo-run", "engines", "--json"], 60)
        devices = [json.loads(line) for line in text.splitlines()]
        for i, d in enumerate(devices):
            if i == self.args.device or (self.args.device is None and d["kind"] == "gpu"):
                self.say(f"## Device\n\n{d['platform']}, {d['device']}, {d['device_version']}, driver {d['driver']}: "
                         f"{d['compute_units']} units, "
                         f"{d['memory_bytes'] / 2**30:.1f} GiB, buffers of {d['buffer_bytes'] / 2**30:.1f} GiB, "
                         f"work groups of {d['group_items']}")
                return i
        self.say(f"no device of {len(devices)} is {'a GPU' if self.args.device is None else self.args.device}: see 'thermo-run engines'")
        return None

    def tests(self, n):
        self.say("\n## Tests\n\n| test | passed | failed | skipped | s |\n| --- | ---: | ---: | ---: | ---: |")
        env = {"THERMO_TEST_DEVICE": str(n), "BIN": BIN, "B": B}
        for command in [[f"{B}/tests/unit/{u}"] for u in UNITS] + [["bash", s] for s in SCRIPTS]:
            if not os.path.exists(command[-1]):
                continue
            began = time.monotonic()
            status, text = self.run(command, self.args.test_seconds, env)
            passed = len(re.findall(r"^ok (?!.*# SKIP)", text, re.M))
            failed, skipped = len(re.findall(r"^not ok", text, re.M)), len(re.findall(r"# SKIP", text))
            fine = status in (0, 77) and not failed
            self.bad += not fine
            note = "" if fine else " (not finished)" if status is None else f" (exit status {status})"
            self.say(f"| {os.path.basename(command[-1])}{note} | {passed} | {failed} | {skipped} | {time.monotonic() - began:.0f} |")
            for line in re.findall(r"^not ok.*(?:\n#.*){0,12}", text, re.M)[:12]:
                self.say("\n".join(f"<!-- {x} -->" for x in line.splitlines()))

    def measure(self, n):
        db = os.path.join(self.dir, "hardware.sqlite")
        base = [f"{BIN}/thermo-profile", "hardware", "-q", "--db", db, "--device", "gpu", "--quick",
                "--engine", f"opencl:{n}", "--engine-cache", self.cache(), "--storage", self.dir]
        self.run(base + ["--range", "1GiB"], 120)
        _, text = self.run([f"{BIN}/thermo-profile", "export", "--db", db, "--device", "gpu"], 60)
        rows = list(csv.reader(io.StringIO(text)))
        self.say("\n## Measured\n\n| what | |\n| --- | ---: |")
        for _, table, key, what, value, unit, *_ in (r for r in rows if len(r) > 5):
            if table == "accelerator" and what != "description" or table == "memory" and "opencl" in key and what == "bytes_per_s":
                self.say(f"| {key} {what} | {float(value):.5g} {unit} |")
        self.say("\n| kernel | rows | columns | tokens | µs | GFLOP/s |\n| --- | ---: | ---: | ---: | ---: | ---: |")
        for _, table, key, what, value, *_ in (r for r in rows if len(r) > 5):
            if table == "accelerator_point" and what == "ns":
                k = dict(x.split("=", 1) for x in key.split(";"))
                n, ns = [int(k[x]) for x in ("rows", "cols", "batch")], float(value)
                flops = 2 * n[0] * n[1] * n[2] * (3 if k["op"].startswith("ffn") else 1)
                self.say(f"| {k['op']} | {n[0]} | {n[1]} | {n[2]} | {ns / 1e3:.1f} | {flops / ns:.1f} |")
        return db

    def cache(self):
        path = os.path.join(self.dir, "programs")
        os.makedirs(path, mode=0o700, exist_ok=True)
        return path

    def bench(self, model, plan, memory, flags, prompt="512"):
        """Tokens/s of a prompt of 512 and of decoding, measured and planned; None where it did not run."""
        status, text = self.run([f"{BIN}/thermo-run", "bench", "-q", "--model", model, "--plan", plan, "--memory", memory, "-p", prompt,
                                 "-n", "48", "-r", "3", "--no-mlock", "--json", *flags], 90)
        return json.loads(text)["tests"] if status == 0 else None

    def by_threads(self, at, memory, engine):
        """Decoding, ms of FFNs a token: heights by threads of the processor."""
        until, heights = time.monotonic() + THREADS_SECONDS, ("none", "25%", "50%", "100%")
        self.say(f"\n| threads | {' | '.join(heights)} |\n| ---: | {' | '.join('---:' for _ in heights)} |")
        for threads in THREADS:
            if threads > len(os.sched_getaffinity(0)):
                continue
            cells = []
            for height in heights:
                flags = [] if height == "none" else engine + ["--engine-height", height, "--engine-work", "ffn", "--engine-fail", "exit"]
                late = time.monotonic() > until or self.left() < 10
                rows = None if late else self.bench(at["thermo"], at["json"], memory, ["-t", str(threads), *flags], "0")
                cells.append(f"{rows[0]['ms_per_token']['ffn']:.2f}, {rows[0]['tokens_per_s']:.1f} tokens/s" if rows else "not run")
            self.say(f"| {threads} | {' | '.join(cells)} |")

    def speeds(self, n, db):
        for name, (shape, tokens, limits) in MODELS.items():
            if self.left() < 30 or name not in self.args.models.split(","):
                continue
            at = {x: os.path.join(self.dir, f"{name}.{x}") for x in ("gguf", "h5", "json", "none.json", "thermo")}
            engine = ["--engine", f"opencl:{n}", "--engine-cache", self.cache()]
            solve = [f"{BIN}/thermo-plan", "solve", "-q", "--traces", at["h5"], "--hardware", db, "--device", "gpu", "--memory", limits,
                     "--context", "1024"]
            steps = [[f"{BIN}/gguf-synth", "-q", *shape, at["gguf"]],
                     [f"{BIN}/thermo-profile", "trace", "-q", "--model", at["gguf"], "--prompts", STORIES, "--max-tokens", str(tokens),
                      "--ctx", "256", "--samples", "0", "--out", at["h5"]],
                     solve + ["--engine", f"opencl:{n}", "--out", at["json"]],
                     [f"{BIN}/thermo-pack", "pack", "-q", "--model", at["gguf"], "--traces", at["h5"], "--plan", at["json"],
                      "--out", at["thermo"]]]
            done = [self.run(s) for s in steps if self.left() > 2 and not os.path.exists(s[-1])]
            if not os.path.exists(at["thermo"]) or any(status for status, _ in done):
                self.say(f"\n## {name}\n\nno plan or no pack: see the log")
                continue
            self.say(f"\n## {name}\n")
            for x in json.load(open(at["json"], encoding="utf-8")).get("notes", []):
                if "accelerator" in x or "opencl" in x:
                    self.say(f"- {x}")
            self.say("\n| memory | height | work | test | tokens/s | ± | planned | FFNs, ms a token | attention |\n"
                     "| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: |")
            for memory in limits.split(","):
                for height, work in (("none", ""), ("plan", "plan")) + HEIGHTS:
                    flags = [] if height == "none" else ["--engine", "plan", *engine[2:]] if height == "plan" else \
                        engine + ["--engine-height", height, "--engine-work", work, "--engine-fail", "exit"]
                    rows = self.bench(at["thermo"], at["json"], memory, flags)
                    if rows is None:
                        self.say(f"| {memory} | {height} | {work} | did not run: see the log | | | | | |")
                    for r in rows or []:
                        planned = r.get("tokens_per_s_predicted") or \
                            (r["tokens"] * 1e3 / r["ttft_predicted_ms"] if r.get("ttft_predicted_ms") else None)
                        self.say(f"| {memory} | {height} | {work} | {r['test']} | {r['tokens_per_s']:.1f} | {r['stddev']:.1f} | "
                                 f"{planned and round(planned, 1) or ''} | {r['ms_per_token']['ffn']:.3f} | "
                                 f"{r['ms_per_token']['attention']:.3f} |")
            if name == next(iter(MODELS)) and self.left() > 10:
                self.by_threads(at, limits.split(",")[0], engine)


def main():
    p = argparse.ArgumentParser(usage=__doc__, add_help=False)
    p.add_argument("-h", "--help", action="help")
    p.add_argument("--device", type=int, help="N of 'thermo-run engines' (default: the first GPU)")
    p.add_argument("--work", default="build/gpu", help="folder of what is made (default: build/gpu)")
    p.add_argument("--seconds", type=float, default=570, help="of all steps together (default: 570)")
    p.add_argument("--test-seconds", type=float, default=150, help="of one test, at most (default: 150)")
    p.add_argument("--models", default="1b,7b", help="of 1b and 7b (default: both)")
    p.add_argument("--steps", default="tests,measure,speeds", help="which (default: tests,measure,speeds)")
    args = p.parse_args()
    os.makedirs(args.work, exist_ok=True)
    g = Gpu(args)
    n = g.device()
    if n is None:
        return 77
    steps = args.steps.split(",")
    if "tests" in steps:
        g.tests(n)
    if "measure" in steps or "speeds" in steps:
        db = g.measure(n) if "measure" in steps else os.path.join(args.work, "hardware.sqlite")
        if "speeds" in steps:
            g.speeds(n, db)
    g.say(f"\n{time.monotonic() - g.start:.0f} s; everything that was printed: {g.log.name}")
    return 1 if g.bad else 0


if __name__ == "__main__":
    sys.exit(main())
