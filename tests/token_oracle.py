#!/usr/bin/env python3
"""Tokens of made-up vocabularies against plain Python.

token_oracle.py write FILE.gguf ARCH MODEL PRE|- [merges]   a vocabulary: bytes, then what training on some words merges
token_oracle.py kimi TOKENS N SEED                 Kimi's words and tiktoken's merges
token_oracle.py nfc TOKENS N SEED                  what qwen2 makes of a text is its NFC, by Python's own database

TOKENS is tests/tools/tokens. Standard library only."""
import collections
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import unicodedata

TEXT = ("the thing that they think there, THE Thing's HelloWorld don't we'll I'M 2024 12345 1,000.5 \n\n  a \r\n(b) --- \u4f60\u597d\u4e16\u754c "
        "\u4f60\u597d \u043f\u0440\u0438\u0432\u0435\u0442 \u0645\u0631\u062d\u0628\u0627 \u0e01\u0e32 \u3053\u3093\u306b\u3061\u306f caf\u00e9 cafe\u0301 !? // "
        "\u30a2\u30a4 \u00c9\u00e9 \u3007\u4e00 x\u4f60y ")


PLAIN = 380 # tokens that are text


def printable():
    """GPT-2's character of each byte."""
    own = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    out, more = {b: chr(b) for b in own}, 256
    for b in range(256):
        if b not in out:
            out[b] = chr(more)
            more += 1
    return out


def trained():
    """Bytes in an order of their own, then pairs by how often they stand side by side, and the merges that made them."""
    ranks = {bytes([b]): i for i, b in enumerate(random.Random(7).sample(range(256), 256))}
    words, merges = [[bytes([b]) for b in w.encode()] for w in re.findall(r"\s*\S+|\s+", TEXT * 2)], []
    while len(ranks) < PLAIN:
        pairs = collections.Counter(p for w in words for p in zip(w, w[1:]))
        (a, b), n = max(pairs.items(), key=lambda x: (x[1], x[0]))
        if a + b not in ranks:
            ranks[a + b] = len(ranks)
            merges.append((a, b))
        for w in words:
            i = 0
            while i + 1 < len(w):
                if w[i] == a and w[i + 1] == b:
                    w[i:i + 2] = [a + b]
                i += 1
    return ranks, merges


def write(path, arch, model, pre, with_merges):
    ranks, merges = trained()
    show = lambda text: "".join(printable()[b] for b in text).encode()
    string = lambda s: struct.pack("<Q", len(s)) + s
    array = lambda kind, items: struct.pack("<IIQ", 9, kind, len(items)) + b"".join(items)
    tokens = [show(t) for t in sorted(ranks, key=ranks.get)] + [b"<|end|>", b"[PAD381]"]
    types = [1] * PLAIN + [3, 5]
    keys = {"general.architecture": struct.pack("<I", 8) + string(arch.encode()),
            "tokenizer.ggml.model": struct.pack("<I", 8) + string(model.encode()),
            "tokenizer.ggml.tokens": array(8, [string(t) for t in tokens]),
            "tokenizer.ggml.token_type": array(5, [struct.pack("<i", t) for t in types]),
            "tokenizer.ggml.scores": array(6, [struct.pack("<f", -i) for i in range(len(tokens))]),
            "tokenizer.ggml.bos_token_id": struct.pack("<II", 4, PLAIN)}
    if pre != "-":
        keys["tokenizer.ggml.pre"] = struct.pack("<I", 8) + string(pre.encode())
    if with_merges:
        keys["tokenizer.ggml.merges"] = array(8, [string(show(a) + b" " + show(b)) for a, b in merges])
    with open(path, "wb") as f:
        f.write(b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys)) + b"".join(string(k.encode()) + v for k, v in keys.items()))


def ids_of(tool, gguf, texts):
    lines = "".join(json.dumps({"text": t}) + "\n" for t in texts)
    out = subprocess.run([tool, gguf], input=lines.encode(), stdout=subprocess.PIPE, check=True).stdout.decode()
    return [[int(i) for i in line.split()] for line in out.splitlines()]


def compare(what, texts, ours, theirs):
    bad = 0
    assert len(ours) == len(texts)
    for text, a in zip(texts, ours):
        b = theirs(text)
        if a != b:
            bad += 1
            if bad < 6:
                print("%r gives %s, not %s" % (text, a, b))
    print("%s: %d texts, %d differ" % (what, len(texts), bad))
    return bad > 0


# ---- Kimi ----

SIGNS = ([*"aeBZ019"] + ["'s", "'LL", "'", " ", "  ", "\n", "\r\n", "\t", "\u3000", "\u00a0", ".", "(", "/", "\u2026"] +
         ["\u4f60", "\u597d", "\u9fa5", "\u3007", "\u3053", "\u30a2", "\u30fc", "\u0e01", "\u0645", "\u0301", "\u0e31", "\u00e9", "\u00c9", "\u01c5", "\u02b0",
          "\u0661", "\u2163", "\U0001f642", "\uac00", "the", "Hello"])
UP, LOW = "[A-Z\u00c0\u0e01\u0301]", "[a-z\u00e0\u0e01\u0301]"
NONE, ENDS = "[^\r\nA-Za-z\u00c0\u00e0\u0e01\u4e00\u30070]", "(?:'s|'t|'re|'ve|'m|'ll|'d)?"
KIMI = re.compile("[\u4e00\u3007]+|%s?%s*%s+(?i:%s)|%s?%s+%s*(?i:%s)|[0\u3007]{1,3}| ?[^\\sA-Za-z\u00c0\u00e0\u0e01\u4e00\u30070]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+" %
                  (NONE, UP, LOW, ENDS, NONE, UP, LOW, ENDS))


def sign(c):
    """A character of the same class, for KIMI. U+3007 is Han and a number."""
    kind = unicodedata.category(c)
    if "\u4e00" <= c <= "\u9fff":
        return "\u4e00"
    if c == "\u3007" or c.isspace() or (c.isascii() and not c.isdigit()):
        return c
    return {"Lu": "\u00c0", "Lt": "\u00c0", "Ll": "\u00e0", "Lm": "\u0e01", "Lo": "\u0e01"}.get(kind) or {"M": "\u0301", "N": "0"}.get(kind[0], "!")


def tiktoken(ranks, word):
    parts = [bytes([b]) for b in word]
    if word in ranks:
        return [ranks[word]]
    while True:
        best = min(((ranks[a + b], i) for i, (a, b) in enumerate(zip(parts, parts[1:])) if a + b in ranks), default=None)
        if not best:
            return [ranks[p] for p in parts]
        parts[best[1]:best[1] + 2] = [parts[best[1]] + parts[best[1] + 1]]


def kimi(tool, gguf, n, rng):
    ranks, _ = trained()

    def ids(text):
        out = []
        for m in KIMI.finditer("".join(sign(c) for c in text)):
            out += tiktoken(ranks, text[m.start():m.end()].encode())
        return out

    words = TEXT.split(" ")
    texts = ["".join(rng.choice(SIGNS if rng.random() < .8 else words) for _ in range(rng.randrange(1, 30))) for _ in range(n)]
    failed = 0
    for merges in (False, True): # those of a file say the same, or less
        write(gguf, "deepseek2", "gpt2", "kimi-k2", merges)
        failed |= compare("kimi-k2", texts, ids_of(tool, gguf, texts), ids)
    return failed


# ---- NFC ----

def nfc(tool, gguf, n, rng):
    back = {i: t for t, i in trained()[0].items()}
    assigned = [chr(c) for c in range(1, sys.maxunicode + 1) if not 0xd800 <= c < 0xe000 and unicodedata.category(chr(c)) != "Cn"]
    marks = [c for c in assigned if unicodedata.combining(c)] + [chr(c) for c in [*range(0x1161, 0x1176), *range(0x11a8, 0x11c3)]]
    changed = [c for c in assigned if unicodedata.decomposition(c)]
    syllables = [chr(c) for c in range(0xac00, 0xd7a4, 7)]
    pools = [marks, marks, changed, syllables, assigned, "aeiouyAEIOU\u1100\u1112", " \n.", "\u0301\u0323\u0302\u031b\u0327"]
    texts = ["a" + c + "b" for c in assigned if ord(c) < 0x3400 or unicodedata.decomposition(c) or unicodedata.combining(c)]
    texts += [unicodedata.normalize("NFD", c) for c in changed + syllables]
    texts += ["".join(rng.choice(rng.choice(pools)) for _ in range(rng.randrange(1, 24))) for _ in range(n)]
    long = [rng.choice(marks) for _ in range(30000)]
    texts += ["a" + "".join(long), "".join(long)]
    write(gguf, "qwen2", "gpt2", "qwen2", True)
    ours = [b"".join(back[i] for i in ids).decode() for ids in ids_of(tool, gguf, texts)]
    changes = sum(unicodedata.normalize("NFC", t) != t for t in texts)
    assert changes > n / 4, changes
    return compare("nfc", texts, ours, lambda t: unicodedata.normalize("NFC", t))


def main(what, *args):
    if what == "write":
        return write(args[0], args[1], args[2], args[3], len(args) > 4)
    with tempfile.TemporaryDirectory() as folder:
        return {"kimi": kimi, "nfc": nfc}[what](args[0], os.path.join(folder, "v.gguf"), int(args[1]), random.Random(int(args[2])))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
