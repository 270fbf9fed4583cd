#!/bin/bash
# Pages of 4, 16 and 64 KiB: the static programs for aarch64 under qemu, which has the guest's pages of any size (-p). The probe's figures
# are imported; a run has this machine's tokens; a limit below the floor and a damaged pack are refused as here. After make static-aarch64.
. tests/tap.sh
. tests/chain.sh
scratch
there=build/aarch64-static/bin
if [ -n "$SANITIZE" ] || ! command -v qemu-aarch64 > /dev/null || [ ! -x $there/thermo-run ] || [ ! -x $there/thermo-probe ]; then
    echo "1..0 # SKIP make static-aarch64 and qemu-aarch64 are needed"
    exit 77
fi
prompt='Once upon a time, there was'
generate() # PACK OUT COMMAND...
{
    local pack=$1 out=$2
    shift 2
    "$@" generate -q --no-mlock --cpu scalar --model "$pack" --plan "$plan" --memory 14MiB -t 2 -p "$prompt" -n 12 --temp 0 --json \
        > "$out.json" 2> "$out.err" || return
    grep -o '"id":[0-9]*' "$out.json" > "$out"
}
is() { [ "$1" = "$2" ] || { echo "exit status $1, not $2: $(cat "$tmp/out.err")"; return 1; }; }
probe()
{
    local only=storage,memory,joint
    [ "$1" != 16384 ] || only=$only,compute
    qemu-aarch64 -p "$1" $there/thermo-probe -q --device "pages of $1" --storage "$tmp" --quick --range 8MiB --memory-range 8MiB \
        --only $only --types q8_0 --seconds-per-point 0.003 --patience 0 --out "$tmp/p$1.csv" &&
        "$BIN/thermo-profile" import -q --db "$tmp/p$1.sqlite" --csv "$tmp/p$1.csv"
}
small() # PROGRAM STRIP
{
    "$2" -o "$tmp/s" "$1" && [ "$(stat -c %s "$tmp/s")" -le 2097152 ] || { ls -l "$tmp/s"; return 1; }
}
wide() { readelf -lW "$1" | awk '$1 == "LOAD" && $NF != "0x10000" { bad = 1 } END { exit bad }'; }

if command -v aarch64-linux-gnu-strip > /dev/null; then
    check "thermo-probe has at most 2 MiB" small $there/thermo-probe aarch64-linux-gnu-strip
fi
if [ -x build/x86_64-static/bin/thermo-probe ]; then # make STATIC=1 profiler/probe
    check "for x86-64 too" small build/x86_64-static/bin/thermo-probe strip
fi
for p in thermo-run thermo-probe; do
    check "$p is aligned for pages of 64 KiB" wide $there/$p
done
check "the tokens of this machine" generate "$packed" "$tmp/here" "$BIN/thermo-run"
python3 - "$packed" "$tmp/damaged.thermo" << 'END'
import sys
data = bytearray(open(sys.argv[1], 'rb').read())
for i in range(len(data) // 2, len(data) - 65536, 4096): # in the neurons
    data[i] ^= 1
open(sys.argv[2], 'wb').write(data)
END
for page in 4096 16384 65536; do
    emulated="qemu-aarch64 -p $page $there/thermo-run"
    check "$page: the probe, imported" probe $page
    check "$page: a run" generate "$packed" "$tmp/out" $emulated
    check "$page: has the same tokens" cmp "$tmp/here" "$tmp/out"
    $emulated generate -q --no-mlock --model "$packed" --plan "$plan" --memory 6MiB -p a -n 1 > /dev/null 2> "$tmp/out.err"
    check "$page: a limit below the floor" is $? 4
    generate "$tmp/damaged.thermo" "$tmp/out" $emulated
    status=$?
    check "$page: damage is found" [ $status = 3 -o $status = 6 ]
done
done_testing
