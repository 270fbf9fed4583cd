#!/bin/sh
# docs/models.md's list of architectures and types is what the programs' tables say.
. tests/tap.sh
scratch

in_models()
{
    "$BIN/thermo-profile" models > "$tmp/models" && [ -s "$tmp/models" ] || return 1
    sed -n '/^<!-- thermo-profile models -->$/,/^<!-- end -->$/p' docs/models.md | sed '1d; $d' | diff - "$tmp/models"
}

# Each name that the table has is one that the models of tests/golden/archs try, or another test does.
tried()
{
    for a in $(sed -n 's/^| `\([a-z0-9-]*\)` .*/\1/p' "$tmp/models"); do
        case $a in llama | mistral | bamboo | smallthinker) continue ;; esac
        grep -q -e "--arch $a " tests/golden/archs/models.txt || { echo "$a is in no model of tests/golden/archs"; return 1; }
    done
}

check "docs/models.md" in_models
check "every architecture is tried" tried
check "no argument" says 2 'no argument' "$BIN/thermo-profile" models x
done_testing
