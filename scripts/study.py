#!/usr/bin/env python3
"""study.py [options]          (or: make study)

How much memory a model should get, and what the memory should hold: plans over model sizes, devices, qualities of predictors and
batch sizes, from floor to everything in memory, and a page made from them. Descriptions are those of datasets/descriptions with other
sizes; devices are profiles of datasets/devices. Everything is predicted by thermo-plan, nothing is measured. docs/study.md."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import outputs  # noqa: E402  (beside this file)

BIN = os.environ.get("BIN", "build/bin")
DENSE, EXPERTS = "datasets/descriptions/bamboo-7b.json", "datasets/descriptions/turbosparse-mixtral-47b.json"
MODELS = {
    "1B": (DENSE, {"layers": 22, "d_model": 2048, "heads": 32, "kv_heads": 4, "head_dim": 64, "n_ff": 5632}, "TinyLlama-1.1B"),
    "7B": (DENSE, {}, "Mistral-7B"),
    "13B": (DENSE, {"layers": 40, "d_model": 5120, "heads": 40, "kv_heads": 40, "n_ff": 13824}, "Llama-2-13B"),
    "47B": (EXPERTS, {}, "Mixtral-8x7B, 2 of 8 experts"),
}
DEVICES = {
    "phone": "datasets/devices/oneplus-12.csv",
    "laptop": "datasets/devices/framework-13-ryzen-ai-5-340.csv",
    "server": "datasets/devices/epyc-7282-server.csv",
}
QUALITIES = {"oracle": (1.0, 1.0), "good": (0.99, 1.3), "poor": (0.95, 1.8)}  # recall; neurons predicted per neuron that fires
BATCHES = (1, 8, 32)
STEPS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0)  # of the FFN, beyond the floor
NEAR = 0.9  # of the speed of everything in memory
CONTEXT = 512


class Stop(Exception):
    pass


def run(*argv, allowed=(0,)):
    said = subprocess.run(argv, capture_output=True, text=True, check=False)
    if said.returncode not in allowed:
        raise Stop(f"{' '.join(argv)}: {said.stderr.strip()}")
    return said


def describe(path, model, quality):
    source, sizes, name = MODELS[model]
    recall, predicted = QUALITIES[quality]
    with open(source, encoding="utf-8") as f:
        d = json.load(f)
    d["name"] = f"{model} shape"
    d["shape"].update(sizes)
    s, p = d["shape"], d["predictors"]
    p["rank"] = s["d_model"] // 4
    ffns = s["layers"] * s.get("experts", 1)
    p["bytes"] = ffns * p["rank"] * (s["d_model"] + s["n_ff"]) * 18 // 32
    p["recall"], p["predicted_per_firing"] = recall, predicted
    d["sources"].update({"shape": f"Sizes of {name}.", "predictors.bytes": "Derived: rank d_model / 4, Q4_0.", "predictors.rank": "Assumed.",
                         "predictors.recall": "Assumed.", "predictors.predicted_per_firing": "Assumed."})
    with open(path, "w", encoding="utf-8") as f:
        json.dump(d, f)
    return d


def ffn_bytes(d):
    s = d["shape"]
    return 3 * s["layers"] * s.get("experts", 1) * s["n_ff"] * s["d_model"] * 18 // 32


def point_of(limit, predicted, d, batch):
    """One limit at one batch size: speed, and what its memory holds."""
    s = d["shape"]
    b, step = next((x, y) for x, y in zip(limit["batches"], predicted["batches"]) if x["batch"] == batch)
    hot = sum(n for layer in b["hot"] for block in layer for n in block[-1:])
    cold = sum(layer[-1] for layer in b["cold"])
    all_neurons = s["layers"] * s.get("experts", 1) * s["n_ff"]
    streamed = len(b.get("streamed", [])) / s["layers"]
    kv = 2 * s["layers"] * s["kv_heads"] * s["head_dim"] * 2 * limit["context"] * limit["max_batch"]
    ffn, memory = ffn_bytes(d), limit["memory_bytes"]
    slot = -(-3 * s["d_model"] * 18 // 32 // 4096) * 4096  # a neuron, padded to blocks
    used = {"hot": ffn * hot / all_neurons, "cold": slot * cold,
            "predictors": d["predictors"]["bytes"] * (1 - streamed) if limit["mode"] == "predicted" else 0, "kv": kv}
    return {"memory": memory, "tokens_per_s": step["tokens_per_s"], "read_bytes": step["read_bytes"], "mode": limit["mode"],
            "gap": predicted["gap"], "share": {k: v / memory for k, v in used.items()}, "hit_rate": step["hit_rate"]}


def case(tmp, model, device, quality, batch):
    """The points of a case, from the floor to everything in memory."""
    description, hw, out = (os.path.join(tmp, x) for x in ("d.json", f"{device}.sqlite", "p.json"))
    d = describe(description, model, quality)
    if not os.path.exists(hw):
        run(os.path.join(BIN, "thermo-profile"), "import", "-q", "--db", hw, "--csv", DEVICES[device])
    solve = [os.path.join(BIN, "thermo-plan"), "solve", "-q", "--description", description, "--hardware", hw, "--context", str(CONTEXT), "--max-batch",
             str(batch), "--mode", "predicted", "--act", "q8", "--form", "bundle", "--packed", "no", "--policy", "lru", "--down-type", "source",
             "--out", out]
    if batch > 1:  # nearly all tokens are made at this batch size
        solve += ["--batch-weights", "1," * (batch.bit_length() - 1) + "64"]
    refused = json.loads(run(*solve, "--memory", "1KiB", "--json", allowed=(4,)).stdout)
    floor, ffn = refused["nearest"]["memory_bytes"], ffn_bytes(d) + d["predictors"]["bytes"]
    limits = sorted({int(floor * 1.02 + step * ffn * 1.02) // 4096 * 4096 for step in STEPS})
    run(*solve, "--memory", ",".join(map(str, limits)))
    with open(out, encoding="utf-8") as f:
        plan = json.load(f)
    return [point_of(limit, predicted, d, batch)
            for limit, predicted in zip(plan["decisions"]["limits"], plan["predictions"]["limits"])]


# ---- what follows from the points ----

def knee(points):
    """The least memory of the points, and between them by the line, that gives NEAR of the largest speed."""
    want = NEAR * max(p["tokens_per_s"] for p in points)
    for a, b in zip([None] + points[:-1], points):
        if b["tokens_per_s"] >= want:
            if a is None:
                return b["memory"]
            return a["memory"] + (b["memory"] - a["memory"]) * (want - a["tokens_per_s"]) / (b["tokens_per_s"] - a["tokens_per_s"])
    return points[-1]["memory"]


def at(points, memory):
    return min(points, key=lambda p: abs(p["memory"] - memory))


def marginal(points):
    """(what a GiB more buys in %, tokens/s per GiB, from which memory on) between neighbouring points."""
    out = []
    for a, b in zip(points, points[1:]):
        gib = (b["memory"] - a["memory"]) / 2 ** 30
        more = b["tokens_per_s"] - a["tokens_per_s"]
        out.append((100 * ((b["tokens_per_s"] / a["tokens_per_s"]) ** (1 / gib) - 1) if gib else 0, more / gib, a["memory"], b["memory"]))
    return out


def cliff(points):
    """Between which points speed falls most for a per cent of memory that is taken away."""
    def fall(ab):
        a, b = ab
        return (b["tokens_per_s"] / a["tokens_per_s"] - 1) / (b["memory"] / a["memory"] - 1)
    return max(zip(points, points[1:]), key=fall)


def gb(n):
    return f"{n / 1e9:.3g}"


def rows_of(cases):
    head = ("| model | device | predictors | batch | floor, GB | 90 % of full speed from, GB | full, tokens/s | hot | cold | predictors | KV "
            "| at the floor, tokens/s | steepest between, GB | there, tokens/s | a GiB more at the knee |")
    yield head
    yield "|" + "--|" * (head.count("|") - 1)
    for c in cases:
        p = c["points"]
        k = knee(p)
        near = at(p, k)
        a, b = cliff(p)
        gain = next((m[1] for m in marginal(p) if m[3] >= k), 0)
        share = near["share"]
        yield (f"| {c['model']} | {c['device']} | {c['quality']} | {c['batch']} | {gb(p[0]['memory'])} | {gb(k)} | {p[-1]['tokens_per_s']:.3g} | "
               + " | ".join(f"{100 * share[x]:.0f} %" for x in ("hot", "cold", "predictors", "kv"))
               + f" | {p[0]['tokens_per_s']:.3g} | {gb(a['memory'])} to {gb(b['memory'])} | {a['tokens_per_s']:.3g} to {b['tokens_per_s']:.3g} | "
               f"{gain:+.2g} tokens/s |")


def curves_of(cases):
    for c in cases:
        yield f"- {c['model']}, {c['device']}, {c['quality']}, batch {c['batch']}: " + ", ".join(
            f"{gb(p['memory'])} GB {p['tokens_per_s']:.3g}" for p in c["points"])


def wanted(args):
    for model in args.models.split(","):
        for device in args.devices.split(","):
            for quality in args.qualities.split(","):
                for batch in map(int, args.batches.split(",")):
                    if batch == 1 or quality == args.qualities.split(",")[len(args.qualities.split(",")) // 2]:
                        yield model, device, quality, batch


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", default=",".join(MODELS), help=f"of {', '.join(MODELS)}")
    p.add_argument("--devices", default=",".join(DEVICES), help=f"of {', '.join(DEVICES)}")
    p.add_argument("--qualities", default=",".join(QUALITIES), help=f"of {', '.join(QUALITIES)}; batches above 1 with the middle one alone")
    p.add_argument("--batches", default=",".join(map(str, BATCHES)), help="1, 2, 4, 8, 16 or 32")
    p.add_argument("--json", metavar="FILE", help="every point")
    p.add_argument("--markdown", metavar="FILE", help="the tables")
    args = p.parse_args()
    outputs.refuse((args.json, args.markdown), [DENSE, EXPERTS, *DEVICES.values()])
    for name, known in (("models", MODELS), ("devices", DEVICES), ("qualities", QUALITIES), ("batches", map(str, (1, 2, 4, 8, 16, 32)))):
        known = list(known)
        for x in getattr(args, name).split(","):
            if x not in known:
                p.error(f"--{name} '{x}': known are {', '.join(known)}")
    cases, bad = [], 0
    with tempfile.TemporaryDirectory() as tmp:
        for model, device, quality, batch in wanted(args):
            try:
                points = case(tmp, model, device, quality, batch)
            except Stop as e:
                print(f"study: {model}, {device}, {quality}, batch {batch}: {e}", file=sys.stderr)
                bad = 1
                continue
            cases.append({"model": model, "device": device, "quality": quality, "batch": batch, "points": points})
            print(list(rows_of(cases[-1:]))[-1], flush=True)
            if args.json:
                outputs.write_whole(args.json, json.dumps({"format": "thermo-study", "revision": 1, "context": CONTEXT, "cases": cases}, indent=1))
            if args.markdown:
                outputs.write_whole(args.markdown, "\n".join([*rows_of(cases), "", *curves_of(cases), ""]))
    return bad


sys.exit(main())
