#!/bin/sh
# damage.sh: thermo-run on a damaged pack of the embedded model, in less memory than it needs: never other logits and exit 0.
# tests/unit/test_corruption tries many more positions, in every layout form and mode.
. tests/tap.sh
. tests/chain.sh
scratch
run=$BIN/thermo-run
copy=$tmp/copy.thermo
cp "$packed" "$copy"
size=$(stat -c %s "$copy")
logits() { "$run" logits --model "$copy" --plan "$plan" --memory 14MiB --tokens 1,310,410,29,81,7 -q "$@"; }
logits > "$tmp/whole" 2> "$tmp/err" || { echo "Bail out! $(cat "$tmp/err")"; exit 1; }

byte_at() { dd if="$copy" bs=1 skip="$1" count=1 2> /dev/null | od -An -tu1 | tr -d ' '; }
put_byte() { printf "\\$(printf %03o "$2")" | dd of="$copy" bs=1 seek="$1" conv=notrunc 2> /dev/null; }

# Flips in the second half of the file, where the neurons are: what was found while it ran (exit 6, and where), what was
# found at start (exit 3), what changed nothing, and what was wrong.
flips()
{
    found=0 early=0 same=0 wrong=0 i=0
    while [ $i -lt 32 ]; do
        at=$((size / 2 + i * (size / 2 / 32) + i * 37 % 4096))
        was=$(byte_at $at)
        put_byte $at $(((was + 1 + i) % 256))
        "$@" > "$tmp/out" 2> "$tmp/err"
        status=$?
        put_byte $at "$was"
        if [ $status -eq 6 ] && grep -q 'layer [0-9]*, part [0-9]*, unit [0-9]* (bytes [0-9]* to [0-9]*) is damaged' "$tmp/err"; then
            found=$((found + 1))
        elif [ $status -eq 3 ] && grep -q damaged "$tmp/err"; then
            early=$((early + 1))
        elif [ $status -eq 0 ] && cmp -s "$tmp/out" "$tmp/whole"; then
            same=$((same + 1))
        else
            wrong=$((wrong + 1))
            echo "byte $at: exit $status: $(cat "$tmp/err")"
        fi
        i=$((i + 1))
    done
    echo "$found found while running, $early at start, $same without effect, $wrong wrong"
}
flipped()
{
    flips logits
    [ $wrong -eq 0 ] && [ $found -gt 4 ]
}
unverified()
{
    flips logits --no-verify-reads
    [ $wrong -gt 0 ] # so the flips do matter
}
check "flips are found, or change nothing" flipped
check "with --no-verify-reads they change logits" unverified
check "it says that reads are not verified" sh -c "'$run' logits --model '$copy' --plan '$plan' --tokens 1 --no-verify-reads 2>&1 |
    grep -q 'reads are not verified'"
cp "$packed" "$copy"
check "the pack is whole again" "$BIN/thermo-pack" verify "$copy"

# Other bytes are written over the neurons while it runs, at its first word.
overwritten()
{
    mkfifo "$tmp/words"
    "$run" generate --model "$copy" --plan "$plan" --memory 14MiB --prompt 'Once upon a time' -n 150 --seed 3 \
        > "$tmp/words" 2> "$tmp/err" &
    pid=$!
    exec 3< "$tmp/words"
    head -c 24 <&3 > /dev/null # the prompt, which is printed at once, and a word
    kill -STOP $pid
    head -c $((size / 2)) /dev/urandom | dd of="$copy" bs=65536 seek=$((size / 2)) oflag=seek_bytes conv=notrunc 2> /dev/null
    kill -CONT $pid
    cat <&3 > /dev/null
    exec 3<&-
    wait $pid
    status=$?
    cat "$tmp/err"
    [ $status -eq 6 ] && grep -q 'is damaged, also when read again' "$tmp/err"
}
check "a pack that is written over while it runs ends the run" overwritten
done_testing
