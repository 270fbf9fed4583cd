#!/bin/bash
# thermo-plan solve --smt2: the problem as text, by the paper's equations and by those over measured curves. A stock z3 has to answer
# what the text says, and no longer does once a number is another.
. tests/tap.sh
scratch
P=$BIN/thermo-plan

head -n 7 datasets/prompts/stories-profile.csv > "$tmp/p.csv"
check "trace of 6 prompts" "$BIN/thermo-profile" trace -q --model datasets/models/reglu-tales-10m-f16.gguf \
    --prompts "$tmp/p.csv" --window-tokens 320 --samples 64 --out "$tmp/t.h5"
check "figures of a phone" phone "$tmp/phone.sqlite"
solve() { "$P" solve --traces "$tmp/t.h5" --hardware "$tmp/phone.sqlite" --form split --packed no --out "$tmp/x.json" "$@"; }

check "not with two limits" says 2 'one limit of --memory' solve --memory 18MiB,20MiB --cost paper --smt2 "$tmp/x.smt2"
check "not with two batch sizes" says 2 'max-batch 1' solve --memory 18MiB --max-batch 2 --cost paper --smt2 "$tmp/x.smt2"
check "Z3 that stops proves nothing" says 1 'stopped at its limit' solve --memory 18MiB --cost paper --rlimit 1000 --smt2 "$tmp/x.smt2"
check "and nothing is written" test ! -e "$tmp/x.smt2"
check "a plan and its problem" solve --memory 18MiB --min-speed 5 --cost paper --smt2 "$tmp/a.smt2"
check "the same again" solve --memory 18MiB --min-speed 5 --cost paper --smt2 "$tmp/b.smt2"
check "gives the same bytes" cmp "$tmp/a.smt2" "$tmp/b.smt2"
equations()
{
    for i in 1 2 3 4 5 6 7 8 9 10 11; do
        [ "$(grep -c ":named |Eq. $i|" "$tmp/a.smt2")" = 1 ] || { echo "Eq. $i is not there once"; return 1; }
    done
}
check "each equation is one assertion" equations

# What the text promises, and what z3 says, one answer a line.
promised() { grep -v '^;' "$1" | grep -o '(check-sat).*; *[a-z]*$' | grep -oE '(un)?sat$'; }
measured() { cp "$tmp/m.smt2" "$tmp/a.smt2"; }
named() { for i in M1.t_compute M3.t_stream M4.t_reads M7.t_io M7.t_layer M9.t_attention M14.t_cache M19.t_lock M22.t_verify; do grep -q "^(define-fun $i " "$tmp/m.smt2" || return 1; done; grep -q ':named |M10|' "$tmp/m.smt2"; }
said() { z3 "$1" | grep -E '^\(?(un)?(sat|known|error)'; }
answers() { promised "$tmp/a.smt2" > "$tmp/promised" && [ "$(sort -u "$tmp/promised" | wc -l)" = 2 ] && said "$1" | diff "$tmp/promised" -; }
edited() { sed -E "$1" "$tmp/a.smt2" > "$tmp/c.smt2" && ! cmp -s "$tmp/a.smt2" "$tmp/c.smt2" && ! answers "$tmp/c.smt2" > "$tmp/differ" && grep -q '^[<>]' "$tmp/differ"; }
if command -v z3 > /dev/null; then
    check "z3 answers what the text says" answers "$tmp/a.smt2"
    check "not where Eq. 7 has more work" edited 's/^(\(define-fun F_attn \(\) Real )/\19/'
    check "nor less" edited 's/^(\(define-fun F_attn \(\) Real )[0-9]+/\11000/'
    check "nor where s is promised higher" edited 's/^(\(define-fun s_opt \(\) Real )/\11/'
    check "nor lower" edited 's/^(\(define-fun s_opt \(\) Real )[0-9]+/\11/'
    check "nor where memory is less" edited 's/^(\(define-fun M_max \(\) Real )18/\117/'
    check "nor where a line of mu(m) lies higher" edited '/above_0 [0-9.]+ /s/above_0 ([0-9.]+) /above_0 \1 9/'
    check "measured curves" solve --memory 18MiB --smt2 "$tmp/m.smt2"
    check "each equation has its name" named
    check "z3" measured
    check "answers what the text says" answers "$tmp/a.smt2"
    check "not where the last read counts twice" edited 's/ t_last\) t_slowed/ (- 0.0 t_last)) t_slowed/'
    check "nor where attention takes less" edited 's/\(\+ t_products t_jobs t_alone\)/(+ t_jobs t_alone)/'
    check "nor where memory is less" edited 's/(\(<= \(\+ m_fix m_ffn\) )18/\117/'
    check "nor where what is proven is more" edited '/Nothing takes less/{n; s/total /total 9/}'
    # Ticks round each layer up or down; where all is in memory the bound is the plan itself, and its own time may lie below it.
    everywhere()
    {
        for device in amazon-fire-hd-10-2023 epyc-7282-server xiaomi-redmi-12c; do
            rm -f "$tmp/d.sqlite"
            "$BIN/thermo-profile" import -q --db "$tmp/d.sqlite" --csv "datasets/devices/$device.csv" &&
                "$P" solve -q --description datasets/descriptions/small-relu.json --hardware "$tmp/d.sqlite" --memory 64MiB --context 256 \
                    --out "$tmp/d.json" --smt2 "$tmp/a.smt2" && answers "$tmp/a.smt2" || { echo "not on $device"; return 1; }
        done
    }
    check "all in memory, on three devices" everywhere
else
    skip "z3 answers what the text says" "z3 is not installed"
fi
done_testing
