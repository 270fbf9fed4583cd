#!/bin/bash
# The README's walk through the four programs, command by command as printed there, in an empty folder. The measurement is told
# further to be short: how long it takes by itself, and of which types, is tests/cli/hardware.sh's.
. tests/tap.sh
[ -z "${SANITIZE:-}" ] || { echo "1..0 # SKIP demo.sh runs the same commands; their text is checked without a sanitizer"; exit 77; }
scratch
ln -s "$PWD/datasets" "$tmp/datasets"
mkdir "$tmp/build"
ln -s "$(readlink -f "$BIN")" "$tmp/build/bin"

# The indented lines of the section, continued lines joined.
sed -n '/^## Five minutes/,/^## A server/p' README.md | sed -n 's/^    //p' |
    sed -e ':a' -e '/\\$/N; s/\\\n *//; ta' > "$tmp/commands"

run()
{
    (cd "$tmp" && sh -c "$1" > out 2> err < /dev/null) || { cat "$tmp/err"; return 1; }
}

check "the README has a walk" [ "$(wc -l < "$tmp/commands")" -ge 7 ]
while read -r command <&3; do
    short=
    case $command in
    *"thermo-profile hardware "*) short="--patience 0 --range 64MiB --memory-range 16MiB --seconds-per-point 0.01 --types f16,q8_0" ;;
    esac
    check "$command" run "$command $short"
    case $command in *"thermo-run generate "*"Once upon a time"*) cp "$tmp/out" "$tmp/story" ;; esac
done 3< "$tmp/commands"

# The server, at a port that is free, and its client.
mapfile -t served < <(sed -n '/^## A server/,/^## Models/p' README.md | sed -n 's/^    //p')
trap '[ ! -s "$tmp/pid" ] || kill "$(cat "$tmp/pid")"; rm -rf "$tmp"' EXIT
serve()
{
    (cd "$tmp" && exec ${served[0]/8080/0}) > "$tmp/served" 2>&1 &
    echo $! > "$tmp/pid"
    for ((i = 0; i < 600; i++)); do
        ! grep -q '^listening on ' "$tmp/served" || return 0
        kill -0 $! 2> /dev/null || break
        sleep 0.1
    done
    cat "$tmp/served"
    return 1
}
check "${served[0]}" serve
ask() { run "${served[1]/127.0.0.1:8080/$(sed -n 's/^listening on http:..//p' "$tmp/served")}" && grep '"text":".* [a-z]* [a-z]*.*"completion_tokens":40' "$tmp/out"; }
check "${served[1]}" ask
check "the packed model tells a story" grep -q '^Once upon a time.* [a-z]* [a-z]* [a-z]*' "$tmp/story"
done_testing
