#!/usr/bin/env python3
"""patch_gguf.py MODEL.gguf TENSOR FIRST:STEP:COUNT FORM VALUE: writes numbers into a tensor, in place: COUNT of them (to the tensor's end where it
is 0), STEP bytes apart (of their own size where it is 0), from byte FIRST on; FORM as struct has it: f (F32), e (F16)."""
import os
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from split_gguf import Reader


def find(data, wanted):
    """Where a tensor's bytes are, and how many to the next one."""
    r = Reader(data)
    assert r.take(4) == b"GGUF" and r.number("I") == 3
    n_tensors, n_keys = r.number("Q"), r.number("Q")
    align, tensors = 32, []
    for _ in range(n_keys):
        name, kind = r.string(), r.number("I")
        at = r.at
        r.skip_value(kind)
        if name == b"general.alignment":
            align = struct.unpack("<I", data[at:r.at])[0]
    for _ in range(n_tensors):
        name, n = r.string().decode(), 1
        for _ in range(r.number("I")):
            n *= r.number("Q")
        kind = r.number("I")
        tensors.append((r.number("Q"), name, n * {0: 4, 1: 2}.get(kind, 0)))
    base = -(-r.at // align) * align
    ends = sorted(t[0] for t in tensors) + [len(data) - base]
    for at, name, size in tensors:
        if name == wanted:
            return base + at, size or min(e for e in ends if e > at) - at
    sys.exit("no tensor " + wanted)


def main(path, tensor, where, form, value):
    first, step, count = map(int, where.split(":"))
    with open(path, "r+b") as f:
        start, size = find(f.read(), tensor)
        one = struct.pack("<" + form, float(value))
        for i in range(count or 1 << 60):
            at = first + i * (step or len(one))
            if at >= size:
                break
            f.seek(start + at)
            f.write(one)


if __name__ == "__main__":
    main(*sys.argv[1:])
