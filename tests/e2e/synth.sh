#!/bin/sh
# gguf-synth: the same bytes again, refusals, and what a trace of tiny models measures against what was asked for.
. tests/tap.sh
BIN=${BIN:-build/bin}
STATS=${B:-build/$(uname -m)}/tests/tools/activation-stats
FIT=${B:-build/$(uname -m)}/tests/tools/activation-fit
scratch
# A short text under sanitizers, held against what was asked for within a wider margin.
text='' wider=1
[ -z "$short" ] || text='--max-tokens 512' wider=1.5

same()
{
    "$BIN/gguf-synth" --shape tiny --threads 1 --json "$tmp/a.gguf" && "$BIN/gguf-synth" --shape tiny --threads 3 "$tmp/b.gguf" &&
        cmp "$tmp/a.gguf" "$tmp/b.gguf"
}

other_seed()
{
    "$BIN/gguf-synth" --shape tiny --seed 2 "$tmp/b.gguf" && ! cmp -s "$tmp/a.gguf" "$tmp/b.gguf"
}

refused() # STATUS TEXT OPTIONS...: that exit status, that text on stderr, no file
{
    want=$1 text=$2
    shift 2
    rm -f "$tmp"/no.gguf*
    status "$want" "$BIN/gguf-synth" "$@" "$tmp/no.gguf" 2> "$tmp/said" || return
    cat "$tmp/said"
    grep -q "$text" "$tmp/said" && [ -z "$(find "$tmp" -name 'no.gguf*')" ]
}

# within NAME OPTIONS...: traces of the model agree with the figures gguf-synth promises for it.
within()
{
    name=$1 samples=0
    [ "$1" != trained ] || samples=4096
    shift
    "$BIN/gguf-synth" --shape tiny "$@" --prompts "$tmp/words.csv" --json "$tmp/$name.gguf" > "$tmp/asked" &&
        "$BIN/thermo-profile" trace -q --model "$tmp/$name.gguf" --prompts "$tmp/words.csv" --samples $samples $text \
            --out "$tmp/$name.h5" > "$tmp/log" && "$STATS" "$tmp/$name.h5" > "$tmp/got" &&
        python3 - "$tmp/asked" "$tmp/got" "$name" "$wider" << 'EOF'
import json, sys
asked, got = json.load(open(sys.argv[1]))["expected"], json.load(open(sys.argv[2]))
wider = float(sys.argv[4])
short = wider > 1
# Published: codes of two carriers mix now and then (lower rate), and a trace is a finite text (more skew).
# Relative difference, tolerance below and above.
limits = {"rate": (0.06, 0.03), "layer_neurons_for_80": (0.16, 0.03), "top50": (0.03, 0.06), "repeat": (0.06, 0.06)}
bad = 0
for part in ("25", "50", "75"):
    hits = [got[policy + "_" + part] for policy in ("lru", "lfu", "hottest", "belady")]
    # Belady's cache begins empty, as LRU's and LFU's do; the hottest are there from the start, ahead of any in a short text.
    bad |= not 0 <= min(hits) <= max(hits) <= 1 or max(hits[:2]) >= hits[3] or (not short and hits[2] >= hits[3])
    print("# hits with", part, "% cached: LRU, LFU, hottest, Belady", *("%.3f" % h for h in hits))
bad |= any(got[p + "_25"] > got[p + "_50"] or got[p + "_50"] > got[p + "_75"] for p in ("lru", "lfu", "hottest", "belady"))
if sys.argv[3] == "experts":
    del limits["repeat"]  # of neurons whose expert is chosen again
if sys.argv[3] == "drelu":
    del limits["repeat"], limits["rate"]  # asked of the gates; the product has another
    limits["rate"] = (0.08, 0.05)
    asked["rate"] *= 0.8
for key, (below, above) in limits.items():
    off = got[key] / asked[key] - 1
    print(f"{key}: asked {asked[key]:.4f}, measured {got[key]:.4f} ({100 * off:+.1f} %)")
    bad += not -below * wider <= off <= above * wider
cache = {"published": (0.93, 0.98), "trained": (0.76, 0.88), "hard": (0.52, 0.62), "experts": (0.93, 0.98), "drelu": (0.90, 0.98)}[sys.argv[3]]
print(f"hits of an LRU cache of half of the neurons: {got['lru_50']:.4f}, expected {cache[0]} to {cache[1]}")
sys.exit(1 if bad or not cache[0] <= got["lru_50"] <= cache[1] else 0)
EOF
}

# The trace of `within trained` is fitted by what trained models were: their skew, and how long their neurons go on firing.
as_trained()
{
    "$FIT" "$tmp/trained.h5" > "$tmp/fit" && python3 - "$tmp/fit" << 'EOF2'
import json, sys
fit = json.load(open(sys.argv[1]))
print(fit)
want = {1: 0.28, 2: 0.17, 4: 0.115, 8: 0.085, 16: 0.05, 32: 0.02}
assert fit["lags"] == [1, 2, 4, 8, 16, 32, 64]
off = [abs(fit["correlation"][i] - want[d]) for i, d in enumerate(fit["lags"]) if d in want]
sys.exit(not (0.6 < fit["skew"] < 0.72 and max(off) < 0.035))
EOF2
}

# Of the model and trace of `within trained`: a predictor of all that is not noise, from the FFN's input and with lookahead.
as_hard()
{
    "$BIN/thermo-profile" predictors -q --model "$tmp/trained.gguf" --traces "$tmp/trained.h5" --method select --rank 224 --input both \
        --quality-tokens 0 --json > "$tmp/made" && python3 - "$tmp/made" << 'EOF2'
import json, sys
made = json.load(open(sys.argv[1]))["predictors"]
ratio = {}
for which in ("ffn", "block"):
    of = [p for p in made if p["input"] == which and p["layer"] > 0]  # layer 0 has no lookahead in any setting
    assert len(of) == 2 and all(0.985 < p["recall"] < 0.995 for p in of), of
    ratio[which] = sum(p["density"] for p in of) / sum(p["true_density"] for p in of)
print(ratio)
sys.exit(not (1.65 < ratio["ffn"] < 2.1 and 2.2 < ratio["block"] < 2.8))
EOF2
}

check "the same bytes from any number of threads" same
check "another seed, other bytes" other_seed
check "no room: refused before anything is written" refused 1 'are needed there' --shape mixtral-47b --layers 1000 \
    --d-model 16384 --ff 262144
check "an unknown shape" refused 2 'gpt-5' --shape gpt-5
check "a width that is no multiple of 32" refused 2 'd-model 200' --shape tiny --d-model 200
check "shares above 1" refused 2 'more than 1' --shape tiny --short-share 0.7 --long-share 0.6
check "smallthinker without experts" refused 2 'needs --experts' --shape tiny --arch smallthinker
check "a model too narrow for strands of every layer" refused 2 'd-model 256 is too narrow' --shape tiny --setting trained
check "sigmoid for llama" refused 2 'only known for --arch smallthinker' --shape tiny --gating sigmoid
if command -v python3 > /dev/null && [ -x "$STATS" ]; then
    check "published: rate, skew and persistence as asked" within published
    check "trained: rate, skew and persistence as asked" within trained --setting trained --d-model 512
    [ -n "$text" ] || check "trained: skew and persistence of trained models" as_trained
    [ -n "$text" ] || check "trained: as hard to predict as on the trained model" as_hard
    check "hard: rate, skew and independence as asked" within hard --setting hard
    check "Q8_0, experts: the same" within experts --type q8_0 --experts 4 --experts-used 2 --ff 512
    check "smallthinker: the same" within experts --arch smallthinker --experts 4 --experts-used 2 --ff 512
    check "F16, dReLU: the same for the product" within drelu --type f16 --act drelu
else
    skip "rate, skew and persistence" "needs python3 and activation-stats"
fi
done_testing
