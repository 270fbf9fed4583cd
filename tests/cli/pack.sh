#!/bin/sh
# thermo-pack: the same inputs give the same bytes, what does not belong together is refused, damage is found.
. tests/tap.sh
. tests/chain.sh
scratch
pack="$BIN/thermo-pack"

flip() # FILE OFFSET: change one byte
{
    python3 - "$1" "$2" <<'END'
import sys
f = open(sys.argv[1], 'r+b'); o = int(sys.argv[2]); f.seek(o); b = f.read(1)[0]; f.seek(o); f.write(bytes([b ^ 0x10]))
END
}
again() { "$pack" pack --model "$model" --traces "$traces" --plan "$plan" --out "$tmp/$1" --threads "$2" > /dev/null; }

check "same inputs, same bytes, whatever the threads" sh -c '
    "$1" pack --model "$2" --traces "$3" --plan "$4" --out "$5/a" --threads 1 && cmp "$5/a" "$6" &&
    "$1" pack --model "$2" --traces "$3" --plan "$4" --out "$5/b" --threads 3 && cmp "$5/b" "$6"' \
    - "$pack" "$model" "$traces" "$plan" "$tmp" "$packed"
check "verify finds it whole" says 0 "whole; 50 tensors" "$pack" verify "$packed"
check "its logits are the model's" says 0 "largest difference 0," "$pack" verify --model "$model" --traces "$traces" \
    --quality-tokens 32 "$packed"
check "inspect --json is JSON" sh -c '"$1" inspect --json --tensors "$2" | python3 -m json.tool' - "$pack" "$packed"
check "dry run writes nothing" sh -c '"$1" pack --model "$2" --traces "$3" --plan "$4" --out "$5/none" --dry-run | grep "would write" &&
    test ! -e "$5/none"' - "$pack" "$model" "$traces" "$plan" "$tmp"

# Other models, orders, layouts.
"$BIN/thermo-quantize" --pure "$model" "$tmp/q8.gguf" Q8_0 > /dev/null 2>&1
check "another model than the trace's is refused" says 5 "tensor '.*' is Q8_0" "$pack" pack --model "$tmp/q8.gguf" \
    --traces "$traces" --plan "$plan" --out "$tmp/no"
cp "$model" "$tmp/flipped.gguf"
flip "$tmp/flipped.gguf" 9000000
check "one changed byte of a weight is another model" says 5 "has hash" "$pack" pack --model "$tmp/flipped.gguf" \
    --traces "$traces" --plan "$plan" --out "$tmp/no"
sed 's/"order_hash": "./"order_hash": "0/; s/"hash": "7/"hash": "8/' "$plan" > "$tmp/other.json"
check "a plan for another model is refused" says 5 "do not belong together" "$pack" pack --model "$model" \
    --traces "$traces" --plan "$tmp/other.json" --out "$tmp/no"
check "nothing was left behind" test -z "$(find "$tmp" -name 'no*')"

# Damage.
cp "$packed" "$tmp/bad"
flip "$tmp/bad" "$(($(wc -c < "$packed") / 2))"
check "a changed weight is found and its cluster named" says 3 "cluster [0-9]* (neurons" "$pack" verify "$tmp/bad"
cp "$packed" "$tmp/bad"
flip "$tmp/bad" 130
check "a changed header is refused" says 3 "header is damaged" "$pack" inspect "$tmp/bad"
head -c 1000000 "$packed" > "$tmp/bad"
check "a truncated file is refused" says 3 "its header says" "$pack" inspect "$tmp/bad"
check "a GGUF is not a pack, and the message says what to do" says 3 "thermo-pack pack" "$pack" inspect "$model"
check "a missing file" says 3 "cannot open" "$pack" verify "$tmp/none"
check "no file" says 2 "give one packed model" "$pack" verify
check "two files" says 2 "give one packed model" "$pack" inspect a b
check "pack needs its inputs" says 2 "model" "$pack" pack --out "$tmp/no"
done_testing
