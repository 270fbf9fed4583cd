#!/usr/bin/env python3
"""Figures of `thermo-profile predictors --json --check` runs: collected into one file, drawn as SVG, printed as a table.

    predictor_curve.py --collect RUN.json... > curves.json
    predictor_curve.py curves.json > curves.svg
    predictor_curve.py --table curves.json

and the loss of quality by predictors, from the same kind of runs:

    predictor_curve.py --collect-quality RUN.json... > quality.json
    predictor_curve.py --draw-quality quality.json > quality.svg
    predictor_curve.py --table-quality quality.json

and of runs of several ranks, on their own held-out tokens:

    predictor_curve.py --ranks RUN.json...
"""
import json
import math
import sys


def collect(paths):
    """Per run and input: type, rank (0: shared out by layer), share of the FFN's bytes, density over the oracle's."""
    rows = []
    for path in paths:
        run = json.load(open(path))
        for kind in ("ffn", "block"):
            made = [x for x in run["predictors"] if x["input"] == kind]
            seen = [x for x in run["check"]["predictors"] if x["input"] == kind]
            if not made:
                continue
            ranks = {x["rank"] for x in made}
            true = sum(x["true_density"] for x in seen)
            held = sum(x["true_density"] for x in made)
            points = [dict(zip(("recall", "density"), (
                sum(x["curve"][i]["recall"] * x["true_density"] for x in made) / held,
                sum(x["curve"][i]["density"] for x in made) / len(made)))) for i in range(len(made[0]["curve"]))]
            rows.append({
                "input": kind, "type": made[0]["fc1_type"], "rank": ranks.pop() if len(ranks) == 1 else 0,
                "bytes_share": sum(x["bytes"] for x in made) / run["ffn_bytes"],
                "recall": sum(x["recall"] * x["true_density"] for x in seen) / true,
                "density": sum(x["density"] for x in seen) / len(seen), "oracle": true / len(seen),
                "training_free_ratio": sum(x["training_free_density"] for x in made) / held,
                "hot_only": sum(x["hot_only_density"] for x in made) / len(made),
                "ratio": sum(x["density"] for x in seen) / true, "curve": points,
                "layers": [[x["layer"], x["rank"], x["bytes"], y["recall"], y["density"], y["true_density"]]
                           for x, y in zip(made, seen)]})
    return rows


def table(rows):
    print("| input | type | rank | bytes, of FFN | recall | density | over the oracle's | training-free |")
    print("|--|--|--|--|--|--|--|--|")
    for r in sorted(rows, key=lambda r: (r["input"] == "block", r["type"], r["rank"] or 999)):
        print(f"| {r['input']} | {r['type']} | {r['rank'] or 'by layer'} | {100 * r['bytes_share']:.1f} % | "
              f"{100 * r['recall']:.2f} % | {100 * r['density']:.1f} % | {r['ratio']:.2f} x | {r['training_free_ratio']:.2f} x |")


def collect_quality(paths):
    """Per run and input: how they were made, share of the FFN's bytes, and the rows of the quality table."""
    out = []
    for path in paths:
        run = json.load(open(path))
        for kind in ("ffn", "block"):
            made = [x for x in run["predictors"] if x["input"] == kind]
            rows = [x for x in run["quality"]["rows"] if x["input"] == kind]
            if rows:
                out.append({"input": kind, "method": run["method"], "type": made[0]["fc1_type"],
                            "ranks": sorted({x["rank"] for x in made}), "corpus": run["quality"]["corpus"],
                            "bytes_share": sum(x["bytes"] for x in made) / run["ffn_bytes"], "rows": rows})
    return out


def quality_table(runs):
    print("| input | made | bytes, of FFN | target | recall | density | over the oracle's | KL, mean | KL, largest | same first choice "
          "| perplexity |")
    print("|--|--|--|--|--|--|--|--|--|--|--|")
    for r in runs:
        for x in r["rows"]:
            print(f"| {r['input']} | {r['method']} | {100 * r['bytes_share']:.1f} % | {x['target_recall']:g} | {100 * x['recall']:.2f} % | "
                  f"{100 * x['density']:.1f} % | {x['density'] / x['true_density']:.2f} x | {x['kl_mean_nats']:.2g} | "
                  f"{x['kl_max_nats']:.2g} | {100 * x['top1_agreement']:.2f} % | {100 * (x['perplexity_ratio'] - 1):+.2f} % |")


def ranks(paths):
    """Densities in multiples of the oracle's, all layers together, at the points of the curves that reach the recall."""
    recalls = (0.9, 0.95, 0.98, 0.99)
    print("| input | type | rank | bytes, of FFN | oracle | " + " | ".join("recall %g" % r for r in recalls) + " | layers at 0.99 | hot set |")
    print("|--|--|--|--|--|" + "--|" * len(recalls) + "--|--|")
    for kind in ("ffn", "block"):
        for run in map(json.load, map(open, paths)):
            made = [x for x in run["predictors"] if x["input"] == kind]

            def density(x, recall):
                reach = [p["density"] for p in x["curve"] if p["recall"] >= recall]
                return min(reach) if reach else 1.0
            true, n = sum(x["true_density"] for x in made), len(made)
            times = [sum(density(x, r) for x in made) / true for r in recalls]
            each = sorted(density(x, 0.99) / x["true_density"] for x in made if x["true_density"])
            print(f"| {kind} | {made[0]['fc2_type']} | {made[0]['rank']} | {100 * sum(x['bytes'] for x in made) / run['ffn_bytes']:.1f} % | "
                  f"{100 * true / n:.1f} % | " + " | ".join(f"{t:.2f} x" for t in times) + f" | {each[0]:.2f} to {each[-1]:.2f} x | "
                  f"{sum(x['hot_only_density'] for x in made) / true:.2f} x |")


class Panel:
    """Axes in SVG: x, y ranges linear, at a place."""

    def __init__(self, left, top, width, height, xmax, ymin, ymax):
        self.left, self.top, self.width, self.height = left, top, width, height
        self.xmax, self.ymin, self.ymax, self.out = xmax, ymin, ymax, []

    def x(self, v):
        return self.left + self.width * v / self.xmax

    def y(self, v):
        return self.top + self.height * (1 - (v - self.ymin) / (self.ymax - self.ymin))

    def text(self, x, y, s, anchor="middle", extra=""):
        self.out.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {extra}>{s}</text>')

    def line(self, points, colour, dash="", dots=True):
        path = " ".join(f"{self.x(a):.1f},{self.y(b):.1f}" for a, b in points)
        self.out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>')
        if dots:
            self.out += [f'<circle cx="{self.x(a):.1f}" cy="{self.y(b):.1f}" r="3" fill="{colour}"/>' for a, b in points]

    def axes(self, title, xlabel, ylabel, xticks, yticks, unit, name=lambda v: f"{v:g}"):
        self.text(self.left + self.width / 2, self.top - 14, title, extra='font-weight="bold"')
        for v in xticks:
            self.out.append(f'<line x1="{self.x(v):.1f}" y1="{self.top}" x2="{self.x(v):.1f}" y2="{self.top + self.height}" '
                            'stroke="#ddd"/>')
            self.text(self.x(v), self.top + self.height + 16, f"{v:g} %")
        for v in yticks:
            self.out.append(f'<line x1="{self.left}" y1="{self.y(v):.1f}" x2="{self.left + self.width}" y2="{self.y(v):.1f}" '
                            'stroke="#ddd"/>')
            self.text(self.left - 6, self.y(v) + 4, name(v) + unit, "end")
        self.text(self.left + self.width / 2, self.top + self.height + 36, xlabel)
        cx, cy = self.left - 48, self.top + self.height / 2
        self.text(cx, cy, ylabel, extra=f'transform="rotate(-90 {cx:.1f} {cy:.1f})"')


def svg(rows):
    series = [("FFN's input, Q4_0, trained", "#1f77b4", "", "ffn", "Q4_0", "ratio"),
              ("the same, training-free", "#1f77b4", "5 4", "ffn", "Q4_0", "training_free_ratio"),
              ("lookahead, Q4_0, trained", "#d62728", "", "block", "Q4_0", "ratio"),
              ("FFN's input, Q8_0, trained", "#2ca02c", "", "ffn", "Q8_0", "ratio")]
    a = Panel(80, 50, 420, 300, 12, 1, 6)
    a.axes("Bytes against density, at recall 0.99", "predictors' bytes, of the FFN's in F16", "predicted over active neurons",
           range(0, 13, 2), range(1, 7), " x")
    a.line([(0, 2), (12, 2)], "#888", "2 3", dots=False)
    a.line([(6, 1), (6, 6)], "#888", "2 3", dots=False)
    for i, (name, colour, dash, kind, qtype, field) in enumerate(series):
        points = sorted((100 * r["bytes_share"], r[field]) for r in rows
                        if r["input"] == kind and r["type"] == qtype and r["rank"])
        a.line([p for p in points if p[1] <= 6], colour, dash)
        a.out.append(f'<line x1="270" y1="{66 + 18 * i}" x2="296" y2="{66 + 18 * i}" stroke="{colour}" stroke-width="2" '
                     f'stroke-dasharray="{dash}"/>')
        a.text(302, 70 + 18 * i, name, "start")
    for r in rows:
        if not r["rank"]:
            x, y = a.x(100 * r["bytes_share"]), a.y(r["ratio"])
            colour = "#1f77b4" if r["input"] == "ffn" else "#d62728"
            a.out.append(f'<rect x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10" fill="{colour}"/>')
    a.text(302, 70 + 18 * len(series), "squares: ranks shared out by layer", "start")
    b = Panel(600, 50, 300, 300, 60, 0.8, 1)
    b.axes("Recall against density, Q4_0, 6 % of the bytes", "predicted neurons", "recall", range(0, 61, 10),
           [0.8, 0.85, 0.9, 0.95, 1], "")
    for r in rows:
        if not r["rank"]:
            colour = "#1f77b4" if r["input"] == "ffn" else "#d62728"
            b.line([(100 * p["density"], p["recall"]) for p in r["curve"]], colour)
    oracle = [r for r in rows if not r["rank"]][:1]
    for r in oracle:
        b.line([(100 * r["oracle"] * v, v) for v in (0.8, 1)], "#888", "2 3", dots=False)
    b.text(590, 335, "oracle: dotted; blue: FFN's input; red: lookahead", "start", 'font-size="11" dx="20"')
    print('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 930 410" font-family="sans-serif" font-size="12">'
          '<rect width="930" height="410" fill="white"/>')
    print("\n".join(a.out + b.out))
    print("</svg>")


def quality_svg(runs):
    xs = [x for x in range(0, 101, 10) if x <= 10 + max(100 * x["density"] for r in runs for x in r["rows"])]
    kls = [math.log10(x["kl_mean_nats"]) for r in runs for x in r["rows"]]
    low, high = math.floor(min(kls)), math.ceil(max(kls))
    a = Panel(80, 50, 360, 300, xs[-1], low, high)
    a.axes("Divergence of the next token's distribution", "predicted neurons", "mean KL, nats", xs, range(low, high + 1), "",
           lambda v: f"1e{v}")
    least = math.floor(100 * min(x["top1_agreement"] for r in runs for x in r["rows"]))
    b = Panel(540, 50, 360, 300, xs[-1], least, 100)
    b.axes("Same first choice as exact mode", "predicted neurons", "tokens", xs, range(least, 101, 1 if least > 90 else 5), " %")
    b.line([(0, 98), (xs[-1], 98)], "#888", "2 3", dots=False)
    top = 400
    for i, r in enumerate(runs):
        colour = ("#1f77b4" if r["input"] == "ffn" else "#d62728") if r["bytes_share"] > 0.045 else \
            ("#17becf" if r["input"] == "ffn" else "#ff7f0e")
        dash = "5 4" if r["method"] == "svd" else ""
        a.line([(100 * x["density"], math.log10(x["kl_mean_nats"])) for x in r["rows"]], colour, dash)
        b.line([(100 * x["density"], 100 * x["top1_agreement"]) for x in r["rows"]], colour, dash)
        x, y = 80 + 420 * (i % 2), top + 18 * (i // 2)
        a.out.append(f'<line x1="{x}" y1="{y}" x2="{x + 26}" y2="{y}" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>')
        a.text(x + 32, y + 4, ("FFN's input" if r["input"] == "ffn" else "lookahead") +
               f", {100 * r['bytes_share']:.1f} % of the bytes, " + ("training-free" if r["method"] == "svd" else "trained"), "start")
    oracle = 100 * runs[0]["rows"][0]["true_density"]
    for p in (a, b):
        p.line([(oracle, p.ymin), (oracle, p.ymax)], "#888", "2 3", dots=False)
    height = top + 18 * ((len(runs) + 1) // 2) + 10
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 930 {height}" font-family="sans-serif" font-size="12">'
          f'<rect width="930" height="{height}" fill="white"/>')
    print("\n".join(a.out + b.out))
    print("</svg>")


def main(args):
    if len(args) > 1 and args[0] == "--collect":
        json.dump(collect(args[1:]), sys.stdout, indent=1)
        print()
    elif len(args) > 1 and args[0] == "--collect-quality":
        json.dump(collect_quality(args[1:]), sys.stdout, indent=1)
        print()
    elif len(args) > 1 and args[0] == "--ranks":
        ranks(args[1:])
    elif len(args) == 2 and args[0] in ("--table", "--table-quality", "--draw-quality"):
        {"--table": table, "--table-quality": quality_table, "--draw-quality": quality_svg}[args[0]](json.load(open(args[1])))
    elif len(args) == 1 and not args[0].startswith("-"):
        svg(json.load(open(args[0])))
    else:
        sys.exit(__doc__)


main(sys.argv[1:])
