#!/bin/sh
# The runner that everything else relies on: what must count as a failure does.
. tests/tap.sh
scratch
unset CHANGED

# make_test NAME LINE...: a test script that runs the given shell lines.
make_test()
{
    file=$tmp/$1
    shift
    printf '#!/bin/sh\n' > "$file"
    printf '%s\n' "$@" >> "$file"
    chmod +x "$file"
}

# counts STATUS "P passed, F failed, S skipped" TEST...: within $patience seconds each
patience=600
counts()
{
    want=$1 line=$2
    shift 2
    TEST_TIMEOUT=$patience tests/run.sh "$tmp" "$@" > "$tmp/out" 2>&1
    got=$?
    last=$(tail -n 1 "$tmp/out")
    [ $got -eq "$want" ] && [ "$last" = "$line" ] || { echo "status $got, '$last'"; cat "$tmp/out"; return 1; }
}

make_test good 'echo "ok 1 - a"; echo "ok 2 - b # SKIP why"; echo 1..2'
make_test bad 'echo "ok 1 - a"; echo "not ok 2 - b"; echo 1..2; exit 1'
make_test liar 'echo "not ok 1 - a"; echo 1..1'
make_test noplan 'echo "ok 1 - a"'
make_test dies 'echo "ok 1 - a"; kill -SEGV $$'
make_test skips 'echo "1..0 # SKIP nothing here"; exit 77'
make_test hangs 'echo "ok 1 - a"; sleep 600; echo 1..1'
check "passed and skipped points" counts 0 "1 passed, 0 failed, 1 skipped" "$tmp/good"
check "a failed point" counts 1 "1 passed, 1 failed, 0 skipped" "$tmp/bad"
check "a failed point, however the test exits" counts 1 "0 passed, 1 failed, 0 skipped" "$tmp/liar"
check "a test that ends before its plan" counts 1 "1 passed, 1 failed, 0 skipped" "$tmp/noplan"
check "a test that dies" counts 1 "1 passed, 1 failed, 0 skipped" "$tmp/dies"
check "a test that is skipped" counts 0 "0 passed, 0 failed, 1 skipped" "$tmp/skips"
patience=3
check "a test that hangs" counts 1 "1 passed, 1 failed, 0 skipped" "$tmp/hangs"
patience=600
check "a test that is not there" counts 1 "0 passed, 1 failed, 0 skipped" "$tmp/missing"
check "a sum" counts 1 "3 passed, 2 failed, 2 skipped" "$tmp/good" "$tmp/bad" "$tmp/dies" "$tmp/skips"

# ran STATUS N TEST...: with CHANGED=1, N of the tests are run.
ran()
{
    want=$1 number=$2
    shift 2
    CHANGED=1 tests/run.sh "$tmp" "$@" > "$tmp/out" 2>&1
    got=$?
    [ $got -eq "$want" ] && grep -q "^  $number of $# tests have other inputs" "$tmp/out" || { echo "status $got"; cat "$tmp/out"; return 1; }
}
again() { ran 0 1 "$tmp/good" && ran 0 0 "$tmp/good"; }
echo 'here=1' > "$tmp/lib.sh"
make_test good ". $tmp/lib.sh" 'echo "ok 1 - a"; echo 1..1'
check "what changed runs, once" again
echo 'here=2' > "$tmp/lib.sh"
check "a script that it sources changed" again
check "what failed runs again" ran 1 1 "$tmp/bad" "$tmp/good"
check "and again" ran 1 1 "$tmp/bad" "$tmp/good"
TEST_RUNNER=env; export TEST_RUNNER
check "another way to run it" again
done_testing
