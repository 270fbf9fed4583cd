#!/bin/sh
# What the documents name exists: files, functions, rooms, make targets, subcommands, options.
. tests/tap.sh
scratch

documents='README.md docs/ARCHITECTURE.md scripts/help.txt'

# Relative links of the Markdown files.
links()
{
    bad=0
    for d in $(git ls-files '*.md' 2>/dev/null || find . -name '*.md' ! -path './build/*'); do
        for l in $(grep -oE '\]\([^)#: ]+\)' "$d" | sed 's/^](//; s/)$//'); do
            [ -e "$(dirname "$d")/$l" ] || { echo "$d: $l"; bad=1; }
        done
    done
    return $bad
}

targets()
{
    bad=0
    for t in $(cat $documents | grep -oE '\bmake( -j[0-9]*)? [a-z][a-z0-9-]+' | awk '{ print $NF }' | sort -u); do
        grep -hE "^(\.PHONY:|[a-z][a-z0-9 -]*:)" GNUmakefile scripts/*.mk tests/module.mk | tr ' :' '\n\n' |
            grep -qx -e "$t" || case $t in
            runtime | profiler | planner | packer | server) ;;
            *) echo "no target '$t'"; bad=1 ;;
            esac
    done
    return $bad
}

# Every `thermo-x sub --option` of the README is one that the program's help lists.
options()
{
    bad=0
    sed -e ':a' -e '/\\$/N; s/\\\n//; ta' README.md | grep -oE 'build/bin/thermo-[a-z]+ [a-z]+.*' > "$tmp/commands"
    while read -r program command rest; do
        help=$("$BIN/${program##*/}" "$command" --help) || { echo "$program $command"; bad=1; continue; }
        for o in $(echo "$rest" | grep -oE '(^| )--[a-z-]+'); do
            echo "$help" | grep -q -e "$o " -e "$o\$" || { echo "$program $command has no $o"; bad=1; }
        done
    done < "$tmp/commands"
    rm -f "$tmp/commands"
    return $bad
}

# Every `folder/path` in backticks is a file, a folder, a module (NAME.h or NAME.c) or a pattern of them. Words in capitals stand
# for something else. `file`: `name` in a table: the file has the name. Prints what is wrong.
named()
{
    python3 - $(git ls-files '*.md' 2> /dev/null || find . -name '*.md' ! -path './build/*') << 'END'
import glob, os, re, sys
sys.dont_write_bytecode = True
folder = r"(?:common|profiler|planner|packer|runtime|server|schemas|datasets|tests|scripts|docs)/[A-Za-z0-9_./*{},-]*"
def expand(p):
    m = re.search(r"\{([^{}]*)\}", p)
    return [q for x in m.group(1).split(",") for q in expand(p[:m.start()] + x + p[m.end():])] if m else [p]
bad, paths, names = [], 0, 0
for d in sys.argv[1:]:
    if d.endswith("CHANGELOG.md"):
        continue
    for n, line in enumerate(open(d, encoding="utf-8"), 1):
        for code in re.findall(r"`([^`]+)`", line):
            for p in re.findall(r"(?<![\w./-])" + folder, code):
                p = p.rstrip(".,")
                if re.search(r"(^|[/_.-])[A-Z]{2,}($|[/_.-])", p) and not os.path.exists(p):
                    continue
                paths += 1
                for q in expand(p):
                    if not glob.glob(q) and not glob.glob(q + ".[ch]") and not glob.glob(q + ".py"):
                        bad.append(f"{d}:{n}: {q}")
        for path, name in re.findall(r"`(" + folder + r"\.[ch])`(?:, |: )`(\w+)`", line):
            names += 1
            if os.path.exists(path) and not re.search(r"\b%s\b" % name, open(path, encoding="utf-8").read()):
                bad.append(f"{d}:{n}: {path} has no {name}")
print("\n".join(bad) or f"{paths} paths, {names} names")
sys.exit(bool(bad) or paths < 200 or names < 10)
END
}

# The rooms of docs/ARCHITECTURE.md are those of tests/rooms.py.
rooms()
{
    python3 -B - << 'END'
import re, sys
sys.path.insert(0, "tests")
from rooms import ROOMS
want = {f"{f}/{r}".rstrip("/"): sorted(a.split()) for f, rules in ROOMS.items() for r, a in rules.items()}
text = open("docs/ARCHITECTURE.md", encoding="utf-8").read().split("\n## Rooms\n")[1].split("\n## ")[0]
have = {r: sorted(a.split()) for r, a in re.findall(r"^\| `([a-z/]+)` \|([a-z ]*)\|", text, re.M)}
bad = [f"{r}: the page has {have.get(r)}, tests/rooms.py {want.get(r)}" for r in sorted(want.keys() | have.keys()) if have.get(r) != want.get(r)]
print("\n".join(bad))
sys.exit(bool(bad))
END
}

check "links in Markdown files lead somewhere" links
if command -v python3 > /dev/null; then
    check "paths and functions that the documents name exist" named
    check "rooms of docs/ARCHITECTURE.md are those of tests/rooms.py" rooms
else
    skip "paths, functions and rooms of the documents" "python3 is not installed"
fi
check "make targets that the documents name exist" targets
check "commands and options in README.md exist" options
done_testing
