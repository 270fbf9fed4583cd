#!/usr/bin/env python3
"""adapt.py --model PACK --plan PLAN [options]          (or: make adapt ADAPT="--model m.thermo --plan p.json")

What does the online choice bring here? thermo-run generate makes tokens; after the 50th something else takes a core (a busy loop), or the
drive gives a third of what the plan's way reads undisturbed (a control group's limit where one can be set, else other programs that read).
The time of tokens 51 to 150 after that, with --adapt on, is compared with the best of the plan's way and its alternatives, each fixed
(--adapt off, 1, 2, ...). Undisturbed, `on` and `off` alternate over all tokens. Medians of --runs; one run of each in turn.

  share    best fixed time / time with the online choice (1: as good as who knew it beforehand)

Wanted: 0.9 beside trouble, 0.97 without. The machine should have nothing else to do."""
import argparse
import json
import mmap
import os
import statistics
import subprocess
import sys
import time

BIN = os.environ.get("BIN") or "build/bin"
BEFORE, SKIPPED, COUNTED = 50, 50, 100
WANTED = {"none": 0.97, "busy": 0.9, "drive": 0.9}
V1, V2 = "/sys/fs/cgroup/blkio/thermo-adapt", "/sys/fs/cgroup/thermo-adapt"


def say(text):
    print(text, file=sys.stderr, flush=True)


def busy():
    """A loop on the last processor that there is."""
    cpu = max(os.sched_getaffinity(0))
    return [subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=lambda: os.sched_setaffinity(0, {cpu}))]


def read_on(path):
    """Random direct reads of a file, without end."""
    fd, size, at = os.open(path, os.O_RDONLY | os.O_DIRECT), os.path.getsize(path) >> 16, 1
    buffer = mmap.mmap(-1, 1 << 16)
    while True:
        at = (at * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        os.preadv(fd, [buffer], (at >> 20) % max(size, 1) << 16)


class Drive:
    """A limit of bytes a second for one process, in a control group, or other readers."""

    def __init__(self, path):
        self.path, st = path, os.stat(path)
        self.device = f"{os.major(st.st_dev)}:{os.minor(st.st_dev)}"
        self.group = None
        for group, file, text in ((V1, "blkio.throttle.read_bps_device", "{} {}"), (V2, "io.max", "{} rbps={}")):
            if self.group or not os.path.isdir(os.path.dirname(group)):
                continue
            try:
                os.mkdir(group)
                with open(os.path.join(group, file), "w") as f:
                    f.write(text.format(self.device, 1 << 40))
                self.group, self.file, self.text = group, file, text
            except OSError:
                if os.path.isdir(group):
                    os.rmdir(group)

    def how(self):
        return f"a control group's limit for {self.device}" if self.group else "two other programs that read"

    def limit(self, rate):
        with open(os.path.join(self.group, self.file), "w") as f:
            f.write(self.text.format(self.device, int(rate)))

    def enter(self, pid):
        if self.group:
            self.limit(1 << 40)
            with open(os.path.join(self.group, "cgroup.procs"), "w") as f:
                f.write(str(pid))

    def begin(self, rate):
        if self.group:
            self.limit(rate)
            return []
        return [subprocess.Popen([sys.executable, __file__, "--read-on", self.path]) for _ in range(2)]

    def done(self):
        if self.group:
            os.rmdir(self.group)


def run(args, how, trouble, drive, rate):
    """Seconds of the tokens that count, and the summary."""
    tokens = BEFORE + SKIPPED + COUNTED + 1
    command = [f"{BIN}/thermo-run", "generate", "-q", "--json", "--model", args.model, "--plan", args.plan, "--ignore-eos", "--seed", "1",
               "-p", args.prompt, "-n", str(tokens), "--adapt", how, *(["--memory", args.memory] if args.memory else [])]
    at, others, summary = [], [], None
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as p:
        try:
            if trouble == "drive":
                drive.enter(p.pid)
            for line in p.stdout:
                x = json.loads(line)
                if x["type"] == "summary":
                    summary = x
                if x["type"] != "token":
                    continue
                at.append(time.monotonic())
                if len(at) == BEFORE and trouble != "none":
                    others = busy() if trouble == "busy" else drive.begin(rate)
        finally:
            for o in others:
                o.kill()
                o.wait()
    if p.returncode or not summary or len(at) < tokens:
        sys.exit(f"adapt.py: exit status {p.returncode}, {len(at)} of {tokens} tokens: {' '.join(command)}")
    first = 0 if trouble == "none" else BEFORE + SKIPPED - 1
    return at[BEFORE + SKIPPED + COUNTED - 1] - at[first], summary


def compare(args, trouble, ways, drive, rate):
    hows = ["on", "off"] if trouble == "none" else ["on", "off", *map(str, range(1, ways))]
    seconds, changes = {h: [] for h in hows}, []
    for i in range(args.runs):
        for h in hows if i % 2 == 0 else hows[::-1]:
            s, summary = run(args, h, trouble, drive, rate)
            seconds[h].append(s)
            if h == "on":
                changes.append(summary["adapt"]["changes"])
    medians = {h: statistics.median(s) for h, s in seconds.items()}
    best = min((m, h) for h, m in medians.items() if h != "on")
    share = best[0] / medians["on"]
    say(f"{trouble:6} on {medians['on']:.3g} s, best fixed {best[0]:.3g} s (--adapt {best[1]}), plan's {medians['off']:.3g} s: share {share:.3f}"
        f"{'' if share >= WANTED[trouble] else f', below {WANTED[trouble]}'}; changes {changes}")
    return {"trouble": trouble, "share": share, "wanted": WANTED[trouble], "seconds": seconds, "changes": changes, "best": best[1]}


def main():
    if sys.argv[1:2] == ["--read-on"]:
        read_on(sys.argv[2])
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True)
    p.add_argument("--plan", required=True)
    p.add_argument("--memory", help="as of thermo-run")
    p.add_argument("--prompt", default="Once upon a time")
    p.add_argument("--trouble", default="none,busy,drive", help="which, by commas")
    p.add_argument("--runs", type=int, default=5)
    args = p.parse_args()
    drive = Drive(args.model)
    try:
        _, summary = run(args, "off", "none", drive, 0)
        ways, d = summary["adapt"]["variants"], summary["decode"]
        rate = d["read_bytes"] / (d["ms"] / 1e3) / 3
        say(f"{ways - 1} alternatives; undisturbed {d['tokens_per_s']:.4g} tokens/s, {3 * rate / 2**20:.4g} MiB/s from the drive; "
            f"throttled by {drive.how()}")
        if ways < 2:
            sys.exit("adapt.py: the plan has no alternative that can be had here")
        out = [compare(args, t, ways, drive, rate) for t in args.trouble.split(",") if t != "drive" or rate > 0]
    finally:
        drive.done()
    print(json.dumps(out))
    return 1 if any(x["share"] < x["wanted"] for x in out) else 0


if __name__ == "__main__":
    sys.exit(main())
