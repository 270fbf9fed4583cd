#!/bin/bash
# solve --model, and thermocline by it: limit and context are compared with the floor of the model's header before anything is traced, and
# what would do is named as the command that was typed. The floor is the one that solve names by a trace.
. tests/tap.sh
scratch
. tests/chain.sh
P=$BIN/thermo-plan

floor() { "$P" solve -q "$@" --memory 70000 2>&1 > /dev/null | sed -n 's/.*below the floor of \([0-9]*\) bytes.*/\1/p'; }
same_floor() # MODEL TRACE TRACE-FLAGS OPTIONS...
{
    local a b
    a=$(floor --model "$1" --trace-flags "$3" "${@:4}")
    b=$(floor --traces "$2" --hardware "$hardware" --out "$tmp/none.json" "${@:4}")
    [ -n "$a" ] && [ "$a" = "$b" ] || { echo "$a of the header, $b of the trace: ${*:4}"; return 1; }
}
of_embedded()
{
    for options in '--context 64' '--context 512 --kv f32' '--form bundle --max-batch 8' '--mode dense --context 100' '--for chat' \
        '--for serve --max-batch 4' '--form split --packed yes --down-type q8_0' '--chunk 64'; do
        same_floor "$model" "$traces" '' $options || return 1
    done
}
check "the floor of the embedded model's header is the one of its trace" of_embedded
small() # NAME TRACE-FLAGS OF-GGUF-MAKE...: a random model and a short trace of it
{
    "$BIN/gguf-make" random -q --vocab 260 --context 256 "${@:3}" "$tmp/$1.gguf" > "$tmp/log" 2>&1 &&
        "$BIN/thermo-profile" trace -q --model "$tmp/$1.gguf" --prompts "$tmp/p.csv" --window-tokens 32 $2 --out "$tmp/$1.h5" > "$tmp/log" 2>&1 ||
        { cat "$tmp/log"; return 1; }
    said=$("$BIN/thermo-profile" trace --model "$tmp/$1.gguf" --prompts "$tmp/p.csv" --dry-run $2 --out "$tmp/none.h5" 2>&1 > /dev/null)
    echo "$said" | grep -qF "($(floor --model "$tmp/$1.gguf" --trace-flags "$2") bytes)" || { echo "$said"; return 1; }
    for options in '--context 64' '--context 200 --max-batch 2 --kv f32' '--context 100 --for chat'; do
        same_floor "$tmp/$1.gguf" "$tmp/$1.h5" "$2" $options || return 1
    done
}
head -n 3 datasets/prompts/stories-profile.csv > "$tmp/p.csv"
check "so is that of experts, with a lead, and trace says it" small experts '' --arch glm4moe --type q4_k --layers 2 --lead 1 --experts 4 --experts-used 2 --d-model 256 --heads 4 --ff 256
check "of a model made sparse" small silent '--silence 40%' --act silu --layers 2 --d-model 256 --heads 4 --ff 512
unless_short check "of recurrent layers" small delta '' --arch qwen35moe --layers 4 --d-model 64 --heads 4 --kv-heads 2 --head-dim 32 --experts 4 --experts-used 2
unless_short check "of an activation that only the trace is told" small told '--act relu' --act silu --layers 2 --d-model 256 --heads 4 --ff 512

check "enough is said" says 0 'ReGLU-Tales-10M with context 256 needs .* 18.0 MiB is enough' "$P" solve --model "$model" --memory 18MiB --context 256
enough() { "$P" solve --model "$model" --memory 18MiB --context 256 --json | python3 -c 'import json, sys; d = json.load(sys.stdin)
assert d["feasible"] and d["context_tokens"] == 256 and 8 << 20 < d["floor_bytes"] < d["memory_bytes"] == 18 << 20, d'; }
check "as JSON" enough
check "predicted mode, whose predictors come later, is asked for as exact" says 0 'is enough' "$P" solve --model "$model" --memory 18MiB --mode predicted --recall 0.9
check "a trace beside the model: usage" says 2 'do not go with it' "$P" solve --model "$model" --traces "$traces" --memory 18MiB
check "flags of the trace without the model: usage" says 2 'belongs to --model' "$P" solve --traces "$traces" --hardware "$hardware" \
    --memory 18MiB --out "$tmp/x.json" --trace-flags '--act relu'
check "an activation that is none" says 2 "'gelu2' is no activation" "$P" solve --model "$model" --memory 18MiB --trace-flags '--act gelu2'
check "no database without a model: usage" says 2 '--hardware FILE is required' "$P" solve --traces "$traces" --memory 18MiB --out "$tmp/x.json"
check "no model of that name: unreadable" says 3 'none.gguf' "$P" solve --model "$tmp/none.gguf" --memory 18MiB

# trace: by the same header and in the same words, before anything is read. The limit that it names is enough, the context too.
trace() { "$BIN/thermo-profile" trace --model "$model" --prompts "$tmp/p.csv" --max-tokens 64 --out "$tmp/asked.h5" "$@"; }
words() { sed -n 's/.*error: //p' "$1"; }
same_words() # OPTIONS...
{
    rm -f "$tmp/asked.h5"
    status 4 "$P" solve -q --model "$model" "$@" 2> "$tmp/a" > /dev/null && status 4 trace -q "$@" 2> "$tmp/b" > /dev/null || { cat "$tmp/a" "$tmp/b"; return 1; }
    [ -n "$(words "$tmp/a")" ] && [ "$(words "$tmp/a")" = "$(words "$tmp/b")" ] && [ "$(echo "$tmp"/asked.h5*)" = "$tmp/asked.h5*" ] ||
        { cat "$tmp/a" "$tmp/b"; return 1; }
}
refused()
{
    for options in '--context 400' '--context 512 --for chat' '--for thermo-serve' ''; do
        same_words --memory 9MiB $options || return 1
    done
}
check "trace refuses a limit below the floor in solve's words, and makes nothing" refused
near() # limit and context that the refusal names
{
    local floor context
    floor=$(trace -q --memory 9MiB --context 400 2>&1 | sed -n 's/.*the floor of \([0-9]*\) bytes.*/\1/p')
    status 4 trace -q --memory $((floor - 1)) --context 400 2> "$tmp/log" && trace -q --dry-run --memory "$floor" --context 400 --json > "$tmp/out" &&
        context=$(trace -q --memory 10MiB --context 400 2>&1 | sed -n 's/.*the largest --context is \([0-9]*\).*/\1/p') &&
        trace -q --dry-run --memory 10MiB --context "$context" > /dev/null && status 4 trace -q --memory 10MiB --context $((context + 1)) 2> "$tmp/log" &&
        python3 -c 'import json, sys; d = json.load(sys.stdin); assert d["floor_bytes"] == int(sys.argv[1]) and d["context_tokens"] == 400, d' "$floor" < "$tmp/out"
}
check "at the floor, and with the context that is named, it traces" near
said_once() # where no limit is given
{
    trace --json > "$tmp/out" 2> "$tmp/log" && [ "$(grep -c 'plans with --context [0-9]* will need .* at least' "$tmp/log")" -eq 1 ] && [ -s "$tmp/asked.h5" ] &&
        a=$(sed -n 's/.*(\([0-9]*\) bytes) at least.*/\1/p' "$tmp/log") && grep -q "\"floor_bytes\": $a," "$tmp/out" && [ "$a" = "$(floor --model "$model")" ] &&
        trace --memory 1GiB > "$tmp/out" 2> "$tmp/log" && ! grep -q 'at least' "$tmp/log" || { cat "$tmp/log" "$tmp/out"; return 1; }
}
check "without a limit the floor is said once" said_once

# thermocline: nothing is done, and each line that it names works.
export XDG_CACHE_HOME=$tmp/cache
drive() { "$BIN/thermocline" "$model" --hardware "$hardware" --out "$tmp/made" --max-tokens 200 --tokens 0 "$@"; }
advised() # OPTIONS...: refused, and what is advised is typed
{
    rm -rf "$tmp/made"
    status 4 drive "$@" > "$tmp/talk" 2>&1 && [ "$(ls "$tmp/made")" = "" ] || { cat "$tmp/talk"; ls "$tmp/made"; return 1; }
    grep '^   [^ ]*/thermocline ' "$tmp/talk" > "$tmp/lines"
    [ "$(wc -l < "$tmp/lines")" -eq "$wanted" ] || { cat "$tmp/talk"; return 1; }
    while read -r line; do
        eval "$line" > "$tmp/log" 2>&1 < /dev/null || { echo "$line"; cat "$tmp/log"; return 1; }
        [ -e "$tmp/made/plan.json" ] || return 1
    done < "$tmp/lines"
}
wanted=2 check "a limit below the floor of the context" advised --memory 10MiB --plan-flags '--form split --packed no --context 400'
wanted=2 check "one of two, with options of the run" advised --memory=10MiB,30MiB --plan-flags='--form split --packed no' -- --temp 0.6
wanted=1 check "a limit below any context's" advised --plan-flags '--form split --packed no --for chat' --memory 8MiB
rm -rf "$tmp/made"
check "what solve would refuse is refused before the trace" says 2 'unknown option --contxt; did you mean --context' drive --memory 18MiB --plan-flags '--contxt 256'
typed() # HOW WANT VARIABLE...
{
    env THERMOCLINE_TYPED="$1" "${@:3}" "$BIN/thermocline" "$model" --memory 10MiB --out "$tmp/made" --tokens 0 > "$tmp/talk" 2>&1
    grep -qxF -e "   $2" "$tmp/talk" || { cat "$tmp/talk"; return 1; }
}
check "typed by a script" typed 'make real REAL_FLAGS=' "make real REAL_FLAGS='--sparse 70% --memory 12160KiB'" THERMOCLINE_FLAGS='--memory 10MiB --sparse 70%'
check "without flags" typed 'make demo DEMO_FLAGS=' "make demo DEMO_FLAGS='--context 47'" THERMOCLINE_FLAGS=
check "options behind it" typed 'scripts/real.sh ' "scripts/real.sh --context 47"
made() # through make, with a quote in the prompt
{
    MAKEFLAGS='' ${MAKE:-make} --no-print-directory -s CC="${CC:-cc}" SANITIZE="${SANITIZE:-}" pipeline MODEL="$model" MEMORY=10MiB PROMPT="it's" \
        PIPELINE_FLAGS="--out $tmp/made --tokens 0" > "$tmp/talk" 2>&1
    cat > "$tmp/want" << END
   make pipeline MODEL='$model' PROMPT='it'\\''s' PIPELINE_FLAGS='--out $tmp/made --tokens 0 --memory 12160KiB'
END
    grep -qxFf "$tmp/want" "$tmp/talk" || { cat "$tmp/want" "$tmp/talk"; return 1; }
}
check "typed as make pipeline" made
done_testing
