#!/bin/bash
# What a phone is, by a stand-in for its system (tests/preload/phone.c): core classes by capacity, threads that cannot be pinned, O_DIRECT
# that opens and gives other bytes, memory that cannot be locked. Each is said and recorded, and the run goes on with the same text.
. tests/tap.sh
[ -z "$SANITIZE" ] || { echo "1..0 # SKIP sanitizers want to be loaded first"; exit 77; }
command -v sqlite3 > /dev/null || { echo "1..0 # SKIP sqlite3 is not installed"; exit 77; }
scratch
${CC:-cc} -D_GNU_SOURCE -shared -fPIC -O1 -o "$tmp/phone.so" tests/preload/phone.c -ldl 2> "$tmp/log" &&
    LD_PRELOAD=$tmp/phone.so true 2>> "$tmp/log" && [ ! -s "$tmp/log" ] ||
    { echo "1..0 # SKIP no stand-in for a system's calls here: $(head -n 1 "$tmp/log")"; exit 77; }
. tests/chain.sh
P=$BIN/thermo-profile L=$BIN/thermo-plan R=$BIN/thermo-run
sys=$tmp/phone
read -r -a all <<< "$(python3 -c 'import os; print(*sorted(os.sched_getaffinity(0)))')"
quick=(--quick --range 8MiB --memory-range 8MiB --seconds-per-point 0.003 --patience 0 --storage "$tmp")

# core CPU CAPACITY KHZ
core()
{
    local of=$sys/sys/devices/system/cpu/cpu$1
    mkdir -p "$of/cpufreq" && echo "$3" > "$of/cpufreq/cpuinfo_max_freq" && echo schedutil > "$of/cpufreq/scaling_governor" || return
    [ "$2" = - ] || echo "$2" > "$of/cpu_capacity"
}
phone() { env LD_PRELOAD="$tmp/phone.so" PHONE_SYS="$sys" "$@"; } # [NAME=VALUE]... COMMAND...
measure() # DATABASE [NAME=VALUE]...
{
    local db=$1 with=() engine=(--engine none --only memory,compute,storage)
    shift
    for v; do
        if [ "$v" = auto ]; then engine=(); else with+=("$v"); fi
    done
    phone "${with[@]}" "$P" hardware --db "$tmp/$db" --device phone "${quick[@]}" "${engine[@]}" --types q8_0 \
        > "$tmp/out" 2> "$tmp/err" ||
        { cat "$tmp/err"; return 1; }
}
sql() # DATABASE QUERY RESULT
{
    local got
    got=$(sqlite3 "$tmp/$1" "$2")
    [ "$got" = "$3" ] || { echo "$2: $got, not $3"; return 1; }
}
said() { grep -qF -- "$1" "$tmp/err" || { cat "$tmp/err"; return 1; }; }
silent() { ! grep -F -- "$1" "$tmp/err"; }
solve() # DATABASE OUT FLAGS...
{
    local db=$1 out=$2
    shift 2
    "$L" solve -q --traces "$traces" --hardware "$tmp/$db" --memory 18MiB --context 256 --form split --packed no --out "$tmp/$out" "$@" \
        > /dev/null
}
generate() { generate_by env "$@"; }
generate_by() # COMMAND OUT [NAME=VALUE]... -- FLAGS...
{
    local by=$1 out=$2 with=()
    shift 2
    while [ $# -gt 0 ] && [ "$1" != -- ]; do with+=("$1"); shift; done
    shift
    "$by" env LD_PRELOAD="$tmp/phone.so" PHONE_SYS="$sys" "${with[@]}" "$R" generate --model "$packed" -p 'Once upon a time' -n 12 \
        --temp 0 --json "$@" > "$tmp/$out.json" 2> "$tmp/err" &&
        grep -o '"id":[0-9]*' "$tmp/$out.json" > "$tmp/$out" || { cat "$tmp/err"; return 1; }
}
summary() { python3 -c 'import json, sys
v = json.loads(open(sys.argv[1]).readlines()[-1])[sys.argv[2]]
sys.exit(0 if json.dumps(v) == sys.argv[3] else repr(v))' "$tmp/$1.json" "$2" "$3"; }

says_usage() { "$P" hardware --db "$tmp/no.sqlite" --device x "$@" > "$tmp/out" 2> "$tmp/err"; [ $? = 2 ]; }
json() { python3 -c 'import json, sys
d = json.load(open(sys.argv[1])); v = eval(sys.argv[2]); sys.exit(0 if str(v) == sys.argv[3] else repr(v))' "$tmp/$1" "$2" "$3"; }

core "${all[0]}" 1024 3000000
for c in "${all[@]:1}"; do
    core "$c" 400 2900000
done
few=(--plan "$plan" --memory 14MiB)
check "the tokens of this machine" generate here -- "${few[@]}"
check "O_DIRECT that gives other bytes" measure wrong.sqlite PHONE_DIRECT=wrong
check "is found out" sql wrong.sqlite "SELECT direct_verified || substr(notes, 1, 87) FROM run" \
    "0O_DIRECT opens but does not return the file's bytes: reads go through the page cache; g"
check "and no figure says that it was used" sql wrong.sqlite "SELECT sum(direct) FROM storage" 0
for io in pread io_uring; do
    check "a run where it does so, by $io" generate wrong PHONE_DIRECT=wrong -- "${few[@]}" --io $io
    check "says so" said "O_DIRECT does not return the file's bytes here: reads go through the page cache"
    check "with the same tokens" cmp "$tmp/here" "$tmp/wrong"
    check "and records it" summary wrong direct false
done
check "a run where it is refused" generate refused PHONE_DIRECT=refuse -- "${few[@]}"
check "says so" said "O_DIRECT is refused here"
check "with the same tokens" cmp "$tmp/here" "$tmp/refused"

# As an ordinary user has it, for root may lock what it will.
unlocked() { prlimit --memlock=65536:65536 setpriv --bounding-set -ipc_lock "$@"; }
if [ "$(id -u)" != 0 ]; then unlocked() { prlimit --memlock=65536:65536 "$@"; }; fi
if unlocked true 2> /dev/null; then
    for io in pread io_uring; do
        check "64 KiB of memory that may be locked, by $io" generate_by unlocked unlocked -- "${few[@]}" --io $io
        check "are said" said "memory is not locked ("
        check "with the same tokens" cmp "$tmp/here" "$tmp/unlocked"
        check "and recorded" summary unlocked mlocked false
    done
fi
check "where no memory can be locked" generate unlocked PHONE_MLOCK=1 -- "${few[@]}"
check "it is said" said "memory is not locked ("
check "with the same tokens" cmp "$tmp/here" "$tmp/unlocked"

# What figures depend on: noted, and taken along in a CSV.
mkdir -p "$sys/sys/class/power_supply/ac" "$sys/sys/class/power_supply/battery" "$sys/sys/class/thermal/thermal_zone0" "$sys/proc"
echo Mains > "$sys/sys/class/power_supply/ac/type"
echo Battery > "$sys/sys/class/power_supply/battery/type"
echo 83 > "$sys/sys/class/power_supply/battery/capacity"
echo Discharging > "$sys/sys/class/power_supply/battery/status"
echo 41500 > "$sys/sys/class/thermal/thermal_zone0/temp"
printf 'MemTotal: 11534336 kB\nMemFree: 1 kB\nMemAvailable: 2097152 kB\n' > "$sys/proc/meminfo"
noted="governor schedutil; battery 83 %, Discharging; 41.5 C at the start; memory available 2.0 GiB"
check "a phone on battery" measure state.sqlite
check "is noted so" sql state.sqlite "SELECT notes FROM run" "$noted"
check "its CSV has that with each figure" sh -c "'$P' export --db '$tmp/state.sqlite' | tail -n +2 | grep -cvF '; $noted' | grep -qx 0"
check "thermo-probe's too" sh -c "LD_PRELOAD='$tmp/phone.so' PHONE_SYS='$sys' '$BIN/thermo-probe' --device x ${quick[*]} --only memory |
    tail -n +2 | grep -cvF '; $noted' | grep -qx 0"
# What Android's low memory killer keeps free: lmkd's levels, or those of a kernel of before.
kept() # NAME BYTES
{
    measure "$1.sqlite" && sql "$1.sqlite" "SELECT available_bytes FROM device" "$2"
}
check "memory that is available" sql state.sqlite "SELECT available_bytes FROM device" 2147483648
mkdir -p "$sys/sys/module/lowmemorykiller/parameters" "$sys/system/bin" "$sys/proc/self"
echo 0 > "$sys/proc/self/oom_score_adj"
echo 1000,2000,9000 > "$sys/sys/module/lowmemorykiller/parameters/minfree"
echo 0,100,906 > "$sys/sys/module/lowmemorykiller/parameters/adj"
page=$(getconf PAGESIZE)
check "less what a kernel's killer keeps free of an application in front" kept killer $((2147483648 - 1000 * page))
printf '#!/bin/sh\n[ "$1" = sys.lmk.minfree_levels ] && echo 18432:0,23040:100,27648:200,80640:950\n' > "$sys/system/bin/getprop"
chmod +x "$sys/system/bin/getprop"
echo 200 > "$sys/proc/self/oom_score_adj"
check "lmkd's levels go before, and a process in the background is ended sooner" kept lmkd $((2147483648 - 27648 * page))
check "it is noted" sql lmkd.sqlite "SELECT notes LIKE '%; memory available 2.0 GiB; kept free by Android %' FROM run" 1
check "and shown" sh -c "'$P' show '$tmp/lmkd.sqlite' | grep -q 'available when it was measured 1.9 GiB'"
carried()
{
    "$P" export -q --db "$tmp/lmkd.sqlite" --out "$tmp/lmkd.csv" && "$P" import -q --db "$tmp/lmkd2.sqlite" --csv "$tmp/lmkd.csv" > /dev/null &&
        sql lmkd2.sqlite "SELECT available_bytes FROM device" $((2147483648 - 27648 * page))
}
check "a CSV has it" carried
unlimited() # DATABASE OUT: the limit of a plan that was asked for none
{
    "$L" solve -q --traces "$traces" --hardware "$tmp/$1" --context 256 --form split --packed no --out "$tmp/$2" > /dev/null 2> "$tmp/err"
}
check "a plan without --memory" unlimited lmkd2.sqlite own.json
check "is for seven eighths of it" json own.json 'd["decisions"]["limits"][0]["memory_bytes"]' $(((2147483648 - 27648 * page) * 7 / 8))
limitless() { ! unlimited "$@" && said "--memory is needed"; }
"$P" import -q --db "$tmp/published.sqlite" --csv datasets/devices/oneplus-12.csv > /dev/null
check "a device of which nothing of the kind is known needs --memory" limitless published.sqlite no.json
rm -r "$sys/system" "$sys/sys/module" "$sys/proc/self"
# Memory that is available, not what is installed.
printf 'MemTotal: 11534336 kB\nMemFree: 1 kB\nMemAvailable: 32768 kB\n' > "$sys/proc/meminfo"
little()
{
    ! phone "$BIN/thermocline" "$model" -p x --context 4096 --cache "$tmp/cache" > "$tmp/out" 2> "$tmp/err" &&
        said "of the 32.0 MiB that are available"
}
check "thermocline's own limit is of what is available" little
rm "$sys/proc/meminfo"

# Minutes under load: figures that last beside the first ones. The clock doubles its pace once the first ones are there.
hot() # DATABASE FLAGS...
{
    local db=$1
    shift
    rm -f "$tmp/hot"
    phone PHONE_HOT="$tmp/hot" "$P" hardware --db "$tmp/$db" --device phone "${quick[@]}" -vv --only memory,compute,storage \
        --types q8_0,f16 "$@" 2>&1 > "$tmp/out" | tee "$tmp/err" | while read -r line; do case $line in *"work: "*) : > "$tmp/hot" ;; esac; done
    [ "${PIPESTATUS[0]}" = 0 ] || { tail -n 3 "$tmp/err"; return 1; }
}
check "three seconds under load" hot hot.sqlite --minutes 0.05
check "said, with the heat" grep -Eq "sustained figures after 0.05 minutes under load, which ended at [0-9]+ % of its first rate and 41.5 C" \
    "$tmp/err"
check "and noted" sql hot.sqlite "SELECT notes LIKE '%; sustained figures after 0.05 minutes under load%' FROM run" 1
check "what is typical is the first samples', what lasts the later ones'" python3 - "$tmp/hot.sqlite" << 'END'
import sqlite3, statistics, sys
db = sqlite3.connect(sys.argv[1])
def at(v, q):
    v = sorted(v)
    x = q * (len(v) - 1)
    i = min(int(x), len(v) - 2)
    return v[i] + (v[i + 1] - v[i]) * (x - i)
n, by = 0, []
for table, column in (("memory", "bytes_per_s"), ("storage", "bytes_per_s"), ("compute", "ns_per_row")):
    for row, p10, p50, p90 in db.execute(f"SELECT id, {column}_p10, {column}_p50, {column}_p90 FROM {table}"):
        v = [x for x, in db.execute("SELECT value FROM sample WHERE table_name = ? AND row_id = ? ORDER BY seq", (table, row))]
        assert len(v) == 6, (table, row, len(v))
        want = at(v[:3], .5)
        for got, must in ((p50, want), (p10, min(want, at(v[3:], .1))), (p90, max(want, at(v[3:], .9)))):
            assert abs(got - must) <= 1e-9 * must, (table, row, got, must, v)
        by.append(at(v[3:], .5) / want if table == "compute" else want / at(v[3:], .5))
        n += 1
assert n > 10 and 1.4 < statistics.median(by) < 3, (n, statistics.median(by))
END
speed() { # OUT FIGURES: tokens/s
    solve hot.sqlite "$1" --figures "$2" && python3 -c 'import json, sys
print(json.load(open(sys.argv[1]))["predictions"]["limits"][0]["batches"][0]["tokens_per_s"])' "$tmp/$1"
}
slower()
{
    python3 -c 'import sys; sys.exit(0 if 0.25 < float(sys.argv[2]) / float(sys.argv[1]) < 0.8 else repr(sys.argv))' \
        "$(speed cool.json typical)" "$(speed warm.json sustained)"
}
check "a plan by what lasts promises less" slower
travels()
{
    "$P" export --db "$tmp/hot.sqlite" --out "$tmp/hot.csv" -q && "$P" import -q --db "$tmp/hot2.sqlite" --csv "$tmp/hot.csv" > /dev/null &&
        solve hot2.sqlite warm2.json --figures sustained && cmp "$tmp/warm.json" "$tmp/warm2.json"
}
check "and is the same by the CSV" travels
calibrated()
{
    mkdir "$tmp/device" && generate warm.run -- --plan "$tmp/warm.json" && cp "$tmp/hot.sqlite" "$tmp/device/hw.sqlite" || return
    cp "$tmp/warm.json" "$tmp/device/plan.json" && cp "$tmp/warm.run.json" "$tmp/device/run.jsonl" &&
        scripts/device.sh calibrate --name phone --over local --at "$tmp/device" --out "$tmp/device" --traces "$traces" \
            > "$tmp/out" 2> "$tmp/err" && said "nothing is entered" && sql device/hw.sqlite "SELECT count(*) FROM calibration" 0
}
check "device.sh compares a run by it, and enters no factors" calibrated
check "minutes that are none" says_usage --minutes -1
check "a dry run counts them" sh -c "'$P' hardware --db '$tmp/dry.sqlite' --device x ${quick[*]} --minutes 10 --dry-run --only memory --json |
    python3 -c '
import json, sys
sys.exit(not 600 < json.load(sys.stdin)[\"seconds\"] < 700)'"

engines() { phone PHONE_VENDOR=1 "$R" engines > "$tmp/out" 2> "$tmp/err"; cat "$tmp/out" >> "$tmp/err"; }
tells() { engines; said "$@"; }
check "no OpenCL" tells "there is no OpenCL"
mkdir -p "$sys/vendor/lib64"
echo "no library" > "$sys/vendor/lib64/libOpenCL.so"
check "a vendor's OpenCL that may not be loaded is named" tells \
    "the vendor's OpenCL is there, and this process may not or cannot load it: $sys"
check "a probe says so and goes on" measure vendor.sqlite PHONE_VENDOR=1 auto
check "with that reason" said "accelerators are not measured: the vendor's OpenCL is there"
printf 'int clNothing(void) { return 0; }\n' > "$tmp/cl.c"
${CC:-cc} -shared -fPIC -o "$sys/vendor/lib64/libOpenCL.so" "$tmp/cl.c"
check "one that can be is loaded" tells "the OpenCL library lacks clGetPlatformIDs"
rm -r "$sys/vendor"

if [ ${#all[@]} -gt 1 ]; then
    check "cores that differ by capacity alone" measure hw.sqlite
    check "are classes, the strong one first" sql hw.sqlite \
        "SELECT group_concat(name || n_cores || ' ' || max_hz, ',') FROM (SELECT * FROM core_class ORDER BY rank)" \
        "big1 3000000000,little$((${#all[@]} - 1)) 2900000000"
    check "each is measured" sql hw.sqlite "SELECT count(DISTINCT core_class_id) FROM compute WHERE core_class_id IS NOT NULL" 2
    check "pinning that is refused" measure unpinned.sqlite PHONE_PIN=refuse
    check "is said" said "threads cannot be pinned to CPU ${all[0]} (Operation not permitted): all cores are one class"
    check "its cores are one class" sql unpinned.sqlite "SELECT group_concat(name || n_cores) FROM core_class" "cpu${#all[@]}"
    check "threads that are moved" measure moved.sqlite PHONE_PIN=move
    check "are found out" said "(it moves them): all cores are one class"
    sed -e '/class=little/d; /engine=npu/d; /npu;pattern/d' -e "/class=mid,n_cores/s/,5,/,$((${#all[@]} - 1)),/" \
        -e 's/threads=6/threads=2/' \
        datasets/devices/oneplus-12.csv > "$tmp/two.csv"
    "$P" import -q --db "$tmp/two.sqlite" --csv "$tmp/two.csv" > /dev/null
    check "a plan by classes" solve two.sqlite classes.json
    check "has two" json classes.json 'len(d["decisions"]["limits"][0]["classes"])' 2
    check "a run by it" generate pinned -- --plan "$tmp/classes.json"
    check "is pinned" summary pinned pinned true
    check "and silent about it" silent "does not leave threads"
    check "a run where pinning is refused" generate refused PHONE_PIN=refuse -- --plan "$tmp/classes.json"
    check "says so" said "the system does not leave threads on the cores that the plan has them on (Operation not permitted)"
    check "and records it" summary refused pinned false
    check "with the same tokens" cmp "$tmp/pinned" "$tmp/refused"
    check "a run whose threads are moved" generate moved PHONE_PIN=move -- --plan "$tmp/classes.json"
    check "says so too" said "(they are found on others)"
    check "a plan of one class" solve unpinned.sqlite one.json
    check "places no thread" generate placed PHONE_PIN=refuse -- --plan "$tmp/one.json"
    check "and says nothing" silent "does not leave threads"
    # Another class has the same clock, and none a capacity: by frequency alone.
    for c in "${all[@]}"; do
        rm -f "$sys/sys/devices/system/cpu/cpu$c/cpu_capacity"
    done
    check "without capacities clocks within a tenth" measure clocks.sqlite
    check "are one class" sql clocks.sqlite "SELECT group_concat(name || n_cores) FROM core_class" "cpu${#all[@]}"
fi
done_testing
