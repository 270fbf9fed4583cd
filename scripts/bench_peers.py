"""The other programs that bench.py measures, found where the settings say. Each can be run by anybody who built it: a
peer is its command, the files whose pages leave the page cache before a run under a limit, and what its output means."""
import json
import os
import re

from bench_settings import TIERS, count, die, env


def threads():
    return str(count("THREADS", os.cpu_count(), 1))


def with_facts(record, facts):
    peak = facts.get("cgroup_peak_bytes")
    return dict(record, peak_bytes=peak) if peak else record


def with_reads(record, facts, seconds, tokens):
    read = facts["watch"].during(seconds)
    return record if read is None else dict(record, read_bytes_per_token=read / tokens)


class LlamaBench:
    """A program with llama-bench's command line."""
    times_prompts = True

    def __init__(self, name, folder, kb, flags=(), tier=None):
        self.name, self.kb, self.flags, self.tier = name, kb, list(flags), tier
        self.program = f"{folder}/llama-bench"
        self.key = f"{name} {kb} KB" if kb else name

    def command(self, limit, tokens, prompt):
        return [self.program, "-m", env("GGUF"), "-t", threads(), "-p", str(prompt), "-n", str(0 if prompt else tokens),
                "-r", "1", "-o", "json"] + self.flags

    def files(self):
        return [env("GGUF")]

    def parse(self, out, facts, tokens, prompt):
        t = json.loads(out)[0]
        seconds = (prompt or tokens) / t["avg_ts"]
        record = with_facts({"read_ahead_kb": self.kb, "build": t.get("build_commit", "")}, facts)
        if prompt:
            return dict(record, ttft_ms=1e3 * seconds)
        return with_reads(dict(record, tokens_per_s=t["avg_ts"]), facts, seconds, tokens)


class SmallThinker:
    """SmallThinker's engine: llama-cli of its fork. Resident it runs a GGUF with Down transposed; under a limit one without
    experts, and these from a bundle of its own that it reads past the page cache, SMALLTHINKER_CACHED matrices of them
    kept. It says what it took when it ends."""
    name = key = "SmallThinker"
    kb, tier, times_prompts = None, None, False

    def __init__(self, limited):
        self.limited = limited

    def command(self, limit, tokens, prompt):
        model = env("SMALLTHINKER_SLIM" if self.limited else "SMALLTHINKER_GGUF")
        run = [f"{env('SMALLTHINKER')}/llama-cli", "-m", model, "-no-cnv", "--temp", "0", "--ignore-eos", "-p", "a", "-t",
               threads(), "-c", "512", "-n", str(tokens + 1)] # the first token comes with the prompt
        if not self.limited:
            return run
        return ["env", f"MAX_N_CACHED={env('SMALLTHINKER_CACHED')}", f"EXPERT_BUNDLE_PATH={env('SMALLTHINKER_BUNDLE')}",
                *run, "-ub", "4"]

    def files(self):
        return [env("SMALLTHINKER_SLIM"), env("SMALLTHINKER_BUNDLE")] if self.limited else []

    def parse(self, out, facts, tokens, prompt):
        said = re.search(r"^\S+:\s+eval time =\s*([0-9.]+) ms /\s*([0-9]+) runs", facts["stderr"] + out, re.M)
        if not said:
            raise ValueError("no line 'eval time = … ms / … runs'")
        seconds, runs = float(said[1]) / 1e3, int(said[2])
        return with_reads(with_facts({"tokens_per_s": runs / seconds}, facts), facts, seconds, runs)


def smallthinker(limited, notes):
    needs = ["SMALLTHINKER_SLIM", "SMALLTHINKER_BUNDLE", "SMALLTHINKER_CACHED"] if limited else ["SMALLTHINKER_GGUF"]
    missing = [n for n in needs if not env(n)]
    if not env("SMALLTHINKER"):
        return [] # it runs no model but its own kind: not worth a note in every benchmark
    if missing:
        notes.add(f"SmallThinker is left out {'under limits' if limited else 'resident'}: {', '.join(missing)} not set")
        return []
    if not os.access(f"{env('SMALLTHINKER')}/llama-cli", os.X_OK):
        die(3, f"SMALLTHINKER: '{env('SMALLTHINKER')}/llama-cli' is not a program")
    if limited:
        count("SMALLTHINKER_CACHED", 1, 1)
    return [SmallThinker(limited)]


REPACKS = ["-rtr", "1"]


def builds():
    """(name, folder, tier) of PEERS: NAME=DIR, the tier behind the name's last hyphen; else it is this machine's."""
    out = []
    for word in env("PEERS").split():
        name, _, where = word.partition("=")
        if not name or not where:
            die(2, f"PEERS: '{word}' is not NAME=DIR")
        tier = name.rpartition("-")[2]
        out.append((name, where, tier if tier in TIERS else "native"))
    if len({n for n, _, _ in out}) < len(out):
        die(2, "PEERS: a name stands twice")
    return out


def llama_bench(name, setting, where, kbs, flags, tier=None):
    if not os.access(f"{where}/llama-bench", os.X_OK):
        die(3, f"{setting}: '{where}/llama-bench' is not a program")
    return [LlamaBench(name, where, kb, flags, tier) for kb in kbs]


def peers(limited, kbs, notes):
    """Those to measure, resident or under a limit, with each of these read-aheads; why one is left out goes to notes."""
    out = []
    for name, folder, flags in (("llama.cpp", "LLAMA_CPP", []), ("ik_llama.cpp", "IK_LLAMA_CPP", REPACKS)):
        where = (limited and env(f"{folder}_MMAP")) or env(folder)
        if where:
            out += llama_bench(name, folder, where, kbs, [] if limited else flags)
        elif not builds():
            notes.add(f"{name} is left out: {folder} names no folder with llama-bench")
    for name, where, tier in builds():
        out += llama_bench(name, "PEERS", where, kbs, REPACKS if name.startswith("ik") and not limited else [], tier)
    if out and not env("GGUF"):
        notes.update(f"{c.name} is left out: GGUF is not set" for c in out)
        out = []
    return out + smallthinker(limited, notes)
