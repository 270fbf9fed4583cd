#!/bin/bash
# static.sh STATIC-RUN [RUNNER...]: a thermo-run without shared libraries, perhaps for another processor, generates the
# text that this machine's generates, token by token. Called by make check-static; not part of make check.
. tests/tap.sh
scratch
static=$1
shift
model=datasets/models/reglu-tales-10m-f16.gguf
prompt='Once upon a time, there was a little girl named Lily.'

no_shared_libraries() { ! readelf -dW "$static" | grep -q NEEDED; }
packed()
{
    "$BIN/thermo-profile" trace -q --model $model --prompts datasets/prompts/stories-profile.csv --max-tokens 512 --out "$tmp/t.h5" &&
        "$BIN/thermo-profile" import -q --db "$tmp/hw.sqlite" --csv datasets/devices/oneplus-12.csv &&
        "$BIN/thermo-plan" solve -q --traces "$tmp/t.h5" --hardware "$tmp/hw.sqlite" --memory 18MiB --out "$tmp/p.json" &&
        "$BIN/thermo-pack" pack -q --model $model --traces "$tmp/t.h5" --plan "$tmp/p.json" --out "$tmp/m.thermo"
}

# tokens OUT COMMAND...: greedy tokens, one a line, of COMMAND (a thermo-run with its --cpu).
tokens()
{
    local out=$1
    shift
    "$@" --no-mlock --model "$tmp/m.thermo" --plan "$tmp/p.json" -t 2 --prompt "$prompt" -n 60 --temp 0 --json > "$out.json" || return 1
    grep -o '"id": *[0-9]*' "$out.json" > "$out"
    [ "$(wc -l < "$out")" -ge 40 ] || { head "$out.json"; return 1; }
}
same() { cmp "$tmp/native" "$tmp/static"; }

check "no shared library is needed" no_shared_libraries
check "--version" "$@" "$static" --version
check "a pack of the embedded model" packed
check "text by this machine's scalar kernels" tokens "$tmp/native" "$BIN/thermo-run" generate -q --cpu scalar
for tier in scalar auto ${TIERS-}; do
    check "text by $tier kernels" tokens "$tmp/static" "$@" "$static" generate -q --cpu "$tier"
    check "the same tokens" same
done
for io in pread io_uring; do
    [ $io = pread ] || "$@" "$static" generate -q --io $io --no-mlock --model "$tmp/m.thermo" --plan "$tmp/p.json" -p a -n 1 \
        > /dev/null 2>&1 || { skip "reading by $io" "not there"; continue; }
    check "reading by $io" tokens "$tmp/static" "$@" "$static" generate -q --cpu scalar --io $io
    check "the same tokens by $io" same
done
done_testing
