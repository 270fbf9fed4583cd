#!/bin/bash
# --prefix-cache: what prompts begin with, in a folder. Texts are what they are without it, in one process and after others; what is killed,
# damaged, full, too large or somebody else's costs time alone.
. tests/run_chain.sh
scratch
chain_start
chain split --max-batch 4 || { echo "not ok 1 - chain"; echo "1..1"; exit 1; }
files=(--model "$tmp/split.thermo" --plan "$tmp/split.json")
predicted() # a chain with predictors
{
    "$BIN/thermo-profile" predictors -q --model $model --traces "$tmp/t.h5" --method svd --rank 64 --out "$tmp/p.h5" &&
        cp "$tmp/split.thermo" "$tmp/exact.thermo" && cp "$tmp/split.json" "$tmp/exact.json" && mv "$tmp/t.h5" "$tmp/exact.h5" &&
        mv "$tmp/p.h5" "$tmp/t.h5" && chain split --mode predicted --max-batch 4
}
fails() # STATUS PATTERN COMMAND...
{
    local s=$1 p=$2 r=0
    shift 2
    "$@" > "$tmp/out" 2> "$tmp/err" < /dev/null || r=$?
    [ $r -eq "$s" ] && grep -q -- "$p" "$tmp/err" || { echo "exit $r instead of $s, or stderr lacks '$p':"; cat "$tmp/err"; return 1; }
}
served() # TEST OPTION...
{
    rm -rf "$tmp/work"
    mkdir "$tmp/work" && python3 -B tests/cli/prefix.py "$run" "$1" "$tmp/work" "${files[@]}" "${@:2}"
}

check "two conversations with one place" served turns
check "the same, each turn by a process of its own" served restarts
check "bytes flipped, cut, added, swapped, and a link" served damaged
TRIALS=${short:+6} check "killed while it writes" served killed
check "two processes within one bound; what is used stays" served bounded
check "another KV type's pages" served others
check "no room to write" served full
check "predictors" predicted
check "predicted mode: no answer is part of a prompt" served predicted --mode predicted

mkdir -m 777 "$tmp/open"
chmod 777 "$tmp/open"
check "a folder that others can write to" fails 2 'can be written to by others' "$run" serve --stdio "${files[@]}" --prefix-cache "$tmp/open"
check "a file in its place" fails 2 'opening the folder' "$run" serve --stdio "${files[@]}" --prefix-cache "$tmp/split.json"
check "a size without a folder" fails 2 'belongs to --prefix-cache' "$run" serve --stdio "${files[@]}" --prefix-cache-size 1GiB
check "smaller than a page" fails 2 'prefix-cache-size' "$run" serve --stdio "${files[@]}" --prefix-cache "$tmp/small" --prefix-cache-size 1KiB
done_testing
