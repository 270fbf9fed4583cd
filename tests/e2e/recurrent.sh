#!/bin/bash
# Models with recurrent layers, gated delta nets beside attention and RWKV: their states make no bit differ, whatever the chunk, the threads,
# or what other sequences do, and whether a sequence was forked; they are in the account.
. tests/tap.sh
scratch
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }
run=$BIN/thermo-run
start='abc def ghi jkl mno pqr stu vwx yz abc def ghi jkl mno pqr stu vwx yz abc de'
printf 'text\n%s\n%s one\n%s two\nabc def\n%s one more\nxyz\n' "$start" "$start" "$start" "$start" > "$tmp/p.csv"
phone "$tmp/hw.sqlite" > /dev/null 2>&1

chain() # gguf-make's options
{
    rm -f "$tmp/m.gguf" "$tmp/t.h5" "$tmp/plan.json" "$tmp/m.thermo"
    "$BIN/gguf-make" random -q --vocab 260 --context 256 --type f32 "$@" "$tmp/m.gguf" &&
        "$BIN/thermo-profile" trace -q --model "$tmp/m.gguf" --prompts "$tmp/p.csv" --out "$tmp/t.h5" &&
        "$BIN/thermo-plan" solve -q --traces "$tmp/t.h5" --hardware "$tmp/hw.sqlite" --memory 64MiB --context 256 --max-batch 4 \
            --out "$tmp/plan.json" &&
        "$BIN/thermo-plan" check "$tmp/plan.json" --traces "$tmp/t.h5" --hardware "$tmp/hw.sqlite" &&
        "$BIN/thermo-pack" pack -q --model "$tmp/m.gguf" --traces "$tmp/t.h5" --plan "$tmp/plan.json" --out "$tmp/m.thermo"
}
files=(--model "$tmp/m.thermo" --plan "$tmp/plan.json" -q)
chunks()
{
    ids=$(seq -s, 3 93)
    "$run" logits "${files[@]}" --tokens "$ids" > "$tmp/all" || return 1
    for chunk in 1 5 32; do
        "$run" logits "${files[@]}" --tokens "$ids" --prefill-chunk $chunk --threads 1 > "$tmp/chunk" && cmp "$tmp/all" "$tmp/chunk" || return 1
    done
}

best()
{
    "$run" generate "${files[@]}" --prompt "$start" -n 12 --seed 5 --temp 1.5 --best-of 3 --json > "$tmp/best" || return 1
    for i in 0 1 2; do
        "$run" generate "${files[@]}" --prompt "$start" -n 12 --temp 1.5 --seed $((5 + i)) --no-echo > "$tmp/alone$i" || return 1
    done
    python3 -B -c "
import json, re
c = [json.loads(l) for l in open('$tmp/best')]
c = [l for l in c if l['type'] == 'candidate']
alone = [open('$tmp/alone%d' % i, 'rb').read()[:-1].decode(errors='replace') for i in range(3)]
one = lambda t: re.sub('\ufffd+', '\ufffd', t)  # bytes that are no UTF-8
assert [one(l['text']) for l in c] == [one(t) for t in alone], (c, alone)
assert len({l['text'] for l in c}) == 3"
}

# A conversation goes on where it was, as long as nobody needs the place; one that does not is read again.
turns()
{
    python3 -B - "$run" "${files[@]}" << 'END'
import json, subprocess, sys
def served(sequences):
    p = subprocess.Popen([sys.argv[1], 'serve', '--stdio', *sys.argv[2:], '--temp', '0', '--sequences', sequences], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)
    assert json.loads(p.stdout.readline())['type'] == 'ready'
    return p
def ask(p, tokens):
    p.stdin.write(json.dumps({'id': 'x', 'tokens': tokens, 'n': 9, 'ignore_eos': True}) + '\n')
    p.stdin.flush()
    made = []
    while (l := json.loads(p.stdout.readline()))['type'] == 'token':
        made.append(l['token'])
    return made, l['shared_tokens']
def end(p):
    p.stdin.close()
    p.stdout.read()
    assert p.wait() == 0
for sequences, who, there in ('1', 'aa', [0, 48]), ('2', 'abab', [0, 0, 48, 48]), ('1', 'aba', [0, 0, 0]):
    p, said, got = served(sequences), {'a': list(range(5, 45)), 'b': list(range(60, 100))}, []
    for w in who:
        made, shared = ask(p, said[w])
        alone = served('1')
        assert ask(alone, said[w]) == (made, 0) and len(made) == 9, (sequences, who, w)
        end(alone)
        said[w] += made + [7]
        got.append(shared)
    end(p)
    assert got == there, (sequences, who, got)
END
}

# What the folder of prefixes and states in memory make of it: every turn reads what is new, and 32 tokens or what lies between states more.
kept() # TEST OPTION...
{
    rm -rf "$tmp/work"
    mkdir "$tmp/work" && python3 -B tests/cli/prefix.py "$run" "$1" "$tmp/work" --model "$tmp/m.thermo" --plan "$tmp/plan.json" "${@:2}"
}

# Beginnings that are the same are shared where the state is there, and read again where it is not.
prompts()
{
    "$run" generate "${files[@]}" --prompts "$tmp/p.csv" -n 10 --temp 0 > "$tmp/many" || return 1
    python3 -B -c "
import csv, json, re, subprocess
one = lambda t: re.sub('\ufffd+', '\ufffd', t)
texts = [r['text'] for r in csv.DictReader(open('$tmp/p.csv'))]
many = [l for l in map(json.loads, open('$tmp/many')) if l['type'] == 'result']
assert len(many) == len(texts) == 6
for t, r in zip(texts, many):
    alone = subprocess.run(['$run', 'generate', '--model', '$tmp/m.thermo', '--plan', '$tmp/plan.json', '-q', '--prompt', t, '-n', '10',
                            '--temp', '0', '--no-echo'], capture_output=True, check=True).stdout.decode(errors='replace')
    assert one(r['text']) == one(alone[:-1]), (t, r, alone)"
}
# Of three sequences.
account() # STATES PAGES
{
    python3 -B -c "
import json
kv = [l for l in map(json.loads, open('$tmp/best')) if 'account' in l][-1]['account']['kv']
states, pages = $1, $2
assert 3 * states + pages <= kv <= 3 * states + pages + 4096, (kv, states, pages)"
}

# ---- RWKV: what its FFN sees depends on the token before it ----
modes()
{
    ids=$(seq -s, 3 93)
    for mode in exact dense; do
        "$run" logits "${files[@]}" --tokens "$ids" --mode $mode > "$tmp/$mode" || return 1
    done
    cmp "$tmp/exact" "$tmp/dense"
}

# Where states can be moved on anew, texts are what they are without guesses, states that are kept too; else guesses are refused.
guesses() # gguf-make's options
{
    local more
    case $* in
    *rwkv*) says 3 'the state of recurrent layers' "$run" generate "${files[@]}" --prompt abc --guess lookup; return ;;
    esac
    for more in '' '--guess lookup'; do
        "$run" generate "${files[@]}" --prompts "$tmp/p.csv" -n 100 --temp 0 --seed 3 --ignore-eos --states 4 $more > "$tmp/guesses${more:+-made}" || return 1
    done
    cmp "$tmp/guesses" "$tmp/guesses-made" && kept states --states 4 --guess lookup && some_right
}
# Some guesses come true, and others are taken back: in texts that mostly repeat what they said, and that hardly do.
some_right()
{
    local how
    for how in '--temp 1 --repeat-penalty 0.3 --repeat-last-n 4' '--temp 4 --repeat-penalty 0.3 --repeat-last-n 4' '--temp 100'; do
        # shellcheck disable=SC2086
        "$run" generate "${files[@]}" --prompt "$start" -n 150 --seed 2 --ignore-eos $how --json > "$tmp/plain" &&
            "$run" generate "${files[@]}" --prompt "$start" -n 150 --seed 2 --ignore-eos $how --json --guess lookup --guess-most 15 > "$tmp/guessed" &&
            python3 -c "
import json
plain, guessed = ([l for l in map(json.loads, open('$tmp/' + f))] for f in ('plain', 'guessed'))
assert [l['text'] for l in plain[:-1]] == [l['text'] for l in guessed[:-1]] and len(plain) > 150
print(json.dumps(guessed[-1]['guesses']))" || return 1
    done > "$tmp/out" && python3 -c "
import json
g = [json.loads(l) for l in open('$tmp/out')]
print([(x['passes'], x['tried'], x['accepted']) for x in g])
assert any(x['accepted'] for x in g) and any(x['tried'] > x['accepted'] for x in g)"
}
few() # NAME OPTIONS...: states of other kinds
{
    check "$1: profiled, planned, packed" chain "${@:2}"
    check "$1: token by token and in chunks: the same bytes" chunks
    check "$1: two conversations with one place go on from states in memory" kept states --states 4
    check "$1: guesses, which are taken back" guesses "${@:2}"
}

all() # NAME STATES PAGES OPTIONS...
{
    check "$1: profiled, planned, packed" chain "${@:4}"
    check "$1: token by token and in chunks: the same bytes" chunks
    check "$1: forked for the best of three: each is what its seed gives alone" best
    check "$1: six prompts at four places: each is what it is alone" prompts
    check "$1: conversations go on where they were" turns
    check "$1: two conversations with one place go on from states in memory" kept states --states 4
    check "$1: the same from a folder, each turn by a process of its own" kept state-restarts
    check "$1: a pass that is given up: its beginning is there" kept given-up --states 4
    check "$1: bytes flipped, cut, added, swapped, and a link" kept state-damaged
    check "$1: guesses, which are taken back" guesses "${@:4}"
    check "$1: states of three sequences are in the account" account "$2" "$3"
}

# Six recurrent layers of 256 channels, 3 of which the convolution keeps, and 4 matrices of 32 x 32; two layers with keys and values.
all "delta nets" $((6 * (3 * 256 + 4 * 32 * 32) * 4)) $((3 * 8 * 32 * 2 * 2 * 64 * 2)) --arch qwen35moe --layers 8 --d-model 64 --heads 4 \
    --kv-heads 2 --head-dim 32 --ff 32 --experts 6 --experts-used 2
few "short convolutions" --arch lfm2 --layers 8 --d-model 320 --heads 4 --kv-heads 2 --ff 96
few Mamba2 --untied --arch granitehybrid --layers 8 --d-model 64 --heads 4 --kv-heads 2 --ff 96 --delta-heads 8 --delta-dim 24
few "blocks of one sublayer" --arch nemotron_h --layers 14 --d-model 96 --heads 4 --kv-heads 2 --head-dim 32 --ff 88 --delta-heads 6 --delta-dim 24
# Four layers, two inputs of 96 and 3 matrices of 32 x 32 each.
all RWKV $((4 * (2 * 96 + 3 * 32 * 32) * 4)) 0 --arch rwkv7 --layers 4 --d-model 96 --heads 3 --ff 160
check "RWKV: exact and dense mode give the same bytes" modes
all "RWKV-6" $((4 * (2 * 96 + 3 * 32 * 32) * 4)) 0 --arch rwkv6 --layers 4 --d-model 96 --heads 3 --ff 160 --halve-period 3
check "RWKV-6: exact and dense mode give the same bytes" modes
done_testing
