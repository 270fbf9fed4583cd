#!/usr/bin/env python3
"""devices.py [options]          (or: make devices)

What each device of the CSVs can run, and what binds it: the plans of several models under several limits, and one page made
from the plans' JSON. Limits above what a device gives one program are left out. Plans are made and remembered by plans.py:
PLANS/MODEL/DEVICE-LIMIT.json, again only where something changed. docs/devices.md."""
import argparse
import csv
import html
import json
import os
import re
import signal
import sys

sys.dont_write_bytecode = True
import plans  # noqa: E402  (beside this file)

STATUS = """exit status: 0 done; where no plan is possible the page says so.  1 a program failed  2 usage
  3, 5, 6 as plans.py  130 interrupted"""
MODELS = ["datasets/descriptions/bamboo-7b.json", "datasets/descriptions/turbosparse-mixtral-47b.json",
          "datasets/descriptions/turbosparse-mixtral-47b-paper.json"]
FLAGS = "--context 1024 --act q8 --down-type source"
UNITS = {"": 1, "B": 1, **{p + "B": 1000 ** i for i, p in enumerate("kMGT", 1)}, **{p + "iB": 1024 ** i for i, p in enumerate("KMGT", 1)}}
COMPUTE, BANDWIDTH, STORAGE, SIZE = "compute", "memory bandwidth", "storage", "memory size"
MEANING = {
    COMPUTE: "the cores' arithmetic is the largest part of a token's time",
    BANDWIDTH: "reading weights from memory is",
    STORAGE: "waiting for reads is; in memory it would be as fast as the second number",
    SIZE: "no plan: the limit is below what the model needs at least",
}


# ---- devices ----

def size_of(text):
    m = re.fullmatch(r"([0-9.]+) ?([A-Za-z]*)", text)
    try:
        return round(float(m[1]) * UNITS[m[2]])
    except (TypeError, KeyError, ValueError):
        raise plans.Stop(2, f"'{text}' is not a size such as 2GiB") from None


class Device:
    """What a CSV says of a device beside its rates: names, sizes, and how many figures rest on what."""
    def __init__(self, found):
        self.found, self.name = found, found[0]
        self.texts, self.sizes, self.origins = {}, {}, {"measured": 0, "published": 0, "estimated": 0}

    def add(self, row):
        self.origins[row.get("origin") or "published"] = self.origins.get(row.get("origin") or "published", 0) + 1
        if row["table"] == "device" and row["field"].endswith("_bytes"):
            self.sizes[row["field"]] = size_of(row["value"] + row["unit"])
        elif row["table"] == "device":
            self.texts[row["field"]] = row["value"]

    def limit(self):
        """The most that one program gets; None: not stated."""
        return self.sizes.get("app_memory_limit_bytes") or self.sizes.get("memory_bytes")

    def allows(self, memory):
        return self.limit() is None or size_of(memory) <= self.limit()


def devices_of(args):
    files = plans.files_of(args.devices)
    found = {d[0]: Device(d) for d in plans.devices_of(files)}
    for path in files:
        with open(path, newline="", encoding="utf-8-sig") as f:
            for row in csv.DictReader(f):
                found[row["device"]].add(row)
    for name in args.device or []:
        if name not in found:
            raise plans.Stop(2, f"--device '{name}': the CSVs have {', '.join(found)}")
    return [d for d in found.values() if not args.device or d.name in args.device], files


# ---- what binds a plan ----

def time_of(p):
    """Where the time of a step goes, in ns: compute, memory bandwidth, waiting for storage.

    A layer's FFN takes the longer of its arithmetic and its reads from memory; attention, prediction and the head, which are
    products of the same kind, count with that side. What a layer takes beyond is waiting for storage."""
    layers = p["layers"]
    spent = {COMPUTE: 0.0, BANDWIDTH: 0.0, STORAGE: 0.0}
    for total, attention, predict, compute, memory in zip(*(layers[k + "_ns"] for k in (
            "total", "attention", "predict", "ffn_compute", "ffn_memory"))):
        work = min(total, attention + predict + max(compute, memory))
        spent[COMPUTE if compute >= memory else BANDWIDTH] += work
        spent[STORAGE] += total - work
    spent[COMPUTE if spent[COMPUTE] >= spent[BANDWIDTH] else BANDWIDTH] += p["head_ns"]
    return spent


def read_plan(path):
    with open(path, encoding="utf-8") as f:
        plan = json.load(f)
    limit, predicted = plan["decisions"]["limits"][-1], plan["predictions"]["limits"][-1]
    p = predicted["batches"][0]  # of batch 1
    spent = time_of(p)
    whole = sum(spent.values())
    return {"tokens_per_s": p["tokens_per_s"], "binds": max(spent, key=spent.get),
            "share": {k.replace(" ", "_"): round(v / whole, 4) for k, v in spent.items()},
            "tokens_per_s_in_memory": p["tokens_per_s"] * whole / (whole - spent[STORAGE]),
            "read_bytes": p["read_bytes"], "mode": limit["mode"], "account_bytes": predicted["account_bytes"],
            "floor_bytes": predicted["floor_bytes"]}


def cell_of(memory, plan):
    """A cell of the matrix, for the page and for machines. plan: None where the device has not that much memory."""
    cell = {"memory": memory, "memory_bytes": size_of(memory), "outcome": plan.outcome if plan else "beyond"}
    if cell["outcome"] == "planned":
        cell.update(read_plan(plan.path))
    elif cell["outcome"] == "infeasible":
        cell.update(binds=SIZE, message=plan.message, needs_bytes=(plan.refusal or {}).get("nearest", {}).get("memory_bytes"))
    elif cell["outcome"] == "failed":
        cell.update(message=plan.message)
    return cell


def best_of(cells):
    """The fastest plan of a device; of equals that with less memory. None: there is none."""
    made = [c for c in cells if c["outcome"] == "planned"]
    return max(made, key=lambda c: (c["tokens_per_s"], -c["memory_bytes"])) if made else None


def binds_of(cells):
    """What binds the device: the best plan's term; memory size where no limit that it allows has a plan."""
    best = best_of(cells)
    return best["binds"] if best else SIZE


# ---- the matrix ----

class Model:
    def __init__(self, args, path, devices):
        self.args = plans.parse(["--model", path, "--memory", args.memory, "--plans", args.plans, "--state", args.state,
                                 f"--flags={args.flags}", "--jobs", str(args.jobs)] + (["--fresh"] if args.fresh else []))
        plans.check(self.args)
        self.name, self.devices = self.args.name, devices
        cells = plans.matrix(self.args, [d.found for d in devices])
        fits = {d.name: d for d in devices}
        self.maker = plans.Maker(self.args, [c for c in cells if fits[c.device].allows(c.memory)])

    def rows(self):
        """[(device, its cells in the order of the limits)]"""
        made = {(p.device, p.memory): p for p in self.maker.plans}
        limits = self.args.memory.replace(",", " ").split()
        return [(d, [cell_of(m, made.get((d.name, m))) for m in limits]) for d in self.devices]


def as_json(args, models):
    def one(model, device, cells):
        best = best_of(cells)
        return {"model": model.name, "binds": binds_of(cells), "best": best and best["memory"], "plans": cells}
    rows = {m.name: dict((d.name, cells) for d, cells in m.rows()) for m in models}
    listed = [{"name": d.name, **d.texts, "memory_bytes": d.sizes.get("memory_bytes"), "limit_bytes": d.limit(), "figures": d.origins,
               "models": [one(m, d, rows[m.name][d.name]) for m in models]} for d in models[0].devices]
    return json.dumps({"format": "thermo-devices", "revision": 1, "tool": models[0].maker.version.splitlines()[0], "flags": args.flags,
                       "memory": args.memory.replace(",", " ").split(), "models": [m.name for m in models], "devices": listed},
                      indent=2, ensure_ascii=False) + "\n"


# ---- pages ----

def number(x):
    return f"{x:.0f}" if x >= 100 else f"{x:.3g}"


def gigabytes(n):
    return "?" if n is None else f"{n / 1e9:.3g} GB"


def said(cell):
    """A cell in words."""
    if cell["outcome"] == "beyond":
        return "–"
    if cell["outcome"] == "failed":
        return "failed"
    if cell["outcome"] == "infeasible":
        return f"{SIZE}: needs {gigabytes(cell['needs_bytes'])}" if cell["needs_bytes"] else SIZE
    share = round(100 * cell["share"][cell["binds"].replace(" ", "_")])
    inside = f", in memory {number(cell['tokens_per_s_in_memory'])}" if cell["binds"] == STORAGE else ""
    return f"{number(cell['tokens_per_s'])} ({cell['binds']} {share} %{inside})"


def summary(device, cells):
    best = best_of(cells)
    if best:
        return f"{binds_of(cells)}: {number(best['tokens_per_s'])} tokens/s in {best['memory']}"
    if all(c["outcome"] == "beyond" for c in cells):
        return f"{SIZE}: no limit of these fits in {gigabytes(device.limit())}"
    return SIZE


def as_markdown(models):
    out = []
    for m in models:
        limits = m.args.memory.replace(",", " ").split()
        out.append(f"**{m.name}**, tokens/s and what binds\n")
        out.append("| device | memory | " + " | ".join(limits) + " | best |")
        out.append("|--" * (len(limits) + 3) + "|")
        for d, cells in m.rows():
            texts = [d.name, gigabytes(d.limit())] + [said(c) for c in cells] + [summary(d, cells)]
            out.append("| " + " | ".join(t.replace("|", "\\|") for t in texts) + " |")
        out.append("")
    return "\n".join(out)


STYLE = """body{font:15px/1.45 sans-serif;margin:2em auto;max-width:80em;padding:0 1em;color:#222;background:#fff}
table{border-collapse:collapse;margin:1em 0}th,td{border:1px solid #ccc;padding:.3em .6em;text-align:left;vertical-align:top}
th{background:#eee}small{display:block;color:#444}.b0{background:#dcebfa}.b1{background:#e3f2d9}.b2{background:#fdebc8}.b3{background:#f6d5d5}
.none{color:#888}dt{font-weight:bold}"""
CLASSES = {COMPUTE: "b0", BANDWIDTH: "b1", STORAGE: "b2", SIZE: "b3"}


def html_cell(cell):
    kind = CLASSES.get(cell.get("binds"), "none")
    if cell["outcome"] != "planned":
        return f'<td class="{kind}">{html.escape(said(cell))}</td>'
    text, _, rest = said(cell).partition(" ")
    return f'<td class="{kind}"><b>{html.escape(text)}</b><small>{html.escape(rest.strip("()"))}</small></td>'


def html_table(model):
    limits = model.args.memory.replace(",", " ").split()
    e = html.escape
    out = [f"<h2>{e(model.name)}</h2>", "<table>", "<tr><th>device</th><th>a program gets</th>" + "".join(
        f"<th>{e(m)}</th>" for m in limits) + "<th>what binds its best plan</th></tr>"]
    for d, cells in model.rows():
        parts = ", ".join(filter(None, (d.texts.get("soc"), d.texts.get("storage_description"))))
        rests = ", ".join(f"{n} {k}" for k, n in d.origins.items() if n)
        out.append(f'<tr><th title="{e(d.texts.get("description", ""))}">{e(d.name)}<small>{e(parts)}</small></th>'
                   f'<td title="{e(rests)}">{e(gigabytes(d.limit()))}</td>' + "".join(map(html_cell, cells)) +
                   f'<td class="{CLASSES[binds_of(cells)]}">{e(summary(d, cells))}</td></tr>')
    return out + ["</table>"]


def as_html(args, models):
    e = html.escape
    out = ['<!DOCTYPE html>', '<html lang="en"><head><meta charset="utf-8"/><title>What devices can run</title>', f"<style>{STYLE}</style></head><body>",
           "<h1>What devices can run, and what binds them</h1>",
           f"<p>Tokens per second at batch 1 by {e(models[0].maker.version.splitlines()[0])}, options {e(args.flags) or 'none'}. "
           "Predicted from the device profiles: no device was measured here unless its figures say so.</p>", "<dl>"]
    out += [f'<dt class="{CLASSES[k]}">{e(k)}</dt><dd>{e(v)}</dd>' for k, v in MEANING.items()] + ["</dl>",
            "<p>–: the device does not give one program that much.</p>"]
    for m in models:
        out += html_table(m)
    return "\n".join(out + ["</body></html>"]) + "\n"


# ---- the command line ----

def parse(argv):
    p = argparse.ArgumentParser(prog="devices.py", usage=__doc__.split("\n", 1)[0], description=__doc__.split("\n\n", 1)[1], epilog=STATUS,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", action="append", metavar="FILE", help="a description (.json) or a trace (.h5); may be given several times. "
                   "Default: the published models of datasets/descriptions")
    p.add_argument("--memory", default="2GiB 4GiB 8GiB 16GiB", metavar="LIMITS", help='default: "%(default)s"')
    p.add_argument("--devices", action="append", metavar="CSVS", help="device profiles, as in plans.py. Default: datasets/devices/*.csv")
    p.add_argument("--device", action="append", metavar="NAME", help="only this device of the CSVs; may be given several times")
    p.add_argument("--plans", default="build/devices/plans", metavar="FOLDER", help="where plans go (default: %(default)s)")
    p.add_argument("--state", default="build/plans-state", metavar="FOLDER", help="what is remembered of former runs (default: %(default)s)")
    p.add_argument("--flags", default=FLAGS, help='options of thermo-plan solve (default: "%(default)s")')
    p.add_argument("--page", metavar="FILE", help="write the page as HTML")
    p.add_argument("--markdown", metavar="FILE", help="write the tables as Markdown")
    p.add_argument("--json", metavar="FILE", help="write the same for machines")
    p.add_argument("--jobs", "-j", type=int, default=0, metavar="N", help="plans at a time (default: the processors)")
    p.add_argument("--fresh", action="store_true", help="make every plan again")
    args = p.parse_args(argv)
    args.model = [m for m in args.model or [] if m.strip()] or MODELS
    args.memory, args.flags = args.memory.strip() or p.get_default("memory"), args.flags.strip() or FLAGS
    args.devices = [d for d in args.devices or [] if d.strip()] or ["datasets/devices/*.csv"]
    return args


def check_outputs(args, files):
    """A page must not replace an input or another page, nor lie among the plans."""
    found = plans.outputs.same((args.page, args.markdown, args.json), args.model + files)
    if found:
        raise plans.Stop(2, "'%s' is also '%s': it would be replaced" % found)
    for path in filter(None, (args.page, args.markdown, args.json)):
        where = os.path.realpath(path)
        if os.path.commonpath([where, os.path.realpath(args.plans)]) == os.path.realpath(args.plans):
            raise plans.Stop(2, f"'{path}' lies in '{args.plans}', which is for plans alone")


def main(argv):
    args = parse(argv)
    devices, files = devices_of(args)
    check_outputs(args, files)
    models = [Model(args, path, devices) for path in args.model]
    if len({m.name for m in models}) != len(models):
        raise plans.Stop(2, "two models have one name: their plans would share a folder")
    for number_ in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number_, plans.interrupt)
    for m in models:
        m.maker.make_all()
    for path, text in ((args.page, lambda: as_html(args, models)), (args.markdown, lambda: as_markdown(models)), (args.json, lambda: as_json(args, models))):
        if path:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            plans.write_whole(path, text())
    cells = [c for m in models for _, row in m.rows() for c in row]
    count = {k: sum(c["outcome"] == k for c in cells) for k in ("planned", "infeasible", "beyond", "failed")}
    print(f"{len(devices)} devices, {len(models)} models: {count['planned']} plans, {count['infeasible']} below what a model needs, "
          f"{count['beyond']} more than a device gives, {count['failed']} failed")
    failed = [p.status for m in models for p in m.maker.plans if p.outcome == "failed"]
    return 0 if not failed else failed[0] if failed[0] in (1, 2, 3, 5, 6, 130) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except plans.Stop as e:
        plans.say(f"devices.py: {e}")
        sys.exit(e.status)
    except KeyboardInterrupt:
        plans.say("devices.py: interrupted; what was made is kept")
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(1)
