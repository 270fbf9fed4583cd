#!/bin/bash
# thermo-plan with several limits: what their common layout costs each, what a bound is of, and --layout-per-limit. By the published figures
# of a board whose storage wants other layouts at other limits.
. tests/tap.sh
scratch
. tests/chain.sh
P=$BIN/thermo-plan
check "figures of a board" "$BIN/thermo-profile" import -q --db "$tmp/board.sqlite" --csv datasets/devices/jetson-orin-nano-8gb.csv
in=(--traces "$traces" --hardware "$tmp/board.sqlite" --context 256)
solve() { "$P" solve -q "${in[@]}" "$@"; }

check "three limits under one layout" eval 'solve --memory 13MiB,18MiB,26MiB --out "$tmp/one.json" > "$tmp/one.txt"'
check "and each under its own" eval 'solve --memory 13MiB,18MiB,26MiB --layout-per-limit --out "$tmp/own.json" > "$tmp/own.txt"'
check "in files named by limit" test "$(cd "$tmp" && echo own*.json)" = "own-13MiB.json own-18MiB.json own-26MiB.json"
alone() { for l in 13 18 26; do solve --memory ${l}MiB --out "$tmp/alone.json" > /dev/null && cmp "$tmp/alone.json" "$tmp/own-${l}MiB.json" || return 1; done; }
plainly check "which are the plans for one limit, byte for byte" alone
costs() { python3 - "$tmp" "$@" << 'END'
import json, re, sys
def plan(n): return json.load(open(f"{sys.argv[1]}/{n}.json"))
def speed(l): return l["batches"][0]["tokens_per_s"]
one, text = plan("one"), open(sys.argv[1] + "/one.txt").read()
cost = []
for l, name in zip(one["predictions"]["limits"], ("13MiB", "18MiB", "26MiB")):
    own = plan("own-" + name)
    o = l["own_layout"]
    assert o["tokens_per_s"] == speed(own["predictions"]["limits"][0]), (name, o)
    assert (o["form"], o["packed"]) == (own["decisions"]["layout"]["form"], own["decisions"]["layout"]["packed"]), (name, o)
    assert abs(o["cost"] - max(0, 1 - speed(l) / o["tokens_per_s"])) < 1e-5, (name, o, speed(l))
    assert "own_layout" not in own["predictions"]["limits"][0] and "gap_of" not in l
    cost.append(o["cost"])
assert max(cost) > 0.05 and min(cost) < 0.0005, cost
said = [float(x) for x in re.findall(r"one layout for all limits costs ([0-9.]+) % here", text)]
assert said == [round(100 * c, 1) for c in cost if c >= 0.0005], (said, cost)
assert text.count("costs nothing here") == sum(c < 0.0005 for c in cost)
assert text.count("of the best under this layout") == 3
END
}
check "each limit says what the common layout costs it, as text and as JSON" costs
plainly check "solved again, it is the same" "$P" check "$tmp/one.json" "${in[@]}" --memory 13MiB,18MiB,26MiB --solve
dear=$(python3 -c 'import json, sys; p = json.load(open(sys.argv[1])); print(max(
    zip(p["decisions"]["limits"], p["predictions"]["limits"]), key=lambda x: x[1]["own_layout"]["cost"])[0]["memory_bytes"])' \
    "$tmp/one.json")
from=(--traces "$traces" --hardware "$tmp/board.sqlite")
other_cost() { sed '0,/"cost": 0\.[0-9]*/s//"cost": 0.5/' "$tmp/one.json" > "$tmp/bad.json"; cmp -s "$tmp/bad.json" "$tmp/one.json" && return 9
    "$P" check "$tmp/bad.json" "${in[@]}" --memory 13MiB,18MiB,26MiB --solve; }
check "another cost is found" says 5 'limits\[[0-9]\].own_layout.cost' other_cost
check "explain says it" says 0 'one layout for all limits costs [0-9.]* % here: a layout of its own' "$P" explain "$tmp/one.json" --no-gains \
    "${from[@]}" --memory "$dear"
in_json() { "$P" explain "$tmp/one.json" --no-gains "${from[@]}" --memory "$dear" --json |
    python3 -c 'import json, sys; x = json.load(sys.stdin); assert x["own_layout"]["cost"] > 0.05 and x["gap_of"] == "layout", x["gap_of"]'; }
check "as JSON too" in_json
check "a plan of one layout has no other" eval 'solve --memory 13MiB,18MiB --form split --packed no --out "$tmp/f.json" > /dev/null && ! grep -q own_layout "$tmp/f.json"'
proven() { solve --memory 18MiB --prove --out "$tmp/proven.json" | grep -q 'of the best under any layout that was allowed' &&
    grep -q '"gap_of": "layouts"' "$tmp/proven.json" && "$P" check "$tmp/proven.json" "${from[@]}" > /dev/null; }
check "--prove holds for all layouts, and says so" proven
# Elastic groups: what texts depend on is shared, accounts have the group's room, each limit says what that costs it, against the plan without.
elastic() { solve --memory 14MiB,18MiB,26MiB --form split --packed no "$@"; }
check "limits that share what a running model cannot change" elastic --elastic --out "$tmp/elastic.json"
plainly check "and those that do not" elastic --out "$tmp/apart.json"
group()
{
    python3 - "$tmp/elastic.json" "$tmp/apart.json" << 'END'
import json, sys
a, b = (json.load(open(p)) for p in sys.argv[1:])
limits = a['decisions']['limits']
assert a['request']['elastic'] is True and 'elastic' not in b['request'] and not any('elastic' in l for l in b['decisions']['limits'])
for key in 'mode', 'act', 'context', 'kv', 'max_batch', 'prefill_chunk', 'exempt', 'predictors', 'elastic':
    assert all(l[key] == limits[0][key] for l in limits), key
assert len({l['prefill_chunk'] for l in b['decisions']['limits']}) > 1
assert limits[0]['elastic']['queue_depth'] == max(l['io']['queue_depth'] for l in limits)
for x, y in zip(a['predictions']['limits'], b['predictions']['limits']):
    fast, slow = y['batches'][0]['tokens_per_s'], x['batches'][0]['tokens_per_s']
    assert abs(x['elastic']['token_cost'] - max(0, 1 - slow / fast)) < 1e-4, (fast, slow, x['elastic'])
END
}
plainly check "they are a group, of which each says what it costs" group
check "every figure follows" "$P" check "$tmp/elastic.json" "${from[@]}"
plainly check "solved again it is the same" "$P" check "$tmp/elastic.json" "${in[@]}" --solve --elastic --form split --packed no
differ() { says 5 'elastic' "$P" check "$tmp/elastic.json" "${in[@]}" --solve --form split --packed no; }
plainly check "and without the option not" differ
room() { sed '/"elastic": {/,/}/ s/"queue_depth": [0-9]*/"queue_depth": 128/' "$tmp/elastic.json" > "$tmp/bad.json"; "$P" check "$tmp/bad.json"; }
check "room that no limit of the group needs is found" says 3 'the most of its group are' room
alone() { elastic --elastic --memory "$1,18MiB,26MiB" --out "$tmp/near.json" > "$tmp/log" && grep "memory $1: it is in no elastic group" "$tmp/log"; }
check "a limit that has no room for what others need is in none" alone $(($(solve --memory 6MiB --form split --packed no --chunk 1 --out "$tmp/none.json" 2>&1 |
    sed -n 's/.*below the floor of \([0-9]*\) bytes.*/\1/p') + 65536))
check "one limit shares nothing" says 2 'of several limits' elastic --elastic --memory 18MiB --out "$tmp/x.json"
check "nor a layout for each limit" says 2 '--layout-per-limit' solve --memory 13MiB,18MiB --elastic --layout-per-limit --out "$tmp/x.json"
check "--layout-per-limit makes no proof" says 2 'solve each limit by itself' solve --memory 13MiB,18MiB --layout-per-limit --certificate "$tmp/c" --out "$tmp/x.json"
check "and takes no pack's layout" says 2 'give one of them' solve --memory 13MiB,18MiB --layout-per-limit --for-pack "$packed" --out "$tmp/x.json"
below() { says 4 'below the floor' solve --memory 4MiB,18MiB --layout-per-limit --out "$tmp/x.json" && ! ls "$tmp"/x-* 2> /dev/null; }
check "one limit below the floor: nothing is written" below
both_json() { solve --memory 13MiB,18MiB --layout-per-limit --json --out "$tmp/j.json" | python3 -c '
import json, sys
assert json.load(sys.stdin) == [json.load(open(sys.argv[1] + f"/j-{n}MiB.json")) for n in (13, 18)]' "$tmp"; }
plainly check "--json prints them as a list" both_json

sweep() { "$P" sweep -q "${in[@]}" --memory 13MiB..26MiB --steps "$@"; }
curves() { sweep 4 --out "$tmp/one.csv" && sweep 4 --layout-per-limit --out "$tmp/own.csv" --svg "$tmp/own.svg" && python3 - "$tmp" << 'END'
import csv, sys
one, own = (list(csv.DictReader(open(f"{sys.argv[1]}/{n}.csv"))) for n in ("one", "own"))
assert len({(r["form"], r["packed"]) for r in one}) == 1 and len({(r["form"], r["packed"]) for r in own}) > 1
for a, b in zip(one, own):
    assert a["own_tokens_per_s"] == b["tokens_per_s"] and (a["own_form"], a["own_packed"]) == (b["form"], b["packed"])
    assert abs(float(a["common_layout_cost"]) - max(0, 1 - float(a["tokens_per_s"]) / float(b["tokens_per_s"]))) < 1e-4
    assert a["bound_of"] == b["bound_of"] == "layout" and b["own_tokens_per_s"] == ""
assert max(float(a["common_layout_cost"]) for a in one) > 0.05
END
}
if [ -z "${SANITIZE:-}" ]; then
    check "sweep has both curves, and what the common layout costs" curves
else
    check "sweep with a layout for each limit" sweep 2 --layout-per-limit --out "$tmp/own.csv" --svg "$tmp/own.svg"
fi
done_testing
