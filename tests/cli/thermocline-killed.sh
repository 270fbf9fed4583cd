#!/bin/bash
# thermocline stopped at 5 random moments, one of each kind (TIMES=30: at so many): SIGINT, SIGTERM, SIGKILL of it alone, SIGKILL of all that runs for it, and
# writes that fail because there is no room. The same command then goes on, stopped again now and then, and comes to the bytes of an undisturbed
# run; nothing half-written stays. The trace has two steps, of 2048 and 4096 tokens. SEED=N repeats a run.
. tests/tap.sh
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }
scratch
here=$(pwd -P)
case $BIN in /*) ;; *) BIN=$here/$BIN ;; esac
export BIN XDG_CACHE_HOME=$tmp/cache
cd "$tmp" || exit 1
"$BIN/gguf-make" random -q --act relu --context 128 --layers 3 --ff 1024 --seed 1 m.gguf || exit 1
(cd "$here" && phone_csv "$tmp/hw.csv") && "$BIN/thermo-profile" import -q --db hw.sqlite --csv hw.csv > /dev/null || exit 1

cat > moments.py << 'END'
import os, random, resource, signal, subprocess, sys, time
times, seed, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
rng = random.Random(seed)
drive = lambda out, **more: subprocess.Popen(command + ["--out", out], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=open("talk", "w"),
                                             start_new_session=True, **more)

def session(sid):
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{p}/stat") as f:
                if int(f.read().rsplit(")", 1)[1].split()[3]) == sid:
                    yield int(p)
        except OSError:
            pass

def fail(text):
    sys.exit(f"seed {seed}: {text}\n" + open("talk").read())

def content(out):
    show = subprocess.run([os.environ["BIN"] + "/thermo-profile", "show", "--json", "-q", out + "/traces.h5"], stdout=subprocess.PIPE, text=True)
    return [line for line in show.stdout.split("\n") if "hash" in line]

def same(out):
    for name in ("plan.json", "model.thermo"):
        if open(f"{out}/{name}", "rb").read() != open(f"whole/{name}", "rb").read():
            fail(f"{out}/{name} is another one")
    if content(out) != content("whole"):
        fail("another trace")
    left = [n for _, _, names in os.walk(out) for n in names if ".tmp-" in n or n.endswith((".partial", "-journal"))]
    if left:
        fail(f"left behind: {left}")

def no_room():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    most = int(size * rng.random() ** 2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

start = time.monotonic()
if drive("whole").wait():
    fail("an undisturbed run")
took, size = time.monotonic() - start, os.path.getsize("whole/model.thermo")
stopped = {}
for n in range(times):
    out, how = f"out{n}", ("int", "term", "kill", "all", "room")[n % 5]
    for again in range(1 + rng.randrange(3)):
        p = drive(out, preexec_fn=no_room if how == "room" else None)
        if how != "room":
            time.sleep(took * rng.random())
            for pid in list(session(p.pid)) if how == "all" else [p.pid]:
                try:
                    os.kill(pid, {"int": signal.SIGINT, "term": signal.SIGTERM}.get(how, signal.SIGKILL))
                except ProcessLookupError:
                    pass
        r = p.wait()
        if r not in {"int": (0, 130), "term": (0, 130), "kill": (0, -9), "all": (0, -9), "room": (0, 1, 6)}[how]:
            fail(f"{how}: exit status {r}")
        stopped[how] = stopped.get(how, 0) + (r != 0)
    if drive(out).wait():
        fail(f"after {how} it did not go on")
    same(out)
    subprocess.run(["rm", "-rf", out])
print(f"seed {seed}, {took:.1f} s undisturbed, stopped: {stopped}")
if times >= 30 and any(not stopped.get(h) for h in ("int", "term", "kill", "all", "room")[:times]):
    fail(f"one of them never came in time: {stopped}")
END
moments()
{
    python3 moments.py "${TIMES:-5}" "${SEED:-$RANDOM}" "$BIN/thermocline" m.gguf --hardware hw.sqlite --memory 64MiB --context 64 --tokens 0
}
check "at some moments all stops: it goes on to the same bytes" moments
done_testing
