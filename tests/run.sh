#!/bin/sh
# run.sh LOGDIR TEST...: run test programs and scripts that print TAP; one line each, then a line that counts
# test points over all of them. A test that dies, prints no plan or runs past TEST_TIMEOUT seconds counts as
# one failure. TEST_RUNNER is put before each program (an emulator). Of a failed test, what it printed apart from passed points is shown.
logs=$1
shift
passed=0 failed=0 skipped=0 status=0
mkdir -p "$logs/log"
for t in "$@"; do
    name=${t##*tests/}
    log=$logs/log/$(echo "$name" | tr / _).log
    start=$(date +%s)
    timeout -k 10 "${TEST_TIMEOUT:-1800}" $TEST_RUNNER "$t" > "$log" 2>&1 < /dev/null
    r=$?
    took=$(($(date +%s) - start))
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
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    printf '  %s  %s (%d)%s\n' "$word" "$name" "$((p + f + s))" "$([ "$took" -lt 5 ] || echo " ${took} s")"
    case $word in
    FAIL)
        status=1
        [ "$r" -ne 124 ] || echo "  stopped after ${TEST_TIMEOUT:-1800} s"
        [ "$r" -eq 0 ] || echo "  exit status $r"
        grep -v '^ok ' "$log" | tail -n 60
        ;;
    SKIP) grep -m 1 -i 'skip' "$log" | sed 's/^/        /' ;;
    esac
done
echo "$passed passed, $failed failed, $skipped skipped"
exit $status
