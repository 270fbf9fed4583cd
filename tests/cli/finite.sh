#!/bin/bash
# Numbers that are none: a weight that is infinite or NaN is refused by whoever reads the model first; a pack whose finite weights make logits that
# are none, or keys that F16 cannot hold, ends the run, or the one request, with exit status 3; and whatever is promised as JSON is JSON.
. tests/tap.sh
scratch
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }
P=$BIN/thermo-profile L=$BIN/thermo-plan K=$BIN/thermo-pack R=$BIN/thermo-run
phone "$tmp/hw.sqlite" > /dev/null 2>&1
printf 'text\nabc def ghi jkl mno pqr stu\nthe same again and another text of some length\nmore\n' > "$tmp/p.csv"
shape=(--vocab 260 --context 128 --layers 2 --d-model 64 --heads 4 --ff 128)

# model NAME gguf-make's...; patch NAME patch_gguf.py's...; chain NAME: through the offline programs; run COMMAND NAME ...
model() { local name=$1; shift; rm -f "$tmp/$name.gguf"; "$BIN/gguf-make" random -q "${shape[@]}" "$@" "$tmp/$name.gguf"; }
patch() { local name=$1; shift; python3 -B tests/patch_gguf.py "$tmp/$name.gguf" "$@"; }
trace() { "$P" trace -q --model "$tmp/$1.gguf" --prompts "$tmp/p.csv" --out "$tmp/$1.h5"; }
pack() { "$K" pack -q --model "$tmp/$1.gguf" --traces "$tmp/$1.h5" --plan "$tmp/$1.json" --out "$tmp/$1.thermo"; }
chain()
{
    trace "$1" && "$L" solve -q --traces "$tmp/$1.h5" --hardware "$tmp/hw.sqlite" --memory 64MiB --context 128 --max-batch 2 --out "$tmp/$1.json" &&
        pack "$1"
}
run() { local command=$1 name=$2; shift 2; "$R" "$command" -q --model "$tmp/$name.thermo" --plan "$tmp/$name.json" "$@"; }
# strict FILE: every line is JSON, which has neither nan nor Infinity
strict() { python3 -c 'import json, sys
def no(x): raise ValueError(x)
for line in open(sys.argv[1]): json.loads(line, parse_constant=no)' "$1"; }

# ---- weights ----

refused() # NAME TENSOR WHERE FORM VALUE PATTERN
{
    patch "$1" "$2" "$3" "$4" "$5" && says 3 "'$tmp/$1.gguf': tensor '$2': $6" trace "$1" && [ ! -e "$tmp/$1.h5" ]
}
model f16 --act relu --type f16
check "F16: NaN" refused f16 blk.0.attn_q.weight 10:0:1 e nan 'element 5 is nan, not a finite number'
model f32 --act relu --type f32
check "F32: infinite, the last element" refused f32 blk.1.ffn_down.weight $((4 * 64 * 128 - 4)):0:1 f inf 'element 8191 is inf'
model q8 --act relu --type q8_0
check "Q8_0: a scale" refused q8 blk.0.ffn_up.weight 34:0:1 e nan 'the Q8_0 block of elements 32 to 63 has a scale'
model sound --act relu --type f16
check "the same model without" chain sound
cp "$tmp/sound.gguf" "$tmp/kept.gguf"
patch sound blk.0.attn_q.weight 10:0:1 e nan
check "pack" says 3 "tensor 'blk.0.attn_q.weight': element 5 is nan" pack sound
cp "$tmp/kept.gguf" "$tmp/sound.gguf"
more() { "$P" trace -q --model "$tmp/sound.gguf" --prompts datasets/prompts/stories-profile.csv --max-tokens 1000 --out "$tmp/more.h5" > "$tmp/log" 2>&1; }
check "a longer trace" more
patch sound blk.0.ffn_gate.weight 14:0:1 e -inf
check "predictors" says 3 "tensor 'blk.0.ffn_gate.weight': element 7 is -inf" "$P" predictors -q --model "$tmp/sound.gguf" --traces "$tmp/more.h5" \
    --method svd --rank 32 --out "$tmp/no.h5"

# ---- sums of finite weights ----

model wide --act relu --type f32
patch wide blk.1.ffn_down.weight 0:0:0 f 3e38
check "trace: a layer's output is beyond F32" says 3 "after layer 1 the residual of a token is" trace wide
model scale --act relu --type f32
patch scale blk.0.ffn_down.weight 40:0:1 f 1e7
layout() { trace scale && "$L" solve -q --traces "$tmp/scale.h5" --hardware "$tmp/hw.sqlite" --memory 64MiB --context 128 --form bundle --packed no \
    --down-type q8_0 --out "$tmp/scale.json"; }
check "a weight that is finite in F32, and whose scale is not in Q8_0" layout
check "pack" says 3 "tensor 'blk.0.ffn_down.weight': a weight is too large for type Q8_0" pack scale

# ---- logits ----

# Weights that are finite, and products of them that are not.
model huge --act relu --type f32
patch huge output_norm.weight 0:0:0 f 3e38
check "weights of 3e38: traced, planned, packed" chain huge
why="'$tmp/huge.thermo': after [0-9]* tokens the logit of token [0-9]* is -*[ni][an][nf], and no token can be chosen"
check "logits" says 3 "$why" run logits huge --tokens 1,65,66
check "generate" says 3 "$why" run generate huge --prompt abc -n 4
check "generate, with guesses" says 3 "$why" run generate huge --prompt abc -n 4 --guess lookup
check "bench" says 3 "$why" run bench huge -p 8 -n 4 -r 1
for _ in $(seq 60); do echo 'some words to be scored, again and again.'; done > "$tmp/text"
check "perplexity" says 3 "$why" run perplexity huge -f "$tmp/text" --ctx 64 --json
lines() # NAME STATUS COMMAND...: lines of JSON, that say why
{
    local status=$1
    shift
    status "$status" "$@" > "$tmp/lines" 2> "$tmp/said" || { cat "$tmp/lines" "$tmp/said"; return 1; }
    strict "$tmp/lines"
}
printf '{"id":1,"prompt":"a","n":2}\n{"id":2,"prompt":"b","n":2}\n' > "$tmp/asked"
serve() { run serve "$@" --stdio < "$tmp/asked"; }
check "serve: JSON" lines 0 serve huge
check "serve: both requests" grep -c '"error":.*no token can be chosen.*"status":3' "$tmp/lines"
check "--best-of" lines 3 run generate huge --prompt abc -n 4 --best-of 2 --json
check "--best-of: both candidates" test "$(grep -c '"candidate".*"error":.*"status":3' "$tmp/lines")" = 2
check "--best-of: why" grep -q "2 of 2 candidates could not be made: $why" "$tmp/said"
check "--prompts" lines 3 run generate huge --prompts "$tmp/p.csv" -n 4
check "--prompts: each says why" test "$(grep -c 'no token can be chosen' "$tmp/lines" "$tmp/said" | awk -F: '{ n += $2 } END { print n }')" -ge 3

# ---- keys beyond F16 ----

model key --arch qwen2 --type f32
patch key blk.0.attn_k.bias 0:0:0 f 1e5
check "keys of 1e5: traced, planned, packed" chain key
check "F16 refuses them, and says what to do" says 3 "layer 0 made a key or value of position 0 beyond 65504.*--kv f32" run logits key --tokens 1,65
check "F32 has room" run logits key --tokens 1,65 --kv f32

# One token's key alone: the request that has it ends, its neighbour goes on with what it makes alone.
model one --act relu --type f32
patch one token_embd.weight 0:256:0 f 0
patch one token_embd.weight $((77 * 256)):0:1 f 5
patch one blk.0.attn_k.weight 0:256:0 f 1e6
check "a token whose key is beyond F16: traced, planned, packed" chain one
text() { python3 -c 'import json, sys
for line in open(sys.argv[1]):
    j = json.loads(line)
    if j.get("id") == sys.argv[2] and j["type"] in ("done", "error"):
        print(j["type"], j.get("error", j.get("text")), j.get("tokens"))' "$tmp/lines" "$1"; }
printf '{"id":"a","tokens":[1,65,66,67],"n":12,"temp":0}\n' > "$tmp/asked"
check "serve: a request without it" lines 0 serve one
alone=$(text a)
printf '{"id":"a","tokens":[1,65,66,67],"n":12,"temp":0}\n{"id":"b","tokens":[1,70,77,71],"n":12,"temp":0}\n{"id":"c","tokens":[1,65,66,67],"n":12,"temp":0}\n' \
    > "$tmp/asked"
check "serve: two with it or without" lines 0 serve one
check "the one with it ends" says 0 "error .*position 2 beyond 65504" text b
check "the others make what they make alone" test -n "$alone" -a "$(text a)" = "$alone" -a "$(text c)" = "$alone"
done_testing
