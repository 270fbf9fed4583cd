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
check "a draft that leaves no memory: infeasible" says 4 "the draft model takes" gen --memory 24MiB "${draft[@]}"
check "--draft without --guess draft" says 2 "belongs to --guess draft" gen --draft "$packed"
check "--guess draft without --draft" says 2 "belongs to --draft" gen --guess draft
check "--guess-most without --guess" says 2 "belongs to --guess" gen --guess-most 4
check "--guess with --best-of" says 2 "does not go with" gen --guess lookup --best-of 2

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
