#!/bin/bash
# Texts drawn at random under the masks of a corpus of schemas, and calls under those of tools in every form, over the embedded model's vocabulary: each is valid.
. tests/tap.sh
python3 -c 'import jsonschema' 2> /dev/null || { echo "1..0 # SKIP python3-jsonschema is not installed"; exit 77; }
check "every text is JSON that its schema accepts" tests/cli/schemas.py "$B/tests/tools/mask-texts" datasets/models/reglu-tales-10m-f16.gguf \
    tests/golden/schemas.jsonl "$(of 60 12)"
check "every call that is forced is read back, and its arguments are of the tool's schema" tests/cli/calls.py "$B/tests/tools/mask-texts" \
    datasets/models/reglu-tales-10m-f16.gguf tests/golden/tools.jsonl "$(of 60 12)"
bench() { "$B/tests/tools/mask-texts" bench 150000 tests/golden/schemas.jsonl 1 1 | grep -q '"schemas":63,"compile_ms_most":[0-9]\{1,3\}\.'; }
unless_sanitized() { case $SANITIZE in ?*) ;; *) "$@" ;; esac; }
unless_sanitized check "over 150,000 tokens none takes a second to compile" bench
done_testing
