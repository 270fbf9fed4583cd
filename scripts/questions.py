#!/usr/bin/env python3
"""Ask packed models a hundred short questions and count the right answers.

usage: questions.py [--questions FILE] [--bin DIR] [--answers FILE] [--json] NAME=PACK,PLAN...

The questions are a table with the columns id, text and answer (datasets/prompts/questions.csv): answer holds regular expressions with
';' between them, and an answer is right where one of them is found in it, whatever the case. Each model is asked with its own chat
template, greedily, 48 tokens at most. The first model is what the others are compared with: how often both are right, and how many of
the words that it begins with are the same. --answers writes all answers side by side as a table.
"""
import argparse
import csv
import io
import json
import os
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import outputs  # noqa: E402  (beside this file)

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def ask(run, pack, plan, questions):
    with tempfile.TemporaryDirectory() as d:
        out = os.path.join(d, "answers")
        r = subprocess.run([run, "generate", "-q", "--model", pack, "--plan", plan, "--prompts", questions, "--chat", "--temp", "0", "-n", "48",
                            "--seed", "1", "--output", out])
        if r.returncode:
            sys.exit("questions.py: thermo-run ended with status %d" % r.returncode)
        with open(out) as f:
            results = [json.loads(line) for line in f]
    return [r["text"].strip() for r in results if r["type"] == "result"]


def same_words(a, b):
    n = 0
    for x, y in zip(a.split(), b.split()):
        if x != y:
            break
        n += 1
    return n


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="+", metavar="NAME=PACK,PLAN")
    p.add_argument("--questions", default=os.path.join(ROOT, "datasets/prompts/questions.csv"), help="a table: id, text, answer")
    p.add_argument("--bin", default=os.path.join(ROOT, "build/bin"), help="where thermo-run is")
    p.add_argument("--answers", metavar="FILE", help="write all answers side by side, as a table")
    p.add_argument("--json", action="store_true", help="counts as JSON on stdout")
    a = p.parse_args()
    outputs.refuse([a.answers], [a.questions] + [f for m in a.models for f in m.partition("=")[2].split(",", 1)])
    with open(a.questions, newline="") as f:
        rows = list(csv.DictReader(f))
    if not rows or not all(r.get("text") and r.get("answer") for r in rows):
        sys.exit("questions.py: '%s' has no columns text and answer, or empty fields" % a.questions)
    names, answers = [], []
    for m in a.models:
        found = re.fullmatch(r"([^=]+)=([^,]+),(.+)", m)
        if not found:
            sys.exit("questions.py: '%s' is not NAME=PACK,PLAN" % m)
        names.append(found[1])
        answers.append(ask(os.path.join(a.bin, "thermo-run"), found[2], found[3], a.questions))
        if len(answers[-1]) != len(rows):
            sys.exit("questions.py: %s: %d answers to %d questions" % (found[1], len(answers[-1]), len(rows)))
    right = [[any(re.search(x, t, re.I) for x in row["answer"].split(";")) for row, t in zip(rows, ts)] for ts in answers]
    table = [{"name": n, "questions": len(rows), "right": sum(ok), "right_with_first": sum(x and y for x, y in zip(ok, right[0])),
              "same_answer": sum(x == y for x, y in zip(ts, answers[0])),
              "same_words": round(sum(same_words(x, y) for x, y in zip(ts, answers[0])) / len(rows), 1)}
             for n, ok, ts in zip(names, right, answers)]
    if a.answers:
        f = io.StringIO(newline="")
        w = csv.writer(f, lineterminator="\n")
        w.writerow(["id", "question"] + [c for n in names for c in (n, n + " right")])
        for i, row in enumerate(rows):
            w.writerow([row.get("id", i), row["text"]] + [c for ts, ok in zip(answers, right) for c in (ts[i], int(ok[i]))])
        outputs.write_whole(a.answers, f.getvalue(), newline="")
    if a.json:
        print(json.dumps(table))
        return
    print("%-16s %9s %6s %17s %12s %11s" % ("model", "questions", "right", "right with first", "same answer", "same words"))
    for t in table:
        print("%-16s %9d %6d %17d %12d %11.1f" % tuple(t.values()))


if __name__ == "__main__":
    main()
