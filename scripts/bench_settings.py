"""Settings of bench.py and regret.py: environment variables, complaints, sizes."""
import os
import re
import sys

UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
TIERS = "scalar avx2 avxvnni avx512 amx neon dotprod i8mm".split() # of thermo-run --cpu
PROGRAM = os.path.basename(sys.argv[0]).removesuffix(".py")


class Interrupted(Exception):
    pass


def env(name, default=""):
    return os.environ.get(name) or default


def say(text):
    print(text, file=sys.stderr, flush=True)


def die(code, text):
    sys.exit(say(f"{PROGRAM}: {text}") or code)


def size(text):
    """Bytes of '2500MB'; None when it is no size."""
    m = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([A-Za-z]*)", text)
    return int(float(m[1]) * UNITS[m[2].upper()]) if m and m[2].upper() in UNITS else None


def count(name, default, least=0):
    text = env(name, str(default))
    if not text.isdigit() or int(text) < least:
        die(2, f"{name}='{text}': a number from {least} on is needed")
    return int(text)
