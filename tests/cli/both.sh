#!/bin/bash
# This machine by thermo-probe and by thermo-profile hardware, by turns, three times each: what shares of the figures lie within the spread
# of the other's. It is the same code, so most do, whatever runs beside.
. tests/tap.sh
scratch
quick="--device box --quick --only memory,compute --range 8MiB --memory-range 8MiB --seconds-per-point 0.009 --patience 0 --engine none --types q8_0 -q"
measure()
{
    for i in 1 2 3; do
        "$BIN/thermo-probe" $quick --storage "$tmp" --out "$tmp/probe$i.csv" &&
            "$BIN/thermo-profile" hardware $quick --storage "$tmp" --db "$tmp/$i.sqlite" --csv "$tmp/hardware$i.csv" > /dev/null || return
    done
}
check "three measurements by each" measure
cat > "$tmp/compare.py" << 'END'
import csv, statistics, sys
def read(name):
    by = {}
    for i in "123":
        for r in csv.DictReader(open(f"{sys.argv[1]}/{name}{i}.csv", encoding="utf-8")):
            if r["field"] == "samples":
                by.setdefault((r["table"], r["key"]), []).extend(float(x.split("@")[0]) for x in r["value"].split())
    return by
probe, hardware = read("probe"), read("hardware")
assert probe.keys() == hardware.keys() and len(probe) > 50, (len(probe), len(hardware))
for table in "memory", "compute":
    keys = [k for k in probe if k[0] == table]
    inside = [sum(min(b[k]) <= statistics.median(a[k]) <= max(b[k]) for k in keys) / len(keys) for a, b in ((probe, hardware), (hardware, probe))]
    ratio = statistics.median(statistics.median(probe[k]) / statistics.median(hardware[k]) for k in keys)
    print(f"# {table}: {len(keys)} points; within the other's spread {inside[0]:.0%} of thermo-probe's, {inside[1]:.0%} of hardware's; "
          f"middle ratio {ratio:.3f}")
    assert min(inside) > 0.5 and 0.5 < ratio < 2
END
python3 "$tmp/compare.py" "$tmp" > "$tmp/shares" 2>&1
same=$?
grep '^#' "$tmp/shares"
check "each within the other's spread" sh -c "cat '$tmp/shares'; exit $same"
done_testing
