"""Does what thermo-plan explain prints add up? explain_sums.py PLAN LIMIT TEXT JSON
LIMIT: index of the plan's limit that both explain. Text and JSON are held to each other and to the plan: each line to its
terms, each term to the line that it begins, layers to their columns, all of it to the time of a token."""
import json
import re
import sys

plan, index, text, said = json.load(open(sys.argv[1])), int(sys.argv[2]), open(sys.argv[3]).read(), json.load(open(sys.argv[4]))
promised = plan["predictions"]["limits"][index]["batches"][0]
paper = plan["predictions"]["cost"] == "paper"


def near(a, b, rel, *what):
    assert abs(a - b) <= rel * max(abs(a), abs(b)) + 1e-6, (a, b, *what)


def adds_up(lines, rel):
    """lines: (formula, value, {term: value}); every sum, and every term that has a line of its own."""
    values = {}
    for formula, value, _ in lines:
        name = re.split(r" = |: ", formula)[0]
        assert name not in values, ("two lines define", name)
        values[name] = value
    sums = linked = 0
    for formula, value, terms in lines:
        if terms:
            size = max(abs(t) for t in terms.values())
            assert abs(sum(terms.values()) - value) <= rel * max(size, abs(value)), (formula, value, terms)
            sums += 1
        for name, term in terms.items():
            if name in values:
                near(term, values[name], rel, formula, name)
                linked += 1
    return values, sums, linked


def speed_of(lines, rel):
    values, sums, linked = adds_up(lines, rel)
    near(values["s"], promised["tokens_per_s"], rel)
    return values, sums, linked


# JSON
exact = 1e-5  # it is printed with six digits
for part in ("paper", "measured"):
    lines = [(l["formula"], l["value"], l.get("terms", {})) for l in said[part]]
    if lines and (part == "paper") == paper:
        values, sums, linked = speed_of(lines, exact)
    elif lines:
        adds_up(lines, exact)
if paper:
    near(values["t_compute"], promised["step_ns"], exact)
else:
    few = "ffn_engine_ns" in promised["layers"] or not promised["read_bytes"]  # terms that are 0 are left out
    assert (sums >= 4 and linked >= 3 if few else sums >= 6 and linked >= 8), (sums, linked)
    near(values["t_step"], promised["step_ns"], exact)
    near(values["t_layers"], sum(promised["layers"]["total_ns"]), exact)
    for name, column in ("t_attention", "attention_ns"), ("t_predict", "predict_ns"), ("t_compute", "ffn_compute_ns"), \
            ("t_io", "io_ns"), ("t_exposed", "exposed_ns"), ("t_memory", "ffn_memory_ns"):
        near(values.get(name, 0), sum(promised["layers"][column]), exact, name)
for l in said["layers"]:
    ffn = l["ffn_compute_ns"] if paper else max(l["ffn_compute_ns"], l["ffn_memory_ns"], l.get("ffn_engine_ns", 0))
    parts = l["attention_ns"] + l["predict_ns"] + ffn + l["io_ns"] + l["exposed_ns"]
    near(parts - l["overlap_ns"], l["total_ns"], 4 * exact, l)
    assert l["overlap_ns"] >= -exact * parts, l

# Each number says where it comes from, and the text says it of those that are not derived.
BASES = {"derived", "measured", "published", "estimated", "another type's", "assumed"}
others = []
for l in said["paper"] + said["measured"]:
    assert set(l["basis"]) == {"value"} | set(l["with"]) and set(l["basis"].values()) <= BASES, l
    if set(l["basis"].values()) != {"derived"}:
        others.append({("this" if k == "value" else k): v for k, v in l["basis"].items() if v != "derived"})
listed = [{n: b for part in m.split("; ") for b in [next(b for b in BASES if part.endswith(" " + b))]
           for n in part[:-len(b) - 1].split(", ")} for m in re.findall(r"^         \[(.*)\]$", text, re.M)]
assert listed == others, (listed, others)

# Text
UNITS = {"ns": 1, "us": 1e3, "ms": 1e6}
NUMBER = r"(-?[0-9.]+(?:e[+-]?[0-9]+)?)"


def parse(section):
    """[(formula, value, terms)] of an explanation's section."""
    out = []
    for id_, formula, rest in re.findall(r"^  (\([^)]*\)) +(.*)\n         = (.*)$", section, re.M):
        rest = rest.split("   with ")[0]
        first, *more = re.split(r" (?=[=+-] )", rest.replace("   = ", " = "))
        number, unit = first.split()[:2]
        scale = UNITS.get(unit, 1)
        terms = {}
        for m in more:
            sign, n, u, name = re.fullmatch(r"([=+-]) " + NUMBER + r" (ns|us|ms|bytes) (.*)", m).groups()
            terms[("-" if sign == "-" else "") + name] = (-1 if sign == "-" else 1) * float(n) * UNITS.get(u, 1)
        out.append((formula, float(number) * scale, terms))
    return out


sections = text.split("\n\n")
coarse = 3e-3  # four digits, three of ns
for title in ("The paper's equations", "Measured cost model"):
    found = [s for s in sections if s.startswith(title)]
    assert len(found) == (0 if paper and title[0] == "M" else 1), title
    for s in found:
        lines = parse(s)
        which = said["paper" if title[0] == "T" else "measured"]
        assert [l[0] for l in lines] == [l["formula"] for l in which]
        (speed_of if (title[0] == "T") == paper else adds_up)(lines, coarse)
table = [s for s in sections if s.startswith("Per layer")][0]
rows = [r.split() for r in table.split("\n") if re.match(r" +[0-9]+ +[0-9]", r)]
assert len(rows) == len(said["layers"])
for r in rows:
    both = float(r.pop(8)) if "ffn_engine_ns" in promised["layers"] else 0
    attention, predict, compute, memory, io, exposed, overlap, total = map(float, r[4:12])
    parts = attention + predict + (compute if paper else max(compute, memory, both)) + io + exposed
    assert abs(parts - overlap - total) <= 0.41, r  # eight figures of one decimal
head = float(re.search(r": " + NUMBER + r" tokens/s, proven", text).group(1))
near(head, promised["tokens_per_s"], 1e-3)
