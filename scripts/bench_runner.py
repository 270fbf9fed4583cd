"""Runs one program at a time for bench.py: in a memory cgroup of so many bytes, with the page cache dropped and the disk's
read-ahead set, and puts the machine back as it was."""
import os
import re
import subprocess
import threading
import time


class Group:
    """A memory cgroup (v1 or v2) of so many bytes around one process; `why` says why there is none."""

    def __init__(self):
        self.path, self.why = None, "no memory controller is mounted"
        for base, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
            path = f"{base}/thermo-bench-{os.getpid()}"
            try:
                os.mkdir(path)
            except OSError as e:
                self.why = f"cannot make a memory cgroup: {e.strerror}"
                continue
            if os.access(f"{path}/{limit}", os.W_OK):
                self.path, self.limit = path, limit
                self.peak = "memory.max_usage_in_bytes" if limit != "memory.max" else "memory.peak"
                return
            self.why = "the memory controller is not delegated to this user"
            os.rmdir(path)

    def write(self, name, value):
        with open(f"{self.path}/{name}", "w") as f:
            f.write(str(value))

    def set(self, limit):
        """The group is made anew for each run: kernel memory that stays charged to it after a run (of a peer that maps files,
        megabytes) is not the next one's, and the high-water mark begins at 0."""
        os.rmdir(self.path)
        os.mkdir(self.path)
        self.write(self.limit, limit)
        if os.path.exists(f"{self.path}/memory.swap.max"):
            self.write("memory.swap.max", 0)

    def peak_bytes(self):
        try:
            return int(open(f"{self.path}/{self.peak}").read())
        except OSError:
            return 0

    def close(self):
        for _ in range(50):
            try:
                if self.path:
                    os.rmdir(self.path)
                return
            except OSError:
                time.sleep(0.1)


class ReadAhead:
    """The kernel's read-ahead of the disk that holds a file, put back at the end. What it was is also in a file, for
    the case that this program is killed."""

    def __init__(self, path, setting, state):
        self.saved, self.why, self.path = f"{state}/read-ahead.saved", None, setting
        if not self.path and path:
            number = os.stat(path).st_dev
            disk = os.path.realpath(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
            found = [f"{d}/queue/read_ahead_kb" for d in (disk, os.path.dirname(disk))]
            self.path = next((f for f in found if os.path.exists(f)), "")
        if os.path.exists(self.saved):
            where, value = open(self.saved).read().split()
            self.put(where, value)
            os.unlink(self.saved)
        try:
            self.default = int(open(self.path).read())
            self.put(self.path, self.default)
        except (OSError, ValueError) as e:
            self.why, self.default = f"read-ahead cannot be set: {e}", None

    @staticmethod
    def put(path, value):
        with open(path, "w") as f:
            f.write(f"{value}\n")

    def set(self, kb):
        if not os.path.exists(self.saved):
            self.put(self.saved, f"{self.path} {self.default}")
        self.put(self.path, kb)

    def restore(self):
        if os.path.exists(self.saved):
            self.put(self.path, self.default)
            os.unlink(self.saved)


def drop_pages(path):
    """Out of the page cache; true when more than a twentieth stays."""
    with open(path, "rb") as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        p = subprocess.run(["fincore", "-b", "-n", "-o", "RES,SIZE", path], capture_output=True, text=True, check=False)
        resident, total = (int(n) for n in p.stdout.split())
    except (OSError, ValueError):
        return False
    return resident > total / 20


class Watch(threading.Thread):
    """Bytes that a process has had read from the disk, over time."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.path, self.samples, self.over = f"/proc/{pid}/io", [], threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(0.1):
            try:
                text = open(self.path).read()
            except OSError:
                return
            self.samples.append((time.monotonic(), int(re.search(r"^read_bytes: (\d+)", text, re.M)[1])))

    def during(self, seconds):
        """Of the last so many seconds; None when they are too few to tell."""
        self.over.set()
        if not self.samples or seconds < 1:
            return None
        end, total = self.samples[-1]
        before = [b for t, b in self.samples if t <= end - seconds]
        return total - before[-1] if before else None


class Runner:
    def __init__(self, state, gguf, read_ahead_file, timeout_s):
        self.group, self.child, self.timeout = Group(), None, timeout_s
        self.ahead = ReadAhead(gguf, read_ahead_file, state)

    def close(self):
        if self.child and self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(20)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
        self.ahead.restore()
        self.group.close()

    def run(self, command, limit=None, kb=None, drop=()):
        """(stdout, facts); facts["failed"] says why there is none. limit: bytes of a memory cgroup; drop: files whose
        pages leave the page cache first."""
        cached = any([drop_pages(path) for path in drop])
        if limit:
            self.group.set(limit)
            command = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', self.group.path] + command
        if kb:
            self.ahead.set(kb)
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        watch = Watch(self.child.pid)
        try:
            out, err = self.child.communicate(timeout=self.timeout)
            failed = None
        except subprocess.TimeoutExpired:
            self.child.kill()
            out, err = self.child.communicate()
            failed = f"not done after {self.timeout} s"
        watch.over.set()
        code = self.child.returncode
        facts = {"watch": watch, "stderr": err, "still_cached": cached}
        if limit:
            facts["cgroup_peak_bytes"] = self.group.peak_bytes()
        if code < 0 and not failed:
            failed = "killed: more memory than the limit" if code == -9 and limit else f"killed by signal {-code}"
        elif code and not failed:
            failed = f"exit status {code}: {(err.strip().splitlines() or [''])[-1][:160]}"
        if failed:
            facts["failed"] = failed
        return out, facts
