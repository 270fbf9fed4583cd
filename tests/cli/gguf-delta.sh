#!/bin/sh
# gguf-make apply-delta: what it makes of a model is what plain Python makes of it; what does not fit is refused by name.
. tests/tap.sh
scratch
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }
make=$BIN/gguf-make delta="python3 tests/cli/gguf-delta.py"
base() { "$make" random -q --vocab 260 --layers 2 --d-model 64 --heads 4 --ff 96 --type "$1" "$2"; }
apply() { "$make" apply-delta -q "$@"; }

base f32 "$tmp/base.gguf"
$delta make "$tmp/d.gguf" 00000000000000000000000000000000
check "of another model: exit status 5, and the hash is named" says 5 "made for another model" apply "$tmp/base.gguf" "$tmp/d.gguf" "$tmp/o.gguf"
hash=$(grep -oE '[0-9a-f]{32}' "$tmp/said")
$delta make "$tmp/d.gguf" "$hash"
check "applied" apply --type f32 "$tmp/base.gguf" "$tmp/d.gguf" "$tmp/o.gguf"
check "what plain Python makes, everything else the same" $delta compare "$tmp/base.gguf" "$tmp/o.gguf" 1e-6
check "Q8_0 by default" apply "$tmp/base.gguf" "$tmp/d.gguf" "$tmp/q.gguf"
back() { "$BIN/thermo-quantize" -q --pure "$tmp/q.gguf" "$tmp/f.gguf" F32 && $delta compare "$tmp/base.gguf" "$tmp/f.gguf" 0.01; }
check "which rounds changed matrices and no others" back
runs() { printf 'text\nabc def\n' > "$tmp/p.csv" && "$BIN/thermo-profile" trace -q --model "$tmp/q.gguf" --prompts "$tmp/p.csv" --out "$tmp/t.h5" &&
    "$BIN/thermo-profile" show "$tmp/t.h5" | grep -q relu; }
check "a model that is traced, with the delta's activation" runs
for kind in half:'without its other half' shape:'which does not fit' unknown:'changes matrices that' both:'and changes of it too' \
        nan:"blk.1.ffn_down.weight': row 0, column 95 is not finite"; do
    $delta make "$tmp/bad.gguf" "$hash" "${kind%%:*}"
    check "a bad delta: ${kind%%:*}" says 3 "${kind#*:}" apply "$tmp/base.gguf" "$tmp/bad.gguf" "$tmp/none.gguf"
done
cut()
{
    size=$(wc -c < "$tmp/d.gguf")
    for n in 0 3 23 24 60 150 400 $((size / 2)) $((size - 33)); do
        head -c "$n" "$tmp/d.gguf" > "$tmp/bad.gguf"
        apply "$tmp/base.gguf" "$tmp/bad.gguf" "$tmp/none.gguf" 2> "$tmp/said" && { echo "$n bytes were taken"; return 1; }
        grep -q "bad.gguf'" "$tmp/said" || { echo "$n bytes:"; cat "$tmp/said"; return 1; }
    done
}
check "a delta that was cut off" cut
check "a model is no delta" says 3 "delta.base' is absent" apply "$tmp/base.gguf" "$tmp/base.gguf" "$tmp/none.gguf"
check "two files are not enough" says 2 "three files are needed" apply "$tmp/base.gguf" "$tmp/d.gguf"
check "the base is no output" says 2 "" apply "$tmp/base.gguf" "$tmp/d.gguf" "$tmp/base.gguf"
check "nothing was left by those" [ ! -e "$tmp/none.gguf" ]
done_testing
