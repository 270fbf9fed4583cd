#!/bin/bash
# solve --for chat, --for serve and --for thermo-serve: what a plan keeps free is what the command takes. At the very floor that solve names the command runs, with
# no neuron less than planned; by a plan without it, chat is refused and names the flag.
. tests/run_chain.sh
scratch
chain_start
chain split || { echo "not ok 1 - chain"; echo "1..1"; exit 1; }
m=$tmp/split.thermo t=$tmp/template
printf '{%% for m in messages %%}[{{ m.role }}] {{ m.content }}\n{%% endfor %%}[teller]' > "$t"
solve() { "$BIN/thermo-plan" solve -q --traces "$tmp/t.h5" --hardware "$tmp/hw.sqlite" --cores mid=2,big=0,little=0 --for-pack "$m" "$@"; }
floor_for() { solve --memory 6MiB --out "$tmp/none.json" "$@" 2>&1 > /dev/null | sed -n 's/.*below the floor of \([0-9]*\) bytes.*/\1/p'; }

chat() { printf 'Tell me of a fox.\nAnd of a bear.\n' | "$run" chat --model "$m" --plan "$1" --temp 0 -n 4 --chat-template "$t" > "$tmp/out" 2> "$tmp/err"; }
serve() # PLAN: a line of messages and one of text for each of four requests
{
    for i in 1 2 3 4; do echo "{\"id\":\"$i\",\"prompt\":\"Once upon\",\"n\":4}"; echo "{\"id\":\"m$i\",\"messages\":[{\"role\":\"user\",\"content\":\"A fox\"}],\"n\":4}"; done |
        "$run" serve --stdio --chat --chat-template "$t" --temp 0 --model "$m" --plan "$1" > "$tmp/out" 2> "$tmp/err" &&
        test "$(grep -c '"type":"done"' "$tmp/out")" -eq 8
}
thermo-serve() # PLAN: it listens
{
    "$BIN/thermo-serve" --model "$m" --plan "$1" --port 0 -- --chat-template "$t" > "$tmp/out" 2> "$tmp/err" &
    local pid=$!
    for _ in $(seq 600); do
        grep -q listening "$tmp/out" && break
        kill -0 $pid 2> /dev/null || break
        sleep 0.1
    done
    kill $pid 2> /dev/null
    wait $pid
    grep -q listening "$tmp/out"
}
as_planned() { ! grep 'fewer neurons\|below the floor' "$tmp/err"; }
runs() # COMMAND CONTEXT BATCH
{
    local floor
    floor=$(floor_for --for "$1" --context "$2" --max-batch "$3")
    for memory in "$floor" $((floor + 2000000)); do
        solve --for "$1" --context "$2" --max-batch "$3" --memory "$memory" --out "$tmp/for.json" > "$tmp/log" && "$1" "$tmp/for.json" && as_planned ||
            { cat "$tmp/log" "$tmp/err" "$tmp/out"; return 1; }
    done
    status 4 solve --for "$1" --context "$2" --max-batch "$3" --memory $((floor - 1)) --out "$tmp/none.json"
}
for context in 64 $(plainly echo 1000); do
    check "chat runs at the floor of a plan for it, context $context" runs chat $context 1
    for batch in 1 $(unless_short echo 8); do
        check "serve runs at the floor of a plan for it, context $context, $batch sequences" runs serve $context $batch
    done
    check "thermo-serve starts at the floor of a plan for it, context $context" runs thermo-serve $context $([ $context = 64 ] && echo 1 || echo 8)
done
least=$(floor_for --context 1000)
refused() { solve --context 1000 --memory "$least" --out "$tmp/plain.json" > "$tmp/log" && ! chat "$tmp/plain.json" && cat "$tmp/err" >&2 && return 4; }
check "a plan without it has no room for chat, which names the flag" says 4 "'thermo-plan solve --for chat' keeps room for it" refused
check "check verifies what it is for" says 0 '^unverified' "$BIN/thermo-plan" check "$tmp/for.json" --traces "$tmp/t.h5" --hardware "$tmp/hw.sqlite"
other() { sed 's/"for": "thermo-serve"/"for": "chat"/' "$tmp/for.json" > "$tmp/bad.json"; cmp -s "$tmp/bad.json" "$tmp/for.json" && return 9
    "$BIN/thermo-plan" check "$tmp/bad.json" --traces "$tmp/t.h5" --hardware "$tmp/hw.sqlite"; }
check "another command is found" says 3 account_bytes other
done_testing
