#!/bin/sh
# The scripts that people call by hand refuse what they do not know, before they do anything.
. tests/tap.sh
scratch

# says STATUS PATTERN COMMAND...
says()
{
    want=$1 pattern=$2
    shift 2
    "$@" > "$tmp/out" 2>&1
    got=$?
    [ $got -eq "$want" ] && grep -q -e "$pattern" "$tmp/out" || { echo "status $got:"; cat "$tmp/out"; return 1; }
}

check "pipeline.sh --help" says 0 "^usage: pipeline.sh" scripts/pipeline.sh --help
check "pipeline.sh without a model" says 2 "^usage: pipeline.sh" scripts/pipeline.sh
check "pipeline.sh with an unknown option" says 2 "unknown option --frob" scripts/pipeline.sh --frob
check "pipeline.sh with an option that lacks its value" says 2 "needs a value" scripts/pipeline.sh --model
check "pipeline.sh with a missing model" says 3 "no/such.gguf" scripts/pipeline.sh --model no/such.gguf
check "deps.sh with an unknown set" says 2 "^usage: deps.sh" scripts/deps.sh everything
check "make help names the main targets" says 0 "make pipeline MODEL=" "${MAKE:-make}" --no-print-directory -s help
check "CHANGELOG has this version" grep -q "^## $(sed -n 's/.*THERMO_VERSION "\(.*\)"/\1/p' common/version.h)" CHANGELOG.md
done_testing
