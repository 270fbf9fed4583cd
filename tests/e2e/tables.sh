#!/bin/bash
# Embeddings of which tokens look rows up, read by row (plan's `tables`): planned where not everything is in memory, the same bytes as in
# memory, for prompts longer than there are buffers and in any chunks, within the account; a damaged row ends the run.
. tests/tap.sh
scratch
run=$BIN/thermo-run
printf 'text\nabc def ghi jkl mno pqr stu\nthe same again and another text of some length\nmore\n' > "$tmp/p.csv"
phone "$tmp/hw.sqlite" > /dev/null 2>&1
cores=--cores=mid=2,big=0,little=0

solve() { "$BIN/thermo-plan" solve -q --traces "$tmp/$1.h5" --hardware "$tmp/hw.sqlite" --memory "$2" --context 256 --rlimit 1 "$cores" --out "$3"; }
chain() # NAME, gguf-make's options
{
    name=$1
    shift
    "$BIN/gguf-make" random -q --vocab 20000 --context 256 "$@" "$tmp/$name.gguf" &&
        "$BIN/thermo-profile" trace -q --model "$tmp/$name.gguf" --prompts "$tmp/p.csv" --out "$tmp/$name.h5" &&
        solve "$name" 200MiB "$tmp/$name.all.json" &&
        "$BIN/thermo-pack" pack -q --model "$tmp/$name.gguf" --traces "$tmp/$name.h5" --plan "$tmp/$name.all.json" --out "$tmp/$name.thermo"
}
number() { sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p" "$2" | head -n 1; }

# With less than everything takes the tables are streamed; with as much they stay, and the floor is that of streamed ones.
planned()
{
    all=$(number account_bytes "$tmp/$1.all.json") floor=$(number floor_bytes "$tmp/$1.all.json")
    echo "$1: all $all, floor $floor"
    # shellcheck disable=SC2015
    ! grep '"tables"' "$tmp/$1.all.json" && solve "$1" $((floor + 700000)) "$tmp/$1.json" && grep '"tables": "streamed"' "$tmp/$1.json" &&
        [ "$(number account_bytes "$tmp/$1.json")" -le $((floor + 700000)) ] && [ $((all - floor)) -gt "$2" ] &&
        "$BIN/thermo-plan" check -q --traces "$tmp/$1.h5" --hardware "$tmp/hw.sqlite" "$tmp/$1.json" > /dev/null &&
        "$BIN/thermo-plan" explain --traces "$tmp/$1.h5" --hardware "$tmp/hw.sqlite" "$tmp/$1.json" | grep 't_lookup = lookup_reads'
}
long=$(seq -s , 3 97 17000)
logits() { "$run" logits -q --model "$tmp/$name.thermo" --plan "$tmp/$name.$plan" --tokens "$@"; }
equal() # NAME
{
    name=$1 plan=all.json
    for tokens in 7 19999,0,7 "$long"; do
        plan=all.json logits "$tokens" > "$tmp/want" || return 1
        for with in "--io pread" "--io io_uring" "--prefill-chunk 1" "--prefill-chunk 50" "--no-verify-reads" "--kv f32 --act f32"; do
            [ "$with" != "--kv f32 --act f32" ] || plan=all.json logits "$tokens" $with > "$tmp/want" || return 1
            # shellcheck disable=SC2086
            plan=json logits "$tokens" $with > "$tmp/got" && cmp "$tmp/want" "$tmp/got" || return 1
        done
    done
}
text() { "$run" generate --model "$tmp/$name.thermo" --plan "$tmp/$name.$plan" --prompt 'abc def' -n 40 --temp 0 --ignore-eos --json -q "$@"; }
# The same text, the peak within the account, and rows counted as reads.
texts()
{
    name=$1
    plan=all.json text > "$tmp/want" && plan=json text > "$tmp/got" && python3 - "$tmp/want" "$tmp/got" "${SANITIZE:-}" << 'END'
import json, sys
want, got = ([json.loads(l) for l in open(f)] for f in sys.argv[1:3])
words = [[l['text'] for l in x if l.get('type') == 'token'] for x in (want, got)]
want, got = want[-1], got[-1]
print(words[0], want, got)
assert len(words[0]) == 40 and words[0] == words[1]
assert sys.argv[3] or got['peak_bytes'] <= got['account_bytes'] <= got['memory_bytes']
assert got['account_bytes'] < want['account_bytes'] - 1000000
assert want['reads'] == 0 and got['reads'] >= 40
END
}
# What a plan says of a token's bytes is what was read, rows with it; a prompt's tokens take as many.
as_planned() # NAME
{
    name=$1 plan=json
    "$run" generate --model "$tmp/$name.thermo" --plan "$tmp/$name.json" --prompt "$(seq -s ' ' 60)" -n 150 --temp 1.5 --seed 4 --ignore-eos --json -q |
        tail -n 1 > "$tmp/got" && python3 - "$tmp/$name.json" "$tmp/got" << 'END'
import json, sys
planned = json.load(open(sys.argv[1]))["predictions"]["limits"][0]["batches"][0]
run = json.load(open(sys.argv[2]))
step, rows = planned["read_bytes"], planned["read_bytes"] - sum(planned["layers"]["read_bytes"])
each, prompt = (run[k]["read_bytes"] / run[k]["tokens"] for k in ("decode", "prompt"))
print(f"a token: {each:.0f}, planned {step:.0f}, of which rows {rows:.0f}; of a prompt {prompt:.0f}; reads {run['decode']['reads']}")
assert rows >= 4096 and rows % 1 == 0 and abs(each / step - 1) < 0.05 and abs(prompt / step - 1) < 0.1
END
}
# A plan whose tables are in memory, with less memory: they give way first.
gives_way()
{
    name=$1
    plan=all.json logits "$long" > "$tmp/want" && plan=all.json logits "$long" --memory "$(number memory_bytes "$tmp/$1.json")" > "$tmp/got" &&
        cmp "$tmp/want" "$tmp/got"
}
# The file is written over while it runs: neurons are in memory, rows are not.
overwritten() # NAME TENSOR
{
    name=$1 plan=json
    rm -f "$tmp/words"
    cp "$tmp/$name.thermo" "$tmp/copy" && mkfifo "$tmp/words" || return 1
    "$run" generate --model "$tmp/$name.thermo" --plan "$tmp/$name.json" --prompt 'abc def ghi' -n 200 --seed 3 --ignore-eos > "$tmp/words" 2> "$tmp/err" &
    pid=$!
    exec 3< "$tmp/words"
    head -c 30 <&3 > /dev/null
    kill -STOP $pid
    size=$(stat -c %s "$tmp/copy")
    head -c $((size - 100000)) /dev/urandom | dd of="$tmp/$name.thermo" bs=65536 seek=100000 oflag=seek_bytes conv=notrunc 2> /dev/null
    kill -CONT $pid
    cat <&3 > /dev/null
    exec 3<&-
    wait $pid
    status=$?
    cp "$tmp/copy" "$tmp/$name.thermo"
    cat "$tmp/err"
    [ $status -eq 6 ] && grep "row [0-9]* of tensor $2 .* is damaged, also when read again" "$tmp/err"
}
# A byte of the table was another before it ran: found when it is loaded.
damaged()
{
    at=$(python3 - "$tmp/$1.thermo" << 'END'
import struct, sys
b = open(sys.argv[1], 'rb').read()
toc, n = struct.unpack_from('<QI', b, 40)
rows = [struct.unpack_from('<QQQ', b, toc + 96 * i + 64) for i in range(n) if b[toc + 96 * i] == 3]
at, stored, size = max(rows, key=lambda r: r[2])
assert stored == size
print(at + size // 2)
END
    ) || return 1
    cp "$tmp/$1.thermo" "$tmp/copy"
    printf '\377\000\377' | dd of="$tmp/$1.thermo" bs=1 seek="$at" conv=notrunc 2> /dev/null
    name=$1 plan=json
    status 3 logits 1,2 2> "$tmp/err" > /dev/null
    ok=$?
    cp "$tmp/copy" "$tmp/$1.thermo"
    cat "$tmp/err"
    [ $ok -eq 0 ] && grep "tensor $2 .* is damaged" "$tmp/err"
}

# A layer of the model's own that guesses looks rows up in the model's table.
guesses()
{
    name=q35
    chain q35 --arch qwen35 --untied --layers 4 --nextn 1 --d-model 256 --heads 4 --kv-heads 2 --head-dim 64 --ff 512 --type q8_0 \
        --rope-base 10000000 && "$BIN/thermo-pack" mtp -q --model "$tmp/q35.gguf" --out "$tmp/mtp.thermo" || return 1
    floor=$(number floor_bytes "$tmp/q35.all.json")
    solve q35 $((floor + 1500000)) "$tmp/q35.json" && grep '"tables": "streamed"' "$tmp/q35.json" || return 1
    plan=all.json text --no-echo | grep '"token"' > "$tmp/want" && plan=json text --no-echo --memory 60MiB --guess mtp --mtp "$tmp/mtp.thermo" > "$tmp/all" &&
        python3 - "$tmp/want" "$tmp/all" << 'END'
import json, sys
want, got = ([x['text'] for x in map(json.loads, open(f)) if x.get('type') == 'token'] for f in sys.argv[1:3])
last = [json.loads(l) for l in open(sys.argv[2])][-1]
print(want, got, last)
assert len(want) == 40 and want == got and last['reads'] > 0
END
}

check "layers' embeddings: traced, planned, packed" chain e2b --arch gemma4 --layers 12 --window 16 --shared-kv 6 --layer-embd 64 --narrow 128 \
    --wide 256 --d-model 128 --heads 4 --kv-heads 2 --head-dim 32 --rope-base 1000000 --type q8_0
check "layers' embeddings: planned by row" planned e2b 5000000
check "layers' embeddings: the same logits" equal e2b
check "layers' embeddings: the same text" texts e2b
check "layers' embeddings: bytes as planned" as_planned e2b
check "layers' embeddings: they give way to less memory" gives_way e2b
check "layers' embeddings: written over while it runs" overwritten e2b layer_embd
check "layers' embeddings: damaged before" damaged e2b layer_embd
check "embeddings beside a head: traced, planned, packed" chain llama --untied --layers 3 --d-model 256 --heads 4 --ff 512 --type q8_0
check "embeddings beside a head: planned by row" planned llama 1000000
check "embeddings beside a head: the same logits" equal llama
check "embeddings beside a head: the same text" texts llama
check "embeddings beside a head: bytes as planned" as_planned llama
check "embeddings beside a head: they give way to less memory" gives_way llama
check "embeddings beside a head: written over while it runs" overwritten llama token_embd
check "embeddings beside a head: damaged before" damaged llama token_embd
check "the model's own layer: the same text with guesses" guesses
done_testing
