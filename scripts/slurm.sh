#!/bin/bash
# A corpus traced, or a matrix planned, by many machines: a Slurm job array and the job that joins its results.
usage()
{
    cat << 'END'
usage: slurm.sh trace --shards N --work DIR --out FILE.h5 --model FILE.gguf --prompts FILE.csv [options] [-- TRACE OPTIONS]
       slurm.sh plans --shards N [options] -- PLANS OPTIONS

trace: an array of N jobs, each a shard of the corpus (thermo-profile trace --shard), and a job after them that merges the
shards into the trace one machine would have written, byte for byte. A job whose node fails is requeued and resumes its shard.
When some failed for good, the same command again submits these alone, and they go on where they were.

plans: an array of N jobs that make the plans of a device matrix (scripts/plans.py --shard), and a job after them that sums
up, compares and writes reports. Options after -- are those of scripts/plans.py.

  --shards N         jobs of the array
  --work DIR         shards, their state and logs; a folder that all nodes see. plans: logs only (default: build/slurm-plans)
  --out FILE         the merged trace
  --model FILE --prompts FILE      as for thermo-profile trace
  --baseline DIR --tolerance P --json FILE --junit FILE      plans: for the last job (scripts/plans.py)
  --sbatch FLAGS     more options of sbatch for all jobs, as '--partition long --cpus-per-task 16 --mem 32G'
  --wait             until all is done; the exit status is that of the last job
  --dry-run          print what would be submitted

The folder from which this is run, and files that are named, must be seen by all nodes under the same names. Nodes may differ in
what their processors can do: name the instructions with -- --cpu avx2, or shards that another node goes on with, and
sums that differ in their last bits, are refused or differ. docs/cluster.md.
END
}

die() { echo "slurm.sh: $1" >&2; exit "${2:-2}"; }

what=${1:-}
case $what in
-h | --help) usage; exit 0 ;;
trace | plans) shift ;;
*) usage >&2; exit 2 ;;
esac
shards='' work='' out='' model='' prompts='' wait='' dry='' sbatch=() last=()
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help) usage; exit 0 ;;
    --wait) wait=1; shift; continue ;;
    --dry-run) dry=1; shift; continue ;;
    --) shift; break ;;
    --shards | --work | --out | --model | --prompts | --sbatch | --baseline | --tolerance | --json | --junit)
        [ $# -ge 2 ] || die "$1 needs a value" ;;
    *) die "unknown option '$1'; --help lists them, and what follows -- goes to the program" ;;
    esac
    case $1 in
    --shards) shards=$2 ;;
    --work) work=$2 ;;
    --out) out=$2 ;;
    --model) model=$2 ;;
    --prompts) prompts=$2 ;;
    --sbatch) read -r -a sbatch <<< "$2" ;;
    *) last+=("$1" "$2") ;;
    esac
    shift 2
done
[[ $shards =~ ^[1-9][0-9]{0,4}$ ]] || die "--shards '$shards': a number of jobs is needed"
here=$(dirname "$0")/slurm

# submit OPTION... SCRIPT ARGUMENT...: prints the job's id.
submit()
{
    local said
    if [ -n "$dry" ]; then
        { printf 'sbatch'; printf ' %q' "${sbatch[@]}" "$@"; echo; } >&2
        echo 0
        return
    fi
    said=$(sbatch --parsable "${sbatch[@]}" "$@") || return
    echo "${said%%;*}"
}

# finish ARRAY SCRIPT ARGUMENT...: the job after the array (none: ''), and with --wait its end.
finish()
{
    local after=() array=$1 status
    shift
    [ -z "$array" ] || after=("--dependency=afterany:$array")
    if [ -z "$wait" ] || [ -n "$dry" ]; then
        id=$(submit "${after[@]}" --output="$work/log/%x-%j.out" "$@") || die "sbatch refused the last job" 1
        [ -n "$dry" ] || echo "submitted: ${array:+array $array, then }job $id; logs in $work/log"
        return 0
    fi
    sbatch --parsable --wait "${sbatch[@]}" "${after[@]}" --output="$work/log/%x-%j.out" "$@" > "$work/last-job"
    status=$?
    id=$(cut -d ';' -f 1 "$work/last-job")
    rm -f "$work/last-job"
    cat "$work/log/"*"-$id.out" 2> /dev/null
    return $status
}

if [ "$what" = plans ]; then
    work=${work:-build/slurm-plans}
    mkdir -p "$work/log" || exit 1
    array=$(submit --array="0-$((shards - 1))" --output="$work/log/%x-%A_%a.out" "$here/plans.sbatch" "$shards" "$@") || die "sbatch refused the array" 1
    finish "$array" "$here/plans.sbatch" "$shards" "$@" "${last[@]}"
    exit
fi

for name in work out model prompts; do [ -n "${!name}" ] || die "--$name is needed"; done
[ ${#last[@]} -eq 0 ] || die "${last[0]} is for plans"
for f in "$model" "$prompts"; do [ -r "$f" ] || die "cannot read '$f'" 3; done
for f in "$model" "$prompts"; do
    for o in "$out" "$work/settings" "$work/last-job"; do
        ! [ "$f" -ef "$o" ] || die "'$f' and '$o' are the same file, which would be overwritten; nothing was touched: give --out a name of its own"
    done
done
mkdir -p "$work/log" || exit 1

# What the folder's shards are of: the same settings, prompts of the same content, a model file that was not touched.
settings=$(printf '%s\n' "shards $shards" "model $model $(stat -L -c '%s %Y' "$model")" \
    "prompts $(sha256sum < "$prompts")" "options $*")
if [ -e "$work/settings" ] && [ "$(cat "$work/settings")" != "$settings" ]; then
    diff "$work/settings" <(printf '%s\n' "$settings") >&2
    die "'$work' holds shards of another run (above: < that one, > this one); use another --work, or remove it" 5
fi

# More shards than groups of sequences: said here rather than by a job.
if [ -z "$dry" ]; then
    "${BIN:-build/bin}/thermo-profile" trace -q --model "$model" --prompts "$prompts" "$@" --shard "$((shards - 1))/$shards" \
        --out "$work/dry-run.h5" --dry-run > /dev/null || die "no job was submitted" $?
    printf '%s\n' "$settings" > "$work/settings"
fi

todo=()
for ((i = 0; i < shards; i++)); do [ -e "$work/shard-$i-of-$shards.h5" ] || todo+=("$i"); done
array=
if [ ${#todo[@]} -gt 0 ]; then
    list=$(IFS=,; echo "${todo[*]}")
    echo "shards to do: $list of $shards" >&2
    array=$(submit --array="$list" --output="$work/log/%x-%A_%a.out" "$here/trace.sbatch" "$work" "$shards" --model "$model" \
        --prompts "$prompts" "$@") || die "sbatch refused the array" 1
fi
finish "$array" "$here/merge.sbatch" "$work" "$shards" "$out"
