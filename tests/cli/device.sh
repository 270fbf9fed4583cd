#!/bin/bash
# scripts/device.sh against a stand-in for adb, whose connection is lost at random before, while and after a command runs (DEVICE_SEED
# repeats one). As root, the phone is a folder of its own (chroot) on a small file system, which fills up; always, commands run as
# device_shell.py says. DEVICE_STATIC=build/aarch64-static/bin: with programs for aarch64 under qemu. Little memory is said; an interrupted
# call goes on, a second one sends nothing; the text is this machine's. Then over ssh, by an sshd on loopback where there is one, and in a
# folder.
. tests/tap.sh
if [ -n "$DEVICE_TMP" ]; then
    tmp=$DEVICE_TMP
else
    scratch
    # Mounts are in a namespace of their own, and gone from the folder when it is removed.
    alone="unshare -mpf --kill-child --propagation private"
    if [ "$(id -u)" = 0 ] && $alone mount -t tmpfs -o size=1m none "$tmp" 2> /dev/null; then
        DEVICE_TMP=$tmp $alone bash "$0"
        exit
    fi
fi
. tests/chain.sh
programs=$BIN emulator='' pause=0.3
static=$DEVICE_STATIC
if [ -z "$SANITIZE" ] && command -v qemu-aarch64 > /dev/null && [ -x $static/thermo-run ] && [ -x $static/thermo-probe ]; then
    programs=$static emulator="qemu-aarch64 -p 16384 " pause=1
fi
seed=${DEVICE_SEED:-$RANDOM} log=$tmp/adb.log
echo "# DEVICE_SEED=$seed, $programs${DEVICE_TMP:+, in a folder of its own}"
mkdir "$tmp/bin" "$tmp/phone" "$tmp/home"
chmod 755 "$tmp"
touch "$tmp/lost"
root=/ phone=$tmp/phone at="$tmp/phone/thermo cline"
# What a phone's shell needs, with its libraries.
tenant()
{
    for p; do
        p=$(command -v "$p") && cp -L "$p" "$root/bin/" || return
        ldd "$p" 2> /dev/null | grep -o '/[^ ]*' | xargs -r cp -Lu --parents -t "$root" || return
    done
}
if [ -n "$DEVICE_TMP" ]; then
    root=$tmp/phone phone=$tmp/phone/data at="/data/local/tmp/thermo cline"
    mkdir "$root/bin" "$root/dev" "$root/proc" "$root/data"
    { tenant sh cat base64 chmod df dd mkdir mv nohup rm setsid sha256sum sleep tail ${emulator:+qemu-aarch64} &&
        { [ -n "$emulator" ] || tenant "$BIN/thermo-run" "$BIN/thermo-probe"; } && rm -f "$root"/bin/thermo-*; } ||
        { echo "Bail out! no folder for a phone"; exit 1; }
    mknod -m 666 "$root/dev/null" c 1 3 && mknod -m 666 "$root/dev/zero" c 1 5 && mknod -m 666 "$root/dev/urandom" c 1 9 &&
        mount -t proc none "$root/proc" && mount -t tmpfs -o size=96m none "$root/data" && mkdir -p "$root/data/local/tmp" ||
        { echo "Bail out! no file systems for a phone"; exit 1; }
fi
chmod -R 777 "$phone"
on_phone=${root%/}$at
# leave KIB: of the phone's disk
leave() { fallocate -l $(($(df -k --output=avail "$phone" | tail -n 1) - $1))K "$phone/fill"; }
# Of six calls one is lost: before anything was done, at some moment meanwhile, or when not all of its answer has arrived.
cat > "$tmp/bin/fate" << END
echo "\$1" >> "$log"
fate=\$(echo "$seed \$(wc -l < "$log")" | cksum | cut -d ' ' -f 1)
kind=\$((fate % 6 == 0 ? fate / 6 % 3 : 3)) fate=\$((fate / 18))
[ \$kind = 3 ] || echo "\$1 \$kind" >> "$tmp/lost"
[ \$kind != 0 ] || exit 255
# meanwhile COMMAND...: ended after at most 0.3 s
meanwhile()
{
    setsid "\$@" &
    sleep 0.\$(printf %03d \$((fate % 300)))
    kill -KILL -- -\$! 2> /dev/null
    wait
    exit 255
}
END
cat > "$tmp/bin/adb" << END
#!/bin/bash
[ "\$1" = -s ] && [ "\$2" = FA6A1 ] || { echo "adb: more than one device" >&2; exit 1; }
shift 2
. "$tmp/bin/fate"
case \$1 in
push)
    to=${root%/}\$3
    [ ! -e "$tmp/fill" ] || { rm "$tmp/fill"; $(declare -f leave | sed 's/\$phone/'"${phone//\//\\/}"'/g'); leave 1000; }
    [ \$kind = 3 ] || { head -c \$((fate % 2000000)) "\$2" > "\$to"; chmod 666 "\$to"; exit 1; }
    cat "\$2" > "\$to.copy" && chmod 666 "\$to.copy" && mv "\$to.copy" "\$to" || { rm -f "\$to.copy"; exit 1; } ;;
shell)
    shell=(tests/cli/device_shell.py "$root" "\${2//.\/thermo-/$emulator./thermo-}")
    [ \$kind != 1 ] || meanwhile "\${shell[@]}"
    said=\$("\${shell[@]}"; echo x)
    said=\${said%x}
    [ \$kind = 3 ] || { printf %s "\${said:0:\$((fate % (\${#said} + 1)))}"; exit 255; }
    printf %s "\$said" ;;
esac
END
chmod +x "$tmp/bin/adb"
ended= # how a step is ended before its time
step() # STEP PROGRAMS OPTION...
{
    local step=$1 programs=$2
    shift 2
    PATH="$tmp/bin:$PATH" DEVICE_CHUNK=4194304 DEVICE_PAUSE=$pause BIN=$BIN $ended scripts/device.sh "$step" --programs "$programs" \
        --model "$model" --traces "$traces" --tokens 40 --generate "--temp 0 --cpu scalar" --solve "--context 256 --form split --packed no" \
        --probe "--quick --range 8MiB --memory-range 8MiB --seconds-per-point 0.003 --patience 0 --types q8_0,f16 --engine none" "$@"
}
device()
{
    step "$1" "$programs" --name "my phone" --serial FA6A1 --at "$at" --out "$tmp/out dir" --memory "${2:-18MiB}"
}
arrived() { cmp "$tmp/out dir/model.thermo" "$on_phone/model.thermo" && cmp "$tmp/out dir/plan.json" "$on_phone/plan.json"; }
pushes() { grep -c push "$log"; }
# The tokens of what is in a folder, generated here.
tokens()
{
    "$BIN/thermo-run" generate -q --model "$1/model.thermo" --plan "$1/plan.json" --prompt 'Once upon a time' -n 40 --json --temp 0 --cpu scalar \
        > "$tmp/here.jsonl" && grep -o '"id":[0-9]*' "$tmp/here.jsonl" > "$tmp/here" && [ "$(wc -l < "$tmp/here")" = 40 ] &&
        grep -o '"id":[0-9]*' "$1/run.jsonl" | cmp - "$tmp/here" && [ -s "$1/text.txt" ]
}

killed() { tests/cli/device_shell.py / "python3 -c 'import ctypes; ctypes.CDLL(None).syscall(425, 0, 0)'"; [ $? = 159 ]; }
check "a shell where io_uring is death" killed
if [ -n "$DEVICE_TMP" ]; then
    leave 1000
    check "a full disk is said" says 4 "bytes free" device push
    check "and nothing was copied" sh -c "! grep -q push '$log'"
    rm "$phone/fill"
fi
check "push" says 0 "sending thermo-probe" device push
check "probe: figures of the device" says 0 "my phone: " device probe
check "a limit beyond its memory is refused" says 4 "available: a smaller --memory" device plan 900GiB
check "plan" says 0 "" device plan
check "by pread, where io_uring is death" grep -q '"pread"' "$tmp/out dir/plan.json"
check "pack" says 0 "" device pack
if [ -n "$DEVICE_TMP" ]; then
    touch "$tmp/fill"
    check "a disk that fills up meanwhile is said" says 4 "is full" device send
    rm -f "$phone/fill"
fi
# Killed while it sends; then the rest goes.
ended="timeout -s KILL 1" device send > /dev/null 2>&1
check "send goes on where it was interrupted" says 0 "" device send
check "what arrived is what was sent" arrived
check "run: text" says 0 " " device run
check "generated there, the same as here" tokens "$tmp/out dir"
check "calibrate" says 0 "" device calibrate
before=$(pushes)
check "all again" says 0 "" device all
check "sends nothing" [ "$before" = "$(pushes)" ]
printf x >> "$on_phone/model.thermo"
check "what is not as it was sent" says 0 "sending model.thermo" device send
check "is sent again" arrived
check "the connection was lost ten times and more" [ "$(wc -l < "$tmp/lost")" -ge 10 ]
echo "# lost: $(sort "$tmp/lost" | uniq -c | xargs)"
check "which of two devices is not said" says 6 "more than one device" env PATH="$tmp/bin:$PATH" DEVICE_PAUSE=0 scripts/device.sh push \
    --name x --out "$tmp/x" --tries 2
check "no such step" says 2 "usage" scripts/device.sh fly --name x

# An sshd with keys and a port of its own; else what does as if.
sshd=$(PATH=$PATH:/usr/sbin command -v sshd)
[ -z "$sshd" ] || [ "$(id -u)" != 0 ] || [ -n "$DEVICE_TMP" ] || sshd=
if [ -n "$sshd" ]; then
    [ "$(id -u)" != 0 ] || { mount -t tmpfs none /run && mkdir -m 755 /run/sshd; }
    for k in host user; do
        ssh-keygen -q -t ed25519 -N '' -f "$tmp/$k"
    done
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    cat > "$tmp/sshd_config" << END
ListenAddress 127.0.0.1
Port $port
HostKey $tmp/host
AuthorizedKeysFile $tmp/user.pub
PidFile $tmp/sshd.pid
StrictModes no
UsePAM no
PermitRootLogin yes
MaxStartups 100
END
    cat > "$tmp/ssh_config" << END
Host board
HostName 127.0.0.1
Port $port
User $(id -un)
IdentityFile $tmp/user
UserKnownHostsFile $tmp/known
StrictHostKeyChecking accept-new
LogLevel ERROR
END
    "$sshd" -f "$tmp/sshd_config" -E "$tmp/sshd.log" || cat "$tmp/sshd.log"
    [ -n "$DEVICE_TMP" ] || trap 'kill "$(cat "$tmp/sshd.pid")"; rm -rf "$tmp"' EXIT
    cat > "$tmp/bin/ssh" << END
#!/bin/bash
. "$tmp/bin/fate"
[ \$kind = 3 ] || exec timeout -s KILL 0.\$(printf %03d \$((fate % 300))) $(command -v ssh) -F "$tmp/ssh_config" "\$@"
exec $(command -v ssh) -F "$tmp/ssh_config" "\$@"
END
    by="an sshd"
else
    printf '#!/bin/sh\ncd "%s" || exit 255\nexec sh -c "$4"\n' "$tmp/home" > "$tmp/bin/ssh"
    by="a stand-in"
fi
chmod +x "$tmp/bin/ssh"
check "all, over ssh, by $by" says 0 " " step all "$BIN" --over ssh --host board --name board --at "$tmp/home/thermo cline" \
    --out "$tmp/board" --memory 18MiB
check "generated there, the same as here" tokens "$tmp/board"
check "a local folder" says 0 "sending" step push "$BIN" --name here --over local --at "$tmp/local" --out "$tmp/here.out"
done_testing
