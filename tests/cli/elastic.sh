#!/bin/bash
# A memory limit that changes while a model runs: the same text, in a memory cgroup that is moved with it; what is refused changes nothing.
. tests/tap.sh
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }
. tests/chain.sh
exec python3 -B tests/cli/elastic.py "$BIN" "$packed" "$plan"
