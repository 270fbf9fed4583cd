#!/bin/bash
# Gaps that are filled ("suffix"), by a model whose file has keys for the tokens of that: the embedded one with three keys more.
. tests/run_chain.sh
scratch
cat > "$tmp/keys.py" << 'P'
import struct, sys
sys.path.insert(0, 'tests')
from split_gguf import Reader, key
data = open(sys.argv[1], 'rb').read()
r = Reader(data)
assert r.take(4) == b'GGUF' and r.number('I') == 3
n_tensors, n_keys = r.number('Q'), r.number('Q')
for _ in range(n_keys):
    r.string()
    r.skip_value(r.number('I'))
new = b''.join(key(f'tokenizer.ggml.{name}_token_id', 4, 'I', i) for name, i in (('fim_pre', 301), ('suffix', 302), ('fim_mid', 303)))
pad = -(len(new) + 30) % 32  # the tensors move by a multiple of what they are aligned to
new += struct.pack('<Q', 10) + b'test.align' + struct.pack('<IQ', 8, pad) + b'x' * pad
assert len(new) % 32 == 0
with open(sys.argv[2], 'wb') as f:
    f.write(data[:4] + struct.pack('<IQQ', 3, n_tensors, n_keys + 4) + data[24:r.at] + new + data[r.at:])
P
python3 -B "$tmp/keys.py" "$model" "$tmp/model.gguf" && model=$tmp/model.gguf || { echo "not ok 1 - the model's file"; echo "1..1"; exit 1; }
chain_start
chain split --max-batch 2 || { echo "not ok 1 - chain"; echo "1..1"; exit 1; }
python3 -B tests/cli/infill.py "$BIN" "$tmp/split.thermo" "$tmp/split.json"
