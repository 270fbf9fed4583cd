#!/bin/sh
# run.sh LOGDIR TEST...: run test programs and scripts that print TAP, TEST_JOBS at a time (twice the processors, at most 8, for many wait
# for storage, for a daemon or for a moment to come): one line each as it ends, then a line that counts test points over all of them. A test that dies, prints no plan or runs past
# TEST_TIMEOUT seconds counts as one failure. TEST_RUNNER is put before each program (an emulator). Of a failed test, what
# it printed apart from passed points is shown. LOGDIR/log/NAME.log.counts keeps points passed, failed and skipped, seconds
# and CPU seconds, so that `sort -rnk5 LOGDIR/log/*.counts` says where the time goes. CHANGED=1: tests that passed with the same inputs are left
# out (changed.py).

# report NAME LOG STATUS SECONDS CPU: its line, and what a failure printed; leaves what it counted in LOG.counts
report()
{
    name=$1 log=$2 r=$3 took=$4 cpu=$5
    p=$(grep -c '^ok' "$log")
    f=$(grep -c '^not ok' "$log")
    s=$(grep -c '^ok.*# [Ss][Kk][Ii][Pp]' "$log")
    p=$((p - s))
    case $r in
    0)
        word=PASS
        { [ "$f" -eq 0 ] && grep -q '^1\.\.' "$log"; } || { word=FAIL; [ "$f" -gt 0 ] || f=1; }
        ;;
    77) word=SKIP s=$((s + 1)) ;;
    *)  word=FAIL; [ "$f" -gt 0 ] || f=1 ;;
    esac
    printf '  %s  %s (%d)%s\n' "$word" "$name" "$((p + f + s))" "$([ "$took" -lt 5 ] || echo " ${took} s, ${cpu} of CPU")"
    case $word in
    FAIL)
        rm -f "$log.inputs" "$log.inputs.new"
        [ "$r" -ne 124 ] || echo "  stopped after ${TEST_TIMEOUT:-1800} s"
        [ "$r" -eq 0 ] || echo "  exit status $r"
        grep -v '^ok ' "$log" | awk '{ l[NR] = $0 } END { for (i = 1; i <= NR; i++) if (i > NR - 60 || l[i] ~ /^not ok/) print l[i] }'
        ;;
    PASS) [ ! -e "$log.inputs.new" ] || mv "$log.inputs.new" "$log.inputs" ;;
    SKIP) grep -m 1 -i 'skip' "$log" | sed 's/^/        /' ;;
    esac
    echo "$p $f $s $took $cpu" > "$log.counts"
}

# Leaks that are not ours, where the sanitizer looks for leaks.
LSAN_OPTIONS=suppressions=$(cd "${0%/*}" && pwd)/lsan.supp:print_suppressions=0${LSAN_OPTIONS:+:$LSAN_OPTIONS}
# Of what was freed AddressSanitizer keeps the last 32 MiB, not 256, which it would have to fetch from the system first.
ASAN_OPTIONS=quarantine_size_mb=32${ASAN_OPTIONS:+:$ASAN_OPTIONS}
export LSAN_OPTIONS ASAN_OPTIONS

if [ "$1" = --one ]; then
    logs=$2 t=$3
    name=${t##*tests/}
    log=$logs/log/$(echo "$name" | tr / _).log
    start=$(date +%s)
    timeout -k 10 "${TEST_TIMEOUT:-1800}" $TEST_RUNNER "$t" > "$log" 2>&1 < /dev/null
    r=$?
    times > "$log.times" # its second line: the children's, user and system
    cpu=$(awk 'NR == 2 { split($1 "m" $2, a, /[ms]+/); printf "%.0f", a[1] * 60 + a[2] + a[3] * 60 + a[4] }' "$log.times")
    report "$name" "$log" "$r" $(($(date +%s) - start)) "$cpu" > "$log.report"
    flock "$logs/log" cat "$log.report"
    rm -f "$log.report" "$log.times"
    exit 0
fi

logs=$1
shift
mkdir -p "$logs/log"
exec 9> "$logs/run.lock" # two runs in one folder would count each other's tests
flock -n 9 || { echo "other tests run in $logs: waiting until they end" >&2; flock 9; }
rm -f "$logs"/log/*.counts
if command -v python3 > /dev/null; then # without it nothing is known of inputs, and every test runs
    all=$#
    changed=$("${0%/*}/changed.py" "$logs" "$@") || exit 1
    if [ -n "${CHANGED:-}" ]; then
        # shellcheck disable=SC2086
        set -- $changed
        echo "  $# of $all tests have other inputs than when they passed"
        [ $# -gt 0 ] || { echo "0 passed, 0 failed, 0 skipped"; exit 0; }
    fi
fi
# A python3 that is a script which looks for one (pyenv) takes longer than most of what it is called for: look once.
python=$(python3 -c 'import sys; print(sys.executable)' 2> /dev/null)
case $python in
'' | "$(command -v python3)") ;;
*) PATH=${python%/*}:$PATH ;;
esac
jobs=$(($(nproc) * 2))
[ "$jobs" -le 8 ] || jobs=8
printf '%s\n' "$@" | xargs -d '\n' -n 1 -P "${TEST_JOBS:-$jobs}" "$0" --one "$logs" 9>&-
cat "$logs"/log/*.counts | awk -v tests=$# '
    { p += $1; f += $2; s += $3 }
    END { f += tests - NR; printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0 }'
