#!/usr/bin/env python3
"""bench_serve.py turns|clients --server NAME=COMMAND --server NAME=COMMAND ...

Speeds of servers that speak OpenAI's chat/completions, beside each other: thermo-serve, and any other that somebody built. COMMAND has
{port}, which is made up, or is an address, http://HOST:PORT, of a server that runs.

turns    one conversation on each, a turn of one and a turn of the other: how many tokens of each prompt were read, and not found in memory,
         and the time to the first token.
clients  so many at once, each with one request after another, for some seconds; one server after the other, each in a memory cgroup of
         --memory with --drop FILE out of the page cache: tokens/s of all, and times to the first token."""
import argparse
import http.client
import json
import os
import random
import shlex
import socket
import statistics
import subprocess
import sys
import threading
import time

from bench_runner import Group, drop_pages
from bench_settings import die, say, size

WORDS = ("a the little old red boat cat dog king girl river garden stone bread winter light window friend house road bird story song night "
         "sea went saw found said made lost came took asked sent under over with from into near every when why where how which "
         "again").split()


class Server:
    """A process, in a memory cgroup where there is a limit, or an address."""

    def __init__(self, spec, log):
        self.name, _, self.command = spec.partition("=")
        if not self.command:
            die(2, f"--server {spec}: NAME=COMMAND is needed")
        self.group, self.child, self.log = None, None, log

    def start(self, limit=None, drop=(), seconds=300):
        if self.command.startswith("http://"):
            host, _, port = self.command[7:].rstrip("/").partition(":")
            self.at = host, int(port or 80)
            return
        for path in drop:
            if drop_pages(path):
                say(f"bench_serve: '{path}' stays in the page cache")
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.at = s.getsockname()
        command = shlex.split(self.command.replace("{port}", str(self.at[1])))
        if limit:
            self.group = Group()
            if not self.group.path:
                die(1, self.group.why)
            self.group.set(limit)
            command = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', self.group.path] + command
        with open(self.log, "a", encoding="utf-8") as f:
            self.child = subprocess.Popen(command, stdout=f, stderr=f)
        end = time.monotonic() + seconds
        while not self.ready():
            if self.child.poll() is not None or time.monotonic() > end:
                self.stop()
                die(1, f"{self.name} does not answer; what it said is in '{self.log}'")
            time.sleep(0.1)

    def ready(self):
        try:
            c = http.client.HTTPConnection(*self.at, timeout=5)
            c.request("GET", "/health")
            return c.getresponse().status == 200
        except OSError:
            return False

    def peak(self):
        return self.group.peak_bytes() if self.group else None

    def stop(self):
        if self.child and self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(30)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
        if self.group:
            self.group.close()
        self.group = self.child = None


def ask(at, messages, tokens, until=None, ignore_eos=False):
    """Streams an answer. A dict: text, times of its pieces (seconds after the request), usage; what the server had said by `until`, where
    that comes first."""
    body = {"model": "any", "messages": messages, "max_tokens": tokens, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}}
    if ignore_eos:
        body["ignore_eos"] = True
    c = http.client.HTTPConnection(*at, timeout=max(until - time.monotonic(), 0.01) if until else 600)
    out = {"text": "", "at": [], "usage": {}, "began": time.monotonic()}
    try:
        c.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        r = c.getresponse()
        if r.status != 200:
            raise ValueError(f"status {r.status}: {r.read(500).decode(errors='replace')}")
        while (line := r.readline()) and not (until and time.monotonic() > until):
            if until and c.sock:
                c.sock.settimeout(max(until - time.monotonic(), 0.01))
            if not line.startswith(b"data: {"):
                continue
            e = json.loads(line[6:])
            if "error" in e:
                raise ValueError(str(e["error"]))
            out["usage"] = e.get("usage") or out["usage"]
            for choice in e.get("choices", []):
                if piece := (choice["delta"].get("content") or choice["delta"].get("reasoning_content")):
                    out["text"] += piece
                    out["at"].append(time.monotonic() - out["began"])
    except TimeoutError:
        if not until:
            raise
    finally:
        c.close()
    return out


def words(r, n):
    return " ".join(r.choice(WORDS) for _ in range(n)) + "?"


def turns(args, servers):
    """One conversation on each, whose answers are its own. Servers take turns, so that what else the machine does concerns both."""
    talks = {s.name: [] for s in servers}
    rows = {s.name: [] for s in servers}
    for s in servers:
        s.start(seconds=args.patience)
        ask(s.at, [{"role": "user", "content": words(random.Random(0), 4)}], 4)  # what the first request takes longer is no turn's
    for turn in range(1, args.turns + 1):
        for s in servers:
            talk = talks[s.name]
            talk.append({"role": "user", "content": words(random.Random(args.seed + turn), args.words)})
            a = ask(s.at, talk, args.tokens)
            talk.append({"role": "assistant", "content": a["text"]})
            u = a["usage"]
            cached = (u.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
            first, last = (a["at"][0], a["at"][-1]) if a["at"] else (float("nan"), float("nan"))
            prompt, made = u["prompt_tokens"], u["completion_tokens"]
            rows[s.name].append({"turn": turn, "prompt": prompt, "read": prompt - cached, "made": made, "ttft_ms": 1e3 * first,
                                 "tokens_per_s": (made - 1) / max(last - first, 1e-9)})
    for s in servers:
        s.stop()
    print("| turn | " + " | ".join(f"{s.name}: prompt | read | first token, ms | tokens/s" for s in servers) + " |")
    print("|--|" + "--|" * 4 * len(servers))
    for i in range(args.turns):
        cells = ("{prompt} | {read} | {ttft_ms:.0f} | {tokens_per_s:.1f}".format(**rows[s.name][i]) for s in servers)
        print(f"| {i + 1} | " + " | ".join(cells) + " |")
    last = [{"name": s.name, "ttft_ms": statistics.median(r["ttft_ms"] for r in rows[s.name][-args.last:]),
             "read": statistics.median(r["read"] for r in rows[s.name][-args.last:])} for s in servers]
    print(f"\nThe last {args.last}, median: " +
          "; ".join(f"{r['name']} reads {r['read']:g} tokens, first token after {r['ttft_ms']:.0f} ms" for r in last))
    return rows


def storm(args, server):
    """What clients see in args.seconds: tokens of all, and times to first tokens."""
    end, lock = time.monotonic() + args.seconds, threading.Lock()
    firsts, tokens, waits, errors = [], [], [], []

    def client(number):
        r, rounds = random.Random(args.seed + number), 0
        while time.monotonic() < end and rounds < args.rounds:
            rounds += 1
            try:
                a = ask(server.at, [{"role": "user", "content": words(r, args.words)}], args.tokens, end, ignore_eos=True)
            except (OSError, ValueError, http.client.HTTPException) as e:
                with lock:
                    errors.append(f"{type(e).__name__}: {e}")
                if time.monotonic() < end:
                    time.sleep(0.5)
                continue
            with lock:
                if a["at"]:
                    firsts.append(a["at"][0])
                    tokens.extend(a["began"] + t for t in a["at"])
                else:
                    waits.append(time.monotonic() - a["began"])

    began = time.monotonic()
    clients = [threading.Thread(target=client, args=(i,)) for i in range(args.clients)]
    for t in clients:
        t.start()
    for t in clients:
        t.join()
    # Until the last token where all requests were done, else until the time was over.
    took = (max(tokens) if tokens and time.monotonic() < end else end) - began
    return {"tokens_per_s": sum(t <= end for t in tokens) / took, "pieces": len(tokens), "seconds": took,
            "ttft_s": statistics.median(firsts) if firsts else None, "ttft_worst_s": max(firsts + waits, default=None),
            "answers": len(firsts), "without": len(waits), "errors": errors[:3], "n_errors": len(errors)}


def clients(args, servers):
    limit, rows = args.memory and size(args.memory), {s.name: [] for s in servers}
    if args.memory and not limit:
        die(2, f"--memory {args.memory}: a size is needed, as 2500MB")
    print(f"{args.clients} clients, prompts of {args.words} words, answers of {args.tokens} tokens, at most {args.seconds:g} s"
          f"{f', {args.memory} of memory' if args.memory else ''}\n")
    print("| server | tokens/s of all | first token, s: median | worst | requests | of them without a token | peak, MB |\n"
          "|--|--|--|--|--|--|--|")
    for _ in range(args.repeat):
        for s in servers:
            s.start(limit, args.drop, args.patience)
            ask(s.at, [{"role": "user", "content": "a"}], 1)
            row = storm(args, s)
            row["peak_bytes"] = s.peak()
            s.stop()
            rows[s.name].append(row)
            cells = (row["tokens_per_s"], row["ttft_s"], row["ttft_worst_s"], row["answers"] + row["without"], row["without"],
                     row["peak_bytes"] and row["peak_bytes"] / 1e6)
            cells = ("–" if x is None else f"{x:.2f}" if isinstance(x, float) else str(x) for x in cells)
            print(f"| {s.name} | " + " | ".join(cells) + " |", flush=True)
            if row["errors"]:
                say(f"bench_serve: {s.name}: {row['n_errors']} requests failed: {row['errors'][0]}")
    return rows


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=("turns", "clients"))
    p.add_argument("--server", action="append", required=True, metavar="NAME=COMMAND", help="may be given several times")
    p.add_argument("--turns", type=int, default=20)
    p.add_argument("--last", type=int, default=5, help="turns at the end whose medians are printed")
    p.add_argument("--clients", type=int, default=8)
    p.add_argument("--seconds", type=float, default=100, help="clients: most seconds for each server")
    p.add_argument("--rounds", type=int, default=10**6, help="clients: requests of each, at most")
    p.add_argument("--repeat", type=int, default=1, help="clients: all servers so many times")
    p.add_argument("--words", type=int, default=24, help="of a prompt, or of what the user says in a turn")
    p.add_argument("--tokens", type=int, default=48, help="of an answer, at most")
    p.add_argument("--memory", metavar="SIZE", help="clients: of a cgroup for each server")
    p.add_argument("--drop", action="append", default=[], metavar="FILE", help="clients: leaves the page cache before a server starts")
    p.add_argument("--patience", type=float, default=300, help="seconds that a server may take to start")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--log", default="/dev/null", metavar="FILE", help="what servers say")
    p.add_argument("--json", metavar="FILE", help="all figures")
    args = p.parse_args()
    servers = [Server(s, args.log) for s in args.server]
    try:
        rows = turns(args, servers) if args.what == "turns" else clients(args, servers)
    finally:
        for s in servers:
            s.stop()
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"what": args.what, "settings": {k: v for k, v in vars(args).items() if k != "json"}, "results": rows}, f, indent=1)


if __name__ == "__main__":
    main()
