#!/bin/bash
# Experts in dense mode, of which memory holds some: the cache of whole tiles that the planner chooses by the routes of a trace. Logits
# are those of the resident model under any budget, thread count, chunk and backend; bytes and hits are what was planned; memory is a
# ceiling.
. tests/tap.sh
scratch
hw=$tmp/hw.sqlite run=$BIN/thermo-run plan=$tmp/p.json pack=$tmp/m.thermo
check "device" phone "$hw"
check "experts of two tiles, with routes that persist" "$BIN/gguf-synth" -q --shape tiny --layers 4 --ff 512 --experts 16 --experts-used 4 --act silu \
    --route-persistence 0.95 --prompts "$tmp/p.csv" --prompt-rows 4 --prompt-words 400 "$tmp/m.gguf"
check "trace, without maps" "$BIN/thermo-profile" trace -q --model "$tmp/m.gguf" --prompts "$tmp/p.csv" --window-tokens 0 --samples 0 --out "$tmp/t.h5"
solve() { "$BIN/thermo-plan" solve --traces "$tmp/t.h5" --hardware "$hw" --memory "$1" --context 512 --cores mid=2,big=0,little=0 --out "$plan"; }
check "a plan for ample memory" solve 128MiB
all=$(sed -n 's/.*"account_bytes": \([0-9]*\).*/\1/p' "$plan") floor=$(sed -n 's/.*"floor_bytes": \([0-9]*\).*/\1/p' "$plan")
little=$((floor + (all - floor) / 20)) more=$((floor + (all - floor) / 5))
check "a plan for three limits" solve "$little,$more,128MiB"
cached() # each layer has slots, and no prefix, under the first two limits; the last has everything
{
    python3 - "$plan" <<'P'
import json, sys
p = json.load(open(sys.argv[1]))
assert p["decisions"]["layout"]["form"] == "tiles"
for l, x in zip(p["decisions"]["limits"][:2], p["predictions"]["limits"]):
    b, hits = l["batches"][0], x["batches"][0]["hit_rate"]
    assert sum(map(sum, b["cold"])) > 0 and 0.3 < hits < 0.99, (b["cold"], b["hot"][0], hits)
assert p["predictions"]["limits"][2]["batches"][0]["read_bytes"] == 0
P
}
check "its cold cache has slots for experts" cached
# Reading ahead pays where experts are missed and are foreseen; where none are missed it does not, nor where others are guessed.
planned_ahead() # PLAN 0|1...: of each limit
{
    python3 - "$@" <<'P'
import json, sys
p = json.load(open(sys.argv[1]))
got = [int(l["io"]["experts_ahead"]) for l in p["decisions"]["limits"]]
print(got, [l["batches"][0]["tokens_per_s"] for l in p["predictions"]["limits"]])
assert got == [int(x) for x in sys.argv[2:]]
P
}
check "experts are read ahead where some are missed" planned_ahead "$plan" 1 1 0
misguessed()
{
    cp "$tmp/t.h5" "$tmp/wrong.h5" && "${B:-build/$(uname -m)}/tests/tools/misguess" "$tmp/wrong.h5" &&
        "$BIN/thermo-plan" solve -q --traces "$tmp/wrong.h5" --hardware "$hw" --memory "$little,$more,128MiB" --context 512 \
            --cores mid=2,big=0,little=0 --out "$tmp/wrong.json" && planned_ahead "$tmp/wrong.json" 0 0 0
}
check "and not where others are guessed than come" misguessed
differ() { ! "$BIN/thermo-plan" check "$1" --traces "$2" --hardware "$hw" > "$tmp/log" 2>&1 && grep -q "$3" "$tmp/log"; }
check "check tells one trace's guesses from the other's" differ "$plan" "$tmp/wrong.h5" 'limits\[0\]'
without() { sed 's/"experts_ahead": true/"experts_ahead": false/' "$plan" > "$tmp/off.json"; differ "$tmp/off.json" "$tmp/t.h5" 'limits\[0\]'; }
check "and a plan with the choice edited from what the equations give" without
check "every figure follows" "$BIN/thermo-plan" check "$plan" --traces "$tmp/t.h5" --hardware "$hw"
explained()
{
    "$BIN/thermo-plan" explain "$plan" --traces "$tmp/t.h5" --hardware "$hw" --memory "$more" > "$tmp/explain" && grep -q 't_missed' "$tmp/explain" &&
        grep -A1 '(M32)' "$tmp/explain" | grep -q 'with foreseen 1\.[0-9]*, wasted 0\.0'
}
check "explained" explained
adds_up()
{
    local args=(explain "$plan" --traces "$tmp/t.h5" --hardware "$hw" --memory "$more" --no-gains)
    "$BIN/thermo-plan" "${args[@]}" > "$tmp/x.txt" && "$BIN/thermo-plan" "${args[@]}" --json > "$tmp/x.json" &&
        python3 -B tests/explain_sums.py "$plan" 1 "$tmp/x.txt" "$tmp/x.json"
}
check "its lines add up" adds_up
check "pack" "$BIN/thermo-pack" pack -q --model "$tmp/m.gguf" --traces "$tmp/t.h5" --plan "$plan" --out "$pack"
rows() { sed -n "$1p" "$tmp/p.csv"; }
ids=$(seq -s, 300 7 700)
logits() { "$run" logits -q --model "$pack" --plan "$plan" --tokens "$ids" "$@"; }
same()
{
    local runs=0 memory flags
    logits --memory 128MiB > "$tmp/want" && [ -s "$tmp/want" ] || return 1
    for memory in "$floor" "$little" "$more"; do
        for flags in '--threads 1 --prefill-chunk 1 --io pread' '--threads 2 --prefill-chunk 7 --io io_uring' '--threads 3 --io pread' \
            '--threads 2 --prefill-chunk 1 --io io_uring --no-warm-start'; do
            # shellcheck disable=SC2086
            logits --memory "$memory" $flags > "$tmp/got" && cmp -s "$tmp/want" "$tmp/got" || { echo "differs: $memory $flags"; return 1; }
            runs=$((runs + 1))
        done
    done
    [ $runs -eq 12 ]
}
check "the floor, two plans x threads, chunks, backends: the same bits" same
as_planned() # token by token, over what the trace was made of
{
    "$run" generate --model "$pack" --plan "$plan" --memory "$1" --prompt "$(rows 2)" -n 1 --temp 0 --prefill-chunk 1 --json -q > "$tmp/run" &&
        python3 - "$plan" "$tmp/run" "$1" <<'P'
import json, sys
plan = json.load(open(sys.argv[1]))
at = [l["memory_bytes"] for l in plan["decisions"]["limits"]].index(int(sys.argv[3]))
planned = plan["predictions"]["limits"][at]["batches"][0]
run = json.loads(open(sys.argv[2]).readlines()[-1])["prompt"]
mb, hits = run["read_bytes"] / run["tokens"], run["cold_hit_rate"]
print(f'bytes a token: {mb:.0f}, planned {planned["read_bytes"]:.0f}; hits {hits:.3f}, planned {planned["hit_rate"]:.3f}')
assert abs(mb / planned["read_bytes"] - 1) < 0.1 and abs(hits - planned["hit_rate"]) < 0.02
P
}
check "bytes and hits are those planned, with little memory" as_planned "$little"
check "and with more" as_planned "$more"

obeyed() # the plan, and --experts-ahead against it
{
    python3 - "$tmp" "$run" "$pack" "$little" "$(rows 2)" "$1" <<'P'
import json, subprocess, sys
tmp, run, pack, memory, text, plan = sys.argv[1:]
def count(plan, *options):
    out = subprocess.run([run, "generate", "--model", pack, "--plan", plan, "--memory", memory, "--prompt", text, "-n", "1", "--temp", "0",
                          "--prefill-chunk", "1", "--json", "-q", *options], capture_output=True, text=True, check=True).stdout
    p = json.loads(out.splitlines()[-1])["prompt"]
    return p["experts_guessed"] > 0, p["prefetched"] > 0
said = {}
for value in ("true", "false", None):
    p = json.load(open(plan))
    for l in p["decisions"]["limits"] + p["predictions"]["limits"]:
        l.pop("alternatives", None) # which say so, too
    for l in p["decisions"]["limits"]:
        l["io"].pop("experts_ahead")
        if value:
            l["io"]["experts_ahead"] = value == "true"
    json.dump(p, open(f"{tmp}/said.json", "w"))
    said[value] = [count(f"{tmp}/said.json", *o) for o in ((), ("--experts-ahead", "on"), ("--experts-ahead", "off"), ("--no-prefetch",))]
print(said)
on, off = (True, True), (False, False)
assert said == {"true": [on, on, off, off], "false": [off, on, off, off], None: [on, on, off, off]}
P
}
check "the runtime reads ahead as the plan says, or the command" obeyed "$plan"

# Routers of each layer's own, which are foreseen in part. What a trace says of a text's guesses, the runtime counts on the text (so few
# tokens, 19 and 4 experts each, that no layer comes to the 64 reads after which it is judged).
counted() # NAME LAYERS OPTION...: of a text of $tmp/text, by a trace of it and by a run
{
    local name=$1 layers=$2
    shift 2
    { echo text; sed 's/.*/"&"/' "$tmp/text"; } > "$tmp/one.csv"
    "$BIN/thermo-profile" trace -q --model "$tmp/$name.gguf" --prompts "$tmp/one.csv" --window-tokens 0 --samples 0 --act-type f32 --out "$tmp/one.h5" \
        2> "$tmp/log" && "$BIN/thermo-profile" show "$tmp/one.h5" --json > "$tmp/show" || return 1
    "$run" generate --model "$tmp/$name.thermo" --plan "$tmp/$name.json" --prompt "$(cat "$tmp/text")" -n 1 --temp 0 --prefill-chunk 1 --act f32 --kv f32 \
        --experts-ahead on --json -q "$@" > "$tmp/run" && python3 - "$tmp/show" "$tmp/run" "$layers" <<'P'
import json, sys
show, run = json.load(open(sys.argv[1])), json.loads(open(sys.argv[2]).readlines()[-1])["prompt"]
widest = [l["foreseen"][-1] for l in show["layers"] if "foreseen" in l]
assert len(widest) == int(sys.argv[3]) and show["n_tokens"] == run["tokens"]
guessed, chosen = sum(w["guessed"] for w in widest), sum(w["chosen"] for w in widest)
print(f'guessed {run["experts_guessed"]}, of the trace {guessed}; foreseen {run["experts_foreseen"]}, {chosen}; '
      f'read ahead {run["prefetched"]}, used {run["prefetches_used"]}')
assert (run["experts_guessed"], run["experts_foreseen"]) == (guessed, chosen) and 0.6 < chosen / guessed < 0.95
assert 0 < run["prefetches_used"] < run["prefetched"]
P
}
own=(--traces "$tmp/own.h5" --hardware "$hw")
foretold()
{
    cp "$tmp/m.gguf" "$tmp/own.gguf" && python3 -B tests/e2e/own_routers.py "$tmp/own.gguf" || return 1
    "$BIN/thermo-profile" trace -q --model "$tmp/own.gguf" --prompts "$tmp/p.csv" --window-tokens 0 --samples 0 --out "$tmp/own.h5" 2> "$tmp/log" &&
        "$BIN/thermo-plan" solve -q "${own[@]}" --memory "$more" --context 512 --cores mid=2,big=0,little=0 --out "$tmp/own.json" > "$tmp/log" &&
        "$BIN/thermo-plan" check -q "$tmp/own.json" "${own[@]}" > "$tmp/log" &&
        "$BIN/thermo-pack" pack -q --model "$tmp/own.gguf" "${own[@]:0:2}" --plan "$tmp/own.json" --out "$tmp/own.thermo" || return 1
    rows 3 | cut -d" " -f1-7 > "$tmp/text"
    counted own 4
}
check "a trace's counts of foreseen experts are the runtime's on the same text" foretold

# Blocks of one sublayer: five have experts, and what mixes tokens lies between them.
blocks=(--traces "$tmp/blocks.h5" --hardware "$hw")
between()
{
    "$BIN/gguf-make" random -q --vocab 260 --context 512 --arch nemotron_h_moe --layers 12 --d-model 256 --heads 4 --kv-heads 2 --head-dim 64 --ff 512 \
        --experts 16 --experts-used 4 --delta-heads 4 --delta-dim 64 --type q8_0 "$tmp/blocks.gguf" &&
        "$BIN/thermo-profile" trace -q --model "$tmp/blocks.gguf" --prompts "$tmp/p.csv" --max-tokens 600 --samples 0 --out "$tmp/blocks.h5" 2> "$tmp/log" &&
        "$BIN/thermo-plan" solve -q "${blocks[@]}" --memory 27MiB --context 512 --mode dense --cores mid=2,big=0,little=0 --out "$tmp/blocks.json" > "$tmp/log" &&
        "$BIN/thermo-plan" check -q "$tmp/blocks.json" "${blocks[@]}" > "$tmp/log" &&
        "$BIN/thermo-pack" pack -q --model "$tmp/blocks.gguf" "${blocks[@]:0:2}" --plan "$tmp/blocks.json" --out "$tmp/blocks.thermo" || return 1
    echo "abc def ghi jkl" > "$tmp/text"
    counted blocks 5 || return 1
    local ahead
    for ahead in on off; do
        "$run" logits -q --model "$tmp/blocks.thermo" --plan "$tmp/blocks.json" --tokens "$(seq -s, 3 60)" --prefill-chunk 1 --experts-ahead $ahead > "$tmp/ahead.$ahead" || return 1
    done
    cmp "$tmp/ahead.on" "$tmp/ahead.off"
}
# Half of its neurons fire: exact mode reads them one by one where all is in memory or nothing is, and between whole experts are kept.
whole() # MEMORY MODE FORM
{
    "$BIN/thermo-plan" solve -q "${blocks[@]}" --memory "$1" --context 512 --cores mid=2,big=0,little=0 --out "$tmp/free.json" > "$tmp/log" &&
        "$BIN/thermo-plan" check -q "$tmp/free.json" "${blocks[@]}" && python3 -c "
import json
p = json.load(open('$tmp/free.json'))['decisions']
print(p['limits'][0]['mode'], p['layout']['form'])
assert [p['limits'][0]['mode'], p['layout']['form']] == ['$2', '$3']"
}
check "blocks of one sublayer: experts of the next are foreseen, counts and bits" between
check "experts that mostly fire are planned whole where some fit" whole 24MiB dense tiles
check "and by neuron where all do" whole 64MiB exact split

prompted() # a prompt uses all experts, one after the other, and yet finds what the cache holds
{
    "$run" generate --model "$pack" --plan "$plan" --memory "$more" --prompt "$(rows 3)" -n 1 --temp 0 --prefill-chunk 64 --json -q > "$tmp/run" &&
        python3 - "$plan" "$tmp/run" "$more" <<'P'
import json, sys
limit = next(l for l in json.load(open(sys.argv[1]))["decisions"]["limits"] if l["memory_bytes"] == int(sys.argv[3]))
slots = [c[0] for c in limit["batches"][0]["cold"]]
run = json.loads(open(sys.argv[2]).readlines()[-1])["prompt"]
share = sum(slots) / (len(slots) * 16 * 2)
print(f'hits {run["cold_hit_rate"]:.3f}; of the units {share:.3f} have a slot')
assert run["cold_hit_rate"] > 0.6 * share # in turn they would find next to nothing
P
}
check "a prompt in chunks finds what there is" prompted

group=
if mkdir "/sys/fs/cgroup/memory/thermo-experts-$$" 2> /dev/null; then
    group=/sys/fs/cgroup/memory/thermo-experts-$$ file=memory.limit_in_bytes
elif mkdir "/sys/fs/cgroup/thermo-experts-$$" 2> /dev/null; then
    group=/sys/fs/cgroup/thermo-experts-$$ file=memory.max
    [ -w "$group/$file" ] || { rmdir "$group"; group=; }
fi
[ -z "$group" ] || trap 'rmdir "$group" 2> /dev/null; rm -rf "$tmp"' EXIT
in_cgroup()
{
    local r
    echo "$1" > "$group/$file" || return 1
    [ ! -e "$group/memory.swap.max" ] || echo 0 > "$group/memory.swap.max"
    # shellcheck disable=SC2016
    sh -c 'echo $$ > "$0/cgroup.procs"; exec "$@"' "$group" "$run" logits -q --model "$pack" --plan "$plan" --tokens "$ids" --memory "$1" > "$tmp/got"
    r=$?
    sleep 0.2
    [ $r -eq 0 ] && cmp "$tmp/want" "$tmp/got"
}
for memory in $little $more; do
    if [ -n "${SANITIZE:-}" ]; then
        skip "in a memory cgroup of $memory bytes" "a sanitizer takes memory of its own"
    elif [ -n "$group" ]; then
        check "in a memory cgroup of $memory bytes: the same bits" in_cgroup "$memory"
    else
        skip "in a memory cgroup of $memory bytes" "no memory cgroup can be made here"
    fi
done
# The limit changes while it runs: the same text, and the process within it.
moves()
{
    "$BIN/thermo-plan" solve -q --traces "$tmp/t.h5" --hardware "$hw" --for-pack "$pack" --for serve --memory 18MiB,22MiB,30MiB --elastic --context 512 \
        --cores mid=2,big=0,little=0 --out "$tmp/elastic.json" && python3 -B tests/cli/elastic.py "$BIN" "$pack" "$tmp/elastic.json" --moves 18 30
}
check "experts within 30 and 18 MiB by turns" moves
done_testing
