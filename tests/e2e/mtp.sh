#!/bin/bash
# A model's own layer for multi-token prediction (thermo-pack mtp, generate --guess mtp): its logits are those of an independent
# implementation; a layer made to guess a set share right does; texts are those without it, in every mode and where neurons are read, one
# alone and several together, whose guesses are those alone; its memory is a part of the limit; what does not belong together is refused.
. tests/tap.sh
scratch
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }
phone "$tmp/hw.sqlite" > /dev/null 2>&1
printf 'text\nabc def ghi jkl mno pqr stu\nthe same again and another text of some length\nmore\n' > "$tmp/p.csv"

chain() # NAME, PROMPTS: of $tmp/NAME.gguf, with its layer
{
    "$BIN/thermo-profile" trace -q --model "$tmp/$1.gguf" --prompts "$2" --out "$tmp/$1.h5" &&
        "$BIN/thermo-plan" solve -q --traces "$tmp/$1.h5" --hardware "$tmp/hw.sqlite" --memory 64MiB --context 256 --out "$tmp/$1.json" &&
        "$BIN/thermo-pack" pack -q --model "$tmp/$1.gguf" --traces "$tmp/$1.h5" --plan "$tmp/$1.json" --out "$tmp/$1.thermo" &&
        "$BIN/thermo-pack" mtp -q --model "$tmp/$1.gguf" ${apart:+--layer "$apart"} --out "$tmp/$1-mtp.thermo" &&
        "$BIN/thermo-pack" verify "$tmp/$1-mtp.thermo"
}
guesses() { name=$1; shift; "$B/tests/tools/mtp-guesses" "$tmp/$name.thermo" "$tmp/$name.json" "$tmp/$name-mtp.thermo" "$@"; }

# ---- logits ----

logits() # NAME, gguf-make's options
{
    local name=$1
    shift
    "$BIN/gguf-make" random -q --vocab 260 --context 256 --type f32 "$@" "$tmp/$name.gguf" && chain "$name" "$tmp/p.csv" &&
        guesses "$name" 1,65,66,12,200,3,77,5,9,1,44,6,91,250,3,18,19,20,5 3 > "$tmp/out" &&
        python3 -B tests/e2e/mtp.py "$tmp/$name.gguf" 1,65,66,12,200,3,77,5,9,1,44,6,91,250,3,18,19,20,5 "$tmp/out" 1e-3
}
glm=(--arch glm4moe --d-model 64 --heads 4 --kv-heads 2 --head-dim 32 --ff 96 --experts 6 --experts-used 2)
check "glm4moe: logits" logits glm "${glm[@]}" --layers 4 --lead 1 --nextn 1
check "glm4moe with norms of queries and keys, embeddings and head of its own" logits glm2 "${glm[@]}" --layers 3 --lead 1 --nextn 1 --nextn-own --qk-norms
check "deepseek2: logits, the first of two layers" logits deep --arch deepseek2 --gating sigmoid --layers 3 --lead 1 --nextn 2 --d-model 64 \
    --heads 4 --head-dim 16 --q-rank 32 --kv-rank 48 --ff 96 --experts 8 --experts-used 3
delta=(--layers 8 --nextn 1 --d-model 64 --heads 4 --kv-heads 2 --head-dim 32 --ff 96)
check "qwen35: logits, the trunk's layers gated delta nets" logits q35 --arch qwen35 "${delta[@]}"
check "qwen35moe: logits, embeddings and head of its own" logits q35moe --arch qwen35moe "${delta[@]}" --experts 6 --experts-used 2 --nextn-own
check "qwen3next: logits" logits qnext --arch qwen3next "${delta[@]}" --experts 6 --experts-used 2
# A layer in a file of its own, of a model whose file has none.
alone() # NAME, gguf-make's options
{
    local name=$1
    shift
    logits $name "$@" --nextn 1 && "$BIN/gguf-make" random -q --vocab 260 --context 256 --type f32 "$@" "$tmp/$name.gguf" &&
        "$BIN/gguf-make" random -q --vocab 260 --context 256 --type f32 "$@" --nextn 1 --nextn-only "$tmp/$name-layer.gguf" &&
        mv "$tmp/out" "$tmp/whole" && apart="$tmp/$name-layer.gguf" chain $name "$tmp/p.csv" &&
        guesses $name 1,65,66,12,200,3,77,5,9,1,44,6,91,250,3,18,19,20,5 3 > "$tmp/out" && cmp "$tmp/whole" "$tmp/out"
}
check "qwen35: a layer in a file of its own" alone q35own --arch qwen35 --layers 4 --d-model 64 --heads 4 --kv-heads 2 --head-dim 32 --ff 96
check "glm4moe: a layer in a file of its own" alone glmown "${glm[@]}" --layers 4 --lead 1
check "a layer of another model's file" says 5 'is a layer behind 8 others of qwen35, 64 wide' "$BIN/thermo-pack" mtp --model "$tmp/glm.gguf" \
    --layer "$tmp/q35.gguf" --out "$tmp/no"
check "a file that has no such layer" says 3 'is absent or 0' "$BIN/thermo-pack" mtp --model "$tmp/q35.gguf" --layer "$tmp/q35own.gguf" --out "$tmp/no"
together() { "$B/tests/tools/mtp-together" "$tmp/$1.thermo" "$tmp/$1.json" "$tmp/$1-mtp.thermo"; }
for name in glm deep; do
    check "$name: guesses for four texts are those for each alone" together $name
done
check "a glance at a layer" says 0 'block 4 of its model' "$BIN/thermo-pack" inspect "$tmp/glm-mtp.thermo"

# ---- a set share ----

synth() # NAME, share
{
    local of=(--arch glm4moe --experts 4 --experts-used 2)
    [ $1 != delta ] || of=(--arch qwen35 --layers 4 --act silu)
    "$BIN/gguf-synth" -q --shape tiny "${of[@]}" --d-model 384 --heads 4 --ff 256 --vocab 800 --setting hard \
        --cycle 65 --nextn-agree "$2" --prompts "$tmp/$1.csv" --prompt-rows 2 "$tmp/$1.gguf" && chain "$1" "$tmp/$1.csv"
}
share() # NAME, of 64
{
    guesses "$1" 1 128 count > "$tmp/out" && python3 -c "
import json
o = json.load(open('$tmp/out'))
assert o['tokens'] == 128 and o['right'] == 2 * $2, o"
}
check "a text that goes round, and a layer that guesses it" synth all 1
check "all guesses are right" share all 64
check "a layer that guesses three quarters, with a head of its own" synth some 0.75
check "three quarters of the guesses are right" share some 48
check "qwen35: a text that goes round, and a layer that guesses three quarters" synth delta 0.75
check "three quarters of the guesses are right" share delta 48

gen() { name=$1; shift; "$BIN/thermo-run" generate --model "$tmp/$name.thermo" --plan "$tmp/$name.json" --prompt "${prompt:-e t a o}" -n 120 "$@"; }
same() # NAME, OPTION...
{
    gen "$@" -q > "$tmp/plain" && gen "$@" -q --guess mtp --mtp "$tmp/$1-mtp.thermo" "${more[@]}" > "$tmp/guessed" && [ -s "$tmp/plain" ] &&
        cmp "$tmp/plain" "$tmp/guessed"
}
more=()
for name in all some delta glm deep q35 q35moe qnext; do
    check "$name: the text is the same, greedy" same $name --temp 0 --ignore-eos
    more=(--guess-most 15)
    check "$name: the same, random draws and a penalty" same $name --temp 0.9 --seed 3 --repeat-penalty 1.2
    more=()
    check "$name: the same where neurons are read, chunks of 3" same $name --temp 0 --memory 17MiB --prefill-chunk 3 --ignore-eos
done
check "exact mode" same all --temp 0 --mode exact --ignore-eos
check "a context that fills" same all --temp 0 --context 40 --ignore-eos

counts() # within a limit that makes neurons be read; and what all of it takes is below the limit
{
    gen all --temp 0 --ignore-eos --json --memory 17MiB --guess mtp --mtp "$tmp/all-mtp.thermo" 2> "$tmp/err" | tail -n 1 > "$tmp/out" &&
        python3 - "$tmp/out" "${SANITIZE:-}" << 'END'
import json, sys
o = json.load(open(sys.argv[1]))
g = o["guesses"]
assert g["accepted"] == g["guessed"] and g["passes"] <= g["of"] and o["decode"]["tokens"] == g["of"] + g["accepted"] == 119, o
assert o["decode"]["read_bytes"] > 0, o
assert sys.argv[2] or o["peak_bytes"] <= o["memory_bytes"] == 17 << 20, o # a sanitizer takes memory of its own
END
}
check "what is counted, and its memory" counts
check "no memory for the model: infeasible" says 4 'the layer for multi-token prediction takes' gen all --memory 10MiB --guess mtp \
    --mtp "$tmp/all-mtp.thermo"

# ---- several texts ----

check "a plan for four texts" "$BIN/thermo-plan" solve -q --traces "$tmp/some.h5" --hardware "$tmp/hw.sqlite" --memory 64MiB --context 256 \
    --max-batch 4 --out "$tmp/four.json"
set_of() # COMMAND, OPTION...
{
    local command=$1
    shift
    "$BIN/thermo-run" "$command" -q --model "$tmp/some.thermo" --plan "$tmp/four.json" --seed 3 "$@" 2> "$tmp/err" || { status=$?; cat "$tmp/err"; return $status; }
}
layer=(--guess mtp --mtp "$tmp/some-mtp.thermo")
python3 - "$tmp/some.csv" > "$tmp/p.jsonl" << 'END'
import csv, json, sys
words = next(csv.DictReader(open(sys.argv[1])))["text"].split()
for i in range(7): # 16 to 62 tokens to make
    print(json.dumps({"id": i, "prompt": " ".join(words[5 * i:5 * i + 2 + 9 * i % 33]), "n": 16 + 23 * i % 47, "ignore_eos": i % 2 == 0}))
END
prompts() { set_of generate --prompts "$tmp/p.jsonl" "$@"; }
same_prompts() { prompts "$@" > "$tmp/plain" && prompts "$@" "${layer[@]}" "${more[@]}" > "$tmp/guessed" && [ "$(wc -l < "$tmp/plain")" -eq 8 ] && cmp "$tmp/plain" "$tmp/guessed"; }
check "--prompts: the same texts" same_prompts --temp 0
more=(--guess-most 15)
check "--prompts: the same, random draws, three at a time in a small pool, in chunks of 5" same_prompts --temp 0.9 --repeat-penalty 1.2 \
    --sequences 3 --kv-positions 320 --prefill-chunk 5
more=()
best() # of three, which go on from a prompt that is read once, within a limit that makes neurons be read
{
    local b=(--best-of 3 --prompt "$(sed -n 's/^cycle,//p' "$tmp/some.csv" | cut -d ' ' -f 1-63)" -n 60 --json --ignore-eos --temp 1 --memory 18MiB)
    set_of generate "${b[@]}" > "$tmp/plain" && set_of generate "${b[@]}" "${layer[@]}" --kv-positions 384 > "$tmp/guessed" || return 1
    python3 - "$tmp/plain" "$tmp/guessed" "${SANITIZE:-}" << 'END'
import json, sys
plain, guessed = ([json.loads(l) for l in open(f)] for f in sys.argv[1:3])
assert plain[:3] == guessed[:3] and [c["tokens"] for c in plain[:3]] == [60] * 3, (plain, guessed)
s, g = guessed[3], guessed[3]["guesses"]
assert 0 < g["accepted"] <= g["tried"] <= g["guessed"] and 0 < g["passes"] <= g["of"] <= s["passes"], s
assert s["gave_way"] == 0 and s["passes"] <= plain[3]["passes"], s # how many fewer is a matter of what passes took
assert s["read_bytes"] > 0, s
assert sys.argv[3] or s["peak_bytes"] <= s["memory_bytes"] == 18 << 20, s
END
}
check "--best-of: the same candidates; what is counted, and its memory" best
serves() { set_of serve --stdio --temp 0.8 "$@" < "$tmp/p.jsonl" | sed -n '/"type":"\(token\|done\)"/{s/"shared_tokens":[0-9]*//;p}' | sort; }
same_served() { serves > "$tmp/plain" && serves "${layer[@]}" > "$tmp/guessed" && [ "$(wc -l < "$tmp/plain")" -gt 100 ] && cmp "$tmp/plain" "$tmp/guessed"; }
check "serve: the same tokens" same_served
check "serve: the layer of another model" says 5 'is a layer of another model' set_of serve --stdio --guess mtp --mtp "$tmp/glm-mtp.thermo"

# States of recurrent layers, from which wrong guesses are taken back: texts beside each other, in a pool where they give way, forked.
check "qwen35: a plan for four texts" "$BIN/thermo-plan" solve -q --traces "$tmp/q35.h5" --hardware "$tmp/hw.sqlite" --memory 64MiB --context 256 \
    --max-batch 4 --out "$tmp/q35-four.json"
for i in 0 1 2 3 4 5 6; do
    echo "{\"id\": $i, \"prompt\": \"abc def ghi $i jkl abc def ghi jkl mno\", \"n\": $((16 + 23 * i % 47)), \"ignore_eos\": true}"
done > "$tmp/q35.jsonl"
q35() { "$BIN/thermo-run" generate -q --model "$tmp/q35.thermo" --plan "$tmp/q35-four.json" --seed 3 "$@"; }
q35_same() # what guesses, OPTION...
{
    local guess=$1
    shift
    q35 "$@" > "$tmp/plain" && q35 "$@" --guess $guess "${more[@]}" > "$tmp/guessed" && [ -s "$tmp/plain" ] && cmp "$tmp/plain" "$tmp/guessed"
}
for guess in lookup "mtp --mtp $tmp/q35-mtp.thermo"; do
    check "qwen35: --prompts, ${guess%% *}: the same texts" q35_same "$guess" --prompts "$tmp/q35.jsonl" --temp 0
    check "qwen35: random draws, three at a time in a small pool, in chunks of 5" q35_same "$guess" --prompts "$tmp/q35.jsonl" --temp 0.7 \
        --sequences 3 --kv-positions 320 --prefill-chunk 5
    more=(--guess-most 15)
    check "qwen35: one text, 15 guesses" q35_same "$guess" --prompt 'abc abc abc abc abc' -n 200 --temp 0 --ignore-eos
    more=()
done
q35_counts()
{
    local guess
    for guess in lookup "mtp --mtp $tmp/q35-mtp.thermo"; do
        q35 --prompt 'abc abc abc abc abc' -n 200 --temp 0 --ignore-eos --guess $guess --json | tail -n 1
    done > "$tmp/out" && python3 -c "
import json
right, wrong = (json.loads(l)['guesses'] for l in open('$tmp/out'))
assert right['accepted'] > 9 and wrong['tried'] > wrong['accepted'], (right, wrong)"
}
check "qwen35: some guesses are right, and some wrong" q35_counts

# ---- what it takes, in a plan ----

solve() { "$BIN/thermo-plan" solve --traces "$tmp/some.h5" --hardware "$tmp/hw.sqlite" --memory 64MiB --context 256 --out "$tmp/with.json" "$@"; }
check "solve --mtp: a device that does not tell" says 0 'what guesses bring is not predicted here' solve --mtp "$tmp/some-mtp.thermo"
check "solve --mtp: the layer of another model" says 5 "is a layer of another model than the trace's" solve --mtp "$tmp/glm-mtp.thermo"
check "solve --mtp: a model in place of its layer" says 2 'is a packed model' solve --mtp "$tmp/some.thermo"
check "solve --mtp and --draft-plan" says 2 'one of them guesses' solve --mtp "$tmp/some-mtp.thermo" --draft-plan "$tmp/some.json"

# By a device that does tell, of a model with recurrent layers: the plan's times, states with them, are those that the number of guesses
# begins with.
. tests/chain.sh
delta_plan()
{
    local with=(--traces "$tmp/delta.h5" --hardware "$hardware" --device test)
    "$BIN/thermo-plan" solve -q "${with[@]}" --memory 64MiB --context 256 --for-pack "$tmp/delta.thermo" --mtp "$tmp/delta-mtp.thermo" --out "$tmp/delta.json" &&
        "$BIN/thermo-plan" check -q "${with[@]}" "$tmp/delta.json" && "$BIN/thermo-plan" explain "${with[@]}" "$tmp/delta.json" | grep 't_pass = ' &&
        same delta --temp 0 --ignore-eos && gen delta --temp 0 --ignore-eos --json --guess mtp --mtp "$tmp/delta-mtp.thermo" | tail -n 1 > "$tmp/out" &&
        python3 - "$tmp/delta.json" "$tmp/out" << 'END'
import json, sys
q, o = json.load(open(sys.argv[1]))["decisions"]["limits"][0]["guesses"], json.load(open(sys.argv[2]))
g = o["guesses"]
print(q, g)
assert q["tokens"] == [1, 2, 4, 8, 16] and q["source"]["kind"] == "mtp" and q["source"]["guess_ns"] > 0 and q["pass_ns"] == sorted(q["pass_ns"]), q
assert g["planned"]["guess_ms"] > 0 and len(g["by_tokens"]) > 1 and all(t["predicted_ms"] > 0 for t in g["by_tokens"]), g
END
}
check "qwen35: a plan with times of guesses, states with them" delta_plan

# ---- a conversation ----

printf '%s' '{%- for m in messages %}{{ m.content ~ " " }}{% endfor %}' > "$tmp/template"
talk() # NAME, OPTION...
{
    local name=$1
    shift
    printf '%s\n' 'e t a' 'o i n s' '/reset' 'h r' | "$BIN/thermo-run" chat -q --model "$tmp/$name.thermo" --plan "$tmp/$name.json" --chat-template \
        "$tmp/template" -n 30 "$@"
}
turns() # NAME, OPTION...
{
    talk "$@" > "$tmp/plain" && talk "$@" --guess mtp --mtp "$tmp/$1-mtp.thermo" > "$tmp/guessed" && [ -s "$tmp/plain" ] && cmp "$tmp/plain" "$tmp/guessed"
}
check "chat: several turns, greedy" turns all --temp 0
check "chat: random draws, wrong guesses" turns some --temp 1 --seed 2
check "chat: --mtp without --guess mtp" says 2 'belongs to --guess mtp' talk all --mtp "$tmp/all-mtp.thermo"
check "chat: --guess mtp without --mtp" says 2 'belongs to --mtp' talk all --guess mtp
check "chat: the layer of another model" says 5 'is a layer of another model' talk all --guess mtp --mtp "$tmp/glm-mtp.thermo"

# ---- what does not go together ----

check "--mtp without --guess mtp" says 2 'belongs to --guess mtp' gen all --mtp "$tmp/all-mtp.thermo"
check "--guess mtp without --mtp" says 2 'belongs to --mtp' gen all --guess mtp
check "the layer of another model: mismatch" says 5 "is a layer of another model than '.*all.thermo'" gen all --guess mtp --mtp "$tmp/glm-mtp.thermo"
check "a model in place of its layer" says 2 "'.*all.thermo' is a packed model" gen all --guess mtp --mtp "$tmp/all.thermo"
check "a layer in place of its model" says 2 'is a layer for multi-token prediction, not a model' \
    "$BIN/thermo-run" generate --model "$tmp/all-mtp.thermo" --plan "$tmp/all.json" --prompt e
check "a layer as a draft" says 2 'draft model: .*is a layer for multi-token prediction' \
    gen all --guess draft --draft "$tmp/all-mtp.thermo" --draft-plan "$tmp/all.json"
check "a model without such layers" says 3 "key 'llama.nextn_predict_layers' is absent or 0" \
    "$BIN/thermo-pack" mtp --model datasets/models/reglu-tales-10m-f16.gguf --out "$tmp/no"

# Bytes of a file's header, changed in place.
tampered() # STATUS, MESSAGE, what Python does with b, the file's bytes, and at, where the dimensions of the layer's eh_proj are
{
    python3 - "$tmp/${of:-glm}.gguf" "$tmp/bad.gguf" "$3" << 'END' && says "$1" "$2" "$BIN/thermo-pack" mtp --model "$tmp/bad.gguf" --out "$tmp/no"
import sys
b = bytearray(open(sys.argv[1], "rb").read())
at = b.index(b".nextn.eh_proj.weight") + 21
exec(sys.argv[3])
open(sys.argv[2], "wb").write(b)
END
}
rename() { echo "n = b'blk.4.$1'; i = b.index(n); b[i + len(n) - 9:i + len(n) - 7] = b'xx'"; }
check "a matrix of another shape" tampered 3 "'blk.4.nextn.eh_proj.weight' is of shape 64 x 128 .* want 128 x 64" \
    'b[at + 4:at + 12], b[at + 12:at + 20] = b[at + 12:at + 20], b[at + 4:at + 12]'
for t in nextn.eh_proj nextn.enorm nextn.hnorm nextn.shared_head_norm attn_q ffn_gate_inp; do
    check "without $t" tampered 3 "tensor 'blk.4.$t.weight' is absent" "$(rename $t.weight)"
done
of=glm2
check "with a tensor that is not known" tampered 3 "tensor 'blk.3.nextn.embed_tokenx.weight' is not known" \
    'i = b.index(b".nextn.embed_tokens"); b[i + 18:i + 19] = b"x"'
check "nothing was written" test ! -e "$tmp/no"

# Quantised, with tiles of whole blocks: the same weights as in the model, down to Q6_K.
quantised()
{
    "$BIN/gguf-make" random -q --vocab 260 --context 256 --type q4_k --arch glm4moe --layers 2 --lead 1 --nextn 1 --d-model 256 --heads 4 \
        --kv-heads 2 --head-dim 64 --ff 512 --experts 4 --experts-used 2 "$tmp/k.gguf" && chain k "$tmp/p.csv" && prompt='abc def' same k --temp 1 --seed 4
}
more=(--guess-most 3)
check "Q4_K" quantised

# Embeddings and head of the layer's own that are the model's, byte for byte, are not packed; with --share none are.
shares() # OWN_EMBEDDINGS, OWN_HEAD, FILE, OPTION...
{
    "$BIN/thermo-pack" mtp -q --json --model "$3" --out "$tmp/shared.thermo" "${@:4}" > "$tmp/out" && python3 -c "
import json
o = json.load(open('$tmp/out'))
assert [o['own_embeddings'], o['own_head']] == [$1, $2], o"
}
equal()
{
    PYTHONPATH=tests/e2e python3 -B - "$tmp/glm2.gguf" "$tmp/equal.gguf" << 'END' && shares False True "$tmp/equal.gguf"
import sys
from naive import Gguf
g, b = Gguf(sys.argv[1]), bytearray(open(sys.argv[1], "rb").read())
n = 4 * 260 * 64
own, model = g.at_of["blk.3.nextn.embed_tokens.weight"], g.at_of["token_embd.weight"]
b[own:own + n] = b[model:model + n]
open(sys.argv[2], "wb").write(b)
END
}
same_shared()
{
    gen glm2 -q --temp 0 > "$tmp/plain" && gen glm2 -q --temp 0 --guess mtp --mtp "$tmp/shared.thermo" > "$tmp/guessed" && cmp "$tmp/plain" "$tmp/guessed"
}
check "both are its own" shares True True "$tmp/glm2.gguf"
check "embeddings that equal the model's" equal
check "--share" shares False False "$tmp/glm2.gguf" --share
check "the text is the same with the model's head" same_shared
dry() { "$BIN/thermo-pack" mtp --model "$tmp/k.gguf" --out "$tmp/no" --dry-run --json > "$tmp/out" && [ ! -e "$tmp/no" ] && grep -q working_memory_bytes "$tmp/out"; }
check "--dry-run" dry
done_testing
