#!/usr/bin/env python3
"""batches.py --model FILE --traces FILE --memory LIST [options]

Planned and measured speed of several texts at once: for each limit a plan for --max-batch sequences, a pack of it, and
thermo-run bench over numbers of sequences. The machine is measured first, unless --hardware names a database, and nothing is
corrected afterwards. The machine should have nothing else to do. Prints a table in Markdown; with --json FILE everything that it is
made of: speeds, samples, bytes, active neurons and terms, planned and measured.

A cell is measured tokens/s of all sequences (plan against measured). Sequences decode --text, each at a place of its own."""
import argparse
import json
import os
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True
import outputs  # noqa: E402  (beside this file)

BIN = os.environ.get("BIN") or "build/bin"
SIZES = (1, 2, 4, 8, 16, 32)


def die(status, text):
    print(f"batches: {text}", file=sys.stderr)
    sys.exit(status)


def call(*command):
    p = subprocess.run(command, capture_output=True, text=True, check=False)
    if p.returncode:
        sys.stderr.write(p.stderr)
        die(p.returncode if p.returncode > 0 else 1, f"exit status {p.returncode}: {' '.join(command)}")
    return p.stdout


def arguments():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--model", required=True, metavar="FILE", help="GGUF")
    a.add_argument("--traces", required=True, metavar="FILE", help="its trace: of sequences as long as the context, for neurons that "
                   "fire near the beginning of texts are not those of all text")
    a.add_argument("--memory", required=True, metavar="LIST", help="limits: 800MiB,1600MiB")
    a.add_argument("--context", type=int, default=160, metavar="N")
    a.add_argument("--max-batch", type=int, default=32, choices=SIZES, metavar="N")
    a.add_argument("--tokens", type=int, default=16, metavar="N", help="of each sequence in a run")
    a.add_argument("--runs", type=int, default=3, metavar="N")
    a.add_argument("--text", default="datasets/heldout/heldout.txt", metavar="FILE")
    a.add_argument("--hardware", metavar="FILE", help="database; default: the machine is measured now")
    a.add_argument("--hardware-flags", default="--quick --range 1GiB", metavar="FLAGS")
    a.add_argument("--plan-flags", default="", metavar="FLAGS", help="of thermo-plan solve")
    a.add_argument("--work", default="build/batches", metavar="DIR")
    a.add_argument("--json", metavar="FILE")
    o = a.parse_args()
    for name in ("model", "traces", "text"):
        if not os.access(getattr(o, name), os.R_OK):
            die(3, f"--{name}: cannot read '{getattr(o, name)}'")
    if o.tokens < 1 or o.runs < 1 or o.context < o.tokens:
        die(2, "--tokens and --runs are at least 1, --context at least --tokens")
    return o


def measure(o):
    if o.hardware:
        return o.hardware
    path = f"{o.work}/hardware.sqlite"
    if os.path.exists(path):
        os.unlink(path)
    call(f"{BIN}/thermo-profile", "hardware", "-q", "--db", path, "--device", "this-machine", "--storage", o.work,
         *o.hardware_flags.split())
    return path


def run(o, hardware, memory):
    """The limit's plan, and what was measured with it."""
    plan, pack = f"{o.work}/plan.json", f"{o.work}/model.thermo"
    call(f"{BIN}/thermo-plan", "solve", "-q", "--traces", o.traces, "--hardware", hardware, "--memory", memory, "--context",
         str(o.context), "--max-batch", str(o.max_batch), "--out", plan, *o.plan_flags.split())
    call(f"{BIN}/thermo-pack", "pack", "-q", "--model", o.model, "--traces", o.traces, "--plan", plan, "--out", pack)
    os.sync()  # what is still to be written would be measured
    sizes = ",".join(str(n) for n in SIZES if n <= o.max_batch)
    bench = json.loads(call(f"{BIN}/thermo-run", "bench", "-q", "--model", pack, "--plan", plan, "-p", "0", "-n", str(o.tokens), "-r",
                            str(o.runs), "--sequences", sizes, "--text", o.text, "--json"))
    os.unlink(pack)
    with open(plan, encoding="utf-8") as f:
        return json.load(f), bench


def compared(plan, bench):
    decided, predicted = (plan[half]["limits"][0]["batches"] for half in ("decisions", "predictions"))
    planned = {b["batch"]: p for b, p in zip(decided, predicted)}
    out = []
    for t in bench["tests"]:
        p, n, ms = planned[t["sequences"]], t["sequences"], t["ms_per_token"]
        layers, fired = p["layers"], t["neurons_per_token"]
        speed = statistics.median(t["samples"])
        out.append({"sequences": n, "measured": speed, "samples": t["samples"], "planned": p["tokens_per_s"],
                    "deviation": p["tokens_per_s"] / speed - 1,
                    "read_bytes": {"planned": p["read_bytes"], "measured": n * t["read_bytes_per_token"]},
                    "active": {"planned": sum(layers["active"]),
                               "measured": n * (fired["hot"] + fired["cold"] + fired["read"])},
                    "attention_ms": {"planned": sum(layers["attention_ns"]) / 1e6, "measured": n * ms["attention"]},
                    "ffn_ms": {"planned": sum(map(max, layers["ffn_compute_ns"], layers["ffn_memory_ns"])) / 1e6,
                               "measured": n * (ms["ffn"] - ms["stall"])},
                    "head_ms": {"planned": p["head_ns"] / 1e6, "measured": n * ms["head"]}})
    return out


def main():
    o = arguments()
    outputs.refuse([o.json], filter(None, [o.model, o.traces, o.text, o.hardware]))
    os.makedirs(o.work, exist_ok=True)
    hardware, rows = measure(o), []
    for memory in o.memory.split(","):
        plan, bench = run(o, hardware, memory)
        rows.append({"memory": memory, "mode": plan["decisions"]["limits"][0]["mode"], "tests": compared(plan, bench)})
    print("| | " + " | ".join(str(t["sequences"]) for t in rows[0]["tests"]) + " |")
    print("|--|" + "--|" * len(rows[0]["tests"]))
    for r in rows:
        print(f"| {r['mode']} mode, {r['memory']} | " + " | ".join(
            f"{t['measured']:.3g} ({100 * t['deviation']:+.0f} %)" for t in r["tests"]) + " |")
    if o.json:
        outputs.write_whole(o.json, json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
