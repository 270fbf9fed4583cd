#!/bin/bash
# thermo-plan explain says of each figure where it comes from: this machine's measured ones, published ones of a phone, those of another type
# where a type was not measured, and what is taken as nothing.
. tests/tap.sh
scratch
. tests/chain.sh
P=$BIN/thermo-plan
"$BIN/thermo-profile" import -q --db "$tmp/phone.sqlite" --csv datasets/devices/oneplus-12.csv || exit 1
explained() # DATABASE NAME OPTIONS...
{
    "$P" solve -q --traces "$traces" --hardware "$1" --memory 16MiB --context 256 --form split --packed no "${@:3}" --out "$tmp/$2.json" > "$tmp/log" 2>&1 &&
        "$P" explain "$tmp/$2.json" --traces "$traces" --hardware "$1" --no-gains --json > "$tmp/$2.x" 2> "$tmp/log" || { cat "$tmp/log"; return 1; }
}
says_of() # NAME FIGURE=BASIS...
{
    python3 - "$tmp/$1.x" "${@:2}" << 'END'
import json, sys
x = json.load(open(sys.argv[1]))
bases = {}
for l in x["measured"] + x["paper"]:
    for name, basis in l["basis"].items():
        bases.setdefault(name if name != "value" else l["formula"].split(":")[0], set()).add(basis)
for want in sys.argv[2:]:
    name, basis = want.split("=")
    assert bases[name] == {basis}, (name, bases[name], basis)
END
}
check "a plan for this machine" explained "$hardware" here
check "its figures were measured; counts and times that follow are derived" says_of here B_seq=measured tau_gate=measured tau_down=measured \
    tau_norm=measured gates=derived lookups=derived t_step=derived
check "a plan for a phone that others measured" explained "$tmp/phone.sqlite" phone
check "its figures are published or estimated, and what is not there is assumed" says_of phone B_io=estimated B_seq=published tau_norm=assumed tau_lookup=assumed
# Without rows of the model's own type, another's stand for them.
cp "$hardware" "$tmp/less.sqlite" && sqlite3 "$tmp/less.sqlite" "DELETE FROM compute WHERE kernel IN ('rows/f16/f32', 'axpy/f16')" 2> "$tmp/log"
check "a plan without figures of the model's type" explained "$tmp/less.sqlite" less
check "another type's are named as such, or assumed" python3 - "$tmp/less.x" << 'END'
import json, sys
bases = {n: b for l in json.load(open(sys.argv[1]))["measured"] for n, b in l["basis"].items()}
assert bases["tau_gate"] in ("another type's", "assumed") and bases["tau_down"] in ("another type's", "assumed") and bases["B_seq"] == "measured", bases
END
done_testing
