"""For tests in Python: TAP points, and the programs' own option tables. Imported from tests/cli with tests on sys.path."""
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
