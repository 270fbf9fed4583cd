#!/usr/bin/env python3
"""plans.py --model FILE --memory LIMITS [options]          (or: make plans, make plans-check)

The plans of a matrix: a model on every device of the CSVs, under every limit. Each is a file of its own,
PLANS/MODEL/DEVICE-LIMIT.json, made by thermo-plan solve; nothing else goes into PLANS, so that the folder can be kept under
version control. A plan is made again when what it comes from changed (by content): the model, the device's rows, the flags,
the program. With --baseline, each is compared with the one that was kept there. docs/ci.md."""
import argparse
import concurrent.futures
import csv
import glob
import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ET

sys.dont_write_bytecode = True
import outputs  # noqa: E402  (beside this file)

STATUS = """exit status:
  0    every limit of the matrix has its plan; with --baseline: no promise got worse
  1    with --baseline: a plan promises less than the one that was kept, or there is none any more; or a program failed
  2    usage      3  an input cannot be read, or is corrupt      5  files that do not belong together
  4    a limit that no plan can keep (without --baseline; --infeasible-ok makes it 0)      6  I/O failed      130  interrupted
The gravest counts: a failure (the first one's status), then worse, then infeasible. make itself returns 2 for each of them."""
OPTIONS = dict(description=__doc__.split("\n\n", 1)[1], epilog=STATUS, formatter_class=argparse.RawDescriptionHelpFormatter)


class Stop(Exception):
    """Ends the program: exit status and message."""
    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


# ---- the matrix ----

def words(text, what):
    try:
        return shlex.split(text)
    except ValueError as e:
        raise Stop(2, f"{what}: '{text}': {e}") from e


def files_of(patterns):
    """CSVs that globs name. One that is a file's name as it stands is that file, with spaces or brackets in it too."""
    found = []
    for text in patterns:
        for word in [text] if os.path.isfile(text) else words(text, "--devices"):
            names = [word] if os.path.isfile(word) else sorted(glob.glob(word))
            if not names:
                raise Stop(2, f"DEVICES='{word}': there is no such file")
            found += [n for n in names if n not in found]
    return found


def slug(text):
    """A device's name as part of a file's."""
    return re.sub(r"-+", "-", "".join(c if c.isalnum() or c in "._+" else "-" for c in text.lower())).strip("-.") or "device"


def devices_of(files):
    """[(name, file name part, CSV, hash of its rows)], in the order of the files."""
    devices = {}
    for path in files:
        try:
            with open(path, newline="", encoding="utf-8-sig") as f:
                rows = list(csv.DictReader(f))
        except (OSError, UnicodeDecodeError, csv.Error) as e:
            raise Stop(3, f"'{path}': {e}") from e
        if not rows or "device" not in rows[0]:
            raise Stop(3, f"'{path}' is no device profile: it has no rows, or no column 'device' (datasets/devices/README.md)")
        mine = {}
        for row in rows:
            mine.setdefault(row["device"], []).append(sorted((str(k), str(v)) for k, v in row.items()))
        for name, figures in mine.items():
            if name in devices:
                raise Stop(2, f"device '{name}' is in '{devices[name][2]}' and in '{path}'")
            part = slug(name)
            for other in devices.values():
                if other[1] == part:
                    raise Stop(2, f"devices '{other[0]}' and '{name}' would both give plans '{part}-...': rename one")
            devices[name] = (name, part, path, digest(json.dumps(figures)))
    return list(devices.values())


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def file_digest(path):
    h = hashlib.sha256()
    try:
        with open(path, "rb") as f:
            for block in iter(lambda: f.read(1 << 20), b""):
                h.update(block)
    except OSError as e:
        raise Stop(3, f"cannot read '{path}': {e.strerror}") from e
    return h.hexdigest()


class Plan:
    """One cell of the matrix, and what became of it."""
    def __init__(self, device, memory, folder):
        self.device, self.part, self.csv, self.figures = device
        self.memory, self.name = memory, f"{self.part}-{memory}"
        self.path = os.path.join(folder, self.name + ".json")
        self.outcome = None     # planned, infeasible, failed
        self.made = False       # now, rather than before
        self.compared = None    # same, changed, worse, new
        self.message, self.status, self.seconds = "", 0, 0.0
        self.refusal, self.limits, self.changes = None, [], []

    def is_worse(self):
        return self.compared == "worse"


def matrix(args, devices):
    limits = args.memory.replace(",", " ").split()
    if not limits:
        raise Stop(2, "MEMORY=\"2GiB 4GiB\": which limits to plan for is needed")
    bad = [m for m in limits if not re.fullmatch(r"[0-9.]+[A-Za-z]*", m)]
    if bad:
        raise Stop(2, f"MEMORY: '{bad[0]}' is not a size such as 2GiB")
    if len(set(limits)) != len(limits):
        raise Stop(2, "MEMORY names a limit twice: the plans would have the same name")
    if args.device:
        known = [d[0] for d in devices]
        for name in args.device:
            if name not in known:
                raise Stop(2, f"--device '{name}': the CSVs have {', '.join(known)}")
        devices = [d for d in devices if d[0] in args.device]
    return [Plan(d, m, args.folder) for d in devices for m in limits]


# ---- making them ----

class Maker:
    def __init__(self, args, plans):
        self.args, self.plans = args, plans
        self.bin = os.environ.get("BIN", "build/bin")
        self.planner = os.path.join(self.bin, "thermo-plan")
        self.running, self.lock, self.stopped = set(), threading.Lock(), False
        self.flags = words(args.flags, "PLAN_FLAGS")
        self.version = self.ask([self.planner, "--version"])
        common = [self.version, file_digest(self.planner), file_digest(args.model)] + self.flags
        common += [file_digest(w) for flag in self.flags for w in [flag.rpartition("=")[2]] if os.path.isfile(w)]
        self.common = digest(json.dumps(common))

    def ask(self, command):
        status, out, err = self.run(command)
        if status:
            raise Stop(status if status > 0 else 1, err.strip() or f"{command[0]} exits with {status}")
        return out

    def run(self, command):
        """(exit status, stdout, stderr); ended with us."""
        with self.lock:
            if self.stopped:
                raise KeyboardInterrupt
            try:
                p = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                     errors="replace")
            except OSError as e:
                raise Stop(1, f"'{command[0]}': {e.strerror}; run make first") from e
            self.running.add(p)
        out, err = p.communicate()
        with self.lock:
            self.running.discard(p)
        return p.returncode, out, err

    def stop(self):
        with self.lock:
            self.stopped = True
            for p in self.running:
                p.terminate()

    def record_of(self, plan):
        return os.path.join(self.args.state, digest(json.dumps([self.common, plan.figures, plan.device, plan.memory])) + ".json")

    def recall(self, plan):
        """What is known of this very plan from before: its file's hash, or a refusal."""
        try:
            with open(self.record_of(plan), encoding="utf-8") as f:
                record = json.load(f)
        except (OSError, ValueError):
            return None
        if not isinstance(record, dict):
            return None
        if record.get("refusal") and not os.path.exists(plan.path):
            return record
        if record.get("sha256") and os.path.isfile(plan.path) and file_digest(plan.path) == record["sha256"]:
            return record
        return None

    def make(self, plan, database):
        start = time.monotonic()
        kind = "--description" if self.args.model.endswith(".json") else "--traces"
        status, out, err = self.run([self.planner, "solve", "-q", "--json", kind, self.args.model, "--hardware", database, "--device",
                                     plan.device, "--memory", plan.memory] + self.flags + ["--out", plan.path])
        plan.seconds, plan.made = time.monotonic() - start, True
        plan.message, plan.status = said(err), status
        if status == 0:
            plan.outcome = "planned"
            self.keep(plan, {"sha256": file_digest(plan.path)})
            return
        plan.outcome = "infeasible" if status == 4 else "failed"
        if os.path.exists(plan.path):
            os.unlink(plan.path)    # of other inputs: no plan for these
        if status == 4:
            try:
                plan.refusal = json.loads(out)
            except ValueError:
                plan.refusal = {"message": plan.message}
            self.keep(plan, {"refusal": plan.refusal})

    def keep(self, plan, record):
        write_whole(self.record_of(plan), json.dumps(record) + "\n")

    def database(self, folder):
        """All devices of all CSVs, in a hardware database of this run alone."""
        path = os.path.join(folder, "devices.sqlite")
        for name in dict.fromkeys(p.csv for p in self.plans):
            self.ask([os.path.join(self.bin, "thermo-profile"), "import", "-q", "--db", path, "--csv", name])
        return path

    def make_all(self):
        os.makedirs(self.args.folder, exist_ok=True)
        os.makedirs(self.args.state, exist_ok=True)
        todo = []
        for plan in self.plans:
            record = None if self.args.fresh else self.recall(plan)
            if record and record.get("refusal"):
                plan.outcome, plan.refusal, plan.status = "infeasible", record["refusal"], 4
                plan.message = plan.refusal.get("message", "")
            elif record:
                plan.outcome = "planned"
            else:
                todo.append(plan)
        if todo:
            with tempfile.TemporaryDirectory(prefix="thermo-plans-") as folder:
                self.each(todo, self.database(folder))
        for plan in self.plans:
            if plan.outcome == "planned":
                plan.limits = figures_of(plan.path)

    def each(self, todo, database):
        pool = concurrent.futures.ThreadPoolExecutor(self.args.jobs)
        try:
            for done in [pool.submit(self.one, plan, database) for plan in todo]:
                done.result()
        except BaseException:
            self.stop()
            raise
        finally:
            pool.shutdown(cancel_futures=True)

    def one(self, plan, database):
        self.make(plan, database)
        say(f"  PLAN  {plan.path}" if plan.outcome == "planned" else f"  {plan.outcome}: {plan.name}: {plan.message}")


def say(text):
    print(text, file=sys.stderr, flush=True)


def said(err):
    """The error of a program, without its name."""
    lines = [line for line in err.splitlines() if "error: " in line]
    return lines[-1].partition("error: ")[2] if lines else err.strip()


def write_whole(path, text):
    try:
        outputs.write_whole(path, text)
    except OSError as e:
        raise Stop(1, f"cannot write '{path}': {e.strerror}") from e


def figures_of(path):
    """What a plan promises, limit by limit."""
    with open(path, encoding="utf-8") as f:
        plan = json.load(f)
    return [{**{k: l[k] for k in ("memory_bytes", "context", "mode")}, **{k: p[k] for k in ("floor_bytes", "account_bytes")},
             "batches": [{"batch": b["batch"], "tokens_per_s": step["tokens_per_s"]} for b, step in zip(l["batches"], p["batches"])]}
            for l, p in zip(plan["decisions"]["limits"], plan["predictions"]["limits"])]


# ---- comparing with what was kept ----

def compare(maker, base, tolerance):
    """Fills compared, changes; returns the names of plans that were kept and are no longer planned."""
    if not os.path.isdir(base):
        raise Stop(2, f"there is no folder '{base}' to compare with; make plans PLANS=... makes one")
    for plan in maker.plans:
        old = os.path.join(base, plan.name + ".json")
        if plan.outcome == "failed":
            continue
        if not os.path.exists(old):
            plan.compared = "new" if plan.outcome == "planned" else None
        elif plan.outcome == "infeasible":
            plan.compared, plan.changes = "worse", [{"worse": True, "text": f"no plan any more: {plan.message}"}]
        else:
            status, out, err = maker.run([maker.planner, "check", plan.path, "--against", old, "--tolerance", tolerance, "--json"])
            if status not in (0, 1) or not out:
                plan.outcome, plan.status, plan.message = "failed", status if status > 0 else 1, said(err)
                continue
            plan.changes = json.loads(out)["changes"]
            plan.compared = "worse" if status else "changed" if plan.changes else "same"
    here = {plan.name + ".json" for plan in maker.plans}
    return [] if maker.args.part else sorted(n[:-5] for n in os.listdir(base) if n.endswith(".json") and n not in here)


# ---- what is said of it ----

def counts_of(plans, gone):
    return {"plans": sum(p.outcome == "planned" for p in plans), "made": sum(p.made and p.outcome == "planned" for p in plans),
            "infeasible": sum(p.outcome == "infeasible" for p in plans), "failed": sum(p.outcome == "failed" for p in plans),
            "compared": sum(p.compared in ("same", "changed", "worse") for p in plans),
            "worse": sum(p.is_worse() for p in plans) + len(gone), "new": sum(p.compared == "new" for p in plans), "gone": len(gone)}


def exit_status(args, plans, counts):
    failed = [p.status for p in plans if p.outcome == "failed"]
    if failed:
        return failed[0] if failed[0] in (1, 2, 3, 5, 6, 130) else 1
    if counts["worse"]:
        return 1
    return 4 if counts["infeasible"] and not args.baseline and not args.infeasible_ok else 0


def print_summary(args, plans, gone, counts):
    for p in plans:
        if p.outcome == "failed":
            print(f"failed:     {p.name}: {p.message}")
        elif p.outcome == "infeasible" and not p.made:
            say(f"  infeasible: {p.name}: {p.message}")
        elif p.compared == "new":
            print(f"new:        {p.name}")
        for c in p.changes:
            print(f"{p.name}: {'worse' if c['worse'] else 'changed'}: {c['text']}")
    for name in gone:
        print(f"worse:      {name} is no longer planned")
    beside = "".join(f", {counts[k]} {k}" for k in ("infeasible", "failed") if counts[k])
    if args.baseline:
        print(f"{counts['compared']} plans compared with {args.base}: {counts['worse']} worse, {counts['new']} new{beside} "
              f"(tolerance {args.tolerance} %)")
    else:
        print(f"{counts['plans']} plans in {args.folder}{beside}")


def as_json(args, maker, plans, gone, counts, status):
    def one(p):
        o = {"name": p.name, "device": p.device, "memory": p.memory, "outcome": p.outcome, "made": p.made, "limits": p.limits}
        if p.outcome != "planned":
            o["message"] = p.message
        if p.refusal:
            o["contradict"], o["nearest"] = p.refusal.get("contradict", []), p.refusal.get("nearest", {})
        if args.baseline:
            o["compared"], o["changes"] = p.compared, p.changes
        return o
    whole = {"format": "thermo-plans", "revision": 1, "tool": maker.version.splitlines()[0], "model": args.name, "exit_status": status,
             "counts": counts}
    if args.baseline:
        whole.update(tolerance_percent=float(args.tolerance), gone=gone)
    return json.dumps({**whole, "plans": [one(p) for p in plans]}, indent=2, ensure_ascii=False) + "\n"


def clean(text):
    """XML 1.0 has no place for these, not even escaped."""
    return re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)


def as_junit(args, plans, gone):
    """One test case a plan: a failure where it got worse, an error where a program failed, skipped where no plan is possible."""
    suite = ET.Element("testsuite", name=clean(f"plans.{args.name}"))
    count = {"failure": 0, "error": 0, "skipped": 0}

    def case(p_class, name, seconds, kind, message, text=""):
        c = ET.SubElement(suite, "testcase", classname=clean(f"plans.{args.name}.{p_class}"), name=clean(name), time=f"{seconds:.3f}")
        if kind:
            count[kind] += 1
            detail = ET.SubElement(c, kind, message=clean(message))
            if kind != "skipped":
                detail.set("type", "worse" if kind == "failure" else "failed")
            detail.text = clean(text or message)
        elif text:
            ET.SubElement(c, "system-out").text = clean(text)
    for p in plans:
        text = "\n".join(f"{'worse' if c['worse'] else 'changed'}: {c['text']}" for c in p.changes)
        if p.is_worse():
            case(p.part, p.name, p.seconds, "failure", next(c["text"] for c in p.changes if c["worse"]), text)
        elif p.outcome == "failed":
            case(p.part, p.name, p.seconds, "error", p.message or f"exit status {p.status}")
        elif p.outcome == "infeasible":
            case(p.part, p.name, p.seconds, "skipped", p.message)
        else:
            case(p.part, p.name, p.seconds, None, "", text)
    for name in gone:
        case("gone", name, 0, "failure", "is no longer planned")
    total = {"tests": str(len(plans) + len(gone)), "failures": str(count["failure"]), "errors": str(count["error"]),
             "skipped": str(count["skipped"]), "time": f"{sum(p.seconds for p in plans):.3f}"}
    for key, value in total.items():
        suite.set(key, value)
    root = ET.Element("testsuites", name="plans", **total)
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


# ---- the command line ----

def parse(argv):
    p = argparse.ArgumentParser(prog="plans.py", usage=__doc__.split("\n", 1)[0], **OPTIONS)
    p.add_argument("--model", required=True, help="a description (.json) or a trace (.h5)")
    p.add_argument("--memory", required=True, help='limits to plan for: "2GiB 4GiB"')
    p.add_argument("--devices", action="append", metavar="CSVS", help="device profiles, files or globs as in a shell, quoted where "
                   "names have spaces; a file may hold several devices. Default: datasets/devices/*.csv")
    p.add_argument("--device", action="append", metavar="NAME", help="only this device of the CSVs; may be given several times")
    p.add_argument("--plans", default="build/plans", metavar="FOLDER", help="where plans go, and nothing else (default: %(default)s)")
    p.add_argument("--state", default="build/plans-state", metavar="FOLDER", help="what is remembered of former runs (default: %(default)s)")
    p.add_argument("--flags", default="", help='more options of thermo-plan solve: "--context 1024"')
    p.add_argument("--baseline", default="", metavar="FOLDER", help="compare with the plans of this folder, made with --plans FOLDER")
    p.add_argument("--tolerance", default="1", metavar="PERCENT", help="what is not yet worse (default: %(default)s)")
    p.add_argument("--json", metavar="FILE", help="write a summary")
    p.add_argument("--junit", metavar="FILE", help="write JUnit XML")
    p.add_argument("--jobs", "-j", type=int, default=0, metavar="N", help="plans at a time (default: the processors)")
    p.add_argument("--shard", default="0/1", metavar="I/N", help="only every N-th plan of the matrix, from the I-th (from 0)")
    p.add_argument("--fresh", action="store_true", help="make every plan again")
    p.add_argument("--infeasible-ok", action="store_true", help="a limit that no plan can keep is no failure")
    args = p.parse_args(argv)
    args.devices = [d for d in args.devices or [] if d.strip()] or ["datasets/devices/*.csv"]
    args.name = os.path.splitext(os.path.basename(args.model))[0]
    args.folder = os.path.join(args.plans, args.name)
    args.base = os.path.join(args.baseline, args.name) if args.baseline else ""
    args.jobs = args.jobs if args.jobs > 0 else len(os.sched_getaffinity(0))
    return args


def check(args):
    if not args.model.endswith((".json", ".h5")):
        raise Stop(2, f"MODEL={args.model}: plans are made from a description (.json) or a trace (.h5)")
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", args.tolerance) or float(args.tolerance) > 100:
        raise Stop(2, f"--tolerance '{args.tolerance}' is not a number of percent from 0 to 100")
    m = re.fullmatch(r"([0-9]+)/([0-9]+)", args.shard)
    if not m or int(m[1]) >= int(m[2]):
        raise Stop(2, f"--shard '{args.shard}': I/N with 0 <= I < N is needed")
    args.part = (int(m[1]), int(m[2])) if int(m[2]) > 1 else None
    if args.baseline and os.path.realpath(args.base) == os.path.realpath(args.folder):
        raise Stop(2, f"BASELINE and PLANS are both '{args.plans}': plans would be compared with themselves")


def check_outputs(args, files):
    """A report must not replace an input, nor lie among the plans."""
    found = outputs.same((args.json, args.junit), [args.model] + files)
    if found:
        raise Stop(2, "'%s' is an input or another report, '%s': it would be replaced" % found)
    for path in filter(None, (args.json, args.junit)):
        where = os.path.realpath(path)
        for folder in filter(None, (args.plans, args.baseline)):
            if os.path.commonpath([where, os.path.realpath(folder)]) == os.path.realpath(folder):
                raise Stop(2, f"'{path}' lies in '{folder}', which is for plans alone")


def interrupt(number, frame):
    raise KeyboardInterrupt


def main(argv):
    args = parse(argv)
    check(args)
    files = files_of(args.devices)
    check_outputs(args, files)
    plans = matrix(args, devices_of(files))
    if args.part:
        plans = plans[args.part[0]::args.part[1]]
    maker = Maker(args, plans)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP): # also where a shell ignores them for a job in the background
        signal.signal(number, interrupt)
    try:
        maker.make_all()
        gone = compare(maker, args.base, args.tolerance) if args.baseline else []
    except BaseException:
        maker.stop()
        raise
    counts = counts_of(plans, gone)
    status = exit_status(args, plans, counts)
    print_summary(args, plans, gone, counts)
    for path, text in ((args.json, lambda: as_json(args, maker, plans, gone, counts, status)), (args.junit, lambda: as_junit(args, plans, gone))):
        if path:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            write_whole(path, text())
    return status


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Stop as e:
        say(f"plans.py: {e}")
        sys.exit(e.status)
    except KeyboardInterrupt:
        say("plans.py: interrupted; what was made is kept")
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(1)
