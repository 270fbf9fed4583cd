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
q = json.load(open(sys.argv[2]))["decisions"]["limits"][-1]["guesses"]
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
    for l, x in zip(p["decisions"]["limits"], p["predictions"]["limits"]):
        if name == "none":
            del l["guesses"], x["guesses"]
        else:
            g = l["guesses"]
            g["pass_ns"] = [g["pass_ns"][0] * n for n in g["tokens"]]
            x["guesses"]["best"], x["guesses"]["speedup"] = [0, 0], [1, 1]
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
elsewhere()
{
    python3 -c 'import json, sys
p = json.load(open(sys.argv[1]))
p["device"]["name"] = "another"
json.dump(p, open(sys.argv[2], "w"))' "$plan" "$tmp/elsewhere.json" && "$BIN/thermo-plan" solve -q --traces "$traces" --hardware "$hardware" --memory 64MiB \
        --draft-plan "$tmp/elsewhere.json" --out "$tmp/no.json"
}
sourced() # what a draft takes, by its plan, in another's; the same text, and the figure beside what was measured
{
    "$BIN/thermo-plan" solve -q --traces "$traces" --hardware "$hardware" --memory 64MiB --context 256 --for-pack "$packed" --draft-plan "$plan" \
        --out "$tmp/drafts.json" > "$tmp/solved" && grep -q ' by draft, [0-9.e+]* ms each' "$tmp/solved" &&
        "$BIN/thermo-plan" check "$tmp/drafts.json" --traces "$traces" --hardware "$hardware" > /dev/null &&
        "$BIN/thermo-plan" check "$tmp/drafts.json" --traces "$traces" --hardware "$hardware" --for-pack "$packed" --context 256 --solve --draft-plan "$plan" > "$tmp/out" &&
        "$BIN/thermo-plan" explain "$tmp/drafts.json" --traces "$traces" --hardware "$hardware" > "$tmp/out" && grep -q 'by draft, which takes' "$tmp/out" || return 1
    gen --temp 0 -q > "$tmp/plain" && plan=$tmp/drafts.json gen --temp 0 -q "${draft[@]}" > "$tmp/guessed" && cmp "$tmp/plain" "$tmp/guessed" &&
        plan=$tmp/drafts.json gen --temp 0 --ignore-eos "${draft[@]}" --memory 96MiB --json -q > "$tmp/lines" &&
        plan=$tmp/drafts.json gen --temp 0 --ignore-eos --guess lookup --json -q > "$tmp/lookup" && python3 - "$tmp" "$plan" << 'END'
import json, sys
last = lambda name: json.loads(open(f"{sys.argv[1]}/{name}").readlines()[-1])["guesses"]
plan, draft = json.load(open(f"{sys.argv[1]}/drafts.json")), json.load(open(sys.argv[2]))
g, gain = plan["decisions"]["limits"][-1]["guesses"], plan["predictions"]["limits"][-1]["guesses"]
step = draft["predictions"]["limits"][-1]["batches"][0]["step_ns"]
assert g["source"]["kind"] == "draft" and abs(g["source"]["guess_ns"] / step - 1) < 1e-5, g
assert gain["best"] == [0, 0] and gain["speedup"] == [1, 1], gain # a draft as slow as the model
assert abs(last("lines")["planned"]["guess_ms"] * 1e6 / step - 1) < 1e-4 and "guess_ms" not in last("lookup").get("planned", {}), last("lines")
END
}
check "a draft's time in the plan" sourced
check "a draft's plan for another device" says 5 "is for device" elsewhere
check "--draft-memory below its limits" says 4 "less than every limit" "$BIN/thermo-plan" solve -q --traces "$traces" --hardware "$hardware" --memory 64MiB \
    --draft-plan "$plan" --draft-memory 1KiB --out "$tmp/no.json"
check "--draft-memory alone" says 2 "belongs to --draft-plan" "$BIN/thermo-plan" solve -q --traces "$traces" --hardware "$hardware" --memory 64MiB \
    --draft-memory 1KiB --out "$tmp/no.json"
check "a draft's time is the request's: check without --solve" says 2 "go with --solve" "$BIN/thermo-plan" check "$tmp/drafts.json" --draft-plan "$plan"
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
