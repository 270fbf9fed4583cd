#!/bin/bash
# A model on a phone, board or server that is reached by adb, ssh or a folder: measured, planned for, packed for, run, calibrated.
usage()
{
    cat << 'END'
usage: device.sh STEP|all --name NAME [options]

steps, each of which goes on where it was interrupted and does nothing where nothing changed:
  push       thermo-probe and thermo-run onto the device
  probe      measure the device, and enter its figures into OUT/hw.sqlite (OUT/NAME.csv keeps them)
  plan       OUT/plan.json for --memory, from --model (or a trace that is there: --traces)
  pack       OUT/model.thermo, here
  send       pack and plan onto the device
  run        generate from --prompt there; OUT/text.txt and OUT/run.jsonl
  calibrate  compare the run with the plan, and enter the factors into OUT/hw.sqlite
  all        these, in this order

  --over adb|ssh|local   how the device is reached (default: adb)
  --serial SERIAL        adb: which device, where several are attached
  --host HOST            ssh: as ssh has it
  --at DIR               folder on the device, on the storage that models are to be read from (default:
                         /data/local/tmp/thermocline; ssh: thermocline in the home folder; local: none)
  --out DIR              results here (default: build/devices/NAME)
  --programs DIR         thermo-probe and thermo-run for the device (default: build/aarch64-static/bin, of make static-aarch64)
  --model FILE.gguf --traces FILE.h5 --prompts FILE.csv      what is planned and packed (prompts: stories-profile.csv)
  --memory SIZE          limit of the plan (default: seven eighths of what was available when it was measured, docs/phone.md)
  --prompt TEXT --tokens N                                   of run (default: 'Once upon a time', 128)
  --probe FLAGS --solve FLAGS --trace FLAGS --generate FLAGS further options of the programs, separated by blanks
  --tries N              how often a lost connection is waited for (default: 20)

Exit status: that of the program that failed; 2 usage, 4 the device lacks space or memory, 6 it cannot be reached. docs/phone.md.
END
}

die() { echo "device.sh: $1" >&2; exit "${2:-2}"; }
say() { echo "device.sh: $*" >&2; }

step=${1:-}
case $step in
-h | --help) usage; exit 0 ;;
push | probe | plan | pack | send | run | calibrate | all) shift ;;
*) usage >&2; exit 2 ;;
esac
name='' over=adb serial='' host='' at='' out='' programs=build/aarch64-static/bin model='' traces=''
prompts=datasets/prompts/stories-profile.csv
memory='' prompt='Once upon a time' tokens=128 tries=20 probe_flags='' solve_flags='' trace_flags='' generate_flags=''
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || die "$1: a value is missing"
    case $1 in
    --name) name=$2 ;; --over) over=$2 ;; --serial) serial=$2 ;; --host) host=$2 ;; --at) at=$2 ;; --out) out=$2 ;;
    --programs) programs=$2 ;; --model) model=$2 ;; --traces) traces=$2 ;; --prompts) prompts=$2 ;; --memory) memory=$2 ;;
    --prompt) prompt=$2 ;; --tokens) tokens=$2 ;; --tries) tries=$2 ;; --probe) probe_flags=$2 ;; --solve) solve_flags=$2 ;;
    --trace) trace_flags=$2 ;; --generate) generate_flags=$2 ;;
    *) die "'$1' is no option; --help lists them" ;;
    esac
    shift 2
done
[ -n "$name" ] || die "--name: what to call the device"
case $over in
adb) at=${at:-/data/local/tmp/thermocline} ;;
ssh) at=${at:-thermocline}; [ -n "$host" ] || die "--over ssh: --host is missing" ;;
local) [ -n "$at" ] || die "--over local: --at is missing" ;;
*) die "--over '$over' is none of adb, ssh, local" ;;
esac
BIN=${BIN:-build/bin} CHUNK=${DEVICE_CHUNK:-67108864}
out=${out:-build/devices/$name}
mkdir -p "$out" || exit 6
[ -n "$traces" ] || traces=$out/traces.h5

# ---- the device ----

quote() { printf "'%s'" "$(printf %s "$1" | sed "s/'/'\\\\''/g")"; }
raw() # COMMAND: by the device's shell
{
    case $over in
    adb) adb ${serial:+-s "$serial"} shell "$1" < /dev/null ;;
    ssh) ssh -o BatchMode=yes "$host" "$1" < /dev/null ;;
    local) sh -c "$1" < /dev/null ;;
    esac
}
copy_there() # FILE PATH
{
    case $over in
    adb) adb ${serial:+-s "$serial"} push "$1" "$2" > /dev/null 2>&1 ;;
    ssh) ssh -o BatchMode=yes "$host" "cat > $(quote "$2")" < "$1" ;;
    local) cp "$1" "$2" ;;
    esac
}
# on COMMAND: its output, and its status, which adb of old does not tell: a line behind it says it. What did not arrive whole was lost, and
# is tried again: commands are such that they may run twice.
on()
{
    local said n=0
    while said=$(raw "cd $(quote "$at") && {
$1
}
echo \" :\$?\""); said=${said//$'\r'/}; [[ ! $said =~ " :"[0-9]+$ ]]; do
        n=$((n + 1))
        [ $n -lt "$tries" ] || die "the device does not answer" 6
        say "the connection is lost; trying again"
        sleep "${DEVICE_PAUSE:-2}"
    done
    local status=${said##* :} text=${said% :*}
    printf %s "$text"
    return "$status"
}

digest() { sha256sum "$1" | cut -d ' ' -f 1; }
on_digest() { on "sha256sum $(quote "$1") 2> /dev/null" | cut -d ' ' -f 1; }
free_there() { on "df -k . | tail -n 1" | awk '{ printf "%.0f", $(NF - 2) * 1024 }'; }

# send FILE NAME MODE: onto the device, where it is not there already, in pieces that are not sent twice.
send()
{
    local file=$1 to=$2 want size there have i n
    want=$(digest "$file") && size=$(stat -c %s "$file") || exit 6
    [ "$(on_digest "$to")" != "$want" ] || return 0
    there=$(on "if [ \"\$(cat $(quote "$to.of") 2> /dev/null)\" = $want ]; then cat $(quote "$to.has") 2> /dev/null || echo 0
        else rm -f $(quote "$to.part") $(quote "$to.has"); echo $want > $(quote "$to.of"); echo 0; fi") || exit 6
    have=${there//[^0-9]/} n=$(((size + CHUNK - 1) / CHUNK))
    [ "$(free_there)" -ge $((size - have * CHUNK + CHUNK)) ] ||
        die "'$at' on the device has $(free_there) bytes free; $file needs $((size - have * CHUNK + CHUNK)) more" 4
    say "sending ${file##*/}: $size bytes, from piece $((have + 1)) of $n"
    for ((i = have; i < n; i++)); do
        dd if="$file" of="$out/.piece" bs="$CHUNK" skip="$i" count=1 2> /dev/null || exit 6
        until copy_there "$out/.piece" "$at/$to.piece" && [ "$(on_digest "$to.piece")" = "$(digest "$out/.piece")" ]; do
            on true || exit 6 # waits for it
            [ "$(free_there)" -ge $((CHUNK / 2)) ] || die "'$at' on the device is full" 4
        done
        on "dd if=$(quote "$to.piece") of=$(quote "$to.part") bs=$CHUNK seek=$i conv=notrunc 2> /dev/null &&
            echo $((i + 1)) > $(quote "$to.has")" ||
            die "writing '$at/$to' on the device failed" 6
    done
    rm -f "$out/.piece"
    [ "$(on_digest "$to.part")" = "$want" ] ||
        { on "rm -f $(quote "$to.part") $(quote "$to.has")"; die "'$to' arrived damaged; run this again" 6; }
    on "mv $(quote "$to.part") $(quote "$to"); chmod $3 $(quote "$to")
        rm -f $(quote "$to.has") $(quote "$to.of") $(quote "$to.piece"); [ -e $(quote "$to") ]" ||
        die "writing '$at/$to' on the device failed" 6
}

# fetch NAME FILE: whole, or not at all.
fetch()
{
    local want
    want=$(on_digest "$1")
    [ -n "$want" ] || die "'$at/$1' is not on the device" 6
    until on "base64 $(quote "$1")" | base64 -d > "$2.new" && [ "$(digest "$2.new")" = "$want" ]; do
        on true || exit 6
    done
    mv "$2.new" "$2"
}

# long NAME KEY COMMAND: runs beside the connection, and is found again after it; once for each KEY.
long()
{
    local n status
    n=$(quote "$1")
    on "[ \"\$(cat $n.key 2> /dev/null)\" = $2 ] && { [ -e $n.rc ] || kill -0 \$(cat $n.pid) 2> /dev/null; } || {
        rm -f $n.rc $n.pid; echo $2 > $n.key
        \$(command -v setsid || command -v nohup) sh -c $(quote "echo \$\$ > $1.pid; $3; echo \$? > $1.rc.new; mv $1.rc.new $1.rc") \\
            > $n.out 2> $n.err < /dev/null &
        echo \$! > $n.pid; }" || exit $?
    while status=$(on "cat $n.rc 2> /dev/null"); status=${status//[^0-9]/}; [ -z "$status" ]; do
        on "[ -e $n.rc ] || kill -0 \$(cat $n.pid)" || die "$1 was ended on the device (memory, heat?); run this again" 1
        sleep "${DEVICE_PAUSE:-2}"
    done
    [ "$status" = 0 ] || { on "cat $n.err" >&2; on "rm -f $n.key" ; die "$1 on the device: exit status $status" "$status"; }
}
key() { printf '%s\n' "$@" | sha256sum | cut -d ' ' -f 1; }

# made FILE KEY COMMAND...: a file here, made again when what it is made from is another.
made()
{
    local file=$1 want=$2
    shift 2
    [ -e "$file" ] && [ "$(cat "$file.key" 2> /dev/null)" = "$want" ] && return
    say "$*"
    rm -f "$file.key"
    "$@" || exit $?
    echo "$want" > "$file.key"
}

# ---- steps ----

do_push()
{
    at=. on "mkdir -p $(quote "$at")" || die "'$at' cannot be made on the device" 6
    send "$programs/thermo-probe" thermo-probe 755
    send "$programs/thermo-run" thermo-run 755
}
do_probe()
{
    local k
    k=$(key "$(digest "$programs/thermo-probe")" "$name" "$probe_flags")
    long probe "$k" "./thermo-probe -q --device $(quote "$name") --storage . --out probe.csv $probe_flags"
    fetch probe.csv "$out/$name.csv"
    "$BIN/thermo-profile" import --db "$out/hw.sqlite" --csv "$out/$name.csv" || exit $?
}
do_plan()
{
    local there k
    there=$(on "cat /proc/meminfo" | awk '/^MemAvailable:/ { printf "%.0f", $2 * 1024 }')
    say "the device has ${there:-?} bytes of memory available"
    if [ "$traces" = "$out/traces.h5" ]; then
        [ -n "$model" ] || die "--model: the GGUF, or --traces: its trace"
        k=$(key "$(digest "$model")" "$(digest "$prompts")" "$trace_flags" "$("$BIN/thermo-profile" --version)")
        made "$traces" "$k" "$BIN/thermo-profile" trace --model "$model" --prompts "$prompts" --out "$traces" $trace_flags
    fi
    k=$(key "$(digest "$traces")" "$(digest "$out/$name.csv")" "$memory" "$solve_flags" "$("$BIN/thermo-plan" --version)")
    made "$out/plan.json" "$k" "$BIN/thermo-plan" solve --traces "$traces" --hardware "$out/hw.sqlite" --device "$name" \
        ${memory:+--memory "$memory"} --out "$out/plan.json" $solve_flags
    k=$(python3 -c 'import json, sys
print(min(l["memory_bytes"] for l in json.load(open(sys.argv[1]))["decisions"]["limits"]))' "$out/plan.json") || exit 3
    [ -z "$there" ] || [ "$k" -le "$there" ] || die "the plan takes $k bytes, and the device has $there available: a smaller --memory" 4
}
do_pack()
{
    [ -n "$model" ] || die "--model: the GGUF to pack"
    made "$out/model.thermo" "$(key "$(digest "$model")" "$(digest "$traces")" "$(digest "$out/plan.json")")" \
        "$BIN/thermo-pack" pack --model "$model" --traces "$traces" --plan "$out/plan.json" --out "$out/model.thermo"
}
do_send()
{
    send "$out/model.thermo" model.thermo 644
    send "$out/plan.json" plan.json 644
}
do_run()
{
    local k
    k=$(key "$(digest "$out/model.thermo")" "$(digest "$out/plan.json")" "$prompt" "$tokens" "$generate_flags")
    long run "$k" "./thermo-run generate -q --model model.thermo --plan plan.json --prompt $(quote "$prompt") -n $tokens --json \
        $generate_flags"
    fetch run.out "$out/run.jsonl"
    fetch run.err "$out/run.err"
    python3 -c 'import json, sys
for line in open(sys.argv[1], encoding="utf-8"):
    sys.stdout.write(json.loads(line).get("text", "") if json.loads(line).get("type") == "token" else "")
print()' "$out/run.jsonl" | tee "$out/text.txt"
}
do_calibrate()
{
    local store=--store # factors are over typical figures
    grep -q '"figures": "sustained"' "$out/plan.json" && store= &&
        say "the plan is by sustained figures: the run is compared, and nothing is entered"
    "$BIN/thermo-plan" calibrate --plan "$out/plan.json" --hardware "$out/hw.sqlite" --device "$name" --traces "$traces" $store \
        --telemetry "$out/run.jsonl" || exit $?
}

if [ "$step" = all ]; then
    for s in push probe plan pack send run calibrate; do
        "do_$s"
    done
else
    "do_$step"
fi
