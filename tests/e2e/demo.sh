#!/bin/bash
# The demo: the embedded model through all four programs in less memory than its weights take, and what its telemetry
# must say. Then the same again under another limit, which must not pack again.
. tests/tap.sh
. tests/chain.sh # what this machine measured, once for all tests; README's walk and the pipeline's test measure
scratch
# Through make, as people start it.
traced="--max-tokens 1024 --hardware $hardware"
weights=$(stat -c %s datasets/models/reglu-tales-10m-f16.gguf)

# run LIMIT-MIB ARGS...: the demo's exit status; text in $tmp/text, talk in $tmp/talk.
run()
{
    local limit=$1
    shift
    MAKEFLAGS='' ${MAKE:-make} --no-print-directory -s CC="${CC:-cc}" SANITIZE="${SANITIZE:-}" demo \
        DEMO_FLAGS="--out $tmp/demo --memory ${limit}MiB $traced $*" > "$tmp/text" 2> "$tmp/talk" < /dev/null ||
        { cat "$tmp/talk"; return 1; }
}

said() { grep -qE -e "$1" "$tmp/talk" || { cat "$tmp/talk"; return 1; }; }

# The peak that the runtime reports, in MiB, is at most the limit.
within()
{
    awk -v limit="$1" '/memory: peak/ { for (i = 1; i <= NF; i++) if ($i == "peak") peak = $(i + 1) }
        END { print "peak " peak; exit !(peak > 0 && peak <= limit) }' "$tmp/talk"
}

# A sanitizer's shadow memory is no part of any budget.
memory_point()
{
    if [ -n "$SANITIZE" ]; then
        skip "peak memory within $1 MiB" "built with sanitizers"
    else
        check "peak memory within $1 MiB" within "$1"
    fi
}

# Words, most of them in a list of common ones: a story rather than noise.
readable()
{
    words=$(tr -cs "A-Za-z'" '\n' < "$tmp/text" | tr '[:upper:]' '[:lower:]' | grep -c .)
    common=$(tr -cs "A-Za-z'" '\n' < "$tmp/text" | tr '[:upper:]' '[:lower:]' |
        grep -cxE "the|a|an|and|was|were|is|to|of|in|on|it|she|he|her|his|they|them|said|had|with|for|that|very|so|little|day|one|you|i|but|not|at|up|be")
    echo "$words words, $common of them common"
    [ "$words" -ge 60 ] && [ $((common * 10)) -ge $((words * 3)) ]
}

packed() { stat -c '%Y %i' "$tmp/demo/model.thermo" 2>/dev/null; }
same() { [ -s "$1" ] && cmp "$1" "$2"; }

check "18 MiB are less than the weights" [ $((18 << 20)) -lt "$weights" ]
check "the demo runs in 18 MiB" run 18
check "a readable story" readable
check "it goes on from the prompt" grep -q '^Once upon a time, there was a little girl named Lily\. [A-Z]' "$tmp/text"
check "telemetry: bytes from flash" said 'flash: +[0-9.]+ .iB in [0-9]+ reads'
check "telemetry: hit rate" said 'hit rate [0-9.]+ %'
check "telemetry: measured speed" said '[0-9.]+ tokens/s measured'
check "telemetry: predicted speed" said 'predicted [0-9.]+ tokens/s'
memory_point 18
check "the plan passes its check" "$BIN/thermo-plan" check "$tmp/demo/plan.json" --traces "$tmp/demo/traces.h5" \
    --hardware "$hardware"
check "the packed model verifies" "$BIN/thermo-pack" verify "$tmp/demo/model.thermo"
before=$(packed)
cp "$tmp/text" "$tmp/text18"
check "again in 16 MiB" run 16
check "without packing again" [ -n "$before" -a "$(packed)" = "$before" ]
check "the same text, whatever the limit" same "$tmp/text" "$tmp/text18"
memory_point 16
check "below the floor: exit status 4" status 4 scripts/demo.sh --out "$tmp/demo" --memory 4MiB $traced
done_testing
