#!/bin/bash
# thermo-plan report: one well-formed page without scripts or links, its numbers those of the plan, hostile names escaped.
. tests/tap.sh
scratch
. tests/chain.sh
P=$BIN/thermo-plan

phone "$tmp/phone.sqlite" > "$tmp/log"
in=(--traces "$traces" --hardware "$tmp/phone.sqlite") # the same wherever this runs; a description is planned for this machine
check "a plan of two limits and two batch sizes" "$P" solve "${in[@]}" $(of '' --cores=mid=2,big=0,little=0) --form split --memory 14MiB,20MiB --context 256 --max-batch 2 \
    --rlimit 1 --out "$tmp/plan.json"
report() { "$P" report "$@"; }
check "report" report "$tmp/plan.json" "${in[@]}" --out "$tmp/a.html"

# Tags balance, ids are unique, links lead within the page, nothing is loaded, drawings have text alternatives.
cat > "$tmp/page.py" <<'PY'
import sys
from html.parser import HTMLParser
class Page(HTMLParser):
    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.stack, self.ids, self.links, self.text, self.tables, self.svgs, self.cell = [], [], [], "", [], [], None
        self.boxes, self.labels, self.stacked = [], [], []
        self.feed(text)
        self.close()
        assert not self.stack, self.stack
    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        assert len(a) == len(attrs), (tag, attrs)
        assert tag not in ("script", "link", "iframe", "object", "img", "base", "form"), tag
        assert not any(k.startswith("on") or k in ("src", "srcset", "style") for k in a), (tag, a)
        self.ids += [a["id"]] if "id" in a else []
        if "href" in a:
            assert tag == "a" and a["href"].startswith("#"), a
            self.links.append(a["href"][1:])
        if tag == "svg":
            assert a["role"] == "img"
            self.svgs.append({"title": "", "desc": ""})
        if tag == "div":
            self.boxes.append(a.get("class", "").split())
        if tag == "table": # what is wider than the screen scrolls in a box of its own
            assert self.stack[-1] == "div" and "scroll" in self.boxes[-1], (self.stack, self.boxes)
            self.tables.append([])
            self.labels.append([])
            self.stacked.append("stack" in self.boxes[-1])
        if tag == "tr":
            self.tables[-1].append([])
            self.labels[-1].append([])
        if tag in ("td", "th"):
            self.cell = ""
            self.labels[-1][-1].append(a.get("data-l"))
        if tag not in ("meta",):
            self.stack.append(tag)
    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.stack.pop()
    def handle_endtag(self, tag):
        assert self.stack and self.stack[-1] == tag, (tag, self.stack, self.getpos())
        self.stack.pop()
        if tag == "div":
            self.boxes.pop()
        if tag in ("td", "th"):
            self.tables[-1][-1].append(self.cell)
            self.cell = None
    def handle_data(self, data):
        self.text += data
        if self.cell is not None:
            self.cell += data
        if self.svgs and "svg" in self.stack and self.stack[-1] in ("title", "desc"):
            self.svgs[-1][self.stack[-1]] += data
def load(path):
    text = open(path, encoding="utf-8").read()
    p = Page(text)
    assert len(set(p.ids)) == len(p.ids) and set(p.links) <= set(p.ids), (p.ids, p.links)
    assert p.svgs and all(s["title"] and len(s["desc"]) > 20 for s in p.svgs)
    for word in ("url(", "@import", "http://", "https://", "nan", "inf<"):
        assert word not in text.replace("http://www.w3.org/2000/svg", ""), word
    assert all(len(r) == len(t[0]) for t in p.tables for r in t), "ragged table"
    # A narrow screen shows some tables as lists: there each cell has its head beside it.
    assert "width=device-width" in text and sum(p.stacked) == 2 + ("Table: prompts" in text), p.stacked
    for t, labels, stacked in zip(p.tables, p.labels, p.stacked):
        assert all(row == (t[0] if stacked else [None] * len(row)) for row in labels[1:]), labels
    return p
def table(p, *heads):
    found = [t for t in p.tables if t[0][:len(heads)] == list(heads)]
    assert found, (heads, [t[0] for t in p.tables])
    return found
if __name__ == "__main__":
    load(sys.argv[1])
PY
check "well-formed, self-contained, with text alternatives" python3 "$tmp/page.py" "$tmp/a.html"
drawings()
{
    python3 - "$tmp/a.html" "$tmp" <<'PY'
import re, sys, xml.dom.minidom
svgs = re.findall(r"<svg.*?</svg>", open(sys.argv[1]).read(), re.S)
assert len(svgs) == 2 + 2 * 5, len(svgs)
for s in svgs:
    d = xml.dom.minidom.parseString(s)
    w, h = map(float, d.documentElement.getAttribute("viewBox").split()[2:])
    for t in d.getElementsByTagName("text"):
        if t.hasAttribute("transform"):
            continue
        assert 0 <= float(t.getAttribute("x")) <= w and 0 <= float(t.getAttribute("y")) <= h, t.toxml()
    for c in d.getElementsByTagName("circle"):
        assert 0 <= float(c.getAttribute("cx")) <= w and 0 <= float(c.getAttribute("cy")) <= h, c.toxml()
PY
}
check "drawings are XML, all marks within the frame" drawings
numbers()
{
    local i
    for i in 14 20; do
        "$P" explain "$tmp/plan.json" "${in[@]}" --memory ${i}MiB --json > "$tmp/x$i.json" || return 1
    done
    (cd "$tmp" && python3 - "$tmp/a.html" "$tmp/plan.json" "$tmp/x14.json" "$tmp/x20.json") <<'PY'
import json, sys
from page import load, table
p, plan = load(sys.argv[1]), json.load(open(sys.argv[2]))
explained = [json.load(open(f)) for f in sys.argv[3:]]
def near(a, b, rel=2e-3):
    assert abs(a - b) <= rel * abs(b) + 1e-9, (a, b)
speed = table(p, "Memory", "Batch", "Mode")[0][1:]
decided, predicted = plan["decisions"]["limits"], plan["predictions"]["limits"]
want = [(l, b, y) for l, f in zip(decided, predicted) for b, y in zip(l["batches"], f["batches"])]
assert len(speed) == len(want) == 4
for row, (l, b, y) in zip(speed, want):
    assert int(row[1]) == b["batch"] and row[2] == l["mode"] and int(row[3]) == l["threads"] and int(row[5]) == l["context"]
    near(float(row[6]), y["tokens_per_s"])
for row, l, x in zip(table(p, "Memory", "Tokens/s")[0][1:], predicted, explained, strict=True):
    f = l["batches"][0]
    near(float(row[1]), f["tokens_per_s"])
    near(float(row[2].split()[0]) * 1e6, f["step_ns"])
    most = max(x["binds"].values())
    name, layers = row[4].split(", in ")
    assert layers == "%d of %d layers" % (most, plan["model"]["layers"])
    assert x["binds"][{"computing": "compute", "memory bandwidth": "memory", "storage": "io"}[name]] == most
    best = max(x["gains"], key=lambda g: g["tokens_per_s"])
    what, speed = row[5].split(": ")
    assert what == best["what"], (what, best)
    near(float(speed.split()[0]), best["tokens_per_s"])
account = table(p, "Bytes")[0][1:]
for i, (l, x) in enumerate(zip(predicted, explained)):
    assert [int(r[i + 1]) for r in account] == list(x["account"].values()), (account, x["account"])
    assert x["account"]["total"] == l["account_bytes"] and x["account"]["floor"] == l["floor_bytes"]
steps = table(p, "Part", "Predicted, µs")
assert len(steps) == 2
for t, l in zip(steps, predicted):
    f = l["batches"][0]
    parts = [float(r[1]) * 1e3 for r in t[1:]]
    near(parts[-1], f["step_ns"], 1e-5)
    near(sum(parts[:-1]), f["step_ns"], 1e-4)
    near(sum(float(r[2].split()[0]) for r in t[1:-1]), 100, 1e-2)
    head = [r for r in t if r[0] == "output head"][0]
    near(float(head[1]) * 1e3, f["head_ns"], 1e-4)
layers = table(p, "Layer", "Hot", "Cold slots")
assert len(layers) == 2
for t, l, y in zip(layers, decided, predicted):
    f = y["batches"][0]["layers"]
    for i, row in enumerate(t[1:]):
        near(float(row[3]), f["active"][i], 1e-2)
        near(float(row[4]) * 1e3, f["attention_ns"][i])
        near(float(row[10]) * 1e3, f["total_ns"][i])
        for column, key in (5, "predict_ns"), (6, "ffn_compute_ns"), (7, "ffn_memory_ns"), (8, "io_ns"), (9, "exposed_ns"):
            near(float(row[column]) * 1e3, f[key][i])
        x = explained[layers.index(t)]["layers"][i]
        assert row[12] == x["binds"] and abs(float(row[13]) - f["read_bytes"][i]) <= 1
        assert abs(float(row[14].split()[0]) - 100 * f["hit_rate"][i]) < 0.051
        assert abs(float(row[15].split()[0]) - 100 * x["best_hit_rate"]) < 0.051 and x["best_hit_rate"] >= f["hit_rate"][i] - 1e-6, x
        attention, predict, compute, memory, io, exposed, total, overlaps = map(float, row[4:12])
        assert abs(attention + predict + max(compute, memory) + io + exposed - overlaps - total) <= 3e-3 * (total + overlaps), row
        assert row[1].split(" + ") == [str(v) for v in l["batches"][0]["hot"][i][0]]
for t in table(p, "Cache size, % of units"):
    rows = [[float(c) for c in r] for r in t[1:]]
    assert rows[0][1:] == [100, 100] and rows[-1] == [100, 0, 0]
    for a, b in zip(rows, rows[1:]):
        assert b[1] <= a[1] + 1e-9 and b[2] <= a[2] + 1e-9, (a, b)
    assert all(r[2] <= r[1] for r in rows), rows
    assert sum(r[2] for r in rows) < sum(r[1] for r in rows)
for t in table(p, "Layer", "Active neurons"):
    for r in t[1:]:
        shares = [float(c.split()[0]) for c in r[2:7]]
        assert shares == sorted(shares) and all(s >= x for s, x in zip(shares, (0.9, 4.9, 9.9, 19.9, 49.9))), r
gains = table(p, "With", "tokens/s")
assert len(gains) == 2
for t, l, x in zip(gains, predicted, explained):
    near(float(t[1][1]), l["batches"][0]["tokens_per_s"])
    assert [r[0] for r in t[2:]] == [g["what"] for g in x["gains"]] and len(t) >= 6
    for r, g in zip(t[2:], x["gains"]):
        near(float(r[1]), g["tokens_per_s"])
        assert abs(float(r[2].split()[0]) - 100 * (g["tokens_per_s"] / x["tokens_per_s"] - 1)) < 0.11, (r, g)
for name in "measured", "paper":
    lines = [t for t in p.tables if t[0][1:2] == ["Equation"] and t[1][1] == explained[0][name][0]["formula"]]
    assert len(lines) == 2, [t[1] for t in lines]
    for t, x in zip(lines, explained):
        assert [r[:2] for r in t[1:]] == [[l["id"], l["formula"]] for l in x[name]]
        for r, l in zip(t[1:], x[name]):
            near(float(r[2]), l["value"], 1e-5)
def hashes(o):
    return [v for k, x in o.items() for v in (hashes(x) if isinstance(x, dict) else [x] if k.endswith("hash") else [])]
assert len(hashes(plan)) == 5 and all(h in p.text for h in hashes(plan)), hashes(plan)
PY
}
unless_short check "tables have the plan's numbers" numbers

# Telemetry: as predicted, but attention exactly twice as slow.
telemetry()
{
    python3 - "$tmp/plan.json" "$1" > "$tmp/run.jsonl" <<'PY'
import json, sys
plan = json.load(open(sys.argv[1]))
l, f = plan["decisions"]["limits"][0], plan["predictions"]["limits"][0]["batches"][0]
y = f["layers"]
busy = sum(max(a, b) for a, b in zip(y["ffn_compute_ns"], y["ffn_memory_ns"]))
wait = sum(max(0, i - max(a, b)) + x for i, a, b, x in zip(y["io_ns"], y["ffn_compute_ns"], y["ffn_memory_ns"], y["exposed_ns"]))
attention, n = sum(y["attention_ns"]), 100
position = l["context"] // 2 - n // 2
print(json.dumps({"type": "summary", "model": sys.argv[2], "mode": l["mode"], "threads": l["threads"], "context": 256,
    "kv": "f16" if l["kv"] == "f16" else "f32", "act": l["act"], "memory_bytes": l["memory_bytes"], "prompt": {"tokens": position},
    "decode": {"tokens": n, "ms": n * (f["step_ns"] + attention) / 1e6, "attention_ms": n * 2 * attention / 1e6,
        "ffn_ms": n * (busy + wait) / 1e6, "stall_ms": n * wait / 1e6, "head_ms": n * f["head_ns"] / 1e6, "reads": 10,
        "read_bytes": int(n * f["read_bytes"]), "cold_lookups": 100, "cold_hit_rate": f["hit_rate"]},
    "predicted": {"tokens_per_s": f["tokens_per_s"], "valid": True}}))
PY
}
name=$(sed -n 's/.*"name": "\(ReGLU[^"]*\)".*/\1/p' "$tmp/plan.json" | head -n 1)
measured()
{
    telemetry "$name" && report "$tmp/plan.json" "${in[@]}" --no-gains --out "$tmp/m.html" --telemetry "$tmp/run.jsonl" "$tmp/run.jsonl" &&
        (cd "$tmp" && python3 - "$tmp/m.html" <<'PY'
import sys
from page import load, table
p = load(sys.argv[1])
t = {r[0]: r for r in table(p, "Per token", "Predicted", "Measured")[0]}
assert abs(float(t["Attention"][5]) - 2) < 2e-3 and abs(float(t["FFN"][5]) - 1) < 2e-3, t
assert abs(float(t["Waiting for storage"][5]) - 1) < 2e-3 and abs(float(t["Bytes read"][5]) - 1) < 2e-3, t
ratios = {r[0]: r[1:] for r in table(p, "Term", "Median")[0]}
assert abs(float(ratios["Attention"][0]) - 2) < 2e-3 and ratios["Attention"][3] == "2", ratios
assert [r for r in table(p, "Memory", "Batch")[0] if r[-1] == "2"], "measured speed"
PY
)
}
check "measured beside predicted" measured

# Names from files must stay text.
evil='<script>alert(1)</script>\"&'"'"'<img src=x onerror=alert(2)>'
hostile()
{
    python3 - "$tmp/plan.json" "$tmp/evil.json" "$evil" <<'PY'
import json, sys
text = open(sys.argv[1]).read()
plan = json.loads(text)
name = sys.argv[3].replace('\\"', '"')
text = text.replace(json.dumps(plan["model"]["name"]), json.dumps(name))
assert json.loads(text)["model"]["name"] == name
if '"notes": []' in text:
    text = text.replace('"notes": []', '"notes": [%s]' % json.dumps("note " + name))
else:
    text = text.replace('"notes": [', '"notes": [%s, ' % json.dumps("note " + name))
open(sys.argv[2], "w").write(text)
PY
    telemetry "${evil//\\/}" && report "$tmp/evil.json" "${in[@]}" --no-gains --out "$tmp/evil.html" --telemetry "$tmp/run.jsonl" &&
        ! grep -q '<script\|<img' "$tmp/evil.html" && (cd "$tmp" && python3 - "$tmp/evil.html" "${evil//\\/}" <<'PY'
import sys
from page import load
p = load(sys.argv[1])
assert p.text.count(sys.argv[2]) >= 4, p.text.count(sys.argv[2])
PY
)
}
check "hostile names are escaped" hostile

# Predictors: each layer says what they see and whether they are streamed, in the table, above its bar and in words.
predicted_layers()
{
    d=datasets/descriptions/bamboo-7b.json
    "$P" solve --description $d --hardware "$tmp/phone.sqlite" --mode predicted --form bundle --packed no --policy lru --act q8 \
        --down-type source --cores little=0 --context 256 --memory 1GB --out "$tmp/p.json" &&
        report "$tmp/p.json" --description $d --hardware "$tmp/phone.sqlite" --no-gains --out "$tmp/p.html" &&
        (cd "$tmp" && python3 - "$tmp/p.html" "$tmp/p.json" <<'PY'
import json, sys
from page import load, table
p, plan = load(sys.argv[1]), json.load(open(sys.argv[2]))
l = plan["decisions"]["limits"][0]
streamed = set(l["batches"][0].get("streamed", []))
want = [name + (", streamed" if i in streamed else "") for i, name in enumerate(l["predictors"])]
assert streamed and [r[-1] for r in table(p, "Layer", "Hot", "Cold slots")[0][1:]] == want, want
assert p.text.count("r*") >= len(streamed) and "Predictors see residual in 32 layers" in p.text
assert "are streamed through %d buffers" % l["predictor_buffers"] in p.text
assert ("Coalesced reads" in p.text) == bool(l["io"].get("joins"))
PY
)
}
check "predictors are marked layer by layer" predicted_layers

# On a phone, of a described model: Belady's bound is one, at all sizes and in all layers. One limit has no curve of speed.
bound()
{
    d=datasets/descriptions/bamboo-7b.json
    "$P" solve --description $d --hardware "$tmp/phone.sqlite" --form split --packed no --memory 2GiB --context 512 --out "$tmp/b.json" &&
        report "$tmp/b.json" --description $d --hardware "$tmp/phone.sqlite" --out "$tmp/b.html" --no-gains &&
        "$P" explain "$tmp/b.json" --description $d --hardware "$tmp/phone.sqlite" --no-gains --json > "$tmp/bx.json" &&
        (cd "$tmp" && python3 - "$tmp/b.html" "$tmp/bx.json" <<'PY'
import json, sys
from page import load, table
p, x = load(sys.argv[1]), json.load(open(sys.argv[2]))
rows = [[float(c) for c in r] for r in table(p, "Cache size, % of units")[0][1:]]
assert rows[0] == [0, 100, 100] and rows[-1] == [100, 0, 0] and all(r[2] <= r[1] for r in rows), rows
assert rows[7][2] < 0.9 * rows[7][1], rows[7]
assert all(l["hit_rate"] <= l["best_hit_rate"] for l in x["layers"]) and any(l["hit_rate"] > 0 for l in x["layers"])
assert "Speed over memory" not in p.text and "thermo-plan sweep" in p.text
assert "would help" not in p.text and not [t for t in p.tables if t[0][0] == "With"]
PY
)
}
unless_short check "Belady's bound is one on a phone; one limit draws no curve" bound

# The paper's equations overlap sums over layers: the token's parts add up all the same.
by_the_paper()
{
    "$P" solve "${in[@]}" --cost paper --form split --packed no --memory 18MiB,64MiB --out "$tmp/y.json" && report "$tmp/y.json" "${in[@]}" --out "$tmp/y.html" --no-gains &&
        (cd "$tmp" && python3 - "$tmp/y.html" "$tmp/y.json" <<'PY'
import json, sys
from page import load, table
p, plan = load(sys.argv[1]), json.load(open(sys.argv[2]))
for t, l in zip(table(p, "Part", "Predicted, µs"), plan["predictions"]["limits"], strict=True):
    step = l["batches"][0]["step_ns"]
    parts = [float(r[1]) * 1e3 for r in t[1:]]
    assert abs(parts[-1] / step - 1) < 1e-5 and abs(sum(parts[:-1]) / step - 1) < 1e-4, (parts, step)
PY
)
}
unless_short check "a token of the paper's has one time" by_the_paper

# A plan from published figures alone.
described()
{
    d=datasets/descriptions/small-relu.json
    "$P" solve --description $d --hardware "$hardware" --memory 2GiB --rlimit 1 --out "$tmp/d.json" &&
        report "$tmp/d.json" --description $d --hardware "$hardware" --out "$tmp/d.html" && python3 "$tmp/page.py" "$tmp/d.html"
}
check "a plan from a description" described
unless_short check "the same again" report "$tmp/d.json" --description datasets/descriptions/small-relu.json --hardware "$hardware" --out "$tmp/d2.html"
unless_short check "gives the same bytes" cmp "$tmp/d.html" "$tmp/d2.html"

check "no plan" says 2 'report takes one plan; 0' report "${in[@]}" --out "$tmp/x.html"
check "two plans" says 2 'report takes one plan; 2' report "$tmp/plan.json" "$tmp/plan.json" "${in[@]}" --out "$tmp/x.html"
check "no --out" says 2 '--out' report "$tmp/plan.json" "${in[@]}"
check "another device" says 5 'is for hardware' report "$tmp/plan.json" --traces "$traces" --hardware "$hardware" --device test --out "$tmp/x.html"
check "telemetry that is none" says 3 'is not JSON' report "$tmp/plan.json" "${in[@]}" --telemetry datasets/prompts/stories-eval.csv --out "$tmp/x.html"
check "a folder that is not there" says 1 'no/such' report "$tmp/plan.json" "${in[@]}" --out "$tmp/no/such/x.html"
check "nothing was written for what was refused" test ! -e "$tmp/x.html"
done_testing
