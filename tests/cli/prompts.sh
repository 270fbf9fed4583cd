#!/bin/sh
# prompts.sh: the prompt sets in datasets/prompts keep what their README promises. The same checks run on
# a few damaged rows first, so that a check that has gone blind shows.
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }
exec python3 - <<'PY'
import csv, io, os, re, sys

HEADER = ["id", "split", "kind", "text"]
KINDS = {"opening", "continuation", "dialogue", "tale"}
SETS = {"profile": ("p", 160, 13000), "eval": ("e", 60, 4500)}
WORDS = (25, 120)
n = failed = 0


def ok(good, what, detail=""):
    global n, failed
    n += 1
    failed += not good
    print(("ok %d - " if good else "not ok %d - ") % n + what)
    if not good and detail:
        print("# " + str(detail)[:300])


def row_faults(row, split, prefix):
    """What is wrong with one row of the file of that split: a list of words, empty when nothing is."""
    if len(row) != len(HEADER):
        return ["columns"]
    rid, rsplit, kind, text = row
    faults = []
    if not re.fullmatch(prefix + r"\d{3}", rid):
        faults.append("id")
    if rsplit != split:
        faults.append("split")
    if kind not in KINDS:
        faults.append("kind")
    if not all(c == "\n" or " " <= c <= "~" for f in row for c in f):
        faults.append("ascii")
    if not WORDS[0] <= len(text.split()) <= WORDS[1]:
        faults.append("length")
    if text != text.strip() or "  " in text or "\n\n" in text or text.count('"') % 2:
        faults.append("text")
    return faults


good = ["p001", "profile", "tale", " ".join(["word"] * 30)]
bad = [("columns", good[:3]), ("id", ["x1"] + good[1:]), ("split", ["p001", "eval"] + good[2:]),
       ("kind", good[:2] + ["poem", good[3]]), ("ascii", good[:3] + [good[3] + " caf\u00e9"]),
       ("length", good[:3] + ["too short"]), ("length", good[:3] + [good[3] + " word" * 91]),
       ("text", good[:3] + [good[3] + ' "open'])]
ok(row_faults(good, "profile", "p") == [], "a sound row passes")
ok(all(row_faults(r, "profile", "p") == [f] for f, r in bad), "each damaged row is found",
   [(f, row_faults(r, "profile", "p")) for f, r in bad])

seen = {}
for split, (prefix, min_rows, min_words) in SETS.items():
    path = "datasets/prompts/stories-%s.csv" % split
    name = os.path.basename(path)
    raw = open(path, "rb").read()
    rows = list(csv.reader(io.StringIO(raw.decode("utf-8"), newline=""), strict=True))
    ok(rows[:1] == [HEADER], name + ": header row", rows[:1])
    rows = rows[1:]
    again = io.StringIO(newline="")
    csv.writer(again, lineterminator="\n").writerows([HEADER] + rows)
    ok(again.getvalue().encode() == raw, name + ": quoted where RFC 4180 needs it, lines end in LF")
    ok(len(rows) >= min_rows, "%s: %d rows or more" % (name, min_rows), len(rows))
    faults = {r[0] if r else "?": f for r in rows for f in [row_faults(r, split, prefix)] if f}
    ok(not faults, name + ": every row has its columns, id, split, kind, ASCII text of %d to %d words"
       % WORDS, faults)
    words = sum(len(r[-1].split()) for r in rows if r)
    ok(words >= min_words, "%s: %d words or more" % (name, min_words), words)
    ok({r[2] for r in rows if len(r) > 2} == KINDS, name + ": has every kind")
    seen[split] = [r for r in rows if len(r) == len(HEADER)]

rows = seen["profile"] + seen["eval"]
ok(len({r[0] for r in rows}) == len(rows), "ids are unique over both sets")


def norm(text):
    return re.findall(r"[a-z0-9']+", text.lower())


ok(len({tuple(norm(r[3])) for r in rows}) == len(rows), "no text occurs twice")
# Nine words in a row that both sets share would be a template, not a coincidence.
grams = {s: {tuple(w[i:i + 9]) for r in seen[s] for w in [norm(r[3])] for i in range(len(w) - 8)} for s in seen}
ok(not grams["profile"] & grams["eval"], "the sets share no run of nine words",
   [" ".join(g) for g in sorted(grams["profile"] & grams["eval"])[:3]])
print("1..%d" % n)
sys.exit(1 if failed else 0)
PY
