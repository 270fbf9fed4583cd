#!/bin/bash
# Guesses (--guess lookup, draft): the text is the one without them, in each mode, with random draws and at the smallest memory; what they
# were is in the summary; a draft model's memory is a part of the limit.
. tests/tap.sh
scratch
. tests/chain.sh
words='One day a red cat sat on a red mat. One day a red cat sat on a red mat. One day a red cat'
draft=(--guess draft --draft "$packed" --draft-plan "$plan")

gen() { "$BIN/thermo-run" generate --model "$packed" --plan "$plan" --prompt "$words" -n 48 "$@"; }
same() # OPTION... -- GUESSES...
{
    local how=()
    while [ "$1" != -- ]; do how+=("$1"); shift; done
    shift
    gen -q "${how[@]}" > "$tmp/plain" && gen -q "${how[@]}" "$@" > "$tmp/guessed" && [ -s "$tmp/plain" ] && cmp "$tmp/plain" "$tmp/guessed"
}
check "lookup, greedy" same --temp 0 -- --guess lookup
check "lookup, random draws and a penalty" same --temp 0.9 --seed 3 --repeat-penalty 1.2 -- --guess lookup --guess-most 15
check "lookup, dense mode" same --temp 0 --mode dense -- --guess lookup
check "lookup, where neurons are read" same --temp 0 --memory 13MiB -- --guess lookup
check "lookup, never the end" same --temp 1.5 --seed 9 --ignore-eos -- --guess lookup
check "a draft model" same --temp 0.8 --seed 5 -- "${draft[@]}"
check "a draft model within less memory than it was planned for" same --temp 0 -- "${draft[@]}" --draft-memory 12MiB --memory 36MiB

counts() # the model as its own draft guesses right, whatever is drawn
{
    gen --temp 1 --seed 2 --ignore-eos --json "${draft[@]}" 2> "$tmp/err" | tail -n 1 > "$tmp/summary" &&
    gen --temp 1 --seed 2 --ignore-eos --json --guess lookup 2>> "$tmp/err" | tail -n 1 > "$tmp/lookup" &&
    gen --temp 1 --seed 2 --ignore-eos --json 2>> "$tmp/err" | tail -n 1 > "$tmp/none" &&
    python3 - "$tmp" "${SANITIZE:-}" << 'END'
import json, sys
draft, lookup, none = (json.load(open(f"{sys.argv[1]}/{n}")) for n in ("summary", "lookup", "none"))
g = draft["guesses"]
assert g["accepted"] == g["guessed"] > 0 and g["passes"] <= g["of"], g
assert draft["decode"]["tokens"] == draft["generated"] - 1 == g["of"] + g["accepted"], draft
assert none["decode"]["tokens"] == 47 and "guesses" not in none and lookup["guesses"]["accepted"] <= lookup["guesses"]["guessed"]
assert sys.argv[2] or draft["peak_bytes"] <= draft["memory_bytes"] # a sanitizer takes memory of its own
assert not draft["predicted"]["valid"]
END
}
check "what is counted" counts

planned() # the plan's times of passes beside those that were measured, and the number of guesses that they make
{
    gen --temp 0 --ignore-eos --memory 64MiB --json --guess lookup > "$tmp/lines" 2> "$tmp/err" && gen --temp 0 --ignore-eos --memory 64MiB --guess lookup > "$tmp/text" 2> "$tmp/said" &&
        grep -q 'ms of passes by their tokens (and by the plan): 1: [0-9.e+]* ([0-9.e+]*)' "$tmp/said" && grep -q 'the plan makes [0-9]* a pass, [0-9.]* times as fast' "$tmp/said" &&
        python3 - "$tmp/lines" "$plan" << 'END'
import json, sys
g = json.loads(open(sys.argv[1]).readlines()[-1])["guesses"]
q = json.load(open(sys.argv[2]))["limits"][-1]["guesses"]
def pass_ms(n): # linear between lengths
    i = next((i for i in range(1, len(q["tokens"]) - 1) if q["tokens"][i] >= n), len(q["tokens"]) - 1)
    (a, b), (x, y) = q["tokens"][i - 1:i + 1], q["pass_ns"][i - 1:i + 1]
    return (x + (y - x) * (n - a) / (b - a)) / 1e6
assert len(q["tokens"]) > 2 and q["tokens"] == [1, 2, 4, 8, 16][:len(q["tokens"])], q
assert g["by_tokens"][0]["tokens"] == 1 and sum(t["passes"] for t in g["by_tokens"]) == g["of"], g
for t in g["by_tokens"]:
    assert t["ms"] > 0 and abs(t["predicted_ms"] / pass_ms(t["tokens"]) - 1) < 1e-4, (t, pass_ms(t["tokens"]))
a, best = g["planned"]["acceptance"], g["planned"]["guesses"]
assert abs(a - g["accepted"] / g["tried"]) < 1e-5
each = g["source_ms"] / g["guessed"]
speed = [sum(a ** i for i in range(k + 1)) * pass_ms(1) / (pass_ms(k + 1) + k * each) for k in range(9)]
assert speed[best] >= max(speed) * (1 - 1e-4) and abs(speed[best] / g["planned"]["speedup"] - 1) < 1e-3, (speed, g)
END
}
check "the plan's times of passes beside the measured ones" planned
unplanned() # without them, and with others: the same text
{
    local gen="gen --temp 0 --ignore-eos --memory 64MiB -q"
    python3 - "$plan" "$tmp" << 'END'
import json, sys
for name in "none", "slow":
    p = json.load(open(sys.argv[1]))
    for l in p["limits"]:
        if name == "none":
            del l["guesses"]
        else:
            g = l["guesses"]
            g["pass_ns"] = [g["pass_ns"][0] * n for n in g["tokens"]]
            g["best"], g["speedup"] = [0, 0], [1, 1]
    p["revision"] = 7 if name == "none" and "engine_neurons" not in json.dumps([l.get("prompt") for l in p["limits"]]) else 8
    json.dump(p, open(f"{sys.argv[2]}/{name}.json", "w"))
END
    $gen > "$tmp/plain" && $gen --guess lookup > "$tmp/with" && plan=$tmp/none.json $gen --guess lookup > "$tmp/without" &&
        plan=$tmp/slow.json $gen --guess lookup > "$tmp/slow" && cmp "$tmp/plain" "$tmp/with" && cmp "$tmp/plain" "$tmp/without" && cmp "$tmp/plain" "$tmp/slow" &&
        plan=$tmp/none.json gen --temp 0 --guess lookup --json -q 2> "$tmp/err" | tail -n 1 | python3 -c '
import json, sys
g = json.load(sys.stdin)["guesses"]
assert "planned" not in g and not any("predicted_ms" in t for t in g["by_tokens"]), g'
}
check "a plan without them: the same text, nothing beside what was measured" unplanned
bad() { "$BIN/thermo-plan" check "$tmp/none.json" --traces "$traces" --hardware "$hardware" > "$tmp/out" 2>&1 && says 3 'limits\[0\].guesses.pass_ns\[1\] is' "$BIN/thermo-plan" check "$tmp/slow.json" --traces "$traces" --hardware "$hardware"; }
check "the check takes a plan without them and refuses others" bad
check "a draft that leaves no memory: infeasible" says 4 "the draft model takes" gen --memory 24MiB "${draft[@]}"
check "--draft without --guess draft" says 2 "belongs to --guess draft" gen --draft "$packed"
check "--guess draft without --draft" says 2 "belongs to --draft" gen --guess draft
check "--guess-most without --guess" says 2 "belongs to --guess" gen --guess-most 4

other() # another vocabulary
{
    printf 'text\nOnce there was a dog.\n' > "$tmp/p.csv"
    "$BIN/gguf-make" random --act relu --context 64 --layers 1 --ff 512 "$tmp/m.gguf" &&
        "$BIN/thermo-profile" trace -q --model "$tmp/m.gguf" --prompts "$tmp/p.csv" --out "$tmp/t.h5" && phone "$tmp/hw.sqlite" &&
        "$BIN/thermo-plan" solve -q --traces "$tmp/t.h5" --hardware "$tmp/hw.sqlite" --memory 16MiB --context 64 --form split --out "$tmp/plan.json" &&
        "$BIN/thermo-pack" pack -q --model "$tmp/m.gguf" --traces "$tmp/t.h5" --plan "$tmp/plan.json" --out "$tmp/m.thermo" &&
        says 5 "draft model '.*m.thermo' has [0-9]* tokens" gen --guess draft --draft "$tmp/m.thermo" --draft-plan "$tmp/plan.json"
}
check "a draft with another vocabulary: mismatch" other
done_testing
