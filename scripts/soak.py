#!/usr/bin/env python3
"""soak.py: thermo-run under load, for a given time: random memory limits, back ends, threads, chunks, prompts and seeds;
runs that are interrupted, killed, or whose reader goes away; and one long run whose memory is watched.

What must hold: the text is that of the resident run of the same prompt, length and seed, whatever else differs (of an interrupted
run: a beginning of it); the peak stays within the limit; exit status 0, or 130 after an interrupt, within a bound; a long run's
memory does not grow; nothing is left behind. Prints one JSON summary on standard output; exit status 1 when anything did not hold."""
import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time

HANG_SECONDS = 120
GROWTH_BYTES = 256 << 10
PROMPTS = ["Once upon a time", "The little dog", "Tom and Mia went to the park.", "One day, a bird", "In a big forest there was", "x"]


class Soak:
    def __init__(self, args):
        self.args, self.rng = args, random.Random(args.seed)
        self.counts = {k: 0 for k in ("runs", "whole", "interrupted", "ended_before_the_interrupt", "killed", "reader_gone", "watched",
                                      "tokens")}
        self.references, self.bad, self.times = {}, [], []
        self.end = time.monotonic() + args.minutes * 60
        self.floor = self.floor_of()
        self.peak_share = self.growth = 0

    def command(self, *more):
        a = self.args
        return [f"{a.bin}/thermo-run", "generate", "--model", a.model, "--plan", a.plan, "-q", "--json", *more]

    def floor_of(self):
        p = subprocess.run([f"{self.args.bin}/thermo-run", "logits", "--model", self.args.model, "--plan", self.args.plan,
                            "--memory", "1MiB", "--tokens", "1", "--prefill-chunk", "32",
                            "--threads", str(os.cpu_count() or 1)], capture_output=True, text=True, check=False)
        words = p.stderr.split("below the floor of ")
        if len(words) < 2:
            sys.exit(f"soak.py: thermo-run does not say what its floor is: {p.stderr.strip()}")
        return int(words[1].split()[0])

    def wrong(self, what, command, more=""):
        self.bad.append({"what": what, "command": " ".join(command), "detail": more[-800:]})
        print(f"soak.py: {what}: {' '.join(command)}\n{more[-800:]}", file=sys.stderr)

    def case(self):
        """What decides on the text, and what must not."""
        r, top = self.rng, 2 * os.path.getsize(self.args.model)
        text = ["--prompt", r.choice(PROMPTS), "-n", str(r.choice((5, 20, 60))), "--seed", str(r.randrange(3)), "--temp", "0.8"]
        memory = self.floor + int((top - self.floor) * r.random() ** 2)
        rest = ["--memory", str(memory), "--io", r.choice(("io_uring", "pread", "auto")), "--prefill-chunk", str(r.choice((1, 7, 32))),
                "--threads", str(r.randint(1, os.cpu_count() or 1)), "--no-mlock"]
        return text, rest + (["--no-warm-start"] if r.random() < 0.3 else []), memory

    @staticmethod
    def text_of(out):
        tokens, summary = "", None
        for line in out.splitlines():
            try:
                j = json.loads(line)
            except ValueError:
                break # cut
            if j["type"] == "token":
                tokens += j["text"]
            elif j["type"] == "summary":
                summary = j
        return tokens, summary

    def reference(self, text):
        key = tuple(text)
        if key not in self.references:
            command = self.command(*text, "--threads", "1")
            p = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG_SECONDS)
            if p.returncode:
                self.wrong(f"exit status {p.returncode}", command, p.stderr)
            self.references[key] = self.text_of(p.stdout)[0]
        return self.references[key]

    def finish(self, p, command):
        try:
            return p.communicate(timeout=HANG_SECONDS)
        except subprocess.TimeoutExpired:
            p.kill()
            self.wrong(f"no end within {HANG_SECONDS} s", command)
            return p.communicate()

    def run_whole(self, text, rest, memory):
        command = self.command(*text, *rest)
        start = time.monotonic()
        p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        out, err = self.finish(p, command)
        self.times.append(time.monotonic() - start)
        got, summary = self.text_of(out)
        self.counts["whole"] += 1
        self.counts["tokens"] += len(out.splitlines())
        if p.returncode or not summary:
            self.wrong(f"exit status {p.returncode}", command, err)
        elif got != self.reference(text):
            self.wrong("another text", command, f"{got!r} instead of {self.reference(text)!r}")
        elif summary["peak_bytes"] > memory:
            self.wrong(f"a peak of {summary['peak_bytes']} bytes", command)
        else:
            self.peak_share = max(self.peak_share, summary["peak_bytes"] / memory)

    def run_interrupted(self, text, rest, _memory):
        command = self.command(*text, *rest)
        p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        typical = sorted(self.times)[len(self.times) // 2] if self.times else 1
        time.sleep(self.rng.random() * typical)
        p.send_signal(signal.SIGINT)
        out, err = self.finish(p, command)
        got, _ = self.text_of(out)
        self.counts["interrupted" if p.returncode == 130 else "ended_before_the_interrupt"] += 1
        early = p.returncode == -signal.SIGINT and not out # before it looks at signals
        if p.returncode not in (0, 130) and not early:
            self.wrong(f"exit status {p.returncode} after an interrupt", command, err)
        elif not self.reference(text).startswith(got):
            self.wrong("another text before the interrupt", command, f"{got!r}, not the beginning of {self.reference(text)!r}")

    def run_killed(self, text, rest, _memory):
        p = subprocess.Popen(self.command(*text, *rest), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(self.rng.random() * 0.3)
        p.kill()
        p.wait()
        self.counts["killed"] += 1

    def run_unread(self, text, rest, _memory):
        command = self.command(*text, *rest)
        p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        p.stdout.readline()
        p.stdout.close()
        p.stdout = None
        _, err = self.finish(p, command)
        self.counts["reader_gone"] += 1
        if p.returncode == 0 and int(text[3]) > 20: # it cannot have written everything into a pipe that is closed
            self.wrong("exit status 0 though nobody read it", command, err)

    def watch(self):
        """One long run, at the floor and something: memory after its first tenth is memory at its end."""
        memory = self.floor + (1 << 20)
        command = [f"{self.args.bin}/thermo-run", "bench", "--model", self.args.model, "--plan", self.args.plan, "-q",
                   "--memory", str(memory), "-p", "16", "-n", "100", "--repetitions", "1000", "--no-mlock"]
        p = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        seen, end = [], time.monotonic() + self.args.watch_seconds
        while time.monotonic() < end and p.poll() is None:
            time.sleep(0.1)
            try:
                with open(f"/proc/{p.pid}/status", encoding="ascii") as f:
                    seen += [int(line.split()[1]) << 10 for line in f if line.startswith("VmRSS")]
            except OSError:
                break
        p.send_signal(signal.SIGINT)
        _, err = self.finish(p, command)
        self.counts["watched"] += 1
        if p.returncode != 130 or len(seen) < 10:
            self.wrong(f"exit status {p.returncode} of a watched run", command, err)
            return
        grown = max(seen) - max(seen[: max(1, len(seen) // 5)])
        self.growth = max(self.growth, grown)
        if grown > GROWTH_BYTES or max(seen) > memory:
            self.wrong(f"memory grew by {grown} bytes to {max(seen)} of {memory}", command)

    def go(self):
        kinds = [self.run_whole] * 6 + [self.run_interrupted] * 3 + [self.run_killed, self.run_unread]
        self.watch()
        while time.monotonic() < self.end:
            self.rng.choice(kinds)(*self.case())
            self.counts["runs"] += 1
        return {**self.counts, "floor_bytes": self.floor, "largest_peak_of_its_limit": round(self.peak_share, 4),
                "largest_growth_bytes": self.growth, "seed": self.args.seed, "minutes": self.args.minutes, "wrong": self.bad}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bin", default=os.environ.get("BIN", "build/bin"), help="folder of the programs (default: $BIN or build/bin)")
    p.add_argument("--model", required=True, help="packed model")
    p.add_argument("--plan", required=True, help="its plan")
    p.add_argument("--minutes", type=float, default=10, help="how long (default: 10)")
    p.add_argument("--watch-seconds", type=float, default=10, help="of that, the run whose memory is watched (default: 10)")
    p.add_argument("--seed", type=int, default=int(time.time()), help="of what is drawn (default: the time)")
    args = p.parse_args()
    summary = Soak(args).go()
    print(json.dumps(summary, indent=1))
    sys.exit(1 if summary["wrong"] else 0)


if __name__ == "__main__":
    main()
