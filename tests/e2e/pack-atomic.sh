#!/bin/sh
# thermo-pack killed at any moment leaves either no file or a whole one under the final name; an older file stays.
. tests/tap.sh
. tests/chain.sh
scratch
export BIN model traces plan tmp packed

kill_after() # SIGNAL SECONDS
{
    "$BIN/thermo-pack" pack --model "$model" --traces "$traces" --plan "$plan" --out "$tmp/m.thermo" --threads 1 > "$tmp/log" 2>&1 &
    pid=$!
    sleep "$2"
    kill -"$1" $pid 2>/dev/null
    wait $pid
}
none_or_whole() { [ ! -e "$tmp/m.thermo" ] || cmp "$tmp/m.thermo" "$packed"; }
trial() # SIGNAL: many moments
{
    killed=0
    for ms in 000 002 004 006 008 010 015 020 025 030 035 040 050 060 080 100 150; do
        rm -f "$tmp/m.thermo"
        kill_after "$1" "0.$ms"
        none_or_whole || { echo "after 0.$ms s"; return 1; }
        [ -e "$tmp/m.thermo" ] || killed=$((killed + 1))
    done
    echo "$killed of 17 were killed before they finished"
    [ "$killed" -gt 0 ]
}
old_stays() # the former file is there until the new one replaces it
{
    echo old > "$tmp/m.thermo"
    for ms in 005 010 020 030; do
        kill_after KILL "0.$ms"
        [ "$(head -c 3 "$tmp/m.thermo")" = old ] || cmp "$tmp/m.thermo" "$packed" || return 1
    done
}
no_litter() { [ -z "$(find "$tmp" -name 'm.thermo.tmp*')" ]; }

check "killed (SIGKILL) at 17 moments" trial KILL
rm -f "$tmp"/m.thermo*
check "terminated (SIGTERM) at 17 moments" trial TERM
check "terminated, it takes its temporary file along" no_litter
check "the older file stays until the new one is whole" old_stays
done_testing
