#!/bin/bash
# A matrix of devices in CI: the commands of docs/ci.md as they stand there, on one of the device profiles and a device that thermo-probe
# measured, in a working tree of links.
. tests/tap.sh
scratch
tree=$tmp/tree
mkdir -p "$tree/build" "$tree/datasets/devices" "$tree/my phones"
for f in * datasets/*; do
    [ -e "$tree/$f" ] || ln -s "$PWD/$f" "$tree/$f"
done
ln -s "$PWD"/build/* "$tree/build/"
rm -f "$tree"/build/plans* "$tree/plans" # links
cp datasets/devices/oneplus-12.csv "$tree/datasets/devices/"
# as_written PREFIX: the command of docs/ci.md that begins so, with the lines that go on further to the right
as_written()
{
    python3 - "$1" << 'END'
import sys
lines = open("docs/ci.md", encoding="utf-8").read().splitlines()
text = [x.strip().removeprefix("- ") for x in lines]
i = next(k for k, x in enumerate(text) if x.startswith(sys.argv[1]))
indent = lambda x: len(x) - len(x.lstrip())
end = i + 1
while lines[end].strip() and indent(lines[end]) > indent(lines[i]):
    end += 1
print(" ".join(x.removesuffix("\\") for x in text[i:end]))
END
}
run() # PREFIX: in the tree, with the programs that are built
{
    local command
    command=$(as_written "$1") && [ -n "$command" ] || return
    echo "$command"
    make() { command "${MAKE:-make}" -o planner -o profiler "$@"; }
    (cd "$tree" && export MAKEFLAGS='' MAKELEVEL='' CC="${CC:-cc}" SANITIZE="${SANITIZE:-}" && eval "$command")
}
# summary EXPRESSION: of plans.json, by name of a plan
summary()
{
    python3 -c 'import json, sys
d = json.load(open(sys.argv[1])); p = {x["name"]: x for x in d["plans"]}
assert eval(sys.argv[2]), json.dumps(d)[:3000]' "$tree/build/plans-report/plans.json" "$1"
}
kept="{'oneplus-12-%dGiB' % n for n in (2, 3, 4)}"

check "a device measured by thermo-probe" "$BIN/thermo-probe" -q --device "my phone" --quick --range 8MiB --memory-range 8MiB \
    --seconds-per-point 0.003 --patience 0 --engine none --storage "$tmp" --out "$tree/my phones/my-phone.csv"
check "make plans" says 0 "3 plans in plans/bamboo-7b" run "make -j4 plans "
check "three limits of the profile" summary "set(p) == $kept and d['exit_status'] == 0"
check "the job of GitHub Actions" says 0 "0 worse, 3 new" run "scripts/plans.py --model"
check "has those of the measured device too" summary "set(p) == $kept | {'my-phone-%dGiB' % n for n in (2, 3, 4)} and d['counts']['plans'] == 6"
check "which are new, and the others the same" summary "all(x['compared'] == ('same' if n in $kept else 'new') for n, x in p.items())"
check "the job of GitLab: nothing is made again" says 0 "0 worse, 3 new" run 'make -j"$(nproc)" plans-check'
check "the same summary" summary "d['counts']['made'] == 0 and d['counts']['plans'] == 6"
done_testing
