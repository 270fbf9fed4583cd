#!/bin/sh
# gguf-synth --routes: a model chooses the experts of a route in every layer of every step, in a trace and in the runtime, and greedy
# generation goes through the route's text; what is no route is refused.
. tests/tap.sh
TOOL=${B:-build/$(uname -m)}/tests/tools/routes
scratch
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }
phone "$tmp/hw.sqlite" > /dev/null 2>&1

# A made-up conversation: 14 steps, the first 5 the prompt's, 3 layers, 3 of 9 experts. As in recorded ones the last layer has
# no experts for the prompt but at its end.
python3 - "$tmp/route.csv" << 'EOF2'
import random, sys
draw = random.Random(5)
with open(sys.argv[1], "w") as f:
    f.write("phase,step,layer,e0,e1,e2\n")
    for step in range(14):
        for layer in range(3):
            chosen = "" if step < 4 and layer == 2 else ",".join(map(str, draw.sample(range(9), 3)))
            f.write(f"{'prompt' if step < 5 else 'decode'},{step},{layer},{chosen}\n")
EOF2

synth() # OUT OPTIONS...
{
    out=$1
    shift
    "$BIN/gguf-synth" --shape tiny --d-model 384 --heads 4 --ff 64 --vocab 500 --setting hard --experts 9 --routes "$tmp/route.csv" "$@" "$out"
}

trace() { "$BIN/thermo-profile" trace -q --model "$tmp/m.gguf" --prompts "$tmp/text.csv" --samples 0 --out "$tmp/t.h5"; }

# Rows without the phase; of the file, those that have experts.
choices()
{
    "$TOOL" csv "$tmp/t.h5" | sed 's/^[a-z]*//' > "$tmp/got" && sed 's/^[a-z]*//' "$tmp/route.csv" | grep -v ',$' > "$tmp/want" &&
        [ "$(wc -l < "$tmp/got")" -eq 43 ] && [ "$(wc -l < "$tmp/want")" -eq 39 ] && ! grep -vxFf "$tmp/got" "$tmp/want"
}

chain()
{
    "$BIN/thermo-plan" solve --traces "$tmp/t.h5" --hardware "$tmp/hw.sqlite" --device 'OnePlus 12' --memory 12MiB,64MiB \
        --context ${context:-64} --out "$tmp/plan.json" > /dev/null &&
        "$BIN/thermo-pack" pack --model "$tmp/m.gguf" --traces "$tmp/t.h5" --plan "$tmp/plan.json" --out "$tmp/m.thermo" -q
}

# The whole text from nothing but BOS, and on from its end with its second step.
replays() # OPTIONS...
{
    "$BIN/thermo-run" generate -q --model "$tmp/m.thermo" --plan "$tmp/plan.json" -p '' -n 16 --temp 0 --no-echo "$@" > "$tmp/said" &&
        python3 -c 'import sys
text = open(sys.argv[1]).read().splitlines()[1].split(",")[1].split()
said = open(sys.argv[2]).read().split()
print(text, said)
sys.exit(len(text) != 13 or said != text + text[:3])' "$tmp/text.csv" "$tmp/said"
}

# Plain Python routes for itself: the runtime's logits are its own only with the same experts.
equal() # IDS
{
    "$BIN/thermo-run" logits -q --model "$tmp/m.thermo" --plan "$tmp/plan.json" --memory 12MiB --tokens "$1" > "$tmp/out" &&
        python3 tests/e2e/naive.py "$tmp/m.gguf" "$1" --gating softmax --compare "$tmp/out" --max 0.02
}

# refused STATUS TEXT LINE NEW OPTIONS...: the route with line LINE replaced by NEW (empty: left out); no file is written.
refused()
{
    want=$1 text=$2
    awk -v at="$3" -v new="$4" 'NR != at { print; next } new != "" { print new }' "$tmp/route.csv" > "$tmp/bad.csv"
    shift 4
    status "$want" "$BIN/gguf-synth" --shape tiny --d-model 384 --heads 4 --ff 64 --vocab 500 --setting hard --experts 9 \
        --routes "$tmp/bad.csv" "$@" "$tmp/no.gguf" 2> "$tmp/error" || return
    cat "$tmp/error"
    grep -q "$text" "$tmp/error" && [ ! -e "$tmp/no.gguf" ]
}

for act in silu relu; do
    check "$act: a model of the route" synth "$tmp/q.gguf" --act $act --prompts "$tmp/text.csv"
    check "$act: in F32" "$BIN/thermo-quantize" -q --pure "$tmp/q.gguf" "$tmp/m.gguf" F32
    check "$act: trace" trace
    check "$act: every choice is the route's, in its order" choices
    check "$act: plan and pack" chain
    check "$act: greedy generation is the route's text" replays --memory 12MiB
    ids=$(sed -n 2p "$tmp/text.csv" | cut -d, -f2 | tr ' ' '\n' | awk '{ print index("etaoinshrdlcumwfgypbvkjxqz", $0) + 353 }' | paste -sd, -)
    for steps in 4 13; do
        [ "$act" = silu ] || continue
        check "$act: logits of plain Python after $steps steps" equal "1,$(echo "$ids" | cut -d, -f1-$steps)"
    done
done
check "smallthinker: a model of the route" synth "$tmp/m.gguf" --arch smallthinker --type f16 --prompts "$tmp/text.csv"
check "smallthinker: trace" trace
check "smallthinker: every choice is the route's" choices

for type in mxfp4 q4_k; do
    check "$type: a model of the route" synth "$tmp/m.gguf" --act silu --d-model 512 --ff 256 --ffn-type $type --prompts "$tmp/text.csv"
    check "$type: trace" trace
    check "$type: every choice is the route's" choices
done

# Real layout: norms of queries and keys, llama-quantize's mixture, a BPE vocabulary whose words are one token each.
mixture()
{
    "$BIN/gguf-synth" --shape tiny --arch qwen3moe --type q4_k_m --pre qwen2 --act silu --setting hard --d-model 512 --heads 4 --ff 256 \
        --vocab 500 --experts 9 --routes "$tmp/route.csv" --prompts "$tmp/text.csv" "$tmp/m.gguf"
}
check "qwen3moe in Q4_K_M: a model of the route" mixture
check "qwen3moe in Q4_K_M: trace" trace
check "qwen3moe in Q4_K_M: every choice is the route's" choices
check "qwen3moe in Q4_K_M: plan and pack" chain
bpe_replays()
{
    "$BIN/thermo-run" generate -q --model "$tmp/m.thermo" --plan "$tmp/plan.json" -p '' -n 16 --temp 0 --no-echo > "$tmp/said" &&
        tr -d '"' < "$tmp/text.csv" > "$tmp/plain.csv" && python3 -c 'import sys
text = open(sys.argv[1]).read().splitlines()[1].split(",")[1].split()
said = open(sys.argv[2]).read().split()
print(text, said)
sys.exit(len(text) != 13 or said != text + text[:3])' "$tmp/plain.csv" "$tmp/said"
}
check "qwen3moe in Q4_K_M: greedy generation is the route's text" bpe_replays

check "splice: a model of pieces" synth "$tmp/m.gguf" --act silu --route-splice 30 --route-segment 4 --prompts "$tmp/text.csv"
check "splice: trace" trace
# Every piece of four steps is one of the route: its layers 0 and 1 are there in the same order, one step after the other.
pieces()
{
    "$TOOL" csv "$tmp/t.h5" > "$tmp/got.csv" && python3 - "$tmp/route.csv" "$tmp/got.csv" << 'EOF2'
import sys
def steps(path):
    out = {}
    for line in open(path).read().splitlines()[1:]:
        f = line.split(",")
        if f[2] < "2":
            out.setdefault(int(f[1]), []).append(f[3:])
    return [out[i] for i in sorted(out)]
route, got = steps(sys.argv[1]), steps(sys.argv[2])
assert len(got) == 30, len(got)
at = [route.index(s) for s in got]
print(at)
assert all(at[i] == at[i - 1] + 1 for i in range(30) if i % 4), at
assert len(set(at[::4])) > 2, at
EOF2
}
check "splice: pieces of the route, in random order" pieces
other()
{
    synth "$tmp/b.gguf" --act silu --route-splice 30 --route-segment 4 --prompts "$tmp/other.csv" --seed 2 > /dev/null && cmp "$tmp/text.csv" "$tmp/other.csv" &&
        ! cmp -s "$tmp/m.gguf" "$tmp/b.gguf"
}
check "splice: another seed, another order" other

# A text without a route, and a draft of it. How many guesses are made is a matter of time, so the share of right ones is within bounds.
cycle() # NAME OPTIONS...: a packed model
{
    name=$1
    shift
    "$BIN/gguf-synth" --shape tiny --d-model 384 --heads 4 --ff 256 --vocab 800 --setting hard --cycle 200 --prompts "$tmp/text.csv" --prompt-rows 2 "$@" "$tmp/m.gguf" &&
        trace && chain && mv "$tmp/m.thermo" "$tmp/$name.thermo" && mv "$tmp/plan.json" "$tmp/$name.json"
}
guess() # OPTIONS...
{
    "$BIN/thermo-run" generate --model "$tmp/cycle.thermo" --plan "$tmp/cycle.json" --context 512 -p '' -n 400 --temp 0 --no-echo "$@" 2> "$tmp/error"
}
round()
{
    guess -q > "$tmp/said" && python3 -c 'import sys
text = open(sys.argv[1]).read().splitlines()[1].split(",")[1].split()
said = open(sys.argv[2]).read().split()
sys.exit(len(text) != 199 or said != (3 * text)[:400])' "$tmp/text.csv" "$tmp/said"
}
drafted()
{
    guess --json --guess draft --draft "$tmp/draft.thermo" --draft-plan "$tmp/draft.json" --guess-most 1 > "$tmp/lines" &&
        tail -n 1 "$tmp/lines" | python3 -c 'import json, sys
g = json.load(sys.stdin)["guesses"]
print(g)
sys.exit(not (g["guessed"] >= 20 and 0.4 < g["accepted"] / g["guessed"] < 0.85))'
}
context=512
check "cycle: a model" cycle cycle
check "cycle: a draft that agrees in three of five places" cycle draft --cycle-agree 0.6 --layers 1
check "cycle: greedy generation goes round the text" round
check "cycle: some of the draft's guesses are right, some are not" drafted

# Share of choices that the hottest quarter of 16 experts takes.
popular() # AT-LEAST AT-MOST OPTIONS...
{
    least=$1 most=$2
    shift 2
    "$BIN/gguf-synth" --shape tiny --ff 64 --act silu --experts 16 --experts-used 2 --prompts "$tmp/text.csv" --prompt-rows 6 "$@" "$tmp/m.gguf" && trace &&
        "$TOOL" csv "$tmp/t.h5" | awk -F, -v least="$least" -v most="$most" 'NR > 1 { for (i = 4; i <= NF; i++) { n[$3 "," $i]++; all++ } }
            END { for (l = 0; l < 3; l++) { for (k = 0; k < 4; k++) { best = ""; for (x in n) if (x ~ "^" l "," && (best == "" || n[x] > n[best])) best = x
                sum += n[best]; delete n[best] } }
                print sum / all; exit !(least <= sum / all && sum / all <= most) }'
}
check "experts are about even" popular 0.25 0.45
check "some are more popular" popular 0.6 0.9 --route-skew 1.2
check "a popularity beside a route" refused 2 'the route says which experts follow' 99 '' --route-skew 1
check "a cycle beside a route" refused 2 "with --routes the head" 99 "" --cycle 20
check "no route" refused 3 'column 2 is' 1 'phase,layer,step,e0,e1,e2'
check "no experts" refused 3 "no column 'e0'" 1 'phase,step,layer'
check "a layer is missing" refused 3 'line 3: step 0, layer 2, where step 0, layer 1 comes next' 3 ''
check "the last step is not whole" refused 3 'ends after line 42, within step 13: 2 layers of 3' 43 ''
check "an expert twice" refused 3 "line 5, column 'e2': expert 4 twice" 5 'prompt,1,0,4,3,4'
check "no number" refused 3 "line 5, column 'e1': 'x' is no number" 5 'prompt,1,0,4,x,5'
check "an expert too large" refused 3 "column 'e0': '99999999999' is no number from 0 to" 5 'prompt,1,0,99999999999,1,2'
check "too many fields" refused 3 'line 5: 7 fields, where the header has 6' 5 'prompt,1,0,1,2,3,4'
check "neither prompt nor decode" refused 3 "line 5, column 'phase': 'both'" 5 'both,1,0,1,2,3'
check "a prompt after decoding" refused 3 "line 40, column 'phase': 'prompt' at step 12" 40 'prompt,12,2,1,2,3'
check "an expert beyond the model's" refused 2 'the route chooses expert 11' 5 'prompt,1,0,11,3,4'
check "more layers than the route" refused 2 'layers 4: the route has 3' 99 '' --layers 4
check "other experts a token" refused 2 'experts-used 2: the route has 3' 99 '' --experts-used 2
check "too narrow" refused 2 'd-model 256: a route of 14 steps needs 352' 99 '' --d-model 256
check "too few words" refused 2 'has 30 words, and the text needs 399' 99 '' --vocab 384 --route-splice 400 --route-segment 14
check "a piece longer than the route" refused 2 'route-segment 15: the route has 14 steps' 99 '' --route-splice 30 --route-segment 15
check "rows of prompts beside a route" refused 2 'prompt-rows' 99 '' --prompt-rows 3
check "a type of its own for gates with thresholds" refused 2 'goes with --act silu' 99 '' --ffn-type q4_k
check "a width that is no multiple of its block" refused 2 'multiples of 256' 99 '' --act silu --ffn-type q4_k
check "a type without quant blocks" refused 2 'no type with quant blocks' 99 '' --act silu --ffn-type f16
check "a splice of nothing" says 2 'need --routes' "$BIN/gguf-synth" --shape tiny --route-splice 30 "$tmp/no.gguf"
check "a dense model" says 2 'needs experts' "$BIN/gguf-synth" --shape tiny --routes "$tmp/route.csv" "$tmp/no.gguf"
done_testing
