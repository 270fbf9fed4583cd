#!/usr/bin/env python3
"""Results of scripts/bench.py as a page and plots.

    bench_report.py DIR      writes DIR/BENCHMARKS.md and DIR/bench-NAME-*.svg again from DIR/benchmarks.json

A bound is what this machine forbids to beat, from bandwidths measured between the rounds of the same limit (the median, as
of the speeds): the bytes that a token must touch over the memory's bandwidth, in order for what is read whole (attention,
head, the gates of exact mode), by rows in random order for the rest (Up and Down of active neurons); under a limit, the
reads that were made, each in the least time that one of their mean size takes on this disk, where that is longer than the
FFN's bytes from memory."""
import json
import math
import os
import re
import statistics
import sys

# Bytes and weights of a block.
TYPES = {"F32": (4, 1), "F16": (2, 1), "BF16": (2, 1), "Q8_0": (34, 32), "Q4_0": (18, 32), "Q4_1": (20, 32), "Q5_0": (22, 32),
         "Q5_1": (24, 32), "Q2_K": (84, 256), "Q3_K": (110, 256), "Q4_K": (144, 256), "Q5_K": (176, 256), "Q6_K": (210, 256)}
FIRST = "first token, ms"
COLOURS = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf"]


def row_bytes(kind, weights):
    size, block = TYPES[kind]
    return size * weights / block


def between(at, size):
    """What grows evenly between the sizes that it was measured at; beyond them, as at the nearest."""
    below, above = max((s for s in at if s <= size), default=min(at)), min((s for s in at if s >= size), default=max(at))
    share = (size - below) / (above - below) if above > below else 0
    return at[below] + share * (at[above] - at[below])


def median(records, key):
    values = [r[key] for r in records if r.get(key) is not None]
    return statistics.median(values) if values else None


class Row:
    """All runs of one engine under one limit: medians, and what bounds them."""

    def __init__(self, result, limit, engine, kb, records):
        self.result, self.limit, self.engine, self.kb = result, limit, engine, kb
        self.model = result["models"].get(engine, result["model"])
        self.decode = [r for r in records if r["kind"] == "decode" and "failed" not in r]
        self.prompt = [r for r in records if r["kind"] == "prompt" and "failed" not in r]
        self.failed = [r["failed"] for r in records if "failed" in r]
        self.ours = engine.startswith(("thermo-run", "ladder"))
        self.speeds = sorted(r["tokens_per_s"] for r in self.decode)
        self.speed = statistics.median(self.speeds) if self.speeds else None
        self.limit_bytes, self.tier = records[0]["limit_bytes"], records[0].get("tier")
        self.n = len(self.decode)

    def get(self, key):
        return median(self.decode, key)

    def part(self, name):
        return statistics.median([r["ms_per_token"].get(name, 0) for r in self.decode]) if self.decode else 0

    def neurons(self, *names):
        return statistics.median([sum(r["neurons_per_token"][n] for n in names) for r in self.decode])

    def bandwidth(self):
        """Of what was measured between the runs under this limit. Older results have one measurement before each limit and
        do not say which: then of all."""
        seen = [b for b in self.result["bounds"]["memory"] if "failed" not in b and b.get("memory", self.limit) == self.limit]
        return tuple(1e9 * statistics.median([b[k] for b in seen]) for k in ("sequential", "scattered")) if seen else None

    def fio(self):
        return self.result["bounds"]["fio"].get(self.limit, {}).get(self.engine)

    def random_reads(self, value):
        """By size, the least of value(point) among the measurements of random reads; None: that one does not have it."""
        at = {}
        for p in self.result["bounds"].get("disk", {}).get("points", []):
            v = value(p) if p["pattern"] == "random" else None
            if v is not None:
                at[p["block_bytes"]] = min(at.get(p["block_bytes"], math.inf), v)
        return at

    def disk(self, size):
        """Most bytes per second in random reads of this mean size that the run saw, by whatever backend, depth and lanes: the
        time of a read grows evenly between the sizes that thermo-profile measured. It grows faster the larger the reads (at
        first it is all overhead), so no mix of sizes with that mean is faster. fio, where it was faster yet."""
        seconds = self.random_reads(lambda p: p["block_bytes"] / p["bytes_per_s_p50"])
        fio, rate = self.fio(), 0
        if seconds:
            size = min(size, max(seconds))
            rate = size / between(seconds, size)
        return max(rate, fio["bytes_per_s"] if fio else 0) or None

    def reads_ms(self):
        """What the reads take of the processors, at the least that thermo-profile saw one of their mean size take, divided
        among the threads. Older results do not say it: then nothing."""
        ns, size = self.random_reads(lambda p: p.get("cpu_ns_per_read")), self.read_size()
        threads = [b["threads"] for b in self.result["bounds"]["memory"] if "threads" in b]
        return self.get("reads_per_token") * between(ns, size) / 1e6 / threads[0] if ns and size and threads else 0

    def touched(self):
        """Bytes of memory that a token touches: (dense, FFN in order, FFN scattered)."""
        m = self.model
        routed = m["shape"]["n_experts_used"] / m["shape"]["n_experts"] if m["shape"]["n_experts"] else 1
        if not self.ours: # what is neither dense nor the embedding is the FFNs', of which a token is routed to some
            ffn = self.result.get("gguf_bytes", 0) - m["embedding_bytes"] - m["dense_bytes"]
            return m["dense_bytes"] + routed * ffn, 0, 0
        d, lay, mode = m["shape"]["d_model"], m["layout"], self.decode[0]["mode"]
        gate, up, down = (row_bytes(lay[f"{k}_type"], d) if lay.get(f"{k}_type") else 0 for k in ("gate", "up", "down"))
        active, possible = self.neurons("hot", "cold", "read"), self.neurons("possible")
        dense = m["dense_bytes"]
        if mode == "predicted":
            predictors = routed * max(m["predictor_bytes"].values(), default=0)
            return dense + predictors, 0, self.neurons("computed") * gate + active * (up + down)
        if mode == "dense":
            return dense, possible * (gate + up + down), 0
        return dense, possible * gate, active * (up + down)

    def read_size(self):
        """Bytes of a read, as they were issued: neighbours are coalesced, so it may be more than what is stored as one."""
        reads = self.get("reads_per_token")
        return self.get("read_bytes_per_token") / reads if reads else None

    def ffn_bound_ms(self):
        """(from memory, from disk)"""
        _, in_order, scattered = self.touched()
        seq, scat = self.bandwidth()
        read, size = self.get("read_bytes_per_token") or 0, self.read_size()
        rate = self.disk(size) if size else None
        return 1e3 * (in_order / seq + scattered / scat), 1e3 * read / rate if rate else 0

    def bound_ms(self):
        # SmallThinker's engine skips neurons, and does not say how many.
        if not self.decode or not self.bandwidth() or self.engine == "SmallThinker":
            return None
        ms = 1e3 * self.touched()[0] / self.bandwidth()[0]
        return ms + max(self.ffn_bound_ms()) if self.ours else max(ms, self.peer_disk_ms())

    def peer_disk_ms(self):
        """What it had read from the disk (at least what does not fit) at the disk's best rate."""
        rates = [p["bytes_per_s_p50"] for p in self.result["bounds"].get("disk", {}).get("points", [])]
        if not self.limit_bytes or not rates:
            return 0
        read = self.get("read_bytes_per_token")
        return 1e3 * (self.touched()[0] - self.limit_bytes if read is None else read) / max(rates)

    def pipeline_ms(self):
        """What cannot overlap, as measured, and the longer of the FFN's arithmetic, on what the reads leave of the processors,
        and the reads, at the machine's bounds."""
        memory, disk = self.ffn_bound_ms()
        return self.part("attention") + self.part("predict") + self.part("head") + max(memory + self.reads_ms(), disk)


def rows(result):
    """One Row per limit and engine; of a peer that ran with several read-aheads, the best."""
    groups, out = {}, {}
    for r in result["records"]:
        groups.setdefault((r["memory"], r["engine"], r.get("read_ahead_kb")), []).append(r)
    for (limit, engine, kb), records in groups.items():
        row = Row(result, limit, engine, kb, records)
        old = out.get((limit, engine))
        if not old or (row.speed or 0) > (old.speed or 0):
            out[limit, engine] = row
    return list(out.values())


# ---- the page ----

def number(v, digits=3):
    """About so many significant digits, no exponent; a dash when there is none."""
    if v is None:
        return "–"
    if v == 0:
        return "0"
    return f"{v:.{max(0, digits - 1 - math.floor(math.log10(abs(v))))}f}"


def percent(v):
    return "–" if v is None else f"{100 * v:.1f} %"


def mega(v):
    return "–" if v is None else number(v / 1e6)


def table(head, lines):
    """Without the column of times to first token where none was measured."""
    keep = [i for i, h in enumerate(head) if h != FIRST or any(x[i] != "–" for x in lines)]
    head, lines = [head[i] for i in keep], [[x[i] for i in keep] for x in lines]
    return ["| " + " | ".join(head) + " |", "|" + "--|" * len(head)] + ["| " + " | ".join(x) + " |" for x in lines] + [""]


def label(row):
    if row.decode and "recall" in row.decode[0]:
        return f"{row.engine} (recall {row.decode[0]['recall']:g})"
    return f"{row.engine} ({row.kb} KB read-ahead)" if row.kb else row.engine


def speed_table(all_rows):
    lines = []
    for row in all_rows:
        if row.engine.startswith("ladder"):
            continue
        if not row.speed:
            lines.append([row.limit, label(row), row.failed[0] if row.failed else "not run"] + ["–"] * 10)
            continue
        bound, ours = row.bound_ms(), row.ours
        others = [x for x in all_rows if x.limit == row.limit and x.tier in (None, row.tier) and not x.ours and x.speed]
        ratio = ", ".join(f"{number(row.speed / x.speed)} × {x.engine}" for x in others) if ours else ""
        predicted = row.get("predicted_tokens_per_s") if ours and row.decode[0]["prediction_valid"] else None
        lines.append([row.limit, label(row), f"{number(row.speed)} ({number(row.speeds[0])}–{number(row.speeds[-1])})",
                      number(1e3 / bound if bound else None), percent(row.speed * bound / 1e3 if bound else None), ratio,
                      f"{number(predicted)} ({percent(predicted / row.speed - 1)})" if predicted else "–",
                      number(median(row.prompt, "ttft_ms")), mega(row.get("read_bytes_per_token")),
                      percent(row.get("hit_rate")) if ours else "–", percent(row.get("stall_share")) if ours else "–",
                      mega(row.get("peak_bytes")), str(row.n)])
    return table(["memory", "engine", "tokens/s: median (range)", "bound", "of bound", "over peers",
                  "predicted by the plan", FIRST, "MB read per token", "hit rate", "I/O wait", "peak, MB", "runs"],
                 lines)


def prompt_speed(row):
    """Tokens/s of reading a prompt; None where it was not measured, or by an older version, which did not say how many."""
    speeds = [1e3 * r["prompt_tokens"] / r["ttft_ms"] for r in row.prompt if "prompt_tokens" in r]
    return statistics.median(speeds) if speeds else None


def tier_table(all_rows):
    """Engines by what instructions they use, ours (the fastest mode) first; times: ours over the line's."""
    lines = []
    for limit, tier in dict.fromkeys((r.limit, r.tier) for r in all_rows if r.tier):
        here = [r for r in all_rows if (r.limit, r.tier) == (limit, tier) and r.speed]
        first = max((r for r in here if r.ours), key=lambda r: r.speed, default=None)
        for row in ([first] if first else []) + [r for r in here if not r.ours]:
            mine = [(f(row), f(first) if first and row is not first else None) for f in (lambda r: r.speed, prompt_speed)]
            lines.append([limit, tier, row.engine] + [x for its, our in mine for x in
                                                      (number(its), f"{number(our / its)} ×" if its and our else "–")])
    return table(["memory", "tier", "engine", "tokens/s", "thermo-run", "prompt, tokens/s", "thermo-run, prompt"], lines) if lines else []


def sizes(fio):
    return ", ".join(f"{unit // 1024} KiB" + (f" {share} %" if share < 100 else "") for unit, share in fio["sizes"])


def time_table(all_rows):
    lines = []
    for row in all_rows:
        if not row.ours or not row.speed or row.engine.startswith("ladder") or not row.bandwidth():
            continue
        memory, disk = row.ffn_bound_ms()
        token, ffn = 1e3 / row.speed, row.part("ffn")
        read = row.get("read_bytes_per_token")
        rate, size = read / ffn * 1e3 if ffn else 0, row.read_size()
        most = row.disk(size) if size else None
        lines.append([row.limit, row.engine, number(token), number(row.part("attention")), number(row.part("predict")),
                      number(ffn), number(row.part("stall")), number(row.part("head")), number(memory), number(row.reads_ms()),
                      number(disk), number(token / row.pipeline_ms()), number(size / 1024) if size else "–", mega(rate), mega(most),
                      percent(rate / most) if most else "–"])
    return table(["memory", "engine", "token, ms", "attention", "prediction", "FFN", "of which I/O wait", "head", "FFN from memory",
                  "CPU time of reads", "reads from disk", "token over sum", "mean read, KiB", "MB/s read during FFN", "disk, MB/s",
                  "of disk"], lines)


def ladder_table(all_rows):
    lines = []
    for limit in dict.fromkeys(r.limit for r in all_rows if r.engine.startswith("ladder")):
        here = [r for r in all_rows if r.limit == limit and r.speed]
        full = next((r for r in here if r.engine.startswith("thermo-run")), None)
        for row in ([full] if full else []) + [r for r in here if r.engine.startswith("ladder")]:
            name = f"{row.engine}, complete" if row is full else "… " + row.engine.removeprefix("ladder: ")
            lines.append([limit, name, number(row.speed),
                          percent(row.speed / full.speed) if full else "–", mega(row.get("read_bytes_per_token")),
                          percent(row.get("hit_rate")), percent(row.get("stall_share"))])
    return table(["memory", "configuration", "tokens/s", "of complete", "MB read per token", "hit rate", "I/O wait"],
                 lines) if lines else []


def spread(values):
    values = sorted(values)
    middle = number(statistics.median(values))
    return f"{middle} ({number(values[0])}–{number(values[-1])})" if len(values) > 1 else middle


def memory_bounds_table(result):
    groups = {}
    for b in result["bounds"]["memory"]:
        groups.setdefault(b.get("memory", "each, before it"), []).append(b)
    out = []
    for limit, seen in groups.items():
        good = [b for b in seen if "failed" not in b]
        read = next((f"{b['read_bytes'] / 1e9:.1f}" for b in good if "read_bytes" in b), "–") # older results do not say
        out.append([limit, str(len(good)), str(good[0]["threads"]), str(good[0]["row_bytes"]), read,
                    spread(b["sequential"] for b in good), spread(b["scattered"] for b in good)] if good else
                   [limit, seen[0]["failed"], "–", "–", "–", "–", "–"])
    return table(["limit", "measurements", "threads", "row, bytes", "GB read from", "sequential, GB/s: median (range)",
                  "random rows, GB/s: median (range)"], out)


def fio_bounds_table(result):
    out = []
    for limit, engines in result["bounds"]["fio"].items():
        for engine, fio in engines.items():
            if fio:
                rates = [x["bytes_per_s"] / 1e6 for x in fio.get("seen", [fio])] # older results have one
                out.append([limit, engine, sizes(fio), str(fio["queue_depth"]), str(len(rates)), spread(rates)])
    return table(["limit", "engine", "read", "in flight", "measurements", "MB/s: median (range)"], out) if out else []


def bounds_lines(result):
    lines = ["Memory, measured between the runs of each limit:", "", *memory_bounds_table(result)]
    fio = fio_bounds_table(result)
    if fio:
        lines += ["Disk, fio at the mean read size and depth of each engine:", "", *fio]
    points = result["bounds"].get("disk", {}).get("points", [])
    if points:
        columns = sorted({p["block_bytes"] for p in points})
        best = {}
        for p in sorted(points, key=lambda p: p["bytes_per_s_p50"]):
            how = [p["backend"]] + ([] if p["direct"] else ["buffered"]) + [f"depth {p['queue_depth']}"]
            how += [f"{p['lanes']} lanes"] if p["lanes"] > 1 else []
            best.setdefault(p["pattern"], {})[p["block_bytes"]] = f"{mega(p['bytes_per_s_p50'])} ({', '.join(how)})"
        lines += ["Disk, best MB/s by read size (`thermo-profile hardware --quick`, before all runs; all points are in "
                  "benchmarks.json):", ""]
        lines += table(["pattern"] + [f"{s / 1024:g} KiB" for s in columns],
                       [[pattern] + [line.get(s, "") for s in columns] for pattern, line in best.items()])
    return lines


def favourable(result):
    """A setting of gguf-synth whose predictors know more than trained ones do (docs/synthetic-models.md): for the appendix."""
    return result["model"]["name"].endswith(", published")


def section(result):
    all_rows, m, machine = rows(result), result["model"], result["machine"]
    name = result["name"]
    loads = [r["load"] for r in result["records"]]
    packs = {}
    for engine, x in result["models"].items():
        lay = x["layout"]
        types = [lay[f"{k}_type"] or "none" for k in ("gate", "up", "down")]
        packs.setdefault(f"{lay['form']} form, {x['file_bytes'] / 1e9:.3f} GB, " +
                         (types[0] if len(set(types)) == 1 else f"Gate {types[0]}, Up {types[1]}, Down {types[2]}"),
                         []).append(engine)
    out = [f"## {name}", "", f"{m['name']}: {m['shape']['n_layers']} layers of {m['shape']['d_model']} × "
           f"{m['shape']['n_ff']}; " + "; ".join(k + (f" ({', '.join(v)})" if len(packs) > 1 else "")
                                                for k, v in packs.items()) + ".", "",
           f"{machine['cpu']}, {machine['cpus']} CPUs, {machine['memory_bytes'] / 1e9:.1f} GB, {machine['system']}, "
           f"{machine['file_system']}; {result['started']} to {result['finished']} UTC; revision "
           f"{result['settings']['commit']}; load average at the start of a run {min(loads):.1f} to {max(loads):.1f}"
           + (" (**the machine was not idle: these are no measurements to quote**)" if
              statistics.median(loads) > machine["cpus"] + 0.5 else "") + ".", ""]
    out += [f"![Speed over memory](bench-{name}-speed.svg)", "", *speed_table(all_rows)]
    times = time_table(all_rows)
    if len(times) > 3:
        out += ["### Where a token's time goes", "", f"![Time shares](bench-{name}-time.svg)", "", *times]
    tiers = tier_table(all_rows)
    if tiers:
        out += ["### By tier", "", *tiers]
    rungs = ladder_table(all_rows)
    if rungs:
        out += ["### Ablation", "", *rungs]
    out += ["### Bounds of the machine", "", *bounds_lines(result)]
    if result["notes"]:
        out += ["Notes:", ""] + [f"- {n}" for n in result["notes"]] + [""]
    return out + ["Settings: " + ", ".join(f"`{k}={v}`" for k, v in result["settings"].items()
                                           if k != "commit" and not v.endswith((".thermo", ".json", ".gguf", ".bundle"))), ""]


def summary(sets):
    """Of each model under each limit, the fastest mode."""
    lines = []
    for s in sets:
        all_rows = rows(s)
        for limit in dict.fromkeys(r.limit for r in all_rows):
            here = [r for r in all_rows if r.limit == limit and r.speed]
            ours = max((r for r in here if r.engine.startswith("thermo-run")), key=lambda r: r.speed, default=None)
            if not ours:
                continue
            bound = ours.bound_ms()
            anchor = re.sub(r"[^\w -]", "", s["name"].lower()).replace(" ", "-")
            model = f"[{s['name']}](#{anchor}): {s['model']['name']}"
            lines.append([model if limit == all_rows[0].limit else "", limit, ours.decode[0]["mode"], number(ours.speed),
                          percent(ours.speed * bound / 1e3 if bound else None),
                          ", ".join(f"{x.engine} {number(x.speed)}" for x in here if not x.ours) or "–",
                          mega(ours.get("read_bytes_per_token"))])
    return table(["model", "memory", "mode", "tokens/s", "of bound", "other engines, tokens/s", "MB read per token"], lines)


INTRO = """# Benchmarks

Decoding speed of `thermo-run` and of other engines on the same model, in memory and under memory limits, and the share of the machine's
bound that it reaches. The fastest mode of each model and limit:
"""
METHOD = """## Method

`make bench` (`scripts/bench.sh --help`) writes this page from [benchmarks.json](benchmarks.json), which holds every run with its command.

- **Runs** of all programs alternate, each in a process of its own; figures are medians. Under a limit the process is in a memory cgroup
  of that size, and the model's pages are dropped from the page cache first. `resident` has no cgroup.
- **Other engines.** llama.cpp and ik_llama.cpp map the file; under a limit they use the faster of the default read-ahead and 512 KB.
  SmallThinker's engine does not report which neurons it skips, so it has no bound.
- **By tier**: `make bench PEERS="ik=DIR ik-avx2=DIR"` measures builds for an instruction set beside `thermo-run --cpu` of the same.
- **Bound**: bytes that a token touches over memory bandwidth, sequential for what is read whole, random rows for Up and Down of active
  neurons. Under a limit the FFN's part (of other engines the whole) is the bytes read over the disk's rate where that takes longer.
- **Memory bandwidth** is measured before, between and after the rounds of a limit, over as much memory as the limit allows; "each,
  before it": once a limit.
- **Disk's rate**: random reads of the mean size issued, at the best backend and depth, interpolated between sizes; or fio's on the file
  itself, if faster.
- **Time tables**: ms. The sum is attention, prediction and head as measured, and the longer of (FFN from memory + CPU time of reads) and
  reads from disk. CPU time of reads is 0 where it was not measured.
- **Hit rate** is the cold cache's. **I/O wait**: share of time in which nothing could be computed because a read was pending.
- **Ablation**: a line lacks what the line above it lacks, and one thing more; "reads not verified" lacks verification alone.
"""
APPENDIX = """## Appendix: the setting *published*

Predictors of these synthetic models are more exact than trained ones are ([synthetic-models.md](synthetic-models.md)), so predicted mode
is faster than on a real model. The fastest mode of each model and limit:
"""


# ---- plots ----

def text(x, y, s, anchor="middle", extra=""):
    s = s.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {extra}>{s}</text>'


def svg(width, height, parts):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">\n'
            f'<rect width="{width}" height="{height}" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n")


def nice_steps(top):
    step = 10 ** math.floor(math.log10(top))
    step = next(s for s in (step / 5, step / 2, step, 2 * step) if top / s <= 7)
    return [i * step for i in range(int(top / step) + 1)]


def speed_plot(all_rows, name):
    """Speed, logarithmic, over memory."""
    points = {}
    for r in all_rows:
        if not r.speed or r.engine.startswith("ladder"):
            continue
        gb = (r.limit_bytes or max(x.get("account_bytes") or x.get("gguf_bytes") or 0 for x in r.decode) or
              r.result.get("gguf_bytes", 0)) / 1e9
        points.setdefault(r.engine, []).append((gb, r))
    if not points:
        return None
    flat = [p for line in points.values() for p in line]
    unit, suffix = (1, "GB") if max(x for x, _ in flat) >= 1 else (1000, "MB")
    top_x = max(x for x, _ in flat) * unit * 1.05
    low = math.floor(math.log10(min(r.speeds[0] for _, r in flat)))
    high = max(low + 1, math.ceil(math.log10(max([r.speeds[-1] for _, r in flat] +
                                                 [1e3 / r.bound_ms() for _, r in flat if r.bound_ms()]))))
    left, top, w, h = 70, 40, 560, 340

    def px(v):
        return left + w * v * unit / top_x

    def py(v):
        return top + h * (high - math.log10(v)) / (high - low)
    out = [text(left + w / 2, 22, f"{name}: speed over memory", extra='font-weight="bold"'),
           text(left + w / 2, top + h + 40, f"memory, {suffix}"),
           text(20, top + h / 2, "tokens/s", extra=f'transform="rotate(-90 20 {top + h / 2})"')]
    for v in nice_steps(top_x):
        out.append(f'<line x1="{px(v / unit):.1f}" y1="{top}" x2="{px(v / unit):.1f}" y2="{top + h}" stroke="#ddd"/>')
        out.append(text(px(v / unit), top + h + 18, f"{v:g}"))
    for k in range(low, high + 1):
        out.append(f'<line x1="{left}" y1="{py(10.0**k):.1f}" x2="{left + w}" y2="{py(10.0**k):.1f}" stroke="#ddd"/>')
        out.append(text(left - 6, py(10.0**k) + 4, f"{10.0**k:g}", "end"))
    for i, (engine, line) in enumerate(points.items()):
        colour = COLOURS[i % len(COLOURS)]
        line.sort(key=lambda p: p[0])
        path = " ".join(f"{px(x):.1f},{py(r.speed):.1f}" for x, r in line)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        bound = [(x, 1e3 / r.bound_ms()) for x, r in line if r.ours and r.bound_ms()]
        if len(bound) > 1:
            path = " ".join(f"{px(x):.1f},{py(v):.1f}" for x, v in bound)
            out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-dasharray="4 4"/>')
        for x, r in line:
            out.append(f'<line x1="{px(x):.1f}" y1="{py(r.speeds[0]):.1f}" x2="{px(x):.1f}" y2="{py(r.speeds[-1]):.1f}" '
                       f'stroke="{colour}"/>')
            out.append(f'<circle cx="{px(x):.1f}" cy="{py(r.speed):.1f}" r="3.5" fill="{colour}"/>')
        out.append(f'<line x1="{left + w + 16}" y1="{top + 10 + 20 * i}" x2="{left + w + 40}" y2="{top + 10 + 20 * i}" '
                   f'stroke="{colour}" stroke-width="2"/>')
        out.append(text(left + w + 46, top + 14 + 20 * i, engine, "start"))
    out.append(text(left + w + 16, top + 20 + 20 * len(points), "dashed: bound", "start", 'fill="#555"'))
    return svg(left + w + 220, top + h + 60, out)


def time_plot(all_rows, name):
    """A bar for each limit: what a token's time was spent on, in shares."""
    bars = [r for r in all_rows if r.ours and r.speed and not r.engine.startswith("ladder")]
    if not bars:
        return None
    kinds = [("attention", "#1f77b4"), ("prediction", "#9467bd"), ("FFN", "#2ca02c"), ("I/O wait", "#d62728"),
             ("head, rest", "#bbbbbb")]
    left, top, w = 190, 60, 480
    out = [text(left + w / 2, 22, f"{name}: where a token's time goes", extra='font-weight="bold"')]
    for i, (kind, colour) in enumerate(kinds):
        out.append(f'<rect x="{left + 100 * i}" y="34" width="12" height="12" fill="{colour}"/>')
        out.append(text(left + 17 + 100 * i, 44, kind, "start"))
    for i, r in enumerate(bars):
        y, total, stall = top + 30 * i, 1e3 / r.speed, min(r.part("stall"), r.part("ffn"))
        share = [r.part("attention"), r.part("predict"), r.part("ffn") - stall, stall]
        share.append(max(0, total - sum(share)))
        x, scale = left, w / max(total, sum(share))
        out.append(text(left - 8, y + 15, f"{r.limit}, {r.engine.removeprefix('thermo-run, ')}", "end"))
        for (_, colour), ms in zip(kinds, share):
            out.append(f'<rect x="{x:.1f}" y="{y}" width="{ms * scale:.1f}" height="22" fill="{colour}"/>')
            x += ms * scale
        out.append(text(left + w + 8, y + 15, f"{number(total)} ms", "start"))
    return svg(left + w + 90, top + 30 * len(bars) + 20, out)


# ---- files ----

def dump(sets):
    """One run a line, so that a change reads well."""
    out = []
    for s in sets:
        head = json.dumps({k: v for k, v in s.items() if k != "records"})
        runs = ",\n".join("   " + json.dumps(r) for r in s["records"])
        out.append(f'  {head[:-1]}, "records": [\n{runs}\n  ]}}')
    return '{"format": "thermo-bench", "revision": 1, "sets": [\n' + ",\n".join(out) + "\n]}\n"


def load(path):
    if not os.path.exists(path):
        return []
    with open(path) as f:
        j = json.load(f)
    if j.get("format") != "thermo-bench" or j.get("revision") != 1:
        sys.exit(f"{path}: format '{j.get('format')}' revision {j.get('revision')}; thermo-bench 1 is needed")
    return j["sets"]


def put(path, content):
    with open(f"{path}.new", "w") as f:
        f.write(content)
    os.replace(f"{path}.new", path)


def render(sets, out):
    honest, other = [s for s in sets if not favourable(s)], [s for s in sets if favourable(s)]
    page = INTRO.splitlines() + ["", *summary(honest), *METHOD.splitlines(), ""]
    for s in honest:
        page += section(s)
    if other:
        page += [*APPENDIX.splitlines(), "", *summary(other)]
    for s in other:
        page += [line.replace("## ", "### ", 1) if re.match("##+ ", line) else line for line in section(s)]
    for s in sets:
        for kind, plot in (("speed", speed_plot), ("time", time_plot)):
            drawn = plot(rows(s), s["name"])
            if drawn:
                put(f"{out}/bench-{s['name']}-{kind}.svg", drawn)
    put(f"{out}/BENCHMARKS.md", "\n".join(page).rstrip() + "\n")


def publish(result, out):
    """Into DIR/benchmarks.json in place of what it holds under the same name; page and plots anew."""
    os.makedirs(out, exist_ok=True)
    result = {k: v for k, v in result.items() if k != "done"}
    # Folders of this machine say nothing elsewhere.
    shown = {k: os.path.basename(v) if os.path.exists(v) else v for k, v in result["settings"]["values"].items()
             if not os.path.isdir(v)}
    if "PEERS" in shown:
        shown["PEERS"] = " ".join(word.partition("=")[0] for word in shown["PEERS"].split())
    result["settings"] = dict(shown, commit=result["settings"]["commit"])
    sets = load(f"{out}/benchmarks.json")
    names = [s["name"] for s in sets]
    if result["name"] in names:
        sets[names.index(result["name"])] = result
    else:
        sets.append(result)
    put(f"{out}/benchmarks.json", dump(sets))
    render(sets, out)
    print("\n".join(speed_table(rows(result))))
    print(f"written: {out}/benchmarks.json, {out}/BENCHMARKS.md and plots beside it")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    render(load(f"{sys.argv[1]}/benchmarks.json"), sys.argv[1])
