#!/bin/bash
# --kv q8_0 and q4_0: plan, account and runtime agree on the cache's type; texts do not depend on how they are read; logits stay near those of
# f32; a head that is no whole blocks is refused by each program that would make such a cache.
. tests/run_chain.sh
scratch
chain_start
python=python3
for kv in f32 f16 q8_0 q4_0; do
    chain split --kv $kv --max-batch 2 || { echo "not ok 1 - chain"; echo "1..1"; exit 1; }
    mv "$tmp/split.json" "$tmp/$kv.json"
    mv "$tmp/split.thermo" "$tmp/m.thermo" # the same neurons: all of them fit
done

says() # STATUS PATTERN COMMAND...
{
    local s=$1 p=$2 r=0
    shift 2
    "$@" > "$tmp/out" 2> "$tmp/err" || r=$?
    [ $r -eq "$s" ] && grep -q -- "$p" "$tmp/err" "$tmp/out" || { echo "exit $r instead of $s, or no '$p':"; cat "$tmp/err"; return 1; }
}
P=$BIN/thermo-plan
planned() { grep -q "\"kv\": \"$1\"" "$tmp/$1.json" && "$P" check "$tmp/$1.json" --traces "$tmp/t.h5" --hardware "$tmp/hw.sqlite"; }
for kv in q8_0 q4_0; do
    check "a plan in $kv, and its check" planned $kv
    check "its explanation names it" says 0 "KV cache in $kv" "$P" explain "$tmp/$kv.json" --traces "$tmp/t.h5" --hardware "$tmp/hw.sqlite"
done
edited() # a plan whose type is another than what its account was made with
{
    sed 's/"kv": "q8_0"/"kv": "q4_0"/' "$tmp/q8_0.json" > "$tmp/edited.json"
    says 3 'context, kv, prefill_chunk' "$P" check "$tmp/edited.json" --traces "$tmp/t.h5" --hardware "$tmp/hw.sqlite"
}
check "an account of another type is found" edited
account() # what two times 256 positions of 8 layers take, in the plan's own words
{
    $python - "$tmp" << 'END'
import re, sys
floor = lambda kv: int(re.search(r'"floor_bytes": (\d+)', open(f'{sys.argv[1]}/{kv}.json').read())[1])
floors = {kv: floor(kv) for kv in ('f32', 'f16', 'q8_0', 'q4_0')}
elems = 2 * 2 * 8 * 256 * 128
for a, b, share in ('f32', 'f16', 2), ('f16', 'q8_0', 15 / 16), ('q8_0', 'q4_0', 0.5):
    assert abs(floors[a] - floors[b] - elems * share) <= 4096, (floors, a, b)
END
}
check "floors differ by the caches' sizes" account

ids=1,403,407,261,378,281,350,309,264,402,391,406,317,428,300,301,302,303,304,305,306,307,308,309,310,311,312,313,314,315,316,317,318,319,320,321
logits() { "$run" logits -q --model "$tmp/m.thermo" --plan "$tmp/$1.json" --tokens $ids --act f32 "${@:2}"; }
near() # KV LIMIT: the largest difference from f32, of the largest logit; something differs
{
    logits f32 > "$tmp/want" && logits "$1" > "$tmp/got" && $python - "$tmp/want" "$tmp/got" "$2" << 'END'
import json, sys
a, b = (json.load(open(n))['logits'] for n in sys.argv[1:3])
off = max(abs(p - q) for p, q in zip(a, b)) / max(map(abs, a))
assert 0 < off < float(sys.argv[3]), off
print(off)
END
}
check "logits of q8_0 are near f32's" near q8_0 0.01
check "logits of q4_0 are near f32's" near q4_0 0.12
same() # KV FLAGS...: the same bytes however it is read
{
    logits "$1" > "$tmp/want" && logits "$1" "${@:2}" > "$tmp/got" && cmp "$tmp/want" "$tmp/got"
}
for kv in q8_0 q4_0; do
    check "$kv: a token at a time" same $kv --prefill-chunk 1
    check "$kv: chunks of 5, another limit, one thread" same $kv --prefill-chunk 5 --memory 32MiB --threads 1
    of_plan() { logits $kv > "$tmp/want" && logits f16 --kv $kv > "$tmp/got" && cmp "$tmp/want" "$tmp/got"; }
    check "$kv: by the plan and by --kv" of_plan
    two() # several texts in pages beside each other, forked and alone
    {
        "$run" generate -q --model "$tmp/m.thermo" --plan "$tmp/$kv.json" --prompt 'Once upon a time' -n 48 --temp 0 > "$tmp/alone" || return
        printf 'id,text\na,Once upon a time\nb,One day a dog\n' > "$tmp/p.csv"
        "$run" generate -q --model "$tmp/m.thermo" --plan "$tmp/$kv.json" --prompts "$tmp/p.csv" --sequences 2 -n 48 --temp 0 > "$tmp/both" &&
            $python -c 'import json, sys
text = [d["text"] for d in map(json.loads, open(sys.argv[1])) if d.get("text")]
assert open(sys.argv[2]).read().rstrip("\n").endswith(text[0].rstrip("\n")), text' "$tmp/both" "$tmp/alone"
    }
    check "$kv: beside another text" two
    guessed()
    {
        "$run" generate -q --model "$tmp/m.thermo" --plan "$tmp/$kv.json" --prompt 'Once upon a time' -n 60 --temp 0 --guess lookup > "$tmp/got" &&
            "$run" generate -q --model "$tmp/m.thermo" --plan "$tmp/$kv.json" --prompt 'Once upon a time' -n 60 --temp 0 > "$tmp/want" && cmp "$tmp/want" "$tmp/got"
    }
    check "$kv: guesses are taken back" guessed
done

small() # NAME OF-GGUF-MAKE...: a random model and a trace
{
    "$BIN/gguf-make" random -q --vocab 260 --context 256 --d-model 64 --heads 4 --ff 96 --type f32 "${@:2}" "$tmp/$1.gguf" &&
        "$BIN/thermo-profile" trace -q --model "$tmp/$1.gguf" --prompts datasets/prompts/stories-profile.csv --max-tokens 128 --window-tokens 32 \
            --out "$tmp/$1.h5"
}
solve() { "$P" solve -q --traces "$tmp/$1.h5" --hardware "$tmp/hw.sqlite" --memory 64MiB --context 256 --out "$tmp/$1.json" "${@:2}"; }
check "a model with heads of 16" small odd --act relu
check "solve refuses blocks of them" says 2 "attention head of 16 elements is not whole blocks" solve odd --kv q8_0
check "so does solve --model" says 2 "attention head of 16 elements is not whole blocks" "$P" solve --model "$tmp/odd.gguf" --memory 64MiB --kv q4_0
runs() { solve odd && "$BIN/thermo-pack" pack -q --model "$tmp/odd.gguf" --traces "$tmp/odd.h5" --plan "$tmp/odd.json" --out "$tmp/odd.thermo" &&
    says 2 "is not whole blocks: --kv f16" "$run" logits --model "$tmp/odd.thermo" --plan "$tmp/odd.json" --tokens 1,2 --kv q8_0; }
check "and thermo-run" runs
# Layers with heads of different widths; attention over what keys and values are made from.
like_f32() # NAME LIMIT
{
    solve "$1" && "$BIN/thermo-pack" pack -q --model "$tmp/$1.gguf" --traces "$tmp/$1.h5" --plan "$tmp/$1.json" --out "$tmp/$1.thermo" || return
    for kv in f32 q8_0; do
        "$run" logits -q --model "$tmp/$1.thermo" --plan "$tmp/$1.json" --tokens 1,65,66,67,68,69,70 --act f32 --kv $kv > "$tmp/$kv" || return
    done
    $python - "$tmp/f32" "$tmp/q8_0" "$2" << 'END'
import json, sys
a, b = (json.load(open(n))['logits'] for n in sys.argv[1:3])
off = max(abs(p - q) for p, q in zip(a, b)) / max(map(abs, a))
assert 0 < off < float(sys.argv[3]), off
END
}
check "gemma4, shared keys and values" small gemma --arch gemma4 --layers 12 --window 16 --shared-kv 6 --layer-embd 32 --kv-heads 2 --head-dim 32 --ff 64 --rope-base 1000000 --context 512
check "is near f32" like_f32 gemma 0.05
check "latent attention" small latent --arch deepseek2 --gating sigmoid --layers 4 --lead 1 --head-dim 64 --kv-rank 64 --experts 8 --experts-used 2 --groups 4
check "is near f32 too" like_f32 latent 0.05
done_testing
