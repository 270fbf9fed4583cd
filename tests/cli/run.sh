#!/bin/sh
# thermo-run on the command line: what it refuses and how, what it prints, sampling and stopping.
. tests/run_chain.sh
scratch
chain_start
chain split || { echo "not ok 1 - chain"; echo "1..1"; exit 1; }
chain bundle || { echo "not ok 1 - chain"; echo "1..1"; exit 1; }
m=$tmp/split.thermo p=$tmp/split.json

# fails STATUS PATTERN COMMAND...: exit status and what stderr says; stdout stays empty.
fails()
{
    _s=$1 _p=$2
    shift 2
    "$@" > "$tmp/out" 2> "$tmp/err"
    _r=$?
    [ $_r -eq "$_s" ] || { echo "exit $_r instead of $_s"; cat "$tmp/err"; return 1; }
    grep -q -- "$_p" "$tmp/err" || { echo "stderr lacks '$_p':"; cat "$tmp/err"; return 1; }
    [ ! -s "$tmp/out" ] || { echo "stdout is not empty"; return 1; }
}
gen() { "$run" generate --model "$m" --plan "$p" "$@"; }

check "no plan: usage" fails 2 '--plan FILE is required' "$run" generate --model "$m" --prompt x
check "no prompt: usage" fails 2 '--prompt or --prompt-file' gen
check "both prompts: usage" fails 2 'exclude each other' gen --prompt x --prompt-file y
check "unknown option: usage" fails 2 'unknown option' gen --prompt x --tempp 1
check "stray argument: usage" fails 2 "unexpected argument 'more'" gen --prompt x more
check "bad size: usage" fails 2 'memory' gen --prompt x --memory 12XiB
check "temperature out of range: usage" fails 2 'temp' gen --prompt x --temp -1
check "unknown tier: usage" fails 2 'mmx' gen --prompt x --cpu mmx
check "an empty stop string: usage" fails 2 'empty --stop' gen --prompt x --stop ''
check "token ids that are none: usage" fails 2 "'99999'" "$run" logits --model "$m" --plan "$p" --tokens 1,99999
check "token ids that are no numbers: usage" fails 2 "'x'" "$run" logits --model "$m" --plan "$p" --tokens 1,x
awk 'BEGIN { for (i = 0; i < 400; i++) printf "word " }' > "$tmp/long"
check "a prompt longer than the context is refused" fails 2 'context of 64' gen --prompt-file "$tmp/long" --context 64
check "a bench longer than the context is refused" fails 2 'pp100 needs a context' "$run" bench --model "$m" --plan "$p" --context 64 -p 100
check "no such model: unreadable" fails 3 'nonexistent' "$run" generate --model /nonexistent --plan "$p" --prompt x
check "no such prompt file: unreadable" fails 3 'nonexistent' gen --prompt-file /nonexistent
check "a GGUF is not a pack" fails 3 'thermo-pack pack' "$run" generate --model $model --plan "$p" --prompt x
check "a plan is not a pack" fails 3 'not a packed model' "$run" generate --model "$p" --plan "$p" --prompt x
check "a pack is not a plan" fails 3 'split.thermo' "$run" generate --model "$m" --plan "$m" --prompt x
head -c 3000000 "$m" > "$tmp/cut.thermo"
check "a truncated pack" fails 3 'truncated' "$run" generate --model "$tmp/cut.thermo" --plan "$p" --prompt x
check "plan and pack of different layouts: mismatch" fails 5 'do not belong together' "$run" generate --model "$tmp/bundle.thermo" --plan "$p" --prompt x
typed() # the command that it names, with the trace and the database in place of their words
{
    words=$(sed -n "s|.*: thermo-plan\( solve .*\)TRACE\(.*\)DATABASE\(.*--out \).*|'$BIN/thermo-plan'\1'$tmp/t.h5'\2'$tmp/hw.sqlite'\3'$tmp/for-pack.json'|p" "$tmp/err")
    eval "${words:-false}" > /dev/null && "$run" generate --model "$tmp/bundle.thermo" --plan "$tmp/for-pack.json" --prompt x -n 1 > /dev/null
}
check "it names both files, and the command that makes a plan for the pack" typed

# Damage in a dense tensor: found at loading.
cp "$m" "$tmp/bad.thermo"
printf 'damage' | dd of="$tmp/bad.thermo" bs=1 seek=$(($(stat -c %s "$m") / 100)) conv=notrunc 2> /dev/null
check "a damaged tensor is named" fails 3 'damage' "$run" logits --model "$tmp/bad.thermo" --plan "$p" --tokens 1

out() { gen --prompt 'Once upon a time' "$@" 2> "$tmp/err"; }
equal() { [ "$1" = "$2" ] || { printf '%s\n--\n%s\n' "$1" "$2"; return 1; }; }
greedy=$(out -n 40 --temp 0)
check "greedy twice: the same text" equal "$greedy" "$(out -n 40 --temp 0)"
check "top-k 1 is greedy" equal "$greedy" "$(out -n 40 --top-k 1)"
check "top-p 0 is greedy" equal "$greedy" "$(out -n 40 --top-p 0)"
check "min-p 1 is greedy" equal "$greedy" "$(out -n 40 --min-p 1)"
check "the text begins with the prompt" test "${greedy#Once upon a time}" != "$greedy"
check "--no-echo leaves it out" equal "$greedy" "Once upon a time$(out -n 40 --temp 0 --no-echo)"
a=$(out -n 40 --seed 3) b=$(out -n 40 --seed 4)
check "the same seed: the same text" equal "$a" "$(out -n 40 --seed 3)"
check "another seed: another text" test "$a" != "$b"
check "a higher temperature: another text" test "$a" != "$(out -n 40 --seed 3 --temp 1.5)"
check "a repeat penalty changes greedy text" test "$greedy" != "$(out -n 40 --temp 0 --repeat-penalty 1.5)"
check "a penalty over no tokens does not" equal "$greedy" "$(out -n 40 --temp 0 --repeat-penalty 1.5 --repeat-last-n 0)"
printf 'Once upon a time' > "$tmp/prompt"
check "--prompt-file" equal "$greedy" "$(gen --prompt-file "$tmp/prompt" -n 40 --temp 0 -q)"
check "standard input" equal "$greedy" "$(gen --prompt-file - -n 40 --temp 0 -q < "$tmp/prompt")"
word=$(out -n 40 --temp 0 --no-echo | tr -d '\n' | cut -d' ' -f6)
stopped=$(out -n 40 --temp 0 --no-echo --stop "$word" --stop zzzz)
check "--stop ends before the text" test -n "$stopped" -a "${greedy#"Once upon a time$stopped"}" != "$greedy" -a "${stopped%"$word"*}" = "$stopped"
check "-n 0 gives the prompt alone" equal "Once upon a time" "$(out -n 0)"
full() { out -n -1 --context 40 --ignore-eos --temp 0 > /dev/null && grep -q '(context)' "$tmp/err"; }
check "-n -1 ends where the context is full" full
quiet() { gen --prompt a -n 2 -q > /dev/null 2> "$tmp/err" && [ ! -s "$tmp/err" ]; }
check "--quiet: nothing on stderr" quiet

json_lines() { out -n 5 --temp 0 --json > "$tmp/j" && python3 - "$tmp/j" << 'END'
import json, sys
lines = [json.loads(l) for l in open(sys.argv[1])]
assert [l["type"] for l in lines] == ["token"] * 5 + ["summary"], lines
s = lines[-1]
for k in ("prompt", "decode", "predicted", "measured", "account", "peak_bytes", "ttft_ms", "io", "direct", "seed", "stop"):
    assert k in s, k
assert s["prompt"]["tokens"] > 3 and s["generated"] == 5 and s["stop"] == "length"
assert sum(s["account"].values()) == s["account_bytes"] <= s["memory_bytes"]
assert all(l["active"] > 0 for l in lines[1:5])
END
}
check "--json: a line per token and a summary" json_lines
text() { python3 -c 'import json, sys; print("".join(json.loads(l).get("text", "") for l in open(sys.argv[1])), end="")' "$tmp/j"; }
check "its texts are the text" equal "Once upon a time$(text)" "$(out -n 5 --temp 0)"

fewer() { out -n 2 --memory 14MiB > /dev/null && grep -q 'fewer neurons stay in memory' "$tmp/err"; }
check "less memory than planned: says so and runs" fewer
bench() { "$run" bench --model "$m" --plan "$p" -p 8 -n 4 -r 2 --json -q > "$tmp/j" && python3 - "$tmp/j" << 'END'
import json, sys
b = json.load(open(sys.argv[1]))
assert [t["test"] for t in b["tests"]] == ["pp8", "tg4"] and all(len(t["samples"]) == 2 and t["tokens_per_s"] > 0 for t in b["tests"])
END
}
check "bench --json" bench
apart() # measured with reads and arithmetic apart, and without the cache: as much is computed, more is read
{
    "$BIN/thermo-plan" solve --traces "$tmp/t.h5" --hardware "$tmp/hw.sqlite" --memory 17MiB --context 256 \
        --cores mid=2,big=0,little=0 --for-pack "$m" --out "$tmp/cold.json" > /dev/null || return 1
    tg() { "$run" bench --model "$m" --plan "$tmp/cold.json" -p 0 -n 6 -r 1 --json -q "$@"; }
    tg > "$tmp/j" && tg --no-overlap > "$tmp/j1" && tg --no-cache > "$tmp/j2" && python3 - "$tmp/j" "$tmp/j1" "$tmp/j2" << 'END'
import json, sys
base, apart, bare = (json.load(open(f))["tests"][0] for f in sys.argv[1:])
def active(t):
    return sum(t["neurons_per_token"][k] for k in ("hot", "cold", "read"))
assert active(base) > 0 and all(abs(active(x) - active(base)) < 0.01 for x in (apart, bare)), (base, apart, bare)
assert base["neurons_per_token"]["cold"] > 0 and bare["neurons_per_token"]["cold"] == 0
assert bare["neurons_per_token"]["read"] > base["neurons_per_token"]["read"]
assert apart["ms_per_token"]["stall"] <= apart["ms_per_token"]["ffn"] < apart["ms_per_token"]["ffn"] + apart["ms_per_token"]["attention"]
END
}
check "bench --no-overlap, --no-cache" apart
forced() # a text decoded in one go or in two: the same tokens at the same positions; a full context is a new sequence
{
    echo "The cat sat on the mat and looked at the dog." > "$tmp/words"
    tg() { "$run" bench --model "$m" --plan "$p" -p 0 --no-warmup --text "$tmp/words" --json -q "$@"; }
    tg -n 8 -r 1 > "$tmp/j" && tg -n 4 -r 2 > "$tmp/j1" && tg -n 4 -r 2 --context 7 > "$tmp/j2" && python3 - "$tmp/j" "$tmp/j1" "$tmp/j2" << 'END'
import json, sys
whole, parts, anew = (json.load(open(f))["tests"][0] for f in sys.argv[1:])
def active(t):
    return sum(t["neurons_per_token"][k] for k in ("hot", "cold", "read"))
assert whole["position"] == parts["position"] == 4 and anew["position"] == 2
assert active(whole) > 0 and abs(active(parts) - active(whole)) < 0.01 and abs(active(anew) - active(whole)) > 0.01, (whole, parts, anew)
END
}
check "bench --text" forced
: > "$tmp/empty"
check "bench --text of nothing" fails 2 "has no text" "$run" bench --model "$m" --plan "$p" --text "$tmp/empty"
md() { "$run" bench --model "$m" --plan "$p" -p 0 -n 4 -r 1 -q | grep -q '| tg4 |'; }
check "bench as a table" md
csv() { "$run" bench --model "$m" --plan "$p" -p 4 -n 4 -r 1 -q --output csv | awk -F, 'NR == 1 { n = NF } NF != n { exit 1 } END { exit NR != 3 }'; }
check "bench as CSV" csv
ppl() { "$run" perplexity --model "$m" --plan "$p" --ids datasets/heldout/held_tiny.bin --ctx 64 --windows 3 --json -q > "$tmp/j" && python3 - "$tmp/j" << 'END'
import json, math, sys
j = json.load(open(sys.argv[1]))
assert j["scored"] == 3 * 63 and j["windows"] == 3 and abs(math.exp(j["nll"]) / j["ppl"] - 1) < 1e-6 and 2 < j["ppl"] < 100
END
}
check "perplexity --json" ppl
check "a text shorter than a window is refused" fails 2 'less than one window' "$run" perplexity --model "$m" --plan "$p" --file "$tmp/prompt"

# Interrupted: what was made is kept, the summary printed, status 130.
interrupted()
{
    # A shell without job control starts what runs in the background with SIGINT ignored.
    env --default-signal=INT "$run" generate --model "$m" --plan "$p" --prompt a -n -1 --ignore-eos --context 32768 --memory 256MiB \
        --temp 1 > "$tmp/out" 2> "$tmp/err" &
    pid=$!
    while [ "$(wc -c < "$tmp/out")" -lt 20 ] && [ -e "/proc/$pid/exe" ]; do sleep 0.05; done
    kill -INT $pid
    wait $pid
    r=$?
    [ $r -eq 130 ] && [ "$(wc -c < "$tmp/out")" -ge 20 ] && grep -q '(interrupted)' "$tmp/err" || { echo "status $r"; cat "$tmp/err"; return 1; }
}
check "an interrupt keeps the text and prints the summary" interrupted
done_testing
