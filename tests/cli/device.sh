#!/bin/bash
# scripts/device.sh against a stand-in for adb, whose connection is lost at random before, while and after a command runs (DEVICE_SEED
# repeats one): an ordinary user with 64 KiB of mlock in a folder with spaces in its name. DEVICE_STATIC=build/aarch64-static/bin: with
# programs for aarch64 under qemu. A full disk and too little memory are said; an interrupted call goes on, a second one sends nothing. Then
# by a stand-in for ssh, and in a folder.
. tests/tap.sh
. tests/chain.sh
scratch
programs=$BIN emulator=
static=$DEVICE_STATIC
if [ -z "$SANITIZE" ] && command -v qemu-aarch64 > /dev/null && [ -x $static/thermo-run ] && [ -x $static/thermo-probe ]; then
    programs=$static emulator="qemu-aarch64 -p 16384 "
fi
seed=${DEVICE_SEED:-$RANDOM} log=$tmp/adb.log
echo "# DEVICE_SEED=$seed, $programs"
mkdir "$tmp/bin" "$tmp/there" "$tmp/phone" "$tmp/home"
chmod 755 "$tmp"
chmod 777 "$tmp/phone"
at="$tmp/phone/thermo cline" user=
[ "$(id -u)" != 0 ] || user="setpriv --reuid 65534 --regid 65534 --clear-groups"
cat > "$tmp/there/df" << END
#!/bin/sh
echo "Filesystem 1K-blocks Used Available Use% Mounted on"
echo "/dev/fuse 1000000000 1 \$(cat "$tmp/free" 2> /dev/null || echo 500000000) 1% /data"
END
# Of six calls one is lost: a half of these before anything was done.
cat > "$tmp/bin/adb" << END
#!/bin/bash
[ "\$1" = -s ] && [ "\$2" = FA6A1 ] || { echo "adb: more than one device" >&2; exit 1; }
shift 2
echo "\$1" >> "$log"
fate=\$(echo "$seed \$(wc -l < "$log")" | cksum | cut -d ' ' -f 1)
lost=\$((fate % 6 == 0)) fate=\$((fate / 6))
[ \$lost = 0 ] || [ \$((fate % 2)) = 0 ] || exit 255
case \$1 in
push)
    to=\$3
    [ ! -e "$tmp/fill" ] || { mv "$tmp/fill" "$tmp/free"; exit 1; }
    [ \$lost = 0 ] || { head -c 1000 "\$2" > "\$to"; chmod 666 "\$to"; exit 1; }
    cat "\$2" > "\$to.copy" && chmod 666 "\$to.copy" && mv "\$to.copy" "\$to" || { rm -f "\$to.copy"; exit 1; } ;;
shell)
    ulimit -l 64
    export PATH="$tmp/there:\$PATH"
    said=\$($user sh -c "\${2//.\/thermo-/$emulator./thermo-}"; echo x)
    said=\${said%x}
    [ \$lost = 0 ] || { printf %s "\${said:0:\$((fate / 2 % (\${#said} + 1)))}"; exit 255; }
    printf %s "\$said" ;;
esac
END
printf '#!/bin/sh\ncd "%s" || exit 255\nexec sh -c "$4"\n' "$tmp/home" > "$tmp/bin/ssh"
chmod +x "$tmp/bin/adb" "$tmp/bin/ssh" "$tmp/there/df"
ended= # how a step is ended before its time
step() # STEP PROGRAMS OPTION...
{
    local step=$1 programs=$2
    shift 2
    PATH="$tmp/bin:$PATH" DEVICE_CHUNK=4194304 DEVICE_PAUSE=0.1 BIN=$BIN $ended scripts/device.sh "$step" --programs "$programs" \
        --model "$model" --traces "$traces" --tokens 40 --generate "--temp 0" --solve "--context 256 --form split --packed no" \
        --probe "--quick --range 8MiB --memory-range 8MiB --seconds-per-point 0.003 --patience 0 --types q8_0,f16 --engine none" "$@"
}
device()
{
    step "$1" "$programs" --name "my phone" --serial FA6A1 --at "$at" --out "$tmp/out dir" --memory "${2:-18MiB}"
}
arrived() { cmp "$tmp/out dir/model.thermo" "$at/model.thermo" && cmp "$tmp/out dir/plan.json" "$at/plan.json"; }
pushes() { grep -c push "$log"; }
tokens() { [ "$(grep -c '"type":"token"' "$1/run.jsonl")" = 40 ] && [ -s "$1/text.txt" ]; }

echo 1000 > "$tmp/free"
check "a full disk is said" says 4 "bytes free" device push
check "and nothing was copied" sh -c "! grep -q push '$log'"
rm "$tmp/free"
check "push" says 0 "sending thermo-probe" device push
check "probe: figures of the device" says 0 "my phone: " device probe
check "a limit beyond its memory is refused" says 4 "available: a smaller --memory" device plan 900GiB
check "plan" says 0 "" device plan
check "pack" says 0 "" device pack
echo 1000 > "$tmp/fill"
check "a disk that fills up meanwhile is said" says 4 "is full" device send
rm -f "$tmp/free"
# Killed while it sends; then the rest goes.
ended="timeout -s KILL 1" device send > /dev/null 2>&1
check "send goes on where it was interrupted" says 0 "" device send
check "what arrived is what was sent" arrived
check "run: text" says 0 " " device run
check "it was generated there" tokens "$tmp/out dir"
check "calibrate" says 0 "" device calibrate
before=$(pushes)
check "all again" says 0 "" device all
check "sends nothing" [ "$before" = "$(pushes)" ]
printf x >> "$at/model.thermo"
check "what is not as it was sent" says 0 "sending model.thermo" device send
check "is sent again" arrived
check "which of two devices is not said" says 6 "more than one device" env PATH="$tmp/bin:$PATH" DEVICE_PAUSE=0 scripts/device.sh push \
    --name x --out "$tmp/x" --tries 2
check "no such step" says 2 "usage" scripts/device.sh fly --name x

check "all, over ssh" says 0 " " step all "$BIN" --over ssh --host board --name board --at "thermo cline" --out "$tmp/board" --memory 18MiB
check "generated there" tokens "$tmp/board"
check "a local folder" says 0 "sending" step push "$BIN" --name here --over local --at "$tmp/local" --out "$tmp/here"
done_testing
