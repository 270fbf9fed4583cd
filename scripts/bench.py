#!/usr/bin/env python3
"""Measures as scripts/bench.sh says (its --help names the settings; they arrive as environment variables). One process
per measurement, alternating between programs; every result is kept in STATE/results.json as soon as it is there, so
that an interrupted benchmark goes on where it was. bench_report.py turns results into tables and plots."""
import glob
import json
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time

import bench_report
from bench_peers import builds, peers
from bench_runner import Runner
from bench_settings import TIERS, Interrupted, count, die, env, say, size


FILES = ("GGUF FLAT_MODEL FLAT_PLAN MODEL_EXACT PLAN_EXACT MODEL_PREDICTED PLAN_PREDICTED MODEL_DENSE PLAN_DENSE "
         "SMALLTHINKER_GGUF SMALLTHINKER_SLIM SMALLTHINKER_BUNDLE MODEL PLAN").split()
FOLDERS = "LLAMA_CPP LLAMA_CPP_MMAP IK_LLAMA_CPP IK_LLAMA_CPP_MMAP SMALLTHINKER".split()


def as_typed(command):
    """With $MODEL and the like for what is elsewhere on another machine."""
    named = {env(n): f"${n}" for n in FILES if env(n)}
    folders = {env(n): f"${n}" for n in FOLDERS if env(n)} | {where: f"${name}" for name, where, _ in builds()}

    def one(word):
        before, _, value = word.rpartition("=") # as in VARIABLE=FILE in front of a command
        if value in named:
            return f"{before}={named[value]}" if before else named[value]
        where = os.path.dirname(word)
        return f"{folders[where]}/{os.path.basename(word)}" if where in folders else word
    words = [one(w) for w in command]
    return " ".join(words)


# ---- who is measured ----

class Ours:
    times_prompts = True

    def __init__(self, name, model, plan, flags=(), tier=None):
        self.name, self.model, self.plan, self.flags, self.kb = name, model, plan, list(flags), None
        self.key, self.tier = name, tier

    def command(self, limit, tokens, prompt):
        return ([f"{env('BIN', 'build/bin')}/thermo-run", "bench", "--model", self.model, "--plan", self.plan, "-q",
                 "--json", "-p", str(prompt), "-n", str(tokens), "-r", "1"] +
                (["--memory", str(limit)] if limit else []) + self.flags)

    def files(self):
        return [self.model]

    def parse(self, out, facts, tokens, prompt):
        b = json.loads(out)
        t = b["tests"][0]
        record = {k: b[k] for k in ("mode", "act", "io", "direct", "queue_depth", "threads", "memory_bytes",
                                    "account_bytes", "peak_bytes", "predicted_tokens_per_s", "prediction_valid")}
        if "recall" in b: # predicted mode
            record["recall"] = b["recall"]
        if prompt:
            return dict(record, ttft_ms=t["ttft_ms"])
        names = ("tokens_per_s", "read_bytes_per_token", "reads_per_token", "stall_share", "hit_rate", "ms_per_token",
                 "neurons_per_token", "gate_units_read_per_token")
        return dict(record, **{k: t[k] for k in names})


# ---- what to measure ----

class Limit:
    def __init__(self, text, bytes_):
        self.text, self.bytes = text, bytes_ # None: no cgroup


def floor_of(c):
    p = subprocess.run([f"{env('BIN', 'build/bin')}/thermo-run", "logits", "--model", c.model, "--plan", c.plan, "--memory",
                        "1MiB", "--tokens", "1"] + c.flags, capture_output=True, text=True, check=False)
    m = re.search(r"below the floor of ([0-9]+) bytes", p.stderr)
    return int(m[1]) if m else die(3, f"no floor from '{c.plan}': {p.stderr.strip()}")


def limits():
    out = []
    for word in env("MEMORY", "resident floor").replace(",", " ").split():
        n = None if word == "resident" else max(floor_of(c) for c in ours()) if word == "floor" else size(word)
        if n is None and word != "resident":
            die(2, f"MEMORY: '{word}' is neither resident, floor nor a size such as 2500MB or 2GiB")
        out.append(Limit(word, n))
    return out


def tiers():
    """Of ours to measure: TIERS, or those that PEERS has builds of; None: the machine's alone, without a table by tier."""
    words = env("TIERS").split() or list(dict.fromkeys(tier for _, _, tier in builds())) or [None]
    for word in words:
        if word not in (None, "native", *TIERS):
            die(2, f"TIERS: '{word}' is none of native, {', '.join(TIERS)}")
    return words


def ours():
    """One for each of MODES and tiers, with a pack and a plan of a mode's own where they are given."""
    out = []
    for mode in env("MODES", "plan").split():
        model, plan = (env(f"{k}_{mode.upper()}") or env(k) for k in ("MODEL", "PLAN"))
        for tier in tiers():
            named = "" if tier in (None, "native") else tier
            name = ", ".join(x for x in ("thermo-run", "" if mode == "plan" else mode, named) if x)
            out.append(Ours(name, model, plan, ([] if mode == "plan" else ["--mode", mode]) + (["--cpu", named] if named else []), tier))
    return out


def contenders(limit, notes, ahead):
    out = ours()
    kbs = [None]
    if limit.bytes and ahead.why:
        notes.add(f"peers under a limit: only the kernel's present read-ahead ({ahead.why})")
    elif limit.bytes:
        kbs = list(dict.fromkeys((ahead.default, 512)))
    return out + peers(bool(limit.bytes), kbs, notes)


def ladder(notes):
    """The first rung lacks verification alone; each other has what the one above it has, less one thing."""
    base = ours()[0]
    steps = [("no prefetch", ["--no-prefetch"]), ("no pipeline", ["--no-overlap"]), ("no cache", ["--no-cache"])]
    out, flags = [Ours("ladder: reads not verified", base.model, base.plan, base.flags + ["--no-verify-reads"])], base.flags
    for name, more in steps:
        flags = flags + more
        out.append(Ours(f"ladder: {name}", base.model, base.plan, flags))
    if env("FLAT_MODEL") and env("FLAT_PLAN"):
        form = inspect(env("FLAT_MODEL"))["layout"]["form"]
        out.append(Ours(f"ladder: packed as {form}", env("FLAT_MODEL"), env("FLAT_PLAN"), flags))
    else:
        notes.add("the ladder has no rung for the pack's form: FLAT_MODEL names no pack of another form")
    return out


def schedule(all_limits, notes, ahead, group):
    """(limit, contender, kind, round, tokens, prompt) in the order of running: rounds go there and back, so that a
    slow moment of the machine meets all equally."""
    runs, rounds, prompt = [], count("RUNS", 5, 1), count("PROMPT", 128)
    prompts = min(rounds, count("PROMPT_RUNS", 1)) if prompt else 0
    capped = [x for x in all_limits if x.bytes]
    rungs = [x.text for x in capped[:1]] if env("LADDER") == "" else env("LADDER").replace(",", " ").split()
    for limit in all_limits:
        if limit.bytes and not group.path:
            notes.add(f"no limit is enforced by a cgroup ({group.why}); peers run resident only")
        who = [c for c in contenders(limit, notes, ahead) if isinstance(c, Ours) or group.path or not limit.bytes]
        steps = ladder(notes) if limit.text in rungs else []
        for k in range(rounds):
            line = who + steps
            for c in line if k % 2 == 0 else line[::-1]:
                tokens = count("TOKENS", 64, 1) if isinstance(c, Ours) or not limit.bytes else count("PEER_TOKENS", 16, 1)
                runs.append((limit, c, "decode", k, tokens, 0))
        for k in range(prompts):
            able = [c for c in who if c.times_prompts]
            runs += [(limit, c, "prompt", k, 0, prompt) for c in (able if k % 2 == 0 else able[::-1])]
    return runs


# ---- bounds ----

def megabytes_to_read(held_bytes):
    """Far more than the last cache holds, and as much as an engine holds of the model: the farther scattered rows lie apart,
    the more of their reading is spent on translating addresses. As far as memory allows."""
    seen = [480 << 20, held_bytes]
    for path in glob.glob("/sys/devices/system/cpu/cpu0/cache/index*/size"):
        with open(path) as f:
            seen.append(4 * (size(f.read().strip() + "iB") or 0))
    return min(max(seen), meminfo("MemAvailable") * 3 // 4) >> 20


def memory_bound(runner, cols, quant, held_bytes):
    program, threads = env("BENCH_KERNELS"), count("THREADS", os.cpu_count(), 1)
    if not os.access(program, os.X_OK):
        return {"failed": "BENCH_KERNELS names no program: make bench-kernels builds it"}
    mib = megabytes_to_read(held_bytes)
    out, facts = runner.run([program, "--threads", str(threads), "--type", quant, "--cols", str(cols), "--rounds", "4",
                             "--mib", str(mib), "--output", "json"])
    if "failed" in facts:
        return {"failed": facts["failed"]}
    rows = [json.loads(line) for line in out.splitlines()]
    best = {}
    for name, kernels in (("sequential", ("rows",)), ("scattered", ("rows_at", "axpy"))):
        # A kernel may beat the loops that only load; then it is the better measure of what the memory gives.
        best[name] = max(max(r["bound_gb_per_s"], r["gb_per_s"]) for r in rows if r["kernel"] in kernels)
    return {"threads": threads, "row_bytes": rows[0]["row_bytes"], "read_bytes": mib << 20, "kernels": rows, **best}


def disk_bound(runner, folder, state):
    out, facts = runner.run([f"{env('BIN', 'build/bin')}/thermo-profile", "hardware", "--quick", "--only", "storage", "--db",
                             f"{state}/bench-storage.sqlite", "--device", "bench", "--storage", folder, "--json", "-q"])
    for f in glob.glob(f"{state}/bench-storage.sqlite*"):
        os.unlink(f)
    if "failed" in facts:
        return {"failed": facts["failed"]}
    keys = ("backend", "direct", "pattern", "block_bytes", "queue_depth", "lanes", "bytes_per_s_p50", "cpu_ns_per_read")
    return {"points": [{k: p[k] for k in keys if k in p} for p in json.loads(out)["devices"][0]["storage_points"]]}


def read_sizes(records):
    """[(bytes, percent of reads)] as made under a limit: all at their mean size, in whole blocks."""
    size = statistics.median(r["read_bytes_per_token"] / r["reads_per_token"] for r in records)
    return [(max(4096, int(size + 2048) // 4096 * 4096), 100)]


def fio_bound(runner, path, units, depth, notes):
    fio = shutil.which("fio")
    if not fio:
        notes.add("reads are not compared with fio: it is not installed")
        return None
    out, facts = runner.run([fio, "--name=reads", f"--filename={path}", "--readonly", "--rw=randread",
                             "--bssplit=" + ":".join(f"{size}/{share}" for size, share in units), f"--iodepth={depth}", "--ioengine=io_uring", "--direct=1", "--time_based",
                             f"--runtime={count('FIO_SECONDS', 2, 1)}", "--output-format=json"])
    if "failed" in facts:
        notes.add(f"fio: {facts['failed']}")
        return None
    return json.loads(out)["jobs"][0]["read"]["bw_bytes"]


# ---- the whole ----

def first_line(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"


def meminfo(key):
    return int(re.search(key + r":\s+(\d+)", open("/proc/meminfo").read())[1]) * 1024


def machine():
    cpu = re.search(r"^model name\s*: (.*)", open("/proc/cpuinfo").read(), re.M)
    return {"cpu": cpu[1] if cpu else platform.machine(), "cpus": os.cpu_count(), "memory_bytes": meminfo("MemTotal"),
            "system": f"{platform.system()} {platform.release()}", "file_system": first_line(
                "stat", "-f", "-c", "%T", os.path.dirname(os.path.abspath(env("MODEL"))))}


def inspect(model):
    p = subprocess.run([f"{env('BIN', 'build/bin')}/thermo-pack", "inspect", "--json", "--tensors", model],
                       capture_output=True, text=True, check=False)
    if p.returncode:
        die(p.returncode, p.stderr.strip())
    j = json.loads(p.stdout)
    # With one matrix for both, the head reads what the embedding is stored in; else a token touches one row of it.
    tied = not any(t["role"] == "output" for t in j["tensors"])
    embedding = 0 if tied else sum(t["bytes"] for t in j["tensors"] if t["role"] == "token_embd")
    dense = sum(t["bytes"] for t in j["tensors"]) - embedding
    predictors = {}
    for x in j["predictors"]:
        predictors[x["input"]] = predictors.get(x["input"], 0) + x["bytes"]
    return {"name": j["model"]["name"], "shape": j["model"], "layout": j["layout"], "file_bytes": j["file_bytes"],
            "dense_bytes": dense, "embedding_bytes": embedding, "neuron_bytes": j["neuron_bytes"], "predictor_bytes": predictors}


def settings():
    names = FILES + FOLDERS + ("MEMORY MODES RUNS TOKENS PEER_TOKENS PROMPT PROMPT_RUNS LADDER LLAMA_CPP_VERSION "
                               "IK_LLAMA_CPP_VERSION PEERS TIERS SMALLTHINKER_CACHED SMALLTHINKER_VERSION THREADS").split()
    files = [env(f) for f in FILES if env(f)]
    return {"values": {n: env(n) for n in names if env(n)}, "form": 2, # of the unfinished results
            "files": {f: [os.stat(f).st_size, int(os.stat(f).st_mtime)] for f in files},
            "commit": env("COMMIT", "unknown")}


class Bench:
    def __init__(self, state):
        self.state, self.notes, self.took = state, set(), {}
        self.path = f"{state}/results.json"
        os.makedirs(state, exist_ok=True)
        self.runner = Runner(state, env("GGUF"), env("READ_AHEAD_FILE"), count("TIMEOUT", 1800, 1))
        try:
            self.settings = settings()
            self.limits = limits()
            self.runs = schedule(self.limits, self.notes, self.runner.ahead, self.runner.group)
        except BaseException:
            self.runner.close()
            raise
        self.result = {"settings": self.settings, "records": [], "bounds": {"memory": [], "fio": {}}}

    def load(self):
        """What an earlier, interrupted benchmark with the same settings has measured."""
        if env("FRESH") or not os.path.exists(self.path):
            return
        with open(self.path) as f:
            old = json.load(f)
        if old["settings"] != self.settings:
            say("bench: settings, files or revision differ from those of the unfinished benchmark: starting anew")
        elif not old.get("done"):
            say(f"bench: going on after {len(old['records'])} runs of an unfinished benchmark (FRESH=1 starts anew)")
            self.result = old
            self.notes |= set(old.get("notes", []))

    def save(self):
        self.result["notes"] = sorted(self.notes)
        with open(f"{self.path}.new", "w") as f:
            json.dump(self.result, f)
        os.replace(f"{self.path}.new", self.path)

    def seconds_left(self, todo):
        """From what the same run took before, or one like it."""
        def guess(run):
            limit, c, kind = run[:3]
            return next((statistics.mean(self.took[k]) for k in ((limit.text, c.key, kind), (limit.text, c.name, kind),
                                                                 c.name, "") if k in self.took), 0)
        return sum(guess(r) for r in todo)

    def note_time(self, run, seconds):
        limit, c, kind = run[:3]
        for k in ((limit.text, c.key, kind), (limit.text, c.name, kind), c.name, ""):
            self.took.setdefault(k, []).append(seconds)

    def one(self, run):
        limit, c, kind, k, tokens, prompt = run
        memory = limit.bytes
        command = c.command(memory, tokens, prompt)
        cap = memory if self.runner.group.path else None
        load, start = os.getloadavg()[0], time.time()
        out, facts = self.runner.run(command, cap, c.kb, c.files() if memory else ())
        if facts.get("still_cached"):
            self.notes.add("pages of the model stayed in the page cache before runs under a limit (another process maps "
                           "the file?): a peer found them there without reading")
        record = {"memory": limit.text, "limit_bytes": memory, "engine": c.name, "read_ahead_kb": c.kb, "kind": kind,
                  "round": k, "started": int(start), "load": load, "command": as_typed(command)}
        if c.tier:
            record["tier"] = c.tier
        if prompt:
            record["prompt_tokens"] = prompt
        if "failed" not in facts:
            try:
                record.update(c.parse(out, facts, tokens, prompt))
            except (ValueError, KeyError, IndexError) as e:
                facts["failed"] = f"output of {command[0]} not understood: {e!r}"
        if "failed" in facts:
            record["failed"] = facts["failed"]
        record["seconds"] = round(time.time() - start, 2)
        self.note_time(run, record["seconds"])
        return record

    def memory(self, limit, runs):
        seen, model = self.result["bounds"]["memory"], self.result["model"]
        if not any(b["memory"] == limit.text and b["after_runs"] == runs for b in seen):
            held = min(os.path.getsize(env("MODEL")), limit.bytes or sys.maxsize)
            found = memory_bound(self.runner, model["shape"]["d_model"], model["layout"]["gate_type"], held)
            seen.append({"memory": limit.text, "after_runs": runs, "started": int(time.time()), **found})

    def fio(self, limit, runs):
        """At the size and depth of the reads that each of our modes made in its first run under this limit."""
        known = self.result["bounds"]["fio"].setdefault(limit.text, {})
        for engine in dict.fromkeys(c.name for c in ours()):
            first = next((r for r in self.result["records"] if r["memory"] == limit.text and r["engine"] == engine and
                          r.get("reads_per_token")), None)
            if not first:
                continue
            b = known.get(engine) or {"sizes": read_sizes([first]), "queue_depth": first["queue_depth"], "seen": []}
            if any(x["after_runs"] == runs for x in b["seen"]):
                continue
            start, model = int(time.time()), next(c.model for c in ours() if c.name == engine)
            rate = fio_bound(self.runner, model, b["sizes"], b["queue_depth"], self.notes)
            if rate:
                b["seen"].append({"after_runs": runs, "started": start, "bytes_per_s": rate})
                known[engine] = dict(b, bytes_per_s=statistics.median(x["bytes_per_s"] for x in b["seen"]))

    def bound(self, limit):
        """What the machine gives at this moment; once after so many runs, so that what goes on repeats nothing."""
        runs = sum(r["memory"] == limit.text for r in self.result["records"])
        self.memory(limit, runs)
        self.fio(limit, runs)
        self.save()

    def has_better_read_ahead(self, run):
        """After the first round a peer goes on with the read-ahead that it was faster with."""
        limit, c, kind, k = run[:4]
        first = {x["read_ahead_kb"]: x.get("tokens_per_s", 0) for x in self.result["records"]
                 if (x["memory"], x["engine"], x["kind"], x["round"]) == (limit.text, c.name, kind, 0)}
        return c.kb and k > 0 and len(first) > 1 and max(first, key=first.get) != c.kb

    def measure(self):
        r = self.result
        everybody = {run[1].name: run[1] for run in self.runs if isinstance(run[1], Ours)}
        models = {name: inspect(c.model) for name, c in everybody.items()}
        info = models[ours()[0].name]
        r.update(model=info, models=models, machine=machine(), started=r.get("started", time.strftime("%F %T", time.gmtime())))
        if env("GGUF"):
            r["gguf_bytes"] = os.stat(env("GGUF")).st_size
        if "disk" not in r["bounds"]:
            r["bounds"]["disk"] = disk_bound(self.runner, os.path.dirname(os.path.abspath(env("MODEL"))), self.state)
        done = {(x["memory"], x["engine"], x["read_ahead_kb"], x["kind"], x["round"]) for x in r["records"]}
        todo = [x for x in self.runs if (x[0].text, x[1].name, x[1].kb, x[2], x[3]) not in done]
        last, hopeless = None, {(x["memory"], x["engine"], x["read_ahead_kb"], x["kind"]) for x in r["records"] if "failed" in x}
        for i, run in enumerate(todo):
            same = (run[0].text, run[1].name, run[1].kb, run[2])
            if same in hopeless or self.has_better_read_ahead(run):
                continue
            if last and last[0] is not run[0]:
                self.bound(last[0])
            if not last or (last[0], last[2], last[3]) != (run[0], run[2], run[3]): # another limit, kind or round
                self.bound(run[0])
            last = run
            record = self.one(run)
            r["records"].append(record)
            self.save()
            if "failed" in record:
                hopeless.add(same) # once is enough
            got = record.get("failed") or (f"{record['tokens_per_s']:.2f} tokens/s" if "tokens_per_s" in record else
                                           f"first token after {record['ttft_ms']:.0f} ms")
            left = self.seconds_left(todo[i + 1:])
            say(f"[{i + 1}/{len(todo)}] {run[0].text}, {run[1].key}: {got}; {left / 60:.0f} min {left % 60:02.0f} s left")
        for limit in self.limits: # after the last runs, also where it was interrupted then
            self.bound(limit)
        r["finished"] = time.strftime("%F %T", time.gmtime())
        r["done"] = True
        self.save()

    def dry_run(self):
        for limit, c, kind, k, tokens, prompt in self.runs:
            cap = f"cgroup {limit.bytes}" if limit.bytes and self.runner.group.path else "no cgroup"
            ahead = f", read-ahead {c.kb} KB" if c.kb else ""
            print(f"{limit.text} round {k + 1} {kind} {c.name} ({cap}{ahead}): " +
                  as_typed(c.command(limit.bytes, tokens, prompt)))
        for note in sorted(self.notes):
            print(f"note: {note}")


def main():
    dry = sys.argv[1:] == ["--dry-run"]
    if sys.argv[1:] and not dry:
        die(2, "settings are environment variables: scripts/bench.sh --help")
    for name in ["MODEL", "PLAN"] + [f for f in FILES if env(f)]:
        if not os.access(env(name), os.R_OK):
            die(3, f"{name}: cannot read '{env(name)}'")

    def stop(number, frame):
        raise Interrupted(number)
    for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(s, stop)
    name = env("NAME", os.path.basename(env("MODEL")).removesuffix(".thermo"))
    bench = Bench(env("STATE", f"build/bench/{name}/state"))
    try:
        if dry:
            bench.dry_run()
            return 0
        bench.load()
        bench.measure()
    except Interrupted as e:
        say(f"bench: interrupted (signal {e}); the same command goes on from here")
        return 130
    finally:
        bench.runner.close()
    bench.result["name"] = name
    bench_report.publish(bench.result, env("OUT", "docs"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
