#!/bin/sh
# Former names of options and choices: each works as its successor does, warns once on standard error, names the successor,
# and is in neither --help nor the completions.
. tests/tap.sh
. tests/chain.sh
scratch
profile="$BIN/thermo-profile"

# same FORMER NOW USE: two command lines in $tmp (@ is the output) give the same files, the same stdout but for the
# output's name and the time, and only the first a warning: one, with USE, and none where it is quiet.
same()
{
    rm -rf "$tmp/was" "$tmp/now" "$tmp/quiet"
    mkdir "$tmp/was" "$tmp/now" "$tmp/quiet"
    for at in was now quiet; do
        [ $at = now ] && line=$2 || line=$1
        [ $at = quiet ] && line="$line --quiet"
        eval "$(printf '%s' "$line" | sed "s|@|\"\$tmp/$at/out\"|g")" > "$tmp/$at.out" 2> "$tmp/$at.err" || { cat "$tmp/$at.err"; return 1; }
        sed -i -e "s|$tmp/$at/||g" -e 's/ in [0-9.]* s$//' -e '/^ *"seconds"/d' "$tmp/$at.out"
    done
    warned=$(grep -c 'warning: .*deprecated' "$tmp/was.err")
    [ "$warned" -eq 1 ] && grep -q -e "deprecated.*use $3\$" "$tmp/was.err" || { echo "$warned warnings:"; cat "$tmp/was.err"; return 1; }
    ! grep deprecated "$tmp/now.err" "$tmp/quiet.err" || return 1
    cmp "$tmp/was.out" "$tmp/now.out" && for f in "$tmp/now"/*; do cmp "$f" "$tmp/was/${f##*/}" || return 1; done
}

"$profile" trace -q --model $model --prompts datasets/prompts/stories-profile.csv --max-tokens 640 --samples 640 --out "$tmp/t.h5" > /dev/null
traces=$tmp/t.h5
made="\"$profile\" predictors --model $model --traces $traces --layers 1 --rank 32 --quality-tokens 0 --out @"
check "--weigh" same "$made --method svd --weigh 0.5" "$made --method svd --loss-weighting 0.5" --loss-weighting
check "--weigh, twice" same "$made --method svd --weigh=0.1 --weigh 0.5" "$made --method svd --loss-weighting 0.5" --loss-weighting
check "--method columns" same "$made --method columns" "$made --method select" "--method select"
"$profile" predictors --model $model --traces "$traces" --method svd --rank 32 --quality-tokens 0 --out "$tmp/p.h5" > /dev/null 2>&1
measured="--model $model --traces $tmp/p.h5 --input ffn --quality-tokens 16 --out @"
check "--method keep" same "\"$profile\" predictors $measured --method keep" "\"$profile\" predictors-measure $measured" \
    "'thermo-profile predictors-measure'"
"$BIN/gguf-make" powerinfer -q $model "$tmp/pi.gguf"
"$profile" trace -q --model "$tmp/pi.gguf" --prompts datasets/prompts/stories-profile.csv --max-tokens 400 --out "$tmp/pi.h5" > /dev/null
imported="--model $tmp/pi.gguf --traces $tmp/pi.h5 --quality-tokens 0 --out @"
check "--method import" same "\"$profile\" predictors $imported --method import" "\"$profile\" predictors-import $imported" \
    "'thermo-profile predictors-import'"
synth="\"$BIN/gguf-synth\" --shape tiny --experts 4 --experts-used 2"
check "gguf-synth --route-memory" same "$synth --route-memory 0.5 @ > /dev/null" \
    "$synth --route-persistence 0.5 @ > /dev/null" --route-persistence

check "a former name checks its value as the new one does" says 2 "loss-weighting 2: must be from 0 to 1" "$profile" predictors \
    --model $model --traces "$traces" --weigh 2
check "and needs one" says 2 "loss-weighting needs a value" "$profile" predictors --model $model --traces "$traces" --weigh
check "what a former method has no use for is refused" says 2 "have no use" "$profile" predictors --method import --rank 32 \
    --model "$tmp/pi.gguf" --traces "$tmp/pi.h5"
check "a former method that makes none takes no --layers" says 2 "makes none" "$profile" predictors --method keep --layers 1 \
    --model $model --traces "$tmp/p.h5"
check "nor --weigh" says 2 "makes none" "$profile" predictors --method keep --weigh 1 --model $model --traces "$tmp/p.h5"
check "an unknown choice is told the new ones alone" says 2 "must be one of trained, svd, select$" "$profile" predictors \
    --method colums --model $model --traces "$traces"
hidden() { ! { "$profile" predictors --help && "$profile" predictors --help=table && "$BIN/gguf-synth" --help &&
    for s in bash zsh fish; do scripts/completions.sh $s "$profile"; done; } |
    grep -e '--weigh\>' -e '-l weigh\>' -e 'svd.columns' -e 'columns.keep' -e 'route-memory'; }
check "no help and no completion has them" hidden
done_testing
