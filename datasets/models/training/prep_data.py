#!/usr/bin/env python3
"""Collects the training text from local git clones, cleans it, splits off a
held-out part, trains the SentencePiece tokenizer and writes token streams.

usage: prep_data.py [OUT [SOURCES]]
OUT (data) receives the text and tokens; SOURCES (sources) holds clones of the repositories named
below, each in a folder OWNER+NAME:
  git clone https://github.com/uci-soe/FairytaleQAData sources/uci-soe+FairytaleQAData

Sources (see ../README.md for licences):
  TinyStories excerpts (CDLA-Sharing-1.0)      -> story style "tiny"
  FairytaleQA stories (Apache-2.0, texts PD)   -> story style "fairy"
  The Wonderful Wizard of Oz, L. F. Baum (PD)  -> story style "oz"
"""
import csv, io, json, os, random, re, subprocess, sys
import numpy as np

OUT = sys.argv[1] if len(sys.argv) > 1 else "data"
M = sys.argv[2] if len(sys.argv) > 2 else "sources"
VOCAB = 4096
N_STREAMS = 8            # differently augmented copies of the training text
os.makedirs(OUT, exist_ok=True)


def show(repo, path):
    return subprocess.run(["git", "-C", f"{M}/{repo}", "show", f"HEAD:{path}"],
                          check=True, capture_output=True).stdout.decode("utf-8", "replace")


def ls(repo, prefix):
    o = subprocess.run(["git", "-C", f"{M}/{repo}", "-c", "core.quotepath=off", "ls-tree",
                        "-r", "--name-only", "HEAD", prefix], check=True, capture_output=True)
    return o.stdout.decode().splitlines()


def clean(t):
    t = t.replace("\r", "")
    for a, b in (("\u201c", '"'), ("\u201d", '"'), ("\u2018", "'"), ("\u2019", "'"),
                 ("\u2014", "--"), ("\u2013", "-"), ("\u2026", "..."), ("\u00a0", " "),
                 ("\ufeff", ""), ("\u00c2", "")):
        t = t.replace(a, b)
    t = re.sub(r"[ \t]+", " ", t)
    t = re.sub(r" ?\n ?", "\n", t)
    t = re.sub(r"\n+", "\n", t)
    return t.strip()


def tiny_stories():
    stories = []
    stories += show("mines-opt-ml+decoding-gpt", "data/tinystories_10k.txt").split("<|endoftext|>")
    # plain concatenations: a story starts on a line that opens like one, after an ending line
    opener = re.compile(r"^(Once upon a time|Once there (was|were)|One day|One morning|One sunny day|Once,|"
                        r"In a |Long ago|There was once|There once was|It was a )")
    for repo, path in (("s-ajaykumar+smallGPT", "data/tiny_stories.txt"),
                       ("Niklas6+Mini_GPT", "tinystories.txt"),
                       ("leozoroaster+CS336HW1", "TinyStories.txt"),
                       ("deepanvishal+LLM_learning", "tiny_stories.txt"),
                       ("Ahmedessaa+My-AI_Tasks", "TinyStories-valid.txt")):
        text = show(repo, path)
        if "<|endoftext|>" in text:
            stories += text.split("<|endoftext|>")
            continue
        cur, prev_blank = [], True
        for line in text.split("\n"):
            # in these files stories follow each other with no blank line between
            if opener.match(line) and cur and not prev_blank:
                stories.append("\n".join(cur)); cur = []
            elif (line.startswith("Once upon a time") and sum(map(len, cur)) > 300):
                stories.append("\n".join(cur)); cur = []
            cur.append(line)
            prev_blank = not line.strip()
        stories.append("\n".join(cur))
    seen, res = set(), []
    for s in stories:
        s = clean(s)
        key = re.sub(r"\W+", "", s)[:120]
        if len(s) < 150 or key in seen:
            continue
        seen.add(key)
        res.append(s)
    return res


def fairy():
    res = {"train": [], "val": [], "test": []}
    for split in res:
        for p in ls("uci-soe+FairytaleQAData", f"data-by-train-split/section-stories/{split}/"):
            rows = list(csv.DictReader(io.StringIO(show("uci-soe+FairytaleQAData", p))))
            res[split].append(clean("\n".join(r["text"] for r in rows)))
    return res


def oz():
    t = show("sachinrcz+llmatoz", "data/tinystories.txt")
    paras = [re.sub(r"\s*\n\s*", " ", p) for p in re.split(r"\n\s*\n", t)]
    return clean("\n".join(paras))


BOYS = "Tim Tom Ben Max Sam Jack Bob Billy Timmy Tommy John Johnny Jimmy Joe Mark Peter Bobby Fred Leo Danny David Charlie Adam Dan Mike Nick".split()
GIRLS = "Lily Lucy Sara Mia Anna Sue Jane Mary Amy Emma Jill Sally Molly Susie Daisy Ella Sarah Jenny Lisa Kate Bella Zoe Nina Lola Rose Annie".split()


def rename(s, rng):
    """gender-keeping random permutation of the common first names of a story"""
    m = {}
    for names in (BOYS, GIRLS):
        perm = names[:]; rng.shuffle(perm)
        m.update(dict(zip(names, perm)))
    return re.sub(r"\b(" + "|".join(m) + r")\b", lambda k: m[k.group(1)], s)


def main():
    rng = random.Random(7)
    ts, fq, wz = tiny_stories(), fairy(), oz()
    rng.shuffle(ts)
    n_held = int(len(ts) * 0.08)
    ts_held, ts_train = ts[:n_held], ts[n_held:]
    fq_train = fq["train"] + fq["val"]
    # Oz: many chunks, last 8 % is not used at all
    wz = wz[: int(len(wz) * 0.92)]
    fq_held, size = [], 0
    for s in fq["test"]:
        if size + len(s) > 200_000:
            break
        fq_held.append(s); size += len(s)
    print("tiny", len(ts), sum(map(len, ts)), "held", sum(map(len, ts_held)))
    print("fairy train", len(fq_train), sum(map(len, fq_train)), "held", len(fq_held), size)
    print("oz", len(wz))

    with open(f"{OUT}/spm_input.txt", "w") as f:
        for s in ts_train + fq_train + [wz]:
            f.write(s + "\n")
    with open(f"{OUT}/heldout.jsonl", "w") as f:
        for tag, group in (("tiny", ts_held), ("fairy", fq_held)):
            for s in group:
                f.write(json.dumps({"source": tag, "text": s}, ensure_ascii=False) + "\n")
    with open(f"{OUT}/heldout.txt", "w") as f:
        f.write("\n".join(ts_held + fq_held) + "\n")
    with open(f"{OUT}/train.jsonl", "w") as f:
        for tag, group in (("tiny", ts_train), ("fairy", fq_train), ("oz", [wz])):
            for s in group:
                f.write(json.dumps({"source": tag, "text": s}, ensure_ascii=False) + "\n")
    subprocess.run(["spm_train", f"--input={OUT}/spm_input.txt", f"--model_prefix={OUT}/tokenizer",
                    f"--vocab_size={VOCAB}", "--model_type=bpe", "--byte_fallback=true",
                    "--character_coverage=0.9995", "--normalization_rule_name=identity",
                    "--remove_extra_whitespaces=false", "--split_digits=true",
                    "--add_dummy_prefix=true", "--allow_whitespace_only_pieces=true",
                    "--unk_id=0", "--bos_id=1", "--eos_id=2", "--pad_id=-1",
                    "--max_sentence_length=100000", "--num_threads=2",
                    "--input_sentence_size=0", "--minloglevel=2"], check=True)
    import sentencepiece as spm
    sp = spm.SentencePieceProcessor(model_file=f"{OUT}/tokenizer.model")

    def enc(s):
        return [1] + sp.encode(s) + [2]

    fq_tok = [enc(s) for s in fq_train]
    oz_tok = [enc(wz)]
    for k in range(N_STREAMS):
        r = random.Random(100 + k)
        docs = list(fq_tok) + list(oz_tok)
        for rep in range(2):
            docs += [enc(s if (k == 0 and rep == 0) else rename(s, r)) for s in ts_train]
        r.shuffle(docs)
        flat = np.fromiter((t for d in docs for t in d), dtype=np.uint16)
        flat.tofile(f"{OUT}/train_{k}.bin")
        if k == 0:
            print("stream tokens", len(flat))
    for tag, group in (("tiny", ts_held), ("fairy", fq_held)):
        flat = np.array([t for s in group for t in enc(s)], dtype=np.uint16)
        flat.tofile(f"{OUT}/held_{tag}.bin")
        print("held", tag, len(flat), "tokens", sum(map(len, group)), "chars")


main()
