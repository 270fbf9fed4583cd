#!/bin/bash
# thermo-pack pack --consume: the pack is that of a run without it, the model's blocks are freed while it is made, and every program says so. It is refused
# where the file may be another's to lose, one case after the other. Stopped at 20 random moments, of each kind twice (of each kind once in short runs, at 4 under sanitizers; TIMES=N), by SIGINT, SIGTERM, SIGKILL and
# writes for which there is no room, with --consume and without, the same command comes to the same bytes; at each moment the model is
# whole or marked. thermocline --consume does as much for its cache. SEED=N repeats a run.
. tests/tap.sh
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }
scratch
here=$(pwd -P)
case $BIN in /*) ;; *) BIN=$here/$BIN ;; esac
pack=$BIN/thermo-pack
fallocate -l 1MiB "$tmp/hole" && fallocate -p -o 0 -l 1MiB "$tmp/hole" || { echo "1..0 # SKIP no hole punching on $tmp"; exit 77; }
phone "$tmp/hw.sqlite" > /dev/null || exit 1

# made NAME PLAN-FLAGS MAKE-FLAGS...: NAME.gguf, .h5, .json, and .thermo as it is without --consume.
made()
{
    local m=$tmp/$1 flags=$2
    shift 2
    "$BIN/gguf-make" random -q --context 128 --seed 1 "$@" "$m.gguf" &&
        "$BIN/thermo-profile" trace -q --model "$m.gguf" --prompts datasets/prompts/stories-profile.csv --max-tokens 256 --window-tokens 64 --out "$m.h5" > /dev/null &&
        "$BIN/thermo-plan" solve -q --traces "$m.h5" --hardware "$tmp/hw.sqlite" --context 64 --memory 64MiB $flags --out "$m.json" > /dev/null &&
        "$pack" pack -q --model "$m.gguf" --traces "$m.h5" --plan "$m.json" --out "$m.thermo" > /dev/null
}
made dense "--form split --packed no --down-type q8_0" --act relu --layers 60 --ff 1024 --vocab 2600 || exit 1
made experts "--form tiles" --act silu --layers 6 --ff 512 --vocab 2600 --experts 16 --experts-used 2 --type q8_0 || exit 1

run() # NAME MODEL OUT...: pack --consume
{
    local m=$1 model=$2 out=$3
    shift 3
    "$pack" pack --consume "$@" --model "$model" --traces "$tmp/$m.h5" --plan "$tmp/$m.json" --out "$out"
}

for m in dense experts; do
    cp "$tmp/$m.gguf" "$tmp/$m-eaten.gguf"
    check "$m: the same bytes as without" sh -c '"$@" > /dev/null && cmp "$0.thermo" "$0-out"' "$tmp/$m" "$pack" pack --consume --model "$tmp/$m-eaten.gguf" \
        --traces "$tmp/$m.h5" --plan "$tmp/$m.json" --out "$tmp/$m-out"
    check "$m: of the model a twentieth of the blocks is left, at the same size and the mark" sh -c '
        test $(($(stat -c %b "$2") * 20)) -le "$(stat -c %b "$1")" && test "$(stat -c %s "$2")" = $(($(stat -c %s "$1") + 4096))' \
        - "$tmp/$m.gguf" "$tmp/$m-eaten.gguf"
    check "$m: nothing else is left" test -z "$(find "$tmp" -name "$m-out.*")"
    check "$m: the same command again finds it done" says 0 "is there already" run $m "$tmp/$m-eaten.gguf" "$tmp/$m-out"
done
eaten=$tmp/dense-eaten.gguf
by="consumed by pack '$tmp/dense-out'"
check "thermo-pack says by whom" says 5 "$by" "$pack" pack --model "$eaten" --traces "$tmp/dense.h5" --plan "$tmp/dense.json" --out "$tmp/no"
check "thermo-profile" says 5 "$by" "$BIN/thermo-profile" trace --model "$eaten" --prompts datasets/prompts/stories-profile.csv --out "$tmp/no"
check "thermo-plan" says 5 "$by" "$BIN/thermo-plan" solve --model "$eaten" --memory 64MiB
check "thermocline" says 5 "$by" "$BIN/thermocline" "$eaten" --cache "$tmp/cache" -p x --tokens 1
check "thermo-quantize" says 5 "$by" "$BIN/thermo-quantize" "$eaten" "$tmp/no" q8_0
check "thermo-run" says 3 "a pack has consumed" "$BIN/thermo-run" generate --model "$eaten" --plan "$tmp/dense.json" -p x
check "people" sh -c 'tail -n 1 "$1" | grep -qx "consumed by pack $2"' - "$eaten" "$tmp/dense-out"
check "another --out is refused" says 5 "$by, or is being" run dense "$eaten" "$tmp/other"
rm "$tmp/dense-out"
check "where the pack is gone, it is said" says 5 "cannot be got back" run dense "$eaten" "$tmp/dense-out"

# ---- refused, and nothing touched ----

f=$tmp/f.gguf
refused() # PATTERN [MODEL]
{
    says 2 "--consume: .*$1.*nothing was touched" run dense "${2:-$f}" "$tmp/no" && cmp "$f" "$tmp/dense.gguf" && test -z "$(find "$tmp" -name 'no*')"
}
cp "$tmp/dense.gguf" "$f"
ln "$f" "$tmp/hard"
check "a file of several names is refused" refused "hard links"
rm "$tmp/hard"
ln -s "$f" "$tmp/soft.gguf"
check "a symbolic link" refused "symbolic link" "$tmp/soft.gguf"
mkdir -p "$tmp/hub/blobs" && cp "$f" "$tmp/hub/blobs/sha256-0"
check "a blob of a store" refused "store of blobs" "$tmp/hub/blobs/sha256-0"
chmod a-w "$f"
check "a read-only file" refused "read-only"
chmod u+w "$f"
if [ "$(id -u)" = 0 ]; then
    chown 65534 "$f"
    check "another user's" refused "another user"
    chown 0 "$f"
fi
exec 8< "$f"
check "one that another process has open" refused "is open in another process"
exec 8<&-
python3 -c 'import fcntl, sys, time; f = open(sys.argv[1], "rb"); fcntl.flock(f, fcntl.LOCK_SH); print(flush=True); time.sleep(60)' "$f" > "$tmp/locked" &
locker=$!
until [ -s "$tmp/locked" ]; do sleep 0.05; done
check "one that another process has locked" refused "locked by another process"
kill $locker; wait $locker 2> /dev/null
if [ "$(id -u)" = 0 ] && command -v mkfs.vfat > /dev/null && truncate -s 64M "$tmp/fat" && mkfs.vfat "$tmp/fat" > /dev/null 2>&1 &&
    mkdir "$tmp/mnt" && mount -o loop "$tmp/fat" "$tmp/mnt" 2> /dev/null; then
    cp "$f" "$tmp/mnt/f.gguf"
    check "a file system without hole punching" refused "hole punching" "$tmp/mnt/f.gguf"
    umount "$tmp/mnt"
fi
check "a comparison with what will be gone" says 2 "give one of them" run dense "$f" "$tmp/no" --quality-tokens 8
printf x | dd of="$f" bs=1 seek=900000 conv=notrunc 2> /dev/null
cp "$f" "$tmp/before"
check "a model that is not the trace's" says 5 "has hash" run dense "$f" "$tmp/no"
check "stays as it was, and nothing is left" sh -c 'cmp "$1" "$2" && test -z "$(find "$3" -name "no*")"' - "$f" "$tmp/before" "$tmp"

# Shards: all or none.
python3 tests/split_gguf.py "$tmp/dense.gguf" "$tmp/s" 3 > /dev/null
first=$tmp/s-00001-of-00003.gguf
last=$(ls "$tmp"/s*-of-*.gguf | tail -n 1)
cat "$tmp"/s*-of-*.gguf | cksum > "$tmp/sums"
chmod a-w "$last"
check "a shard that may not go keeps all of them, and the message names it" says 2 "is read-only" run dense "$first" "$tmp/s.thermo"
check "nothing of them went" sh -c 'cat "$0"/s*-of-*.gguf | cksum | cmp - "$0/sums"' "$tmp"
chmod u+w "$last"
check "shards are consumed to the bytes of the whole" sh -c '"$@" > /dev/null && cmp "$0.thermo" "$0-s"' "$tmp/dense" "$pack" pack --consume --model "$first" \
    --traces "$tmp/dense.h5" --plan "$tmp/dense.json" --out "$tmp/dense-s"
check "each of them is marked" says 5 "consumed by pack" "$pack" mtp --model "$last" --out "$tmp/no"

# ---- thermocline --consume ----

"$BIN/gguf-make" random -q --act relu --context 128 --layers 8 --ff 2048 --seed 1 "$tmp/whole.gguf" || exit 1
drive() # MODEL OPTIONS...
{
    XDG_CACHE_HOME=$tmp/cache "$BIN/thermocline" "$@" --hardware "$tmp/hw.sqlite" --memory 64MiB --context 64 --max-tokens 256
}
answers() { drive "$tmp/d.gguf" -p x --tokens 3 -- --temp 0 --seed 1; }
rm -rf "$tmp/cache"
cp "$tmp/whole.gguf" "$tmp/d.gguf"
ln -s "$tmp/d.gguf" "$tmp/l.gguf"
check "thermocline: refused before anything is made" says 2 "symbolic link" drive "$tmp/l.gguf" --consume --tokens 0
check "nothing was made" test ! -e "$tmp/cache"
check "thermocline --consume frees the model" sh -c '"$@" && test $(($(stat -c %b "$0") * 20)) -le $(($(stat -c %s "$0") / 512))' "$tmp/d.gguf" \
    env XDG_CACHE_HOME="$tmp/cache" "$BIN/thermocline" "$tmp/d.gguf" --consume --tokens 0 --hardware "$tmp/hw.sqlite" --memory 64MiB --context 64 --max-tokens 256
check "the same model answers, without --consume too" says 0 "4 pack: up to date" drive "$tmp/d.gguf" -p x --tokens 3
check "for another limit a plan is made for the pack" says 0 "4 pack: up to date" env XDG_CACHE_HOME="$tmp/cache" "$BIN/thermocline" "$tmp/d.gguf" \
    --hardware "$tmp/hw.sqlite" --memory 48MiB --context 64 --max-tokens 256 -p x --tokens 3
check "--fresh is refused" says 2 "nothing can be made again" drive "$tmp/d.gguf" --fresh --tokens 0
check "so is what needs another trace" says 2 "no trace can be made" env XDG_CACHE_HOME="$tmp/cache" "$BIN/thermocline" "$tmp/d.gguf" --max-tokens 300 \
    --hardware "$tmp/hw.sqlite" --memory 64MiB --context 64 --tokens 0
check "its only weights are not removed" says 2 "the only weights" env XDG_CACHE_HOME="$tmp/cache" "$BIN/thermocline" remove d
cp "$tmp"/cache/thermocline/models/d-*/model.thermo "$tmp/d.thermo"
drive_stopped()
{
    local i
    for i in $(seq "${TIMES:-$(of 4 1)}"); do
        rm -rf "$tmp/cache"
        cp "$tmp/whole.gguf" "$tmp/d.gguf"
        for again in 1 2; do
            setsid env XDG_CACHE_HOME="$tmp/cache" "$BIN/thermocline" "$tmp/d.gguf" --consume --tokens 0 --hardware "$tmp/hw.sqlite" --memory 64MiB \
                --context 64 --max-tokens 256 > /dev/null 2>&1 &
            local pid=$!
            sleep "0.$((RANDOM % 10))$((RANDOM % 10))"
            kill -KILL -- -$pid 2> /dev/null
            wait $pid 2> /dev/null
        done
        drive "$tmp/d.gguf" --consume --tokens 0 || { echo "moment $i: it did not go on"; return 1; }
        cmp "$tmp/d.thermo" "$tmp"/cache/thermocline/models/d-*/model.thermo || return 1
    done
}
check "thermocline killed with all that works for it goes on to the same bytes" drive_stopped

# ---- stopped anywhere ----

cat > "$tmp/moments.py" << 'END'
import os, random, resource, shutil, signal, subprocess, sys, time
pack, tmp, name, times, seed = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
rng = random.Random(seed)
made, model, out = f"{tmp}/{name}", f"{tmp}/{name}-moment.gguf", f"{tmp}/{name}-moment.thermo"
whole, want = open(made + ".gguf", "rb").read(), open(made + ".thermo", "rb").read()

def drive(consume, **more):
    return subprocess.Popen([pack, "pack", "-q", "--model", model, "--traces", made + ".h5", "--plan", made + ".json", "--out", out] +
                            consume * ["--consume"], stdout=subprocess.DEVNULL, stderr=open(tmp + "/talk", "w"), **more)

def fail(text):
    sys.exit(f"{name}, seed {seed}: {text}\n" + open(tmp + "/talk").read())

def begin():
    for n in os.listdir(tmp):
        if n.startswith(f"{name}-moment"):
            os.unlink(f"{tmp}/{n}")
    shutil.copyfile(made + ".gguf", model)

def blocks(n):
    try:
        return os.stat(n).st_blocks * 512
    except OSError:
        return 0

def peak_of(p, before):
    """Of model and pack, where the pack is the same before and after the model is looked at, so that both are of one moment; and of the journal."""
    both = journal = 0
    while p.poll() is None:
        first, of_model, then = blocks(out + ".packing"), blocks(model), blocks(out + ".packing")
        if first == then:
            both = max(both, first + of_model - before)
        journal = max(journal, blocks(out + ".partial"))
    return both, journal

def no_room():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    most = int(len(want) * rng.random())
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

took, peak, journal = [0, 0], 0, 0
for consume in 0, 1:
    begin()
    before, start = blocks(model), time.monotonic()
    p = drive(consume)
    peak, journal = peak_of(p, before)
    took[consume] = time.monotonic() - start
    if p.returncode or open(out, "rb").read() != want:
        fail("an undisturbed run")
print(f"{name}: {len(whole)} bytes, peak of disk beside them {peak} ({100 * peak / len(whole):.2f} %) and {journal} of journal, {took[0]:.2f} s, with --consume {took[1]:.2f} s")
stopped, marked = {}, 0
for n in range(times):
    consume, how = n % 2, ("kill", "int", "kill", "term", "room")[n // 2 % 5]
    begin()
    for again in range(1 + rng.randrange(3)):
        p = drive(consume, preexec_fn=no_room if how == "room" else None)
        if how != "room":
            time.sleep(took[consume] * rng.random())
            p.send_signal({"int": signal.SIGINT, "term": signal.SIGTERM}.get(how, signal.SIGKILL))
        r = p.wait()
        if r not in {"int": (0, 130, -2), "term": (0, 130, -15), "kill": (0, -9), "room": (0, 1, 6)}[how]:
            fail(f"{how}: exit status {r}")
        stopped[how] = stopped.get(how, 0) + (r != 0)
        now = open(model, "rb").read()
        if now[:4] == b"GGUC":
            marked += 1
            if not consume:
                fail("marked without --consume")
        elif now[:len(whole)] != whole:
            fail(f"after {how} the model is neither whole nor marked")
    p = drive(consume)
    if p.wait():
        fail(f"after {how} it did not go on: exit status {p.returncode}")
    if open(out, "rb").read() != want:
        fail(f"after {how} other bytes")
    if os.path.exists(out + ".packing") or os.path.exists(out + ".partial"):
        fail("something is left")
    now = open(model, "rb").read()
    if consume != (now[:4] == b"GGUC") or (not consume and now != whole):
        fail("the model at the end")
print(f"seed {seed}, stopped: {stopped}, {marked} times while the model was being consumed")
if sum(stopped.values()) == 0 or (times >= 16 and not marked):
    fail("nothing was stopped")
room = len(whole) // 50 + (1 << 20) + max(0, len(want) - len(whole))
if peak > room:
    fail(f"{peak} bytes of disk beside the model's own, more than {room}")
END
times=$(of 20 10)
[ -z "${SANITIZE:-}" ] || times=4
moments() { python3 "$tmp/moments.py" "$pack" "$tmp" "$1" "${TIMES:-$times}" "${SEED:-$RANDOM}"; }
check "dense: stopped anywhere, the same bytes; the model is never lost" moments dense
check "experts: the same" moments experts
done_testing
