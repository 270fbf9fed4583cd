#!/bin/sh
# run.sh LOGDIR TEST...: run test programs and scripts that print TAP; one line each, then a line that counts
# test points over all of them. A test that dies or prints no plan counts as one failure.
logs=$1; shift
passed=0 failed=0 skipped=0 status=0
for t in "$@"; do
    name=$(echo "$t" | sed 's|.*tests/||')
    log=$logs/log/$(echo "$name" | tr / _).log
    mkdir -p "$logs/log"
    "$t" > "$log" 2>&1
    r=$?
    p=$(grep -c '^ok' "$log"); f=$(grep -c '^not ok' "$log"); s=$(grep -c '^ok.*# [Ss][Kk][Ii][Pp]' "$log")
    p=$((p - s))
    case $r in
    0)  word=PASS; { [ "$f" -eq 0 ] && grep -q '^1\.\.' "$log"; } || { word=FAIL; [ "$f" -gt 0 ] || f=1; } ;;
    77) word=SKIP; s=$((s + 1)) ;;
    *)  word=FAIL; [ "$f" -gt 0 ] || f=1 ;;
    esac
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    printf '  %s  %s (%d)\n' "$word" "$name" "$((p + f + s))"
    if [ "$word" = FAIL ]; then status=1; grep -vE '^ok ' "$log" | tail -n 40; fi
done
echo "$passed passed, $failed failed, $skipped skipped"
exit $status
