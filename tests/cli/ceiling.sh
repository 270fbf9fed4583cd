#!/bin/bash
# --memory holds whatever comes from outside: every command of thermo-run with every large input, in a memory cgroup of its limit.
. tests/tap.sh
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }
[ -z "$SANITIZE" ] || { echo "1..0 # SKIP a sanitizer's memory is not in the account"; exit 77; }
. tests/chain.sh
scratch
# The model with 40 MiB of metadata, and its pack.
python3 -B - "$model" "$tmp/large.gguf" << 'P' || { echo "not ok 1 - a model with much metadata"; echo 1..1; exit 1; }
import struct, sys
sys.path.insert(0, 'tests')
from split_gguf import Reader
data = open(sys.argv[1], 'rb').read()
r = Reader(data)
r.take(8)
n_tensors, n_keys = r.number('Q'), r.number('Q')
for _ in range(n_keys):
    r.string()
    r.skip_value(r.number('I'))
keys, infos = data[24:r.at], r.at
for _ in range(n_tensors):
    r.string()
    r.take(8 * r.number('I') + 12)
name, text = b'tests.much', b'x' * (40 << 20)
head = data[:16] + struct.pack('<Q', n_keys + 1) + keys + struct.pack('<Q', len(name)) + name + struct.pack('<IQ', 8, len(text)) + text + \
    data[infos:r.at]
open(sys.argv[2], 'wb').write(head + bytes(-len(head) % 32) + data[r.at + -r.at % 32:])
P
"$BIN/thermo-pack" pack --model "$tmp/large.gguf" --traces "$traces" --plan "$plan" --out "$tmp/large.thermo" > "$tmp/log" 2>&1 ||
    { sed 's/^/# /' "$tmp/log"; echo "not ok 1 - its pack"; echo 1..1; exit 1; }
rm "$tmp/large.gguf"
python3 -B tests/cli/ceiling.py "$BIN/thermo-run" "$packed" "$plan" "$tmp/large.thermo"
