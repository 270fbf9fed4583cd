#!/bin/bash
# What must hold of proven plans, on a few random problems; `make properties COUNT=400` has more (docs/TRUST.md).
. tests/tap.sh
scratch
hold() { BIN=$BIN tests/properties.py 1 "$1" > "$tmp/out" 2>&1 || { cat "$tmp/out"; return 1; }; }
BIN=${BIN:-build/bin}
check "of a random problem" hold 22
check "of another" hold 24
done_testing
