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

check "real.sh --help" says 0 "^usage: real.sh" scripts/real.sh --help
check "real.sh with an option that lacks its value" says 2 "needs a value" scripts/real.sh --dir
check "deps.sh with an unknown set" says 2 "^usage: deps.sh" scripts/deps.sh everything
check "slurm.sh --help" says 0 "^usage: slurm.sh" scripts/slurm.sh --help
check "slurm.sh without anything" says 2 "^usage: slurm.sh" scripts/slurm.sh
check "slurm.sh with an unknown option" says 2 "unknown option '--frob'" scripts/slurm.sh trace --frob
check "slurm.sh without shards" says 2 "a number of jobs is needed" scripts/slurm.sh trace --shards x
check "slurm.sh without a model" says 2 "model is needed" scripts/slurm.sh trace --shards 2 --work "$tmp/w" --out "$tmp/o"
check "slurm.sh with a model that is not there" says 3 "cannot read 'none.gguf'" scripts/slurm.sh trace --shards 2 --work "$tmp/w" --out "$tmp/o" \
    --model none.gguf --prompts README.md
check "slurm.sh with more shards than there is to do" says 3 "shard 99 of 100 has nothing to do" scripts/slurm.sh trace --shards 100 --work "$tmp/w" \
    --out "$tmp/o" --model datasets/models/reglu-tales-10m-f16.gguf --prompts datasets/prompts/stories-profile.csv -- --max-tokens 500
# What a script writes is none of what it reads, whatever leads to it.
spared() # STATUS PATTERN COMMAND...: README's copy $tmp/in stays
{
    says "$@" && cmp README.md "$tmp/in"
}
cp README.md "$tmp/in"
for o in in ./in again; do
    ln -sf "$tmp/in" "$tmp/again"
    check "slurm.sh with an --out that is its model ($o)" spared 2 "are the same file" scripts/slurm.sh trace --shards 2 --work "$tmp/w" --out "$tmp/$o" \
        --model "$tmp/in" --prompts README.md --dry-run
done
for o in in ./in again; do
    check "questions.py with --answers that are its questions ($o)" spared 2 "are the same file" scripts/questions.py --questions "$tmp/in" \
        --answers "$tmp/$o" "x=$tmp/in,README.md"
    check "batches.py with a --json that is its trace ($o)" spared 2 "are the same file" scripts/batches.py --model README.md --traces "$tmp/in" \
        --memory 1GiB --json "$tmp/$o"
done
ln "$tmp/in" "$tmp/hard.json"
ln -s in "$tmp/in.json"
check "study.py: two files in one" says 2 "are the same file" scripts/study.py --json "$tmp/in" --markdown "$tmp/hard.json"
check "plans.py with a report that is its model" spared 2 "is an input" scripts/plans.py --model "$tmp/in.json" --memory 1GiB --devices datasets/devices/oneplus-12.csv \
    --json "$tmp/hard.json"
check "devices.py with a page that is its model" spared 2 "would be replaced" scripts/devices.py --model "$tmp/in" --page "$tmp/hard.json"

for s in trace merge plans; do
    check "$s.sbatch --help" says 0 "sbatch .*$s.sbatch" scripts/slurm/$s.sbatch --help
    check "$s.sbatch without anything" says 1 "sbatch .*$s.sbatch" scripts/slurm/$s.sbatch
done
check "make help names the main targets" says 0 "make pipeline MODEL=" "${MAKE:-make}" --no-print-directory -s help
check "CHANGELOG has this version" grep -q "^## $(sed -n 's/.*THERMO_VERSION "\(.*\)"/\1/p' common/base/version.h)" CHANGELOG.md
done_testing
