#!/usr/bin/env python3
"""format_check.py FILE...: report where C sources leave the repository's style; exit 1 if any does.

Hard rules, which tests/check-lines.sh enforces: no tabs, no trailing blanks, no carriage returns, a final newline, lines
of at most 140 columns, files of at most 1000 lines. Beyond them this is a report only. From clang-format (.clang-format)
two things are taken: the spacing between tokens, and the indentation. Where lines break and how tables and comments
align is left to the hand that wrote them. Nothing is rewritten.
"""
import difflib
import re
import subprocess
import sys

COLUMNS, LINES = 140, 1000


def words(text):
    """The text as words and the line each came from: runs of blanks and newlines count as one blank."""
    out = []
    for number, line in enumerate(text.split("\n"), 1):
        line = re.sub(r"\s*\\$", "", line)
        out += [(w, number) for w in line.split()]
    return [w for w, _ in out], [n for _, n in out]


def check(path):
    raw = open(path, "rb").read()
    text = raw.decode()
    found = []
    if not raw.endswith(b"\n"):
        found.append((0, "no newline at the end"))
    lines = text.split("\n")
    if len(lines) > LINES + 1:
        found.append((len(lines), f"{len(lines) - 1} lines; at most {LINES}"))
    for number, line in enumerate(lines, 1):
        for bad, what in (("\t", "tab"), ("\r", "carriage return")):
            if bad in line:
                found.append((number, what))
        if line != line.rstrip():
            found.append((number, "trailing blanks"))
        if len(line) > COLUMNS:
            found.append((number, f"{len(line)} columns; at most {COLUMNS}"))

    wanted = subprocess.run(["clang-format", "--style=file", path], check=True, capture_output=True,
                            text=True).stdout
    have, at = words(text)
    want, _ = words(wanted)
    for tag, a, b, c, d in difflib.SequenceMatcher(None, have, want, autojunk=False).get_opcodes():
        if tag != "equal":
            line = at[a] if a < len(at) else len(lines)
            found.append((line, f"spacing: '{' '.join(have[a:b])}' should be '{' '.join(want[c:d])}'"))
    # Indentation is compared where a statement starts on the same line in both.
    indent = {}
    for line in wanted.split("\n"):
        indent.setdefault(" ".join(line.split()), set()).add(len(line) - len(line.lstrip()))
    for number, line in enumerate(lines, 1):
        key = " ".join(line.split())
        if key and key in indent and len(line) - len(line.lstrip()) not in indent[key]:
            found.append((number, f"indentation: {len(line) - len(line.lstrip())} columns instead of "
                                  f"{sorted(indent[key])[0]}"))
    for number, what in sorted(found):
        print(f"{path}:{number}: {what}")
    return len(found)


def main():
    bad = sum(check(p) > 0 for p in sys.argv[1:])
    print(f"{len(sys.argv) - 1 - bad} files in style, {bad} not")
    return bad > 0


sys.exit(main())
