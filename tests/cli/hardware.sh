#!/bin/sh
# hardware and import: a database as its schema says, every refusal with its exit status and place.
. tests/tap.sh
scratch
P=$BIN/thermo-profile
db=$tmp/hw.sqlite
mkdir "$tmp/drive"

says() # STATUS TEXT COMMAND...: exits so, says so on stderr, prints nothing
{
    want=$1 text=$2
    shift 2
    "$@" > "$tmp/out" 2> "$tmp/err"
    got=$?
    [ $got -eq "$want" ] && grep -qF -- "$text" "$tmp/err" && [ ! -s "$tmp/out" ] ||
        { echo "exit $got, not $want: $(cat "$tmp/err" "$tmp/out")"; return 1; }
}

sql()
{
    [ "$(sqlite3 "$db" "$1")" = "$2" ] || { echo "$1: $(sqlite3 "$db" "$1"), not $2"; return 1; }
}

measure()
{
    "$P" hardware --db "$db" --device box --storage "$tmp/drive" --quick --range 16MiB --memory-range 8MiB --seconds-per-point 0.003 --patience 0 \
        --description "a test, quickly" > "$tmp/out" && grep -q GFLOP/s "$tmp/out" && grep -q GB/s "$tmp/out"
}

schema_is_the_file()
{
    sqlite3 "$tmp/ref.sqlite" < schemas/hwdb.sql && sqlite3 "$tmp/ref.sqlite" .schema > "$tmp/ref" &&
        sqlite3 "$db" .schema > "$tmp/has" && cmp "$tmp/ref" "$tmp/has" &&
        sql 'PRAGMA user_version' "$(sqlite3 "$tmp/ref.sqlite" 'PRAGMA user_version')" &&
        sql 'PRAGMA application_id' "$(sqlite3 "$tmp/ref.sqlite" 'PRAGMA application_id')" &&
        sql 'PRAGMA integrity_check' ok && sql 'PRAGMA foreign_key_check' ''
}

# What each table was measured under is there, watched where the system tells.
conditions()
{
    sql "SELECT group_concat(table_name) FROM (SELECT table_name FROM conditions ORDER BY 1)" compute,joint,memory,storage &&
        sql "SELECT count(*) FROM conditions c JOIN run r ON r.id = c.run_id WHERE c.measured_at <> r.started_at" 0 &&
        sql "SELECT count(*) FROM conditions WHERE marks IS NULL" "$(grep -q '^cpu0' /proc/stat && echo 0 || echo 4)"
}

every_point_has_its_samples()
{
    for t in compute memory storage joint; do
        sql "SELECT count(*) > 0 FROM $t" 1 &&
            sql "SELECT count(*) FROM $t p WHERE (SELECT count(*) FROM sample WHERE table_name = '$t' AND row_id = p.id) <> $([ "$t" = joint ] && echo 5 || echo 3)" 0 ||
            return 1
    done
    sql "SELECT count(*) FROM storage WHERE latency_ns_p50 > latency_ns_p99 OR cpu_ns_per_read IS NULL" 0 &&
        sql "SELECT count(*) FROM storage p WHERE bytes_per_s_p50 NOT BETWEEN
             (SELECT min(value) FROM sample WHERE table_name = 'storage' AND row_id = p.id) AND
             (SELECT max(value) FROM sample WHERE table_name = 'storage' AND row_id = p.id)" 0
}

views_answer()
{
    for v in v_compute v_memory v_storage v_joint v_accelerator v_origin v_conditions; do
        sqlite3 "$db" "SELECT * FROM $v" > /dev/null || return 1
    done
}

# Measuring one table again keeps the others, and what was there before.
again()
{
    before=$(sqlite3 "$db" 'SELECT count(*) FROM memory')
    "$P" hardware --db "$db" --device box --only memory --quick --memory-range 8MiB --seconds-per-point 0.003 --patience 0 --json > "$tmp/json" &&
        sql 'SELECT count(*) FROM run' 2 && sql 'SELECT count(*) FROM memory' $((2 * before)) &&
        python3 - "$tmp/json" <<'PY'
import json, sys
d = json.load(open(sys.argv[1]))['devices'][0]
assert d['name'] == 'box' and d['storage_points'] and d['compute'] and d['memory'] and len(d['hash']) == 32
assert all(p['bytes_per_s_p50'] > 0 for p in d['storage_points'])
for p in d['storage_points']: # a ring tells how many reads end together, of one all
    assert ('batch_completion_share' in p) == (p['backend'] == 'io_uring'), p
    assert p.get('page_bytes', 4096) >= 4096, p
    assert ('uncached_destination_ratio' in p) == (p['backend'] == 'io_uring' and p['pattern'] == 'random' and p['lanes'] == 1 and p['queue_depth'] <= 32 and
                              p['range_bytes'] == max(q['range_bytes'] for q in d['storage_points'])), p
    assert 0 < p.get('uncached_destination_ratio', 1) <= 1, p
    assert 'batch_completion_share' not in p or 1 / p['queue_depth'] <= p['batch_completion_share'] + 1e-9 <= 1 + 1e-9 and (p['queue_depth'] > 1 or p['batch_completion_share'] == 1), p
PY
}

# The pages that reads arrive in are the database's, and a CSV file's, and show says them.
without_huge_pages()
{
    small_pages "$P" hardware -q --db "$tmp/small.sqlite" --device box --storage "$tmp/drive" --only storage --quick --range 8MiB --seconds-per-point 0.003 --patience 0 &&
        "$P" show "$tmp/small.sqlite" > "$tmp/out" && grep -q 'reads into *pages of 4.0 KiB' "$tmp/out" &&
        "$P" export --db "$tmp/small.sqlite" --out "$tmp/small.csv" && grep -q ',page_bytes,4096,B,' "$tmp/small.csv" &&
        "$P" import -q --db "$tmp/small2.sqlite" --csv "$tmp/small.csv" && "$P" show "$tmp/small2.sqlite" | grep -q 'reads into *pages of 4.0 KiB'
}

dry_run()
{
    "$P" hardware --db "$tmp/none.sqlite" --device box --storage "$tmp/drive" --engine none --dry-run --json > "$tmp/json" &&
        "$P" hardware --db "$tmp/none.sqlite" --device box --storage "$tmp/drive" --engine none --dry-run --json --quick --patience 7 > "$tmp/json2" &&
        [ ! -e "$tmp/none.sqlite" ] && [ -z "$(ls -A "$tmp/drive")" ] && python3 - "$tmp/json" "$tmp/json2" <<'PY'
import json, sys
d = json.load(open(sys.argv[1]))
assert [t['table'] for t in d['tables']] == ['storage', 'memory', 'compute', 'joint', 'work']
assert d['disk_bytes'] == 4 << 30 or abs(d['disk_bytes'] - d['disk_free_bytes'] / 2) < 1 << 30, d # others write meanwhile
assert 10 < d['seconds'] < 600 and abs(d['seconds_at_most'] - 2 * d['seconds']) < 1e-3 * d['seconds']
q = json.load(open(sys.argv[2]))
assert q['disk_bytes'] == 128 << 20 and abs(q['seconds_at_most'] - q['seconds'] - 7) < 1e-3
PY
}

# Beside a busy program on every processor: it waits as long as its patience, says so, and marks what it measured. The mark
# follows from the others' CPU time alone, however fast this machine is.
busy()
{
    hogs=
    for i in $(seq "$(nproc)"); do
        sh -c 'while :; do :; done' & hogs="$hogs $!"
    done
    "$P" hardware --db "$tmp/busy.sqlite" --device box --storage "$tmp/drive" --only compute --types q8_0 --quick --memory-range 8MiB \
        --seconds-per-point 0.003 --patience 0.6 > "$tmp/out" 2> "$tmp/err"
    got=$?
    kill $hogs
    [ $got -eq 0 ] && grep -q 'other programs took up to .* waiting until it is quiet' "$tmp/err" &&
        grep -q 'compute: not measured on a quiet machine, and marked so: other programs took' "$tmp/err" &&
        grep -q 'measured  *compute .*not clean: other programs took' "$tmp/out" || { echo "exit $got"; cat "$tmp/err" "$tmp/out"; return 1; }
    "$P" show --json "$tmp/busy.sqlite" > "$tmp/json" && python3 - "$tmp/json" <<'PY'
import json, sys
c, = json.load(open(sys.argv[1]))['devices'][0]['conditions']
assert c['table'] == 'compute' and c['watched'] and 'others' in c['marks'] and c['others'] > 0.1 and c['disturbed'] > 0, c
assert 0.4 < c['paused_s'] < 0.7, c
PY
}

# Stopped in the first pass: status 130, no database, nothing on the drive.
interrupted()
{
    "$P" hardware --db "$tmp/int.sqlite" --device box --storage "$tmp/drive" --range 32MiB 2> "$tmp/err" & pid=$!
    caught $pid
    sleep 0.2
    kill -TERM $pid
    wait $pid
    got=$?
    [ $got -eq 130 ] && grep -q 'nothing was kept' "$tmp/err" && [ ! -e "$tmp/int.sqlite" ] && [ -z "$(ls -A "$tmp/drive")" ] ||
        { echo "exit $got: $(cat "$tmp/err"; ls -A "$tmp/drive")"; return 1; }
}

# An import into the same new database while a measurement runs, which is then stopped: what the import wrote stays.
interrupted_beside()
{
    mkdir "$tmp/beside"
    "$P" hardware --db "$tmp/beside.sqlite" --device box --storage "$tmp/beside" --range 32MiB 2> "$tmp/err" & pid=$!
    caught $pid
    "$P" import --db "$tmp/beside.sqlite" --csv datasets/devices/oneplus-12.csv
    imported=$?
    kill -TERM $pid
    wait $pid
    got=$?
    [ $imported -eq 0 ] && [ $got -eq 130 ] && "$P" show "$tmp/beside.sqlite" | grep -q '^OnePlus 12$' ||
        { echo "exit $imported, $got: $(cat "$tmp/err")"; ls "$tmp"; return 1; }
}

# hold DB UNTIL: another program holds DB locked for writing, from now until it can open the pipe UNTIL, or reads the word
# "waiting" in the file UNTIL.
hold()
{
    rm -f "$tmp/held"
    mkfifo "$tmp/held"
    python3 - "$1" "$tmp/held" "$2" << 'PY' &
import os, sqlite3, stat, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute('BEGIN IMMEDIATE')
open(sys.argv[2], 'w').close()
if stat.S_ISFIFO(os.stat(sys.argv[3]).st_mode):
    open(sys.argv[3]).close()
else:
    while 'waiting' not in open(sys.argv[3]).read():
        time.sleep(0.02)
db.execute('COMMIT')
PY
    holder=$!
    cat "$tmp/held" # ends once the lock is taken
}

locked()
{
    cp "$db" "$tmp/locked.sqlite"
    mkfifo "$tmp/let-go"
    hold "$tmp/locked.sqlite" "$tmp/let-go"
    says 1 "another program holds it locked" "$P" import --csv datasets/devices/oneplus-12.csv --db "$tmp/locked.sqlite" --wait 0.1 &&
        says 1 "another program holds it locked" "$P" hardware --device box --only storage --storage "$tmp/drive" --range 8MiB --quick \
            --memory-range 8MiB --seconds-per-point 0.003 --patience 0 --db "$tmp/locked.sqlite" --wait 0.1
    r=$?
    : > "$tmp/let-go"
    wait $holder
    [ $r -eq 0 ] && cmp "$db" "$tmp/locked.sqlite"
}

# It waits, says so, and goes on when the other has ended.
waits()
{
    cp "$db" "$tmp/waits.sqlite"
    : > "$tmp/err"
    hold "$tmp/waits.sqlite" "$tmp/err"
    "$P" import --csv datasets/devices/oneplus-12.csv --db "$tmp/waits.sqlite" --wait 300 2> "$tmp/err"
    got=$?
    echo waiting >> "$tmp/err" # it ends in any case
    wait $holder
    [ $got -eq 0 ] && "$P" show "$tmp/waits.sqlite" | grep -q '^OnePlus 12$' || { echo "exit $got: $(cat "$tmp/err")"; return 1; }
}

# Two imports into one new file at a time: both devices are there.
both()
{
    for i in 1 2 3 4 5; do
        rm -f "$tmp/both.sqlite"
        "$P" import --db "$tmp/both.sqlite" --csv datasets/devices/oneplus-12.csv > /dev/null & one=$!
        "$P" import --db "$tmp/both.sqlite" --csv datasets/devices/oneplus-ace-2.csv > /dev/null
        two=$?
        wait $one && [ $two -eq 0 ] && [ "$(sqlite3 "$tmp/both.sqlite" 'SELECT count(*) FROM device')" = 2 ] || return 1
    done
}

# Of a file with two devices of which one is refused, neither is entered.
all_or_none()
{
    cp "$db" "$tmp/aon.sqlite"
    { cat datasets/devices/oneplus-12.csv; echo 'box,core_class,class=big,n_cores,1,,published,a test'; } > "$tmp/aon.csv"
    says 5 "'box' was measured" "$P" import --db "$tmp/aon.sqlite" --csv "$tmp/aon.csv" && cmp "$db" "$tmp/aon.sqlite"
}

# A writer killed in the middle, with part of it in the file already: readers refuse it, and after the next writer see what was before.
killed_writer()
{
    cp "$db" "$tmp/hot.sqlite" && "$P" show "$db" > "$tmp/before" || return 1
    python3 - "$tmp/hot.sqlite" << 'PY'
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute('PRAGMA cache_size = 2')
db.execute('BEGIN IMMEDIATE')
db.execute('UPDATE sample SET value = value * 2')
db.execute('UPDATE memory SET bytes_per_s_p50 = bytes_per_s_p50 * 2, bytes_per_s_p90 = NULL, bytes_per_s_p10 = NULL')
os.kill(os.getpid(), 9)
PY
    [ -s "$tmp/hot.sqlite-journal" ] && ! cmp -s "$db" "$tmp/hot.sqlite" || { echo "nothing was half written"; return 1; }
    says 3 "a program died while it wrote here" "$P" show "$tmp/hot.sqlite" && [ -s "$tmp/hot.sqlite-journal" ] &&
        says 5 "'box' was measured" "$P" import --db "$tmp/hot.sqlite" --csv "$tmp/aon.csv" && [ ! -e "$tmp/hot.sqlite-journal" ] &&
        "$P" show "$tmp/hot.sqlite" | sed "s|$tmp/hot|$tmp/hw|g" | diff "$tmp/before" -
}

memory_filesystem()
{
    dir=$(mktemp -d /dev/shm/thermo-test-XXXXXX) || return 1
    "$P" hardware --db "$tmp/shm.sqlite" --device box --storage "$dir" --only storage --quick --range 8MiB \
        --memory-range 8MiB --seconds-per-point 0.003 --patience 0 > /dev/null 2> "$tmp/err"
    got=$?
    rmdir "$dir" && [ $got -eq 0 ] && grep -q 'measures memory, not storage' "$tmp/err" &&
        [ "$(sqlite3 "$tmp/shm.sqlite" 'SELECT sum(direct), (SELECT direct_verified FROM run) FROM storage')" = '0|0' ]
}

# An accelerator, by name: its points beside all that was there, whose memory figures stay what they were; out and in again.
engine()
{
    "$P" show --json "$db" > "$tmp/json1"
    "$P" hardware --db "$db" --device box --only engine --engine opencl:0 --quick --types q8_0 --engine-cache "$tmp" \
        --memory-range 8MiB --seconds-per-point 0.003 --patience 0 -q > "$tmp/out" && grep -q '^  accelerator  opencl:0: launch' "$tmp/out" &&
        sql "SELECT count(*) FROM accelerator_point p WHERE (SELECT count(*) FROM sample WHERE table_name = 'accelerator_point' AND row_id = p.id) <> 3" 0 &&
        "$P" show --json "$db" > "$tmp/json2" && "$P" export --db "$db" --out "$tmp/box.csv" && "$P" import -q --db "$tmp/box.sqlite" --csv "$tmp/box.csv" &&
        "$P" show --json "$tmp/box.sqlite" > "$tmp/json3" && python3 - "$tmp"/json[123] <<'PY'
import json, sys
a, b, c = (json.load(open(x))['devices'][0] for x in sys.argv[1:])
cpu = [m for m in b['memory'] if m['engines'] == 'cpu']
assert cpu == a['memory'] and b['conditions'][:-1] == a['conditions'] == c['conditions'][:-1] and b['compute'] == a['compute'], 'others changed'
assert {m['engines'] for m in b['memory']} == {'cpu', 'opencl:0', 'cpu+opencl:0'}
e, = b['accelerators']
ops = {p['op'] for p in e['points']}
assert b['conditions'][-1]['table'] == 'accelerator' and c['conditions'][-1] == b['conditions'][-1] and e['driver_bytes'] > 0, b['conditions']
assert e['engine'] == 'opencl:0' and e['launch_ns'] > 0 and ops == {'launch', 'copy/in', 'copy/out', 'matmul/q8_0', 'ffn/q8_0', 'own/q8_0', 'cpu/q8_0',
                                                                         'both/q8_0'}, e
assert a['hash'] != b['hash'] == c['hash']
PY
}

check "a quick run of all tables" measure
check "the schema is the published file" schema_is_the_file
check "every point has its raw samples" every_point_has_its_samples
check "conditions" conditions
check "views answer" views_answer
check "one table again" again
check "a system without huge pages: the database says so" without_huge_pages
leaks_unseen
if "$BIN/thermo-run" engines --json 2> /dev/null | grep -q opencl:0; then
    check "an accelerator" engine
else
    skip "an accelerator" "no OpenCL device"
fi
check "--engine wants a name that there is" says 2 "none, opencl or opencl:N" "$P" hardware --db "$db" --device box --engine vulkan
check "--only engine wants an accelerator" says 2 "there is no accelerator" "$P" hardware --db "$db" --device box --only engine --engine none
check "an accelerator that is not there" says 3 "OpenCL" "$P" hardware --db "$db" --device box --only engine --engine opencl:999 --quick
if grep -q '^cpu0 .*[1-9]' /proc/stat 2> /dev/null; then
    check "beside busy programs" busy
else
    skip "beside busy programs" "/proc/stat tells nothing here"
fi
check "nothing is left on the drive" test -z "$(ls -A "$tmp/drive")"
check "--dry-run touches nothing" dry_run
check "interrupted" interrupted
check "interrupted beside an import" interrupted_beside
check "locked by another program" locked
check "waits for another program" waits
check "two writers of a new database" both
check "several devices are entered together" all_or_none
check "a writer that was killed" killed_writer
if [ "$(stat -f -c %T /dev/shm 2> /dev/null)" = tmpfs ]; then
    check "a directory in memory is told apart" memory_filesystem
else
    skip "a directory in memory is told apart" "/dev/shm is no tmpfs"
fi

check "--types wants types of weights" says 2 "'q9' is no type" "$P" hardware --db "$db" --device box --types q4_0,q9
check "--types wants each once" says 2 "q4_k twice" "$P" hardware --db "$db" --device box --types q4_k,q4_k
some_types()
{
    "$P" hardware --db "$tmp/types.sqlite" --device box --only compute --types iq4_nl --quick --memory-range 8MiB --seconds-per-point 0.003 --patience 0 -q > /dev/null &&
        sqlite3 "$tmp/types.sqlite" "select distinct kernel from compute" > "$tmp/kernels" && grep -q rows/iq4_nl/ "$tmp/kernels" && ! grep -q q4_0 "$tmp/kernels"
}
check "--types: those kernels alone" some_types
check "--only wants known tables" says 2 "'disk' is none of" "$P" hardware --db "$db" --device box --only disk
check "--storage wants a directory" says 2 "--storage '$db' is not a directory" "$P" hardware --db "$db" --device box --storage "$db"
check "--device is needed" says 2 "--device" "$P" hardware --db "$db"
check "more than the drive holds" says 1 "MiB free" "$P" hardware --db "$tmp/n.sqlite" --device box --range 900TiB --only storage
check "no database is left behind" test ! -e "$tmp/n.sqlite"
check "a directory that is not there" says 1 "/no/such" "$P" hardware --db /no/such/hw.sqlite --device box --storage "$tmp" --only memory
head -c 5000 "$db" > "$tmp/cut.sqlite"
check "a cut database" says 3 "cut.sqlite" "$P" hardware --db "$tmp/cut.sqlite" --device box --only memory
check "a text file as database" says 3 "not a SQLite database" "$P" hardware --db README.md --device box --only memory

# ---- import ----
phone=datasets/devices/oneplus-12.csv
p=$tmp/p.sqlite

import_all()
{
    for f in datasets/devices/*.csv; do
        "$P" import --db "$p" --csv "$f" || return 1
    done
}

unchanged()
{
    sqlite3 "$p" .dump > "$tmp/before" && "$P" import --db "$p" --csv $phone | grep -q unchanged &&
        sqlite3 "$p" .dump | cmp "$tmp/before" -
}

figures()
{
    [ "$(sqlite3 "$p" "SELECT mb_per_s FROM v_storage WHERE device = 'OnePlus 12' AND block_kib = 4 AND queue_depth = 32
        AND range_mib = 128 AND pattern = 'random' AND lanes = 1 ORDER BY mb_per_s DESC" | tr '\n' ' ')" = '1076.1 1008.0 761.9 ' ] &&
        [ "$(sqlite3 "$p" "SELECT memory_bytes, app_memory_limit_bytes FROM device WHERE name = 'OnePlus Ace 2'")" = '16000000000|11000000000' ] &&
        [ "$(sqlite3 "$p" "SELECT count(*) FROM v_origin WHERE source = '' OR source IS NULL")" = 0 ]
}

# A changed file replaces what the former one gave.
replaced()
{
    sed 's/1076\.10,MB/1111.1,MB/' $phone > "$tmp/changed.csv"
    "$P" import --db "$p" --csv "$tmp/changed.csv" && [ "$(sqlite3 "$p" "SELECT max(mb_per_s), count(DISTINCT run) FROM v_storage
        WHERE device = 'OnePlus 12' AND block_kib = 4")" = '1111.1|1' ]
}

with() # LINE: the header and one good line, then LINE as line 3
{
    { head -n 1 $phone; echo 'X,core_class,class=big,n_cores,1,,published,a test'; printf '%s\n' "$1"; } > "$tmp/bad.csv"
}

refuse() # TEXT LINE
{
    with "$2"
    check "import refuses: $1" says 3 "$1" "$P" import --db "$tmp/bad.sqlite" --csv "$tmp/bad.csv"
}

check "import every profile" import_all
check "importing again changes nothing" unchanged
check "figures arrive" figures
check "a changed file replaces" replaced
s='pattern=random;block=4KiB;depth=1;range=1MiB'
refuse "line 3, column 'value': '12x' is not a number" "X,storage,$s,bytes_per_s,12x,MB/s,published,s"
refuse "line 3, column 'value': '-1' is not a number >= 0" "X,storage,$s,bytes_per_s,-1,MB/s,published,s"
refuse "line 3, column 'value': 'nan' is not a number" "X,storage,$s,bytes_per_s,nan,MB/s,published,s"
refuse "line 3, column 'unit': the unit must be that of a rate" "X,storage,$s,bytes_per_s,1,MB,published,s"
refuse "line 3, column 'key': 'depth=...' is missing" "X,storage,pattern=seq;block=4KiB;range=1MiB,bytes_per_s,1,MB/s,published,s"
refuse "line 3, column 'key': 'color' is no part of the key" "X,storage,$s;color=1,bytes_per_s,1,MB/s,published,s"
refuse "line 3, column 'key': 'block' is there twice" "X,storage,$s;block=8KiB,bytes_per_s,1,MB/s,published,s"
refuse "line 3, column 'key': core class 'huge' has no row" "X,storage,$s;class=huge,bytes_per_s,1,MB/s,published,s"
refuse "line 3, column 'value': '1.5' is not within 0..1" "X,storage,$s,batch_completion_share,1.5,,published,s"
refuse "line 3, column 'value': '1.5' is not within 0..1" "X,storage,$s,uncached_destination_ratio,1.5,,published,s"
refuse "line 3, column 'field': 'speed' is no field of table 'storage'" "X,storage,$s,speed,1,MB/s,published,s"
refuse "line 3, column 'table': 'flash' is none of" "X,flash,,speed,1,MB/s,published,s"
refuse "line 3, column 'origin': 'guess' is none of" "X,storage,$s,bytes_per_s,1,MB/s,guess,s"
refuse "line 3, column 'source': where the figure comes from is missing" "X,storage,$s,bytes_per_s,1,MB/s,published,"
refuse "line 3, column 'key': no row gives 'bytes_per_s'" "X,storage,$s,latency_ns_p50,1,us,published,s"
refuse "line 3, column 'source': not UTF-8" "$(printf 'X,storage,%s,bytes_per_s,1,MB/s,published,caf\351' "$s")"
refuse "line 3: 2 fields, the header has 8" "X,storage"
refuse "line 3, character 5: a quote out of place" 'X,st"orage'
sed 1s/unit/units/ $phone > "$tmp/c.csv"
check "a missing column" says 3 "no column 'unit'; there are: device, table" "$P" import --db "$tmp/c.sqlite" --csv "$tmp/c.csv"
# Bytes changed, lost and doubled anywhere: understood or refused, never a crash, and a refusal names the line.
mangled()
{
    python3 - "$phone" "$tmp/m.csv" "$P" "$tmp/m.sqlite" "$(of 150 40)" <<'PY'
import os, random, subprocess, sys
src, out, program, db, cases = *sys.argv[1:5], int(sys.argv[5])
data, rnd, refused = open(src, 'rb').read(), random.Random(1), 0
for i in range(cases):
    b = bytearray(data)
    for _ in range(rnd.randint(1, 3)):
        at = rnd.randrange(len(b))
        kind = rnd.randrange(3)
        if kind == 0:
            b[at] = rnd.choice(b'",;=\n0x-\x00\xff9')
        elif kind == 1:
            del b[at:at + rnd.randint(1, 30)]
        else:
            b[at:at] = b[at:at + 40]
    open(out, 'wb').write(b)
    r = subprocess.run([program, 'import', '--db', db, '--csv', out], capture_output=True, text=True, errors='replace')
    if r.returncode not in (0, 3) or (r.returncode == 3 and ' line ' not in r.stderr):
        sys.exit(f'variant {i}: exit {r.returncode}: {r.stderr}')
    refused += r.returncode == 3
if not 20 * cases / 150 < refused < cases:
    sys.exit(f'{refused} refused')
PY
}
check "mangled files" mangled
check "nothing was created" test ! -e "$tmp/bad.sqlite" -a ! -e "$tmp/c.sqlite"
shown()
{
    "$P" show "$p" > "$tmp/out" && grep -q '^OnePlus 12$' "$tmp/out" && grep -q '761\.9' "$tmp/out" && grep -q v_origin "$tmp/out" &&
        "$P" show "$p" --json > "$tmp/json" && python3 - "$tmp/json" <<'PY'
import json, sys
d = json.load(open(sys.argv[1]))
assert d['kind'] == 'hardware' and d['revision'] == 1
phone = {x['name']: x for x in d['devices']}['OnePlus 12']
assert phone['app_memory_limit_bytes'] == 19 * 10**9 and [c['n_cores'] for c in phone['core_classes']] == [1, 5, 2]
assert any(m['engines'] == 'cpu+npu' and m['bytes_per_s_p50'] == 59.6e9 for m in phone['memory'])
PY
}
if "$P" --help | grep -q '^ *show'; then
    check "show" shown
    head -c 30000 "$p" > "$tmp/cut.sqlite"
    check "show a cut database" says 3 "cut.sqlite" "$P" show "$tmp/cut.sqlite"
else
    skip "show" "not built into this program"
    skip "show a cut database" "not built into this program"
fi
check "imported figures never join measured ones, and nothing is measured first" says 5 "holds imported figures" \
    "$P" hardware --db "$p" --device "OnePlus 12" --quick --only memory --memory-range 8MiB --seconds-per-point 0.003
check "--help teaches" sh -c "$P import --help | grep -q origin && $P hardware --help | grep -q seconds-per-point"
done_testing
