"""For tests in Python: TAP points, and the programs' own option tables. Imported from tests/cli with tests on sys.path."""
import os
import subprocess

points = bad = 0


def point(ok, name, why=''):
    """A point; where it fails, the first lines of why."""
    global points, bad
    points += 1
    bad += not ok
    print(f'{"ok" if ok else "not ok"} {points} - {name}', flush=True)
    for line in why.splitlines()[:20] if not ok else []:
        print('#', line[:300])


def done():
    """The plan; the exit status."""
    print(f'1..{points}', flush=True)
    return bad > 0


def table(program, *command):
    """Rows of PROGRAM [COMMAND] --help=table (common/cli/opt.h)."""
    text = subprocess.run([program, *command, '--help=table'], capture_output=True, text=True, check=True).stdout
    return [line.split('\t') for line in text.splitlines()]


def memory_group(limit):
    """A memory cgroup of the limit, version 1 or 2: its folder and the file that counts kills; None where none can be made."""
    for base, name, fails in (('/sys/fs/cgroup/memory', 'memory.limit_in_bytes', 'memory.oom_control'), ('/sys/fs/cgroup', 'memory.max', 'memory.events')):
        group = f'{base}/thermo-test-{os.getpid()}'
        try:
            os.mkdir(group)
            with open(f'{group}/{name}', 'w', encoding='utf-8') as f:
                f.write(str(limit))
            return group, fails
        except OSError:
            if os.path.isdir(group):
                os.rmdir(group)
    return None, None
