#!/usr/bin/env python3
"""A second implementation of schemas/trace.md, on top of h5dump and nothing of ours but the hash function.

trace_check.py SCHEMA.md HASH-TOOL FILE.h5: does the file hold exactly the attributes and datasets of the
schema's tables, with those types, shapes and filters, and do its content hashes follow from its datasets?
Prints what is wrong, exits 1 then."""
import os, re, struct, subprocess, sys, tempfile

schema, tool, path = sys.argv[1:4]
faults = []


def fault(text):
    faults.append(text)


def table(name):
    text = open(schema, encoding="utf-8").read()
    body = text.split(f"<!-- {name} -->")[1].split("<!-- end -->")[0]
    rows = [[c.strip() for c in line.strip().strip("|").split("|")] for line in body.strip().splitlines()]
    return rows[2:]


TYPES = {"u8": "H5T_STD_U8LE", "u16": "H5T_STD_U16LE", "u32": "H5T_STD_U32LE", "u64": "H5T_STD_U64LE",
         "f32": "H5T_IEEE_F32LE", "f64": "H5T_IEEE_F64LE", "f16": "16-bit little-endian floating-point 16-bit precision"}


def parse(lines):
    """h5dump -A -p: a nested dictionary of what stands in braces, keyed by its opening line."""
    root = {}
    stack = [root]
    for line in lines:
        line = line.strip()
        if not line:
            continue
        if line.endswith("{") and line.count("{") > line.count("}"):
            node = {}
            stack[-1].setdefault(line[:-1].strip(), node)
            stack.append(node)
        elif line == "}":
            stack.pop()
        else:
            stack[-1].setdefault("", []).append(line)
    return root


def value(attr):
    text = " ".join(attr["DATA"][""]).split(":", 1)[1].strip()
    return text.strip('"') if text.startswith('"') else float(text) if re.search(r"[.e]", text) else int(text)


def type_of(node):
    if "DATATYPE  H5T_STRING" in node:
        s = dict(x.rstrip(";").split(" ", 1) for x in node["DATATYPE  H5T_STRING"][""])
        good = s["STRPAD"] == "H5T_STR_NULLPAD" and s["CSET"] == "H5T_CSET_UTF8" and s["STRSIZE"] != "H5T_VARIABLE"
        return "text" if good else str(s), int(s["STRSIZE"])
    for line in node.get("", []):
        if line.startswith("DATATYPE"):
            return line.split("  ", 1)[1], 0
    return "?", 0


attributes, datasets = {}, {}


def walk(node, where):
    for key, child in node.items():
        m = re.match(r'(GROUP|ATTRIBUTE|DATASET) "(.*)"$', key)
        if not m:
            continue
        kind, name = m.groups()
        full = name if name == "/" else where.rstrip("/") + "/" + name
        if kind == "GROUP":
            walk(child, full)
        elif kind == "ATTRIBUTE":
            attributes[where, name] = child
        else:
            datasets[full] = child


dump = subprocess.run(["h5dump", "-A", "-p", path], capture_output=True, text=True)
if dump.returncode:
    sys.exit("h5dump: " + dump.stderr[:300])
tree = parse(dump.stdout.splitlines())
walk(next(iter(tree.values())), "/")

# ---- attributes ----
n_layers = value(attributes["/model", "n_layers"])
layers = [f"/layers/{i:04d}" for i in range(n_layers)]
known = set()
optional = table("optional attributes")
for group, name, kind, *_ in table("attributes") + optional:
    for g in layers if group == "/layers/LLLL" else [group]:
        known.add((g, name))
        if (g, name) not in attributes:
            if [group, name] in [o[:2] for o in optional]:
                continue
            fault(f"attribute {name} of {g} is missing")
            continue
        got, _ = type_of(attributes[g, name])
        want = "text" if kind in ("text", "hash") else TYPES[kind]
        if got != want:
            fault(f"attribute {name} of {g} is {got}, not {want}")
        elif kind == "hash" and not re.fullmatch("[0-9a-f]{32}", value(attributes[g, name])):
            fault(f"attribute {name} of {g} is no hash")
for key in attributes.keys() - known:
    fault(f"attribute {key[1]} of {key[0]} is not in the schema")


def a(group, name):
    return value(attributes[group, name])


# ---- datasets ----
ff = a("/model", "n_ff")
experts = a("/model", "n_experts")
size = {"T": a("/", "n_tokens"), "S": a("/", "n_sequences"), "S+1": a("/", "n_sequences") + 1, "W": a("/", "window_tokens"),
        "N": a("/", "n_samples"), "X": a("/tensors", "n"), "n_ff": ff, "row_bytes": (ff + 7) // 8, "n_blocks": experts or 1,
        "k": a("/model", "n_experts_used") if experts else 1, "d_model": a("/model", "d_model")}
known = set()
hashed = []  # (group, name, path, dims)
for row, kind, dims, in_hash, *_ in table("datasets"):
    dims = [size[d] if d in size else int(d) for d in dims.split()]
    absent = (dims[0] == 0 or (row.endswith("/routing") and not experts) or
              (row.endswith("/thresholds") and not {("/model", "thresholds"), ("/model", "cold_thresholds")} & set(attributes)) or
              (row.endswith("/cold") and ("/model", "cold_thresholds") not in attributes) or
              (row.endswith("/foreseen") and ("/", "foreseen") not in attributes))
    for g in layers if "LLLL" in row else [None]:
        name = row.replace("/layers/LLLL", g) if g else row
        known.add(name)
        if absent or name not in datasets:
            if absent != (name not in datasets):
                fault(f"dataset {name} is {'there' if absent else 'missing'}")
            continue
        node = datasets[name]
        got, _ = type_of(node)
        want = "text" if kind == "text" else TYPES[kind]
        if got != want:
            fault(f"dataset {name} is {got}, not {want}")
        shape = [x for x in node[""] if x.startswith("DATASPACE")][0]
        have = [int(x) for x in re.search(r"\{ \(([^)]*)\)", shape).group(1).split(",")]
        if have != dims:
            fault(f"dataset {name} has dimensions {have}, not {dims}")
        if not any(x.startswith("CHUNKED") for x in node["STORAGE_LAYOUT"][""]):
            fault(f"dataset {name} is not chunked")
        filters = [x.split("{")[0].strip() for x in node["FILTERS"][""]]
        allowed = [["CHECKSUM FLETCHER32"], ["COMPRESSION DEFLATE", "CHECKSUM FLETCHER32"],
                   ["PREPROCESSING SHUFFLE", "COMPRESSION DEFLATE", "CHECKSUM FLETCHER32"]]
        if filters not in allowed or ("PREPROCESSING SHUFFLE" in filters) != (kind not in ("u8", "text") and len(filters) > 1):
            fault(f"dataset {name} has filters {filters}")
        if in_hash == "yes":
            hashed.append((name.rsplit("/", 1)[0], name.rsplit("/", 1)[1], name, dims))
for name in datasets.keys() - known:
    fault(f"dataset {name} is not in the schema")

# ---- hashes ----
tmp = tempfile.TemporaryDirectory(prefix="thermo-trace-")


def hashes(files):
    return subprocess.run([tool] + files, capture_output=True, text=True, check=True).stdout.split()


def hash_of(data):
    name = os.path.join(tmp.name, "one")
    with open(name, "wb") as f:
        f.write(data)
    return hashes([name])[0]


def words(h):  # low, then high
    return struct.pack("<QQ", int(h[16:], 16), int(h[:16], 16))


def text(s):
    return struct.pack("<I", len(s)) + s.encode()


files = []
for i, (_, _, name, _) in enumerate(hashed):
    files.append(os.path.join(tmp.name, f"set{i}"))
    subprocess.run(["h5dump", "-d", name, "-b", "LE", "-o", files[-1], path], capture_output=True, check=True)
set_hash = hashes(files)
groups = ["/corpus", "/batches"] + layers
content = text("thermo-trace") + struct.pack("<I", a("/", "revision")) + words(a("/model", "hash")) + \
    text(a("/model", "act")) + struct.pack("<I", len(groups))
for g in groups:
    data = b""
    for (group, name, _, dims), h in zip(hashed, set_hash):
        if group == g:
            data += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) + words(h)
    h = hash_of(data)
    if h != a(g, "content_hash"):
        fault(f"content hash of {g} is {a(g, 'content_hash')}; its datasets give {h}")
    content += text(g) + words(h)
if hash_of(content) != a("/", "content_hash"):
    fault(f"content hash is {a('/', 'content_hash')}; the groups give {hash_of(content)}")


def strings(name):
    """h5dump has no binary output for text. Tensor names hold no quotes or backslashes here."""
    out = subprocess.run(["h5dump", "-w", "65535", "-d", name, path], capture_output=True, text=True, check=True).stdout
    return [x.replace("\\000", "").encode() for x in re.findall(r'"([^"]*)"', out.split("DATA {")[1])]


def numbers(name, code):
    out = os.path.join(tmp.name, "numbers")
    subprocess.run(["h5dump", "-d", name, "-b", "LE", "-o", out, path], capture_output=True, check=True)
    raw = open(out, "rb").read()
    return struct.unpack(f"<{len(raw) // struct.calcsize(code)}{code}", raw)


# The model's hash from the tensor table.
names, each = strings("/tensors/name"), strings("/tensors/hash")
types, ranks, dims = numbers("/tensors/type", "I"), numbers("/tensors/n_dims", "I"), numbers("/tensors/dims", "Q")
data = b""
for i in sorted(range(len(names)), key=lambda i: names[i]):
    data += struct.pack("<I", len(names[i])) + names[i] + struct.pack("<II", types[i], ranks[i]) + \
        struct.pack(f"<{ranks[i]}Q", *dims[i * 4:i * 4 + ranks[i]]) + words(each[i].decode())
if hash_of(data) != a("/model", "hash"):
    fault(f"model hash is {a('/model', 'hash')}; the tensor table gives {hash_of(data)}")
# The corpus hash of a whole trace from its tokens.
if a("/", "n_shards") == 1:
    starts, tokens = numbers("/corpus/sequence_starts", "Q"), numbers("/corpus/tokens", "I")
    data = struct.pack("<Q", size["S"])
    for b, e in zip(starts, starts[1:]):
        data += struct.pack("<Q", e - b) + struct.pack(f"<{e - b}I", *tokens[b:e])
    if hash_of(data) != a("/corpus", "hash"):
        fault("corpus hash does not follow from the tokens")

print("\n".join(faults) if faults else f"{len(attributes)} attributes, {len(datasets)} datasets, {len(groups) + 3} hashes")
sys.exit(bool(faults))
