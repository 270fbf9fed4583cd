"""devices_check.py sources CSV...                             each figure of device profiles says where it is from
devices_check.py page HTML MD JSON PLANS DEVICE=TERM...     the pages of scripts/devices.py agree with the plans; TERM binds DEVICE (*: any)"""
import csv
import json
import os
import re
import sys
import xml.etree.ElementTree as ET

TERMS = ("compute", "memory bandwidth", "storage", "memory size")


def sources(paths):
    bad = []
    for path in paths:
        with open(path, newline="", encoding="utf-8") as f:
            for line, row in enumerate(csv.DictReader(f), 2):
                text = (row["source"] or "").strip()
                if row["origin"] == "estimated":
                    well = re.match(r"(Derived|Estimate(, an upper bound)?|Unverified): .{10}", text)
                else:
                    well = row["origin"] in ("published", "measured") and len(text) > 10
                    well = well and not text.startswith(("Derived", "Unverified"))
                if not well:
                    bad.append(f"{os.path.basename(path)}:{line}: {row['field']} is '{row['origin']}' by '{text}'")
    print("\n".join(bad))
    return bool(bad)


def longest(path):
    """The term with the largest part of a plan's step, summed here by itself."""
    p = json.load(open(path, encoding="utf-8"))["predictions"]["limits"][0]["batches"][0]
    layers = p["layers"]
    time = dict.fromkeys(TERMS[:3], 0.0)
    work = 0.0
    for i, total in enumerate(layers["total_ns"]):
        ffn = max(layers["ffn_compute_ns"][i], layers["ffn_memory_ns"][i])
        busy = min(total, layers["attention_ns"][i] + layers["predict_ns"][i] + ffn)
        work += busy
        time["storage"] += total - busy
    side = "compute" if sum(layers["ffn_compute_ns"]) >= sum(layers["ffn_memory_ns"]) else "memory bandwidth"
    time[side] += work + p["head_ns"]
    assert abs(sum(time.values()) / p["step_ns"] - 1) < 1e-3, (time, p["step_ns"])
    return max(time, key=time.get), 1e9 / p["step_ns"]


def page(html, markdown, data, plans, wanted):
    whole = json.load(open(data, encoding="utf-8"))
    assert whole["format"] == "thermo-devices" and whole["revision"] == 1
    text = open(html, encoding="utf-8").read()
    assert text.startswith("<!DOCTYPE html>") and "<script" not in text and "http" not in text
    root = ET.fromstring(text.partition("\n")[2])
    rows = {r[0].text: ["".join(c.itertext()) for c in r] for r in root.iter("tr")}
    lines = {line.split(" | ")[0].strip("| "): line for line in open(markdown, encoding="utf-8") if line.startswith("| ")}
    devices = {d["name"]: d for d in whole["devices"]}
    assert len(devices) == len(wanted), (list(devices), wanted)
    for name, term in (w.rsplit("=", 1) for w in wanted):
        d = devices[name]
        assert d["memory_bytes"] >= d["limit_bytes"] > 0 and d["figures"]["published"] > 0 and d["soc"]
        for m in d["models"]:
            assert m["binds"] in TERMS and term in ("*", m["binds"]), (name, m["binds"], term)
            assert m["binds"] in rows[name][-1] and m["binds"] in lines[name], (rows[name], lines[name])
            assert len(rows[name]) == 3 + len(m["plans"])
            for cell, shown in zip(m["plans"], rows[name][2:]):
                file = os.path.join(plans, m["model"], f"{re.sub('[^a-z0-9.]+', '-', name.lower())}-{cell['memory']}.json")
                if cell["outcome"] == "beyond":
                    assert cell["memory_bytes"] > d["limit_bytes"] and shown == "–"
                    continue
                assert cell["memory_bytes"] <= d["limit_bytes"]
                if cell["outcome"] == "infeasible":
                    assert cell["binds"] == "memory size" and "memory size: needs" in shown and cell["needs_bytes"] > cell["memory_bytes"]
                    continue
                assert cell["outcome"] == "planned", cell
                binds, speed = longest(file)
                assert cell["binds"] == binds and binds in shown, (cell, binds, shown)
                assert abs(cell["tokens_per_s"] / speed - 1) < 1e-3 and cell["tokens_per_s_in_memory"] >= cell["tokens_per_s"] * 0.999
                assert abs(sum(cell["share"].values()) - 1) < 1e-3
            best = [c["tokens_per_s"] for c in m["plans"] if c["outcome"] == "planned"]
            assert (m["best"] is None) == (not best)
    return 0


if __name__ == "__main__":
    sys.exit(sources(sys.argv[2:]) if sys.argv[1] == "sources" else page(*sys.argv[2:6], sys.argv[6:]))
