#!/bin/bash
# Each architecture through all four programs, on a small random model: the logits of eight or ten prompts, of the dense pass and of the runtime,
# are those of an independent implementation (tests/golden/archs), and the same bytes at the memory floor, where every neuron is read from
# storage.
. tests/tap.sh
scratch
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }
golden=tests/golden/archs
mapfile -t prompts < $golden/prompts.txt
printf 'text\nabc def ghi jkl mno pqr stu\nthe same again and another text of some length\nmore\n' > "$tmp/p.csv"
phone "$tmp/hw.sqlite" > /dev/null 2>&1
cores=$(of '' --cores=mid=2,big=0,little=0)

context_of() { case "$*" in *--context\ 512* | *--context\ 1024*) echo 512 ;; *) echo 256 ;; esac; }

chain() # gguf-make's options
{
    rm -f "$tmp/m.gguf" "$tmp/t.h5" "$tmp/plan.json" "$tmp/m.thermo"
    "$BIN/gguf-make" random -q --vocab 260 --context 256 "$@" "$tmp/m.gguf" &&
        "$BIN/thermo-profile" trace -q --model "$tmp/m.gguf" --prompts "$tmp/p.csv" --out "$tmp/t.h5" &&
        "$BIN/thermo-plan" solve -q --traces "$tmp/t.h5" --hardware "$tmp/hw.sqlite" --memory 64MiB --context "$(context_of "$@")" --rlimit 1 $cores --out "$tmp/plan.json" &&
        "$BIN/thermo-pack" pack -q --model "$tmp/m.gguf" --traces "$tmp/t.h5" --plan "$tmp/plan.json" --out "$tmp/m.thermo"
}

logits() { "$BIN/thermo-run" logits -q --model "$tmp/m.thermo" --plan "$tmp/plan.json" --tokens "$@"; }

# What the largest difference is, in deviations of a prompt's logits; more than the model's $limit fails.
compare()
{
    python3 - "$golden/$1.f32" "$limit" "${which[@]/#/$tmp/out.}" << 'EOF'
import array, json, statistics, sys
want, worst = array.array('f'), 0.0
with open(sys.argv[1], 'rb') as f:
    want.frombytes(f.read())
if sys.byteorder == 'big':
    want.byteswap()
n = 260
limit = float(sys.argv[2])
assert 0 < limit <= 1e-4, limit
for name in sys.argv[3:]:
    i = int(name.rpartition('.')[2])
    got, row = json.load(open(name))['logits'], want[i * n:(i + 1) * n]
    assert len(got) == n, '%d logits, %d expected' % (len(got), n)
    worst = max(worst, max(abs(a - b) for a, b in zip(got, row)) / statistics.pstdev(row))
print('# largest difference %.2g of the deviation of the logits' % worst)
sys.exit(not worst <= limit)
EOF
}

dense() # gguf-make's options
{
    set -- --context "$(context_of "$@")" "$tmp/m.gguf"
    for i in "${which[@]}"; do
        set -- "$@" "${prompts[i]}" "$tmp/out.$i"
    done
    "$B/tests/tools/dense-logits" "$@" && compare "$name"
}

equal()
{
    for i in "${which[@]}"; do
        logits "${prompts[i]}" --kv f32 --act f32 > "$tmp/out.$i" || return 1
    done
    compare "$1"
}

# In the default arithmetic: with all memory, and with none for neurons, in other chunks.
streamed()
{
    floor=$(logits 1 --memory 1MiB --prefill-chunk 7 2>&1 > /dev/null | sed -n 's/.*below the floor of \([0-9]*\) bytes.*/\1/p')
    logits "${prompts[7]}" > "$tmp/all" && logits "${prompts[7]}" --memory "${floor:-1}" --prefill-chunk 7 > "$tmp/floor" &&
        cmp "$tmp/all" "$tmp/floor"
}

while read -r name limit options; do
    case $name in '' | '#'*) continue ;; esac
    # Ten prompts where the file has their logits, of up to 300 tokens; else eight.
    ten=$(($(wc -c < "$golden/$name.f32") / 1040))
    which=($(of "$(seq -s ' ' 0 $((ten - 1)))" "3 $((ten - 1))"))
    [ -z "${SANITIZE:-}" ] || which=($((ten - 1))) # the longest
    # shellcheck disable=SC2086
    check "$name: traced, planned, packed" chain $options
    check "$name: the logits of $ten prompts by the dense pass" dense $options
    check "$name: the logits of $ten prompts" equal "$name"
    check "$name: the same bytes at the floor" streamed
done < $golden/models.txt

# ---- gates with biases that shut: exact mode asks for the gate with its bias ----
naive() { logits 1,42,7,99,200 --mode "$1" --kv f32 --act f32 > "$tmp/out" && python3 tests/e2e/naive.py "$tmp/m.gguf" 1,42,7,99,200 \
    --compare "$tmp/out" --max "$2"; }
modes() { logits "${prompts[7]}" --mode exact > "$tmp/exact" && logits "${prompts[7]}" --mode dense > "$tmp/dense" && cmp "$tmp/exact" "$tmp/dense"; }
# Predictors see the gate with its bias: with those of full rank and recall 0.9999 predicted mode is exact mode, all but a little.
predicted()
{
    rm -f "$tmp/t.h5" "$tmp/plan.json" "$tmp/m.thermo"
    "$BIN/thermo-profile" trace -q --model "$tmp/m.gguf" --prompts datasets/prompts/stories-profile.csv --max-tokens "$(of 4000 1200)" --ctx 100 \
        --out "$tmp/t.h5" && "$BIN/thermo-profile" predictors -q --model "$tmp/m.gguf" --traces "$tmp/t.h5" --rank 64 --method svd \
        --type f16 --recall 0.9999 --quality-tokens 0 --json > "$tmp/predictors.json" &&
        "$BIN/thermo-plan" solve -q --traces "$tmp/t.h5" --hardware "$tmp/hw.sqlite" --memory 64MiB --context 256 --mode predicted $cores \
        --out "$tmp/plan.json" && "$BIN/thermo-pack" pack -q --model "$tmp/m.gguf" --traces "$tmp/t.h5" --plan "$tmp/plan.json" \
        --out "$tmp/m.thermo" && naive predicted 1e-4 && python3 - "$tmp/predictors.json" << 'EOF'
import json, sys
for p in json.load(open(sys.argv[1]))["predictors"]:
    print("layer %d: density %.3f of %.3f" % (p["layer"], p["density"], p["true_density"]))
    assert p["density"] < 1.1 * p["true_density"] + 0.02
EOF
}
for act in relu drelu; do
    check "biases of a $act FFN: traced, planned, packed" chain --layers 2 --d-model 64 --heads 4 --ff 96 --ffn-biases --act $act --type f32
    check "$act: logits by plain Python" naive exact 1e-4
    check "$act: exact and dense mode give the same bytes" modes
    check "$act: the same bytes at the floor" streamed
    [ $act = drelu ] || check "$act: predictors of full rank know the biases" predicted
done
# Of 100 rows of positions two are none.
few_positions()
{
    chain --arch opt --layers 2 --d-model 64 --heads 4 --ff 96 --type f32 --context 100 || return
    status 2 logits 1,2,3 2> "$tmp/error" > /dev/null
    cat "$tmp/error"
    grep -q "a context of 256, but the model has 98 positions" "$tmp/error" && logits 1,2,3 --context 98 > /dev/null
}
check "opt: a context beyond the model's positions is refused" few_positions
# Sparse attention is not built: beyond as many positions as its indexer chooses (half the context that the file states).
sparse_beyond()
{
    chain --arch glm-dsa --layers 3 --lead 1 --d-model 64 --heads 4 --head-dim 32 --q-rank 24 --ff 96 --experts 4 --experts-used 2 --type f32 || return
    logits 1,2,3 --context 128 > /dev/null || return
    status 2 logits 1,2,3 --context 129 2> "$tmp/error" > /dev/null
    cat "$tmp/error"
    grep -q "a context of 129, but the model has 128 positions with full attention" "$tmp/error" || return
    status 2 "$BIN/thermo-profile" trace -q --model "$tmp/m.gguf" --prompts "$tmp/p.csv" --ctx 129 --out "$tmp/t2.h5" 2> "$tmp/error"
    grep -q "128 positions with full attention" "$tmp/error"
}
check "glm-dsa: a context beyond which attention is sparse is refused" sparse_beyond
done_testing
