#!/bin/bash
# thermo-profile export: what import reads back is what was exported, to the last bit, so that a device that was measured
# elsewhere gets the same plans; devices are chosen by name; measurements and imports do not mix.
. tests/tap.sh
. tests/chain.sh
scratch
P=$BIN/thermo-profile
db=$tmp/hw.sqlite back=$tmp/back.sqlite
same() { cmp "$1" "$2"; }
hash_of() { "$P" show --json "$1" | python3 -c "import json,sys
print(*[d['hash'] for d in json.load(sys.stdin)['devices'] if d['name'] == sys.argv[1]])" "$2"; }
hashes() { [ -n "$(hash_of "$1" "$3")" ] && is "$(hash_of "$1" "$3")" "$(hash_of "$2" "$3")"; }
plan() { # DATABASE DEVICE OUT
    "$BIN/thermo-plan" solve --description datasets/descriptions/small-relu.json --hardware "$1" --device "$2" --memory 9MiB \
        --form split --context 256 --policy lru --out "$3"
}
same_plan() { plan "$db" "$1" "$tmp/a.json" && plan "$back" "$1" "$tmp/b.json" && cmp "$tmp/a.json" "$tmp/b.json"; }
devices() { python3 -c "import csv,sys
print(*dict.fromkeys(r['device'] for r in csv.DictReader(open(sys.argv[1], newline=''))), sep='|')" "$1"; }
is() { [ "$1" = "$2" ] || { echo "'$1' instead of '$2'"; return 1; }; }

box='box 1, "blue"'
named() { cp "$hardware" "$db" && sqlite3 "$db" "UPDATE device SET name = '$box'"; }
check "a measured device" named
check "and imported ones beside it" sh -c "for c in datasets/devices/oneplus-*.csv; do '$P' import -q --db '$db' --csv \$c || exit; done"
check "export writes all of them" "$P" export --db "$db" --out "$tmp/all.csv"
check "small sizes have their unit" grep -q "row=512B" "$tmp/all.csv"
check "by name" is "$(devices "$tmp/all.csv")" "OnePlus 12|OnePlus Ace 2|$box"
check "no folder of this machine is in it" sh -c "! grep -F -e '$tmp' -e '$chain' '$tmp/all.csv'"
check "import reads them" "$P" import -q --db "$back" --csv "$tmp/all.csv"
for d in "$box" "OnePlus 12" "OnePlus Ace 2"; do
    check "$d: the same figures" hashes "$db" "$back" "$d"
    check "$d: the same plan" same_plan "$d"
done
check "origins and sources come along: exporting again" "$P" export --db "$back" --out "$tmp/again.csv"
check "gives the same bytes" same "$tmp/all.csv" "$tmp/again.csv"
check "measured figures stay measured" sh -c "grep -q ',measured,\"*measured by thermo-profile' '$tmp/again.csv'"
check "importing it again changes nothing" says 0 "already there, unchanged" "$P" import --db "$back" --csv "$tmp/all.csv"

# When it was measured, and what ran beside it, comes along: the notes of both plans are the same, which same_plan has seen.
plan "$db" "$box" "$tmp/told.json" > /dev/null 2> "$tmp/err"
check "a plan says when its device was measured" sh -c "grep -q 'box 1.* figures measured: 20..-..-..T' '$tmp/told.json'"
check "and nothing of age while that is today" sh -c "! grep -q 'days old' '$tmp/err'"
plan "$db" "OnePlus 12" "$tmp/told.json" > /dev/null 2> "$tmp/err"
check "published figures have neither date nor marks" sh -c "! grep -q -e 'figures measured' -e 'were measured while' -e 'measured within' '$tmp/told.json' && [ ! -s '$tmp/err' ]"
if cp "$db" "$tmp/marked.sqlite" && sqlite3 "$tmp/marked.sqlite" "UPDATE conditions SET marks = 'others', others = 0.625,
        measured_at = '2024-11-21T09:47:00Z' WHERE table_name = 'memory';
        UPDATE conditions SET marks = 'clean', spread = 0 WHERE table_name <> 'memory'" 2> /dev/null; then
    marked() {
        plan "$1" "$box" "$tmp/m.json" 2> "$tmp/err" && grep -q 'memory figures were measured while other programs took up to 6[23] % of the processors"' "$tmp/m.json" &&
            grep -q 'memory 2024-11-21T09:47:00Z, storage' "$tmp/m.json" && ! grep -q 'days old' "$tmp/m.json" &&
            grep -q 'warning: memory figures were measured while other programs' "$tmp/err" &&
            grep -q "warning: memory figures of .* are [0-9]* days old" "$tmp/err"
    }
    check "marks are in the notes, and with the age on stderr" marked "$tmp/marked.sqlite"
    check "they are exported" "$P" export --db "$tmp/marked.sqlite" --out "$tmp/marked.csv"
    check "and imported" "$P" import -q --db "$tmp/marked2.sqlite" --csv "$tmp/marked.csv"
    check "to the same notes" marked "$tmp/marked2.sqlite"
    check "and exported again, the same" sh -c "'$P' export --db '$tmp/marked2.sqlite' | cmp - '$tmp/marked.csv'"
    for row in "marks,busy" "marks,clean others" "measured_at,yesterday" "disturbed,1.5" "speed,1"; do
        { head -n 1 "$tmp/marked.csv"; grep -e ',core_class,' -e ',memory,' "$tmp/marked.csv" | grep "^\"box"
          printf '"%s",conditions,table=memory,%s,,measured,me\n' 'box 1, ""blue""' "$row"; } > "$tmp/bad.csv"
        check "conditions: $row is refused" says 3 "line [0-9]*, column" "$P" import -q --db "$tmp/bad.sqlite" --csv "$tmp/bad.csv"
    done
else
    skip "marks" "sqlite3 is not installed"
fi

# Every digit counts: the smallest step up of one figure is another device.
python3 - "$tmp/all.csv" "$tmp/step.csv" << 'END'
import csv, math, sys
rows = list(csv.reader(open(sys.argv[1], newline='')))
for r in rows:
    if r[0].startswith('box') and r[1] == 'storage' and r[3] == 'bytes_per_s':
        r[4] = repr(math.nextafter(float(r[4]), math.inf))
        break
csv.writer(open(sys.argv[2], 'w', newline='')).writerows(rows)
END
check "a figure one bit up" "$P" import -q --db "$tmp/step.sqlite" --csv "$tmp/step.csv"
check "is a device" test -n "$(hash_of "$tmp/step.sqlite" "$box")"
check "but another one" status 1 hashes "$db" "$tmp/step.sqlite" "$box"

check "--device chooses, in the order given" sh -c "'$P' export --db '$db' --device 'OnePlus Ace 2' --device '$box' > '$tmp/two.csv'"
check "these two alone" is "$(devices "$tmp/two.csv")" "OnePlus Ace 2|$box"
check "an unknown one is refused" says 2 "holds no device 'phone'; there are: OnePlus 12" "$P" export --db "$db" --device phone --out "$tmp/no.csv"
check "one named twice too" says 2 "'OnePlus 12' is there twice" "$P" export --db "$db" --device 'OnePlus 12' --device 'OnePlus 12'
check "and nothing is written" test ! -e "$tmp/no.csv"
check "a full disk is said" says 1 "No space left on device" sh -c "'$P' export --db '$db' > /dev/full"
cp "$db" "$tmp/same.sqlite"
check "the database is not written over" says 2 "same file" "$P" export --db "$tmp/same.sqlite" --out "$tmp/same.sqlite"
check "and keeps its bytes" same "$db" "$tmp/same.sqlite"
check "no database" says 3 "README.md" "$P" export --db README.md

check "an import does not replace what was measured here" says 5 "was measured into this database" "$P" import --db "$db" --csv "$tmp/all.csv"
check "nor a measurement what was imported" says 5 "holds imported figures" \
    "$P" hardware -q --db "$back" --device "$box" --quick --only memory --memory-range 8MiB --seconds-per-point 0.003
check "both kept what they had" hashes "$db" "$back" "$box"
printf 'device,table,key,field,value,unit,origin,source\nx,device,,memory_bytes,1,GB,guessed,me\n' > "$tmp/guess.csv"
check "another origin is refused" says 3 "none of measured, published, estimated" "$P" import --db "$tmp/g.sqlite" --csv "$tmp/guess.csv"
sqlite3 "$back" "UPDATE core_class SET name = 'a;b' WHERE name = 'mid'" 2> /dev/null
if [ "$(sqlite3 "$back" "SELECT count(*) FROM core_class WHERE name = 'a;b'" 2> /dev/null)" -gt 0 ] 2> /dev/null; then
    check "a class whose name the CSV cannot hold" says 3 "'a;b' has a ';'" "$P" export --db "$back"
else
    skip "a class whose name the CSV cannot hold" "sqlite3 is not installed"
fi
done_testing
