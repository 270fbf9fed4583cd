#!/bin/bash
# What reading and computing cost each other, from the measurement to the plan: rows of the database, which are shown, exported, imported and
# hashed as all others; explain says that they were measured; a plan of figures that cost more promises no more; without them one formula is
# assumed.
. tests/tap.sh
scratch
. tests/chain.sh
P=$BIN/thermo-plan H=$BIN/thermo-profile
sql() { sqlite3 "$1" "$2" 2> "$tmp/log"; }

# The chain's machine has points of each number of threads, with ratios of what runs alone.
measured()
{
    "$H" show "$hardware" --json > "$tmp/json" && python3 - "$tmp/json" << 'END'
import json, os, sys
d = json.load(open(sys.argv[1]))["devices"][0]
rows, cores = d["joint"], len(os.sched_getaffinity(0))
assert {p["threads"] for p in rows} == {1, cores}, rows
assert all(0 < p["read_rate_ratio"] <= 1 and 0 < p["row_rate_ratio"] <= 1 and p["bytes_per_s_p50"] > 0 for p in rows), rows
assert {p["load_percent"] for p in rows} == {25, 50, 100} and len({p["block_bytes"] for p in rows}) == 3
assert all(p["block_bytes"] * p["queue_depth"] <= 16 << 20 and p["page_bytes"] >= 4096 for p in rows), rows
assert any(c["table"] == "joint" for c in d["conditions"]), d["conditions"]
END
}
check "reads and rows were measured at once" measured
check "show has them" says 0 '^  joint .*of reads' "$H" show "$hardware"

there_and_back()
{
    "$H" export --db "$hardware" --out "$tmp/a.csv" && grep -q ',joint,.*,row_rate_ratio,' "$tmp/a.csv" &&
        "$H" import -q --db "$tmp/back.sqlite" --csv "$tmp/a.csv" && "$H" show "$tmp/back.sqlite" --json > "$tmp/back" || return 1
    python3 - "$tmp/json" "$tmp/back" << 'END'
import json, sys
a, b = (json.load(open(p))["devices"][0] for p in sys.argv[1:])
assert a["joint"] and a["joint"] == b["joint"] and a["hash"] == b["hash"]
END
}
check "exported and imported they are the same, and so is the device" there_and_back
refused() # FIELD VALUE WANT
{
    sed "0,/,joint,\(.*\),$1,[^,]*,/s//,joint,\1,$1,$2,/" "$tmp/a.csv" > "$tmp/bad.csv"
    ! cmp -s "$tmp/a.csv" "$tmp/bad.csv" && says 3 "$3" "$H" import -q --db "$tmp/bad.sqlite" --csv "$tmp/bad.csv"
}
check "a share above 1 is refused" refused read_rate_ratio 1.5 "is not within 0..1"
check "and none" refused row_rate_ratio 0 "is not within 0..1"

# like NAME KEPT ROWS: a copy of the machine's figures with these ratios everywhere; "" leaves nothing of the table.
like()
{
    cp "$hardware" "$tmp/$1.sqlite"
    sql "$tmp/$1.sqlite" "DELETE FROM storage WHERE backend = 'pread' AND EXISTS (SELECT 1 FROM storage WHERE backend = 'io_uring')"
    if [ -n "$2" ]; then
        sql "$tmp/$1.sqlite" "UPDATE joint SET read_rate_ratio = $2, row_rate_ratio = $3"
    else
        sql "$tmp/$1.sqlite" "DELETE FROM joint"
    fi
}
planned()
{
    "$P" solve -q --traces "$traces" --hardware "$tmp/$1.sqlite" --memory 16MiB --context 256 --form split --packed no --cores 1 --rlimit 1 --out "$tmp/$1.json" &&
        "$P" explain "$tmp/$1.json" --traces "$traces" --hardware "$tmp/$1.sqlite" --no-gains --json > "$tmp/$1.x" &&
        "$P" check -q "$tmp/$1.json" --traces "$traces" --hardware "$tmp/$1.sqlite"
}
for x in "free 1.0 1.0" "rows 1.0 0.5" "reads 0.25 1.0" "both 0.25 0.5" "none"; do
    # shellcheck disable=SC2086
    set -- $x
    like "$1" "${2:-}" "${3:-}"
    check "a plan where reads keep ${2:-nobody knows what} and rows ${3:-neither}" planned "$1"
done

in_explain()
{
    python3 - "$tmp" << 'END'
import json, sys
def plan(name):
    x = json.load(open(f"{sys.argv[1]}/{name}.x"))
    by = {}
    for l in x["measured"]:
        if l["id"] == "(M5)":
            by.update({o: (v, l["basis"][o]) for o, v in l["with"].items()})
    plan = json.load(open(f"{sys.argv[1]}/{name}.json"))
    return by, plan["predictions"]["limits"][0]["batches"][0], plan["decisions"]["limits"][0]["io"]["backend"]
names = ("free", "rows", "reads", "both", "none")
of = {n: plan(n) for n in names}
for n in names:
    by, p, backend = of[n]
    basis = "assumed" if n == "none" else "measured"
    assert by["kappa"][1] == basis and by["tau_lost"][1] in (basis, "derived"), (n, by)
    assert p["read_bytes"] > 0
assert of["none"][0]["kappa"][0] == 1 and (of["none"][0]["tau_lost"][0] > 0) == (of["none"][2] == "io_uring"), of["none"]
assert of["free"][0]["kappa"][0] == 1 and of["free"][0]["tau_lost"][0] == 0
assert abs(of["reads"][0]["kappa"][0] - 0.25) < 1e-6 and of["rows"][0]["tau_lost"][0] > 0
speed = {n: of[n][1]["tokens_per_s"] for n in names}
def no_less(a, b): # but for what rounding to whole units gives away, for --rlimit 1 ends with the closed form's
    return speed[a] >= 0.999 * speed[b]
assert no_less("free", "rows") and no_less("rows", "both") and speed["free"] > speed["reads"] and no_less("reads", "both"), speed
print(speed)
END
}
check "explain says what was measured and what is assumed, and no plan promises more where they cost each other more" in_explain
done_testing
