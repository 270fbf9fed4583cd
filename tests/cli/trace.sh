#!/bin/bash
# thermo-profile trace, merge, show: the format against schemas/trace.md, determinism, shards, interruption and
# resuming, refusals with their exit codes.
. tests/tap.sh
BIN=${BIN:-build/bin}
B=${B:-build/$(uname -m)}
P=$BIN/thermo-profile
MODEL=datasets/models/reglu-tales-10m-f16.gguf
PROMPTS=datasets/prompts/stories-profile.csv
scratch

tokens=5000 ctx=() moments='start 0 30 70'
[ -z "$short" ] || tokens=1600 ctx=(--ctx 32) moments=30
# trace OUT ARGUMENTS...: a short run
run=("$P" trace --model $MODEL --prompts $PROMPTS --max-tokens $tokens --samples 300 "${ctx[@]}")
trace()
{
    local out=$1
    shift
    "${run[@]}" --out "$tmp/$out" "$@"
}

says() { # PATTERN STATUS COMMAND...: exits with STATUS and says PATTERN on stderr
    local pattern=$1 want=$2 got
    shift 2
    "$@" > "$tmp/out" 2> "$tmp/err"
    got=$?
    cat "$tmp/out" "$tmp/err"
    [ $got -eq "$want" ] && grep -qE -- "$pattern" "$tmp/err" || { echo "exit $got (want $want), wanted: $pattern"; return 1; }
}

check "trace writes a trace" trace a.h5
check "no state file is left" test ! -e "$tmp/a.h5.partial"
if command -v h5dump > /dev/null && command -v python3 > /dev/null && [ -x "$B/tests/tools/hash128" ]; then
    check "it is what schemas/trace.md says, hashes included" \
        python3 tests/cli/trace_check.py schemas/trace.md "$B/tests/tools/hash128" "$tmp/a.h5"
    check "also uncompressed, without samples and maps" eval 'trace z.h5 --max-tokens 600 --h5-gzip 0 --samples 0 --window-tokens 0 &&
        python3 tests/cli/trace_check.py schemas/trace.md "$B/tests/tools/hash128" "$tmp/z.h5"'
else
    skip "schemas/trace.md" "h5dump or python3 is not installed"
fi
unless_short check "one thread gives the same bytes" eval 'trace b.h5 --threads 1 && cmp "$tmp/a.h5" "$tmp/b.h5"'
check "show knows a trace" eval '"$P" show "$tmp/a.h5" | grep -q "tokens consecutive in one sequence"'
check "show --verify finds it intact" "$P" show --verify "$tmp/a.h5"
check "show --json is JSON" eval '"$P" show --json "$tmp/a.h5" | python3 -c "import json,sys
d = json.load(sys.stdin)
assert d[\"kind\"] == \"trace\" and d[\"n_tokens\"] == '"$tokens"' and len(d[\"layers\"]) == 8, d
assert 0.05 < d[\"mean_density\"] < 0.3
for l in d[\"layers\"]:
    b = [x[\"active_share\"] for x in l[\"batches_of_sequences\"]]
    assert b == sorted(b) and abs(b[0] - l[\"density\"]) < 1e-5, b"'

# other activation functions: with SiLU every neuron counts for every token; dReLU has more open gates than firings
density()
{
    trace "$1.h5" --act "$1" --max-tokens 600 > /dev/null && "$P" show --json "$tmp/$1.h5" | python3 -c "import json,sys
d = json.load(sys.stdin)
assert d['model']['act'] == '$1' and all($2 for l in d['layers']), d"
}
check "--act silu: everything is active" density silu "l['density'] == 1 and 0 < l['gate_density'] < 1"
check "--act drelu: fewer firings than open gates" density drelu "0 < l['density'] < l['gate_density']"
check "another activation function, another identity" eval \
    '! "$P" merge --out "$tmp/x.h5" "$tmp/silu.h5" "$tmp/drelu.h5" 2> /dev/null'

# weights that have int8 products: what plans ask for by default, and float
quant() # OUT ARGUMENTS...
{
    "$P" trace -q --model "$tmp/q.gguf" --prompts "$tmp/q.csv" --samples 200 --window-tokens 600 --out "$tmp/$1" "${@:2}"
}
act_type() # TRACE TYPE
{
    "$P" show --json "$tmp/$1" | grep -q "\"act_type\": \"$2\""
}
check "a model of Q4_0" "$BIN/gguf-synth" -q --shape tiny --layers 2 --prompts "$tmp/q.csv" --prompt-rows 40 --prompt-words 37 "$tmp/q.gguf"
check "its trace has int8 activations, and says so as schemas/trace.md has it" eval 'quant q8.h5 > /dev/null && act_type q8.h5 q8 &&
    { ! command -v h5dump > /dev/null || python3 tests/cli/trace_check.py schemas/trace.md "$B/tests/tools/hash128" "$tmp/q8.h5"; }'
unless_short check "one and three threads give the same bytes" eval 'quant q1.h5 --threads 1 > /dev/null && quant q3.h5 --threads 3 > /dev/null &&
    cmp "$tmp/q8.h5" "$tmp/q1.h5" && cmp "$tmp/q8.h5" "$tmp/q3.h5"'
check "so do shards, whose tokens go together otherwise" eval 'quant qs0.h5 --shard 0/2 > /dev/null && quant qs1.h5 --shard 1/2 > /dev/null &&
    "$P" merge --out "$tmp/m.h5" "$tmp/qs0.h5" "$tmp/qs1.h5" > /dev/null && cmp "$tmp/q8.h5" "$tmp/m.h5"'
check "--act-type f32 gives float ones" eval 'quant qf.h5 --act-type f32 > /dev/null && act_type qf.h5 f32 && ! cmp -s "$tmp/q8.h5" "$tmp/qf.h5"'
check "which fire as often within 2 %" python3 -c "import json, subprocess, sys
a, b = (json.loads(subprocess.check_output([sys.argv[1], 'show', '--json', f])) for f in sys.argv[2:])
for l, m in zip(a['layers'], b['layers']):
    assert 0.02 < l['density'] < 0.4 and abs(l['density'] / m['density'] - 1) < 0.02, (l['density'], m['density'])
" "$P" "$tmp/q8.h5" "$tmp/qf.h5"
unless_short check "weights without such products: float either way" eval 'trace f16.h5 --act-type q8 > /dev/null && cmp "$tmp/a.h5" "$tmp/f16.h5" && act_type f16.h5 f32'
check "shards of both are of different runs" eval 'quant qsf.h5 --shard 1/2 --act-type f32 > /dev/null &&
    says "differ in int8 activations: 1 and 0" 5 "$P" merge --out "$tmp/x.h5" "$tmp/qs0.h5" "$tmp/qsf.h5"'

# shards
for i in 0 1; do check "shard $i of 2" trace s$i.h5 --shard $i/2; done
check "merged shards are the whole, to the byte" eval \
    '"$P" merge --out "$tmp/m.h5" "$tmp/s1.h5" "$tmp/s0.h5" && cmp "$tmp/a.h5" "$tmp/m.h5"'
check "a missing shard is refused" says "shard 0 of 2 is missing .'.*s1.h5' is shard 1 of 2" 5 "$P" merge --out "$tmp/x.h5" "$tmp/s1.h5"
check "a doubled shard is refused" says 'both shard 1' 5 "$P" merge --out "$tmp/x.h5" "$tmp/s1.h5" "$tmp/s1.h5"
many=(--max-tokens 1500 --ctx 10 --window-tokens 400 --samples 50) # groups enough for four
check "many short sequences" trace f.h5 "${many[@]}"
for i in 0 1 2 3; do check "shard $i of 4" trace f$i.h5 --shard $i/4 "${many[@]}"; done
check "in any order: the same bytes" eval \
    '"$P" merge --out "$tmp/m.h5" "$tmp/f2.h5" "$tmp/f0.h5" "$tmp/f3.h5" "$tmp/f1.h5" && cmp "$tmp/f.h5" "$tmp/m.h5"'
check "missing ones are named" says 'shards 0, 3 of 4 are missing' 5 "$P" merge --out "$tmp/x.h5" "$tmp/f2.h5" "$tmp/f1.h5"
check "a doubled one too, before those" says "f2.h5' and '.*f2.h5' are both shard 2 of 4" 5 "$P" merge --out "$tmp/x.h5" "$tmp/f2.h5" "$tmp/f1.h5" "$tmp/f2.h5"
check "one of another cut" says "f2.h5' is shard 2 of 4, '.*s1.h5' shard 1 of 2" 5 "$P" merge --out "$tmp/x.h5" "$tmp/f2.h5" "$tmp/s1.h5"
check "one beside the whole" says "different runs" 5 "$P" merge --out "$tmp/x.h5" "$tmp/a.h5" "$tmp/s1.h5"
check "a shard with predictors is refused, or told to go without" eval '
    trace q0.h5 --max-tokens 1800 --ctx 20 --samples 1400 --shard 0/2 > /dev/null &&
    trace q1.h5 --max-tokens 1800 --ctx 20 --samples 1400 --shard 1/2 > /dev/null &&
    "$P" merge --out "$tmp/q.h5" "$tmp/q0.h5" "$tmp/q1.h5" > /dev/null &&
    "$P" predictors --model "$MODEL" --traces "$tmp/q0.h5" --method svd --rank 32 --quality-tokens 0 -q > /dev/null &&
    says "holds predictors" 2 "$P" merge --out "$tmp/x.h5" "$tmp/q1.h5" "$tmp/q0.h5" &&
    "$P" merge --drop-predictors --out "$tmp/x.h5" "$tmp/q1.h5" "$tmp/q0.h5" > /dev/null && cmp "$tmp/q.h5" "$tmp/x.h5" &&
    rm "$tmp/x.h5"'
check "a shard of another corpus is refused" eval 'trace o.h5 --shard 0/2 --max-tokens 900 > /dev/null &&
    says "differ in corpus" 5 "$P" merge --out "$tmp/x.h5" "$tmp/s1.h5" "$tmp/o.h5"'

# interruption: killed and asked to stop, before signals are caught and with a share of what four chunks of a tiny model take
# in the state file, then resumed
tiny=("$P" trace --model "$tmp/tiny.gguf" --prompts $PROMPTS --max-tokens 14000)
"$BIN/gguf-make" random -q --act relu --context 128 --seed 1 "$tmp/tiny.gguf"
"${tiny[@]}" --out "$tmp/whole.h5" > /dev/null
partial=$("${tiny[@]}" --out "$tmp/k.h5" --dry-run --json | sed -n 's/.*"partial_bytes": \([0-9]*\).*/\1/p')
interrupt() # SIGNAL PERCENT
{
    rm -f "$tmp/k.h5" "$tmp/k.h5.partial"
    "${tiny[@]}" --out "$tmp/k.h5" > /dev/null 2> "$tmp/err" &
    local pid=$! got
    if [ "$2" != start ]; then
        caught $pid
        while [ "$(stat -c %s "$tmp/k.h5.partial" 2> /dev/null || echo 0)" -le $((partial * $2 / 100)) ] && [ -e "/proc/$pid/exe" ]; do
            sleep 0.01
        done
    fi
    kill -"$1" $pid 2> /dev/null
    wait $pid 2> /dev/null
    got=$?
    [ -e "$tmp/k.h5" ] && [ $got -ne 0 ] && { echo "a file under the final name after $1"; return 1; }
    [ "$1" != TERM ] || [ $got -eq 130 ] || [ $got -eq 0 ] || [ "$2" = start ] || { cat "$tmp/err"; echo "exit $got"; return 1; }
    "${tiny[@]}" --out "$tmp/k.h5" --resume && cmp "$tmp/whole.h5" "$tmp/k.h5" && [ ! -e "$tmp/k.h5.partial" ]
}
for s in $moments; do
    check "killed at $s (% of the state file), then resumed: the same bytes" interrupt KILL "$s"
    check "stopped at $s (% of the state file), then resumed: the same bytes" interrupt TERM "$s"
done
half() # a state file with the first chunk, and half of the second
{
    rm -f "$tmp/k.h5" "$tmp/k.h5.partial"
    "${tiny[@]}" --out "$tmp/k.h5" > /dev/null 2>&1 &
    local pid=$!
    while [ "$(stat -c %s "$tmp/k.h5.partial" 2> /dev/null || echo 0)" -le $((partial * 3 / 8)) ] && [ -e "/proc/$pid/exe" ]; do sleep 0.01; done
    kill -KILL $pid 2> /dev/null
    wait $pid 2> /dev/null
    [ -e "$tmp/k.h5.partial" ]
}
if half; then
    check "a state file is no trace, and says how to go on" says 'resume' 3 "$P" show "$tmp/k.h5.partial"
    check "nor is the trace it belongs to there" says 'resume' 3 "$P" show "$tmp/k.h5"
    check "a run does not overwrite it" says 'resume' 2 "${tiny[@]}" --out "$tmp/k.h5"
    check "nor continue it with other options" says 'another run' 5 "${tiny[@]}" --out "$tmp/k.h5" --resume --ctx 100
    head -c 20 /dev/urandom >> "$tmp/k.h5.partial"
    check "rubbish at its end does no harm" eval '"${tiny[@]}" --out "$tmp/k.h5" --resume && cmp "$tmp/whole.h5" "$tmp/k.h5"'
else
    skip "state file" "the run was over before it could be killed"
fi
check "resuming what is complete does nothing" says 'nothing to resume' 0 trace a.h5 --resume

# what it would take
check "dry run" eval 'trace d.h5 --dry-run && [ ! -e "$tmp/d.h5" ] && [ ! -e "$tmp/d.h5.partial" ]'
check "dry run as JSON" eval 'trace d.h5 --dry-run --json | python3 -c "import json,sys
d = json.load(sys.stdin)
assert d[\"tokens\"] == '"$tokens"' and d[\"estimated_seconds\"] > 0 and d[\"free_bytes\"] > 0"'

# refusals
check "no such model" says 'none.gguf' 3 "$P" trace --model none.gguf --prompts $PROMPTS --out "$tmp/x.h5"
check "no such column" says "'words'" 3 trace x.h5 --column words
check "a CSV that is none" says 'README.md' 3 "$P" trace --model $MODEL --prompts README.md --out "$tmp/x.h5"
check "a model that is none" says 'README.md' 3 "$P" trace --model README.md --prompts $PROMPTS --out "$tmp/x.h5"
check "a shard that cannot be" says '4/4' 2 trace x.h5 --shard 4/4
check "a shard with nothing to do" says 'nothing to do' 3 trace x.h5 --shard 99/100
check "an option that does not exist" says 'window-tokens' 2 trace x.h5 --windowtokens 4
check "a folder that is not there" says '/nowhere/' 1 "$P" trace --model $MODEL --prompts $PROMPTS --out /nowhere/x.h5
check "missing options" says 'required|--model' 2 "$P" trace --out "$tmp/x.h5"
check "show of nothing" says 'nothere' 3 "$P" show "$tmp/nothere"
check "show of something else" says 'README.md' 3 "$P" show README.md
head -c 100000 "$tmp/a.h5" > "$tmp/cut.h5"
check "show of a cut trace" says 'cut.h5' 3 "$P" show "$tmp/cut.h5"
check "nothing was written under the refused name" test ! -e "$tmp/x.h5" -a ! -e "$tmp/x.h5.partial"
for c in trace merge show; do check "$c --help" eval "\"$P\" $c --help | grep -q -- --json"; done
done_testing
