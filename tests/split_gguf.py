#!/usr/bin/env python3
"""split_gguf.py MODEL.gguf STEM N: MODEL as N shards STEM-00001-of-0000N.gguf ..., as llama-gguf-split names and lays them out:
the metadata in the first, tensors in turn, split.* keys in all."""
import struct
import sys

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        self.at += n
        return self.data[self.at - n:self.at]

    def number(self, form):
        return struct.unpack("<" + form, self.take(struct.calcsize(form)))[0]

    def string(self):
        return self.take(self.number("Q"))

    def skip_value(self, kind):
        if kind == 8:
            self.string()
        elif kind == 9:
            inner, n = self.number("I"), self.number("Q")
            for _ in range(n):
                self.skip_value(inner)
        else:
            self.take(SIZES[kind])


def key(name, kind, form, value):
    return struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I" + form, kind, value)


def main(path, stem, n):
    r = Reader(open(path, "rb").read())
    assert r.take(4) == b"GGUF" and r.number("I") == 3
    n_tensors, n_keys = r.number("Q"), r.number("Q")
    start, align = r.at, 32
    for _ in range(n_keys):
        name, kind = r.string(), r.number("I")
        at = r.at
        r.skip_value(kind)
        if name == b"general.alignment":
            align = struct.unpack("<I", r.data[at:r.at])[0]
    keys = r.data[start:r.at]
    tensors = []
    for _ in range(n_tensors):
        name = r.string()
        dims = r.take(8 * r.number("I"))
        tensors.append([name, dims, r.number("I"), r.number("Q")])
    base = -(-r.at // align) * align
    ends = sorted(t[3] for t in tensors[1:]) + [len(r.data) - base]
    for t in tensors:
        t.append(min(e for e in ends if e > t[3]))
    for i in range(n):
        mine = tensors[len(tensors) * i // n:len(tensors) * (i + 1) // n]
        head = (keys if i == 0 else b"") + key("split.no", 2, "H", i) + key("split.count", 2, "H", n) + \
            key("split.tensors.count", 5, "i", n_tensors)
        head = b"GGUF" + struct.pack("<IQQ", 3, len(mine), (n_keys if i == 0 else 0) + 3) + head
        data = b""
        for name, dims, kind, at, end in mine:
            head += struct.pack("<Q", len(name)) + name + struct.pack("<I", len(dims) // 8) + dims + struct.pack("<IQ", kind, len(data))
            data += r.data[base + at:base + end] + bytes(-(end - at) % align)
        with open("%s-%05d-of-%05d.gguf" % (stem, i + 1, n), "wb") as f:
            f.write(head + bytes(-len(head) % align) + data)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
