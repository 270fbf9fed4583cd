#!/bin/sh
# A model from GGUF to text: trace, hardware, plan, pack, run. Results of earlier steps are used again when they
# are there and newer than what they were made from.
usage()
{
    cat << 'END'
usage: pipeline.sh --model FILE.gguf [options]

  --model FILE       the model; of a sharded one the first file
  --memory SIZE      the ceiling for the runtime, as 18MiB or 2GiB; several, comma-separated, plan for each and
                     run with the largest. Default: half of the machine's free memory
  --prompts FILE     CSV with a text column to profile with (default: datasets/prompts/stories-profile.csv)
  --prompt TEXT      what the run starts from (default: the opening of a story)
  --tokens N         how many tokens to generate (default: 128)
  --max-tokens N     how many tokens of the prompts to trace (default: all)
  --out DIR          where traces, plan and packed model go (default: build/pipeline/NAME)
  --device NAME      the device to plan for (default: this machine, measured)
  --hardware FILE    hardware database to use instead of measuring
  --full             measure the hardware at length rather than quickly
  --run-flags FLAGS  more flags for thermo-run generate, as '--temp 0.6 --seed 3'
  --fresh            do every step again
END
}

root=$(dirname "$(dirname "$(readlink -f "$0")")")
base=$root/
[ "$root" != "$(pwd -P)" ] || base= # shorter lines to read
bin=${BIN:-${base}build/bin}
model='' memory='' prompts=${base}datasets/prompts/stories-profile.csv
prompt='Once upon a time, there was a little girl named Lily.'
tokens=128 max_tokens='' out='' device='' hardware='' quick=--quick fresh='' run_flags=
while [ $# -gt 0 ]; do
    case $1 in
    --help | -h) usage; exit 0 ;;
    --fresh) fresh=1; shift; continue ;;
    --full) quick=; shift; continue ;;
    --model | --memory | --prompts | --prompt | --tokens | --max-tokens | --out | --device | --hardware | --run-flags)
        [ $# -ge 2 ] || { echo "pipeline.sh: $1 needs a value" >&2; exit 2; }
        ;;
    *) echo "pipeline.sh: unknown option $1; --help lists them" >&2; exit 2 ;;
    esac
    case $1 in
    --model) model=$2 ;;
    --memory) memory=$2 ;;
    --prompts) prompts=$2 ;;
    --prompt) prompt=$2 ;;
    --tokens) tokens=$2 ;;
    --max-tokens) max_tokens=$2 ;;
    --out) out=$2 ;;
    --device) device=$2 ;;
    --hardware) hardware=$2 ;;
    --run-flags) run_flags=$2 ;;
    esac
    shift 2
done
[ -n "$model" ] || { usage >&2; exit 2; }
[ -r "$model" ] || { echo "pipeline.sh: cannot read '$model'" >&2; exit 3; }
[ -x "$bin/thermo-run" ] || { echo "pipeline.sh: no programs in '$bin'; run make first" >&2; exit 1; }
[ -n "$memory" ] || memory=$(awk '/^MemAvailable/ { print int($2 / 2) "KiB" }' /proc/meminfo)
name=$(basename "$model" .gguf)
out=${out:-${base}build/pipeline/$name}
mkdir -p "$out" || exit 1
device=${device:-this-machine}

# show COMMAND...: the command as one would type it.
show()
{
    line=
    for word in "$@"; do
        case $word in
        *[!A-Za-z0-9_./:=,+-]*) line="$line '$(printf '%s' "$word" | sed "s/'/'\\\\''/g")'" ;;
        *) line="$line $word" ;;
        esac
    done
    echo "  $line" >&2
}

# step TITLE RESULT SOURCES COMMAND...: run COMMAND unless RESULT is there and no file of SOURCES is newer.
step()
{
    title=$1 result=$2 sources=$3
    shift 3
    stale=$fresh
    [ -e "$result" ] || stale=1
    for s in $sources; do
        [ -z "$(find "$s" -newer "$result" 2>/dev/null)" ] || stale=1
    done
    if [ -z "$stale" ]; then
        echo "== $title: $result is up to date" >&2
        return
    fi
    echo "== $title" >&2
    show "$@"
    "$@" >&2 || { r=$?; echo "pipeline.sh: '$title' failed (exit status $r)" >&2; exit $r; }
}

# remember NAME VALUE...: true when the values are those of the last time.
remember()
{
    record=$out/$1.settings
    shift
    printf '%s\n' "$@" > "$record.new"
    cmp -s "$record" "$record.new" && { rm -f "$record.new"; return 0; }
    mv "$record.new" "$record"
    return 1
}

# What was made with other settings must not be taken for these. A pack outlives its plan: for another memory limit
# or device a new plan for the same pack will do.
if ! remember trace "$model" "$prompts" "$max_tokens"; then
    rm -f "$out/traces.h5" "$out/plan.json" "$out/model.thermo"
fi
if ! remember plan "$device" "$hardware" "$memory"; then
    rm -f "$out/plan.json"
fi
[ -z "$fresh" ] || rm -f "$out/model.thermo"
for_pack=
[ ! -e "$out/model.thermo" ] || for_pack=$out/model.thermo

step "1 trace: which neurons fire" "$out/traces.h5" "$prompts" \
    "$bin/thermo-profile" trace --model "$model" --prompts "$prompts" --out "$out/traces.h5" \
    ${max_tokens:+--max-tokens "$max_tokens"}
if [ -z "$hardware" ]; then
    hardware=$out/hardware.sqlite
    step "2 hardware: what this machine can do" "$hardware" "" \
        "$bin/thermo-profile" hardware --db "$hardware" --device "$device" --storage "$out" $quick
fi
step "3 plan: what goes where" "$out/plan.json" "$out/traces.h5 $hardware" \
    "$bin/thermo-plan" solve --traces "$out/traces.h5" --hardware "$hardware" --device "$device" \
    --memory "$memory" ${for_pack:+--for-pack "$for_pack"} --out "$out/plan.json"
step "4 pack: neurons from hot to cold" "$out/model.thermo" "$out/traces.h5" \
    "$bin/thermo-pack" pack --model "$model" --traces "$out/traces.h5" --plan "$out/plan.json" \
    --out "$out/model.thermo"
echo "== 5 run" >&2
# shellcheck disable=SC2086
set -- "$bin/thermo-run" generate --model "$out/model.thermo" --plan "$out/plan.json" --prompt "$prompt" -n "$tokens" $run_flags
show "$@"
exec "$@"
