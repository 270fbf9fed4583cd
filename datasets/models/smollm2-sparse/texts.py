#!/usr/bin/env python3
"""Texts to train on: the project's documentation, its prompts, and what the model itself writes.

words: prompts for `thermo-run generate --prompts`, a word of the model's vocabulary each, drawn by a seed.
rows: token ids in rows of 256, uint16, .npy, of Markdown files, tables (CSV) with a column text, and results of `generate --prompts`
(JSON lines, after the prompts that they continue). Texts end with the token of end of text. transformers 4.46, gguf 0.19.
"""
import argparse
import csv
import json
import random
import re

import gguf
import numpy as np

ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("--model", required=True)
ap.add_argument("what", choices=["words", "rows"])
ap.add_argument("out")
ap.add_argument("texts", nargs="*", help="*.md, *.csv; PROMPTS.jsonl:RESULTS.jsonl")
ap.add_argument("--count", type=int, default=1000, help="words")
ap.add_argument("--seed", type=int, default=11)
a = ap.parse_args()


def words():
    tokens = gguf.GGUFReader(a.model).fields["tokenizer.ggml.tokens"].contents()
    random.seed(a.seed)
    some = [t.replace("Ġ", "") for t in tokens if re.fullmatch("Ġ?[A-Z][a-z]{1,}|Ġ[a-z]{3,}", t)]
    with open(a.out, "w") as f:
        for i in range(a.count):
            f.write(json.dumps({"id": f"w{i}", "prompt": random.choice(some)}) + "\n")


def texts(name):
    if name.endswith(".csv"):
        with open(name, newline="") as f:
            return [r["text"] for r in csv.DictReader(f)]
    if ":" not in name:
        with open(name) as f:
            return [f.read()]
    of, results = name.split(":")
    with open(of) as f, open(results) as g:
        prompts, lines = [json.loads(x)["prompt"] for x in f], [json.loads(x) for x in g]
    return [prompts[x["index"]] + x["text"] for x in lines if x["type"] == "result"]


def rows():
    from transformers import AutoTokenizer
    folder, _, file = a.model.rpartition("/")
    t = AutoTokenizer.from_pretrained(folder or ".", gguf_file=file)
    end, ids = t.convert_tokens_to_ids("<|endoftext|>"), []
    for name in a.texts:
        for text in texts(name):
            ids += t(text)["input_ids"] + [end]
    np.save(a.out, np.array(ids[:len(ids) // 256 * 256], dtype=np.uint16).reshape(-1, 256))
    print(len(ids), "tokens")


words() if a.what == "words" else rows()
