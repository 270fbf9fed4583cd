#!/bin/sh
# reference.sh: the embedded model through all four programs, compared with PyTorch (tests/golden/reference).
# F16: logits of ten prompts and perplexity. Q8_0 and Q4_0, made here by gguf-make: perplexity. All of the text `tiny`
# takes minutes: 24 windows of it are read, by both protocols. REFERENCE_ALL=1 reads both texts whole.
set -u
. tests/tap.sh # of which `ok` and the end are this script's own
REF=tests/golden/reference
MODEL=datasets/models/reglu-tales-10m-f16.gguf
tokens=512 # of the traces: they order neurons, and logits depend on no order

ok() { # STATUS WHAT
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; bad=$((bad + 1)); fi
}
skip() { echo "1..0 # SKIP $1"; exit 77; }

command -v python3 > /dev/null || skip "python3 is not installed"
for need in "thermo-profile trace" "thermo-profile import" "thermo-plan solve" "thermo-pack pack" \
            "thermo-run logits" "thermo-run perplexity"; do
    # shellcheck disable=SC2086
    "$BIN"/$need --help > /dev/null 2>&1 || skip "this build has no '$need'"
done
[ -x "$BIN/gguf-make" ] || skip "$BIN/gguf-make is not built"

T=$(mktemp -d "${TMPDIR:-/tmp}/thermo-reference.XXXXXX") || exit 1
trap 'rm -rf "$T"' EXIT
trap 'exit 130' INT TERM

step() { # WHAT COMMAND...: a step of the chain; without it the rest says nothing
    what=$1; shift
    "$@" > "$T/log" 2>&1
    rc=$?
    ok $rc "$what"
    [ $rc -ne 0 ] || return
    echo "# exit $rc of: $*"
    sed 's/^/# /' "$T/log" | tail -n 20
    echo "1..$n"
    exit 1
}
compare() { # WHAT COMPARE-ARGUMENTS...: prints the figure in the point's name
    what=$1; shift
    said=$(python3 tests/e2e/compare.py "$@" 2>&1)
    ok $? "$what: $(printf '%s' "$said" | tail -n 1)"
}
chain() { # NAME GGUF PACK-OPTIONS...: NAME.thermo and NAME.json in $T
    name=$1 gguf=$2; shift 2
    step "$name: trace" "$BIN/thermo-profile" trace --model "$gguf" --max-tokens $tokens \
        --prompts datasets/prompts/stories-profile.csv --out "$T/$name.h5"
    step "$name: solve" "$BIN/thermo-plan" solve --traces "$T/$name.h5" --hardware "$T/hw.sqlite" \
        --memory 64MiB --context 512 --out "$T/$name.json" "$@"
    step "$name: pack" "$BIN/thermo-pack" pack --model "$gguf" --traces "$T/$name.h5" --plan "$T/$name.json" \
        --out "$T/$name.thermo"
}
perplexity() { # NAME TYPE TEXT PROTOCOL LIMIT
    "$BIN/thermo-run" perplexity --model "$T/$1.thermo" --plan "$T/$1.json" --ids "$T/held_$3.bin" \
        --ctx 256 --protocol "$4" --kv f32 --json > "$T/ppl.json" 2> "$T/log" || sed 's/^/# /' "$T/log" | tail -n 5
    compare "$1: perplexity, $3, $4" perplexity "$REF/reference-$2.json" "$3" "$4" "$T/ppl.json" --max "$5"
}
perplexities() { # NAME TYPE LIMIT [PROTOCOL]: otherwise by both; how windows are read is no matter of the type
    if [ -n "${SANITIZE:-}" ]; then # twelve thousand tokens are for programs at full speed; the logits above stay
        n=$((n + 1))
        echo "ok $n - $1: perplexity # SKIP a sanitizer makes it minutes"
        return
    fi
    for protocol in ${4:-full half}; do perplexity "$1" "$2" tiny24 "$protocol" "$3"; done
    [ "${REFERENCE_ALL:-0}" = 1 ] || return
    for text in tiny fairy; do
        perplexity "$1" "$2" $text full "$3"
        perplexity "$1" "$2" $text half "$3"
    done
}

cp datasets/heldout/held_tiny.bin datasets/heldout/held_fairy.bin "$T"
head -c $((24 * 256 * 2)) datasets/heldout/held_tiny.bin > "$T/held_tiny24.bin"
# Which device it is planned for changes no result, so none is measured.
step "hardware" phone "$T/hw.sqlite"
chain f16 "$MODEL"
python3 tests/e2e/compare.py prompts "$REF/reference-f16.json" > "$T/prompts"
while read -r p ids; do
    "$BIN/thermo-run" logits --model "$T/f16.thermo" --plan "$T/f16.json" --kv f32 --tokens "$ids" \
        > "$T/logits.json" 2> "$T/log" || sed 's/^/# /' "$T/log" | tail -n 5
    compare "f16: logits of prompt $p" logits "$REF/reference-f16.json" "$p" "$T/logits.json" --max 2e-3
    vector=$REF/logits_$(printf %02d "$p").f32
    [ -f "$vector" ] && compare "f16: all logits of prompt $p" logits "$REF/reference-f16.json" "$p" \
        "$T/logits.json" --vector "$vector" --max 2e-3
done < "$T/prompts"
perplexities f16 f16 1e-3

for type in q8_0 q4_0; do
    step "$type: re-quantise" "$BIN/thermo-quantize" --pure "$MODEL" "$T/$type.gguf" "$type"
    chain "$type" "$T/$type.gguf" --down-type q8_0
    perplexities "$type" "$type" 3e-3 "$([ $type = q8_0 ] && echo full || echo half)"
done
echo "1..$n"
[ "$bad" -eq 0 ]
