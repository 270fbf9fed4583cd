#!/bin/bash
# thermo-pipeline: a model from GGUF to text: trace, hardware, plan, pack, run. Each stage keeps a record of what it was made
# from, by content: digests of model and prompts, the hashes that the tools give traces, devices and layouts, options and
# versions. A stage whose record still holds is skipped, whatever the files' dates say; of another, what differs is
# printed. Records are written after their result, and a stage that was stopped has none: it is done again, a trace from
# where it stopped. From a checkout this file runs as scripts/pipeline.sh, installed as thermo-pipeline.
export LC_ALL=C.UTF-8
prog=${0##*/}
typed=("$0" "$@")
usage()
{
    cat << END
usage: $prog --model FILE.gguf [options] [-- OPTIONS OF thermo-run generate]

Take a model from a GGUF file to text within a memory limit, in five stages: trace which neurons fire, measure
what this machine can do, plan what goes where, pack the neurons from hot to cold, run. What was made before is used
again as long as what it was made from is the same by content: model, prompts, device, limit, options. The first stage
takes longest. Ctrl-C at any time; the same command goes on where it stopped.

options:
  --model FILE       the model; of a sharded one the first file. Needed.
  --memory SIZE      the ceiling for the runtime, as 18MiB or 2GiB; several, comma-separated, plan for each and
                     run with the largest. Default: half of the machine's free memory, kept from then on
  --prompts FILE     CSV with a text column to profile with (default: stories-profile.csv, which comes along)
  --max-tokens N     how many tokens of the prompts to trace (default: all)
  --prompt TEXT      what the run starts from (default: the opening of a story)
  --tokens N         how many tokens to generate; -1: until the text ends; 0: make everything, run nothing (default: 128)
  --out DIR          where traces.h5, hardware.sqlite, plan.json and model.thermo go, and the records in .pipeline
                     (default: $default_out)
  --device NAME      the device to plan for (default: of --hardware the only one, else this machine, measured)
  --hardware FILE    hardware database to use instead of measuring
  --full             measure the hardware at length rather than quickly
  --trace-flags WORDS, --plan-flags WORDS, --run-flags WORDS
                     more flags for thermo-profile trace, thermo-plan solve and thermo-run generate, split at
                     spaces: --trace-flags '--act relu', --plan-flags '--context 1024', --run-flags '--temp 0.6'
  --fresh            do every stage again, whatever is there
  -h, --help         print this text

Before anything is done the limit and the context are compared with the floor, which the model's header tells; what is below it is
refused (exit status 4), with a limit and a context that would do.

exit status: 0 done, 2 usage, 3 an input cannot be read, 4 below the floor, 130 interrupted, else that of the program that failed.

examples:
  $prog --model story.gguf --memory 2GiB --prompt 'Once upon a time'
  $prog --model story.gguf --memory 1GiB,2GiB --tokens 0              plan and pack only
  $prog --model story.gguf --memory 2GiB -- --temp 0.6 --stop 'The end'
  $prog --model story.gguf --hardware phones.sqlite --device 'OnePlus 12' --memory 4GiB --out phone --tokens 0
END
}

fail() # STATUS TEXT...
{
    local r=$1
    shift
    echo "$prog: $*" >&2
    exit "$r"
}

# ---- where things are ----

here=$(readlink -f -- "$0") && here=${here%/*}
home='' programs='' default_out=
if [ -e "$here/../GNUmakefile" ]; then # a checkout
    home=${here%/*}/ default_out=build/pipeline/NAME
    [ "${home%/}" != "$(pwd -P)" ] || home= # shorter lines to read
    programs=${BIN:-${home}build/bin} data=${home}datasets
else
    default_out=thermo-pipeline/NAME data=$here/../share/thermocline/datasets
    programs=${BIN:-$here}
    [ -x "$programs/thermo-run" ] || programs=$(command -v thermo-run) && programs=${programs%/thermo-run}
fi

# ---- options ----

model='' memory='' prompts='' tokens=128 max_tokens='' out='' device='' hardware='' full='' fresh=''
trace_flags='' plan_flags='' run_flags=''
prompt='Once upon a time, there was a little girl named Lily.'
while [ $# -gt 0 ]; do
    name=$1 value='' given=
    case $name in
    --) shift; break ;;
    --?*=*) value=${name#*=} name=${name%%=*} given=1 ;;
    esac
    case $name in
    --help | -h | --fresh | --full)
        [ -z "$given" ] || fail 2 "$name takes no value"
        case $name in
        --fresh) fresh=1 ;;
        --full) full=1 ;;
        *) usage; exit 0 ;;
        esac
        shift
        continue
        ;;
    --model | --memory | --prompts | --prompt | --tokens | --max-tokens | --out | --device | --hardware | --trace-flags | \
        --plan-flags | --run-flags) ;;
    *) fail 2 "unknown option $1; --help lists them" ;;
    esac
    if [ -z "$given" ]; then
        [ $# -ge 2 ] || fail 2 "$name needs a value"
        value=$2
        shift
    fi
    shift
    case $name in
    --prompt | --trace-flags | --plan-flags | --run-flags) ;;
    *) [ -n "$value" ] || fail 2 "$name needs a value that is not empty" ;;
    esac
    name=${name#--}
    printf -v "${name//-/_}" %s "$value"
done
[ -n "$model" ] || { usage >&2; exit 2; }

# What a later stage would refuse is refused before the long one.
read -r -d '' -a trace_words <<< "$trace_flags"
read -r -d '' -a plan_words <<< "$plan_flags"
read -r -d '' -a run_words <<< "$run_flags"
number='^(-1|0|[1-9][0-9]{0,8})$' size='^[0-9]+(\.[0-9]+)?([kKMGT](i?B)?|B)?$'
[[ $tokens =~ $number ]] || fail 2 "--tokens: '$tokens' is not a number from -1"
[[ -z $max_tokens || $max_tokens =~ $number && $max_tokens -ge 1 ]] || fail 2 "--max-tokens: '$max_tokens' is not a number from 1"
IFS=, read -ra limits <<< "$memory"
[[ $memory != *, && $memory != *$'\n'* ]] || fail 2 "--memory: '$memory' is not a list of sizes"
for limit in "${limits[@]}"; do
    [[ $limit =~ $size ]] || fail 2 "--memory: '$limit' is not a size, as 18MiB or 2GiB"
done
[ -z "$hardware" ] || [ -z "$full" ] || fail 2 "--full measures, --hardware uses what was measured: give one of them"
[ -n "$programs" -a -x "$programs/thermo-run" ] ||
    fail 1 "no programs in '${BIN:-$programs}'; $([ -e "$here/../GNUmakefile" ] && echo 'run make first' || echo 'are they in PATH?')"
[ -n "$prompts" ] || prompts=$data/prompts/stories-profile.csv
for f in model prompts hardware out; do # a name, whatever it begins with
    [[ ${!f} != -* ]] || printf -v "$f" ./%s "${!f}"
done
for f in "$model" "$prompts" ${hardware:+"$hardware"}; do
    [ -f "$f" -a -r "$f" ] || fail 3 "cannot read '$f'"
done

# ---- identities ----

# keep FILE: standard input, whole or not at all; a link of that name is replaced, and not followed.
keep() { rm -f -- "$1.new" && cat > "$1.new" && mv -f -- "$1.new" "$1"; }

digest_of() { sha256sum | cut -c1-32; }

# Device, inode, size and times: as long as they stand, and are older than the look at the file, so does the content.
stats_of() { stat -L -c '%d:%i:%s:%.9Y:%.9Z' -- "$@"; }

# content NAME FILE...: the digest of the files' bytes, read again only where their stats differ from those of the last time.
content()
{
    local record=$state/$1.digest old_stats old_digest stats now newest
    shift
    stats=$(stats_of "$@") || return 3
    stats=${stats//$'\n'/;}
    if [ -e "$record" ] && read -r old_stats old_digest 2> /dev/null < "$record" && [ "$old_stats" = "$stats" ]; then
        echo "$old_digest"
        return
    fi
    now=$(date +%s)
    old_digest=$(cat -- "$@" | digest_of; exit "${PIPESTATUS[0]}") || return 3
    newest=$(stat -L -c '%Z' -- "$@" | sort -n | tail -n 1)
    if [ "$newest" -lt $((now - 2)) ]; then # else a further change might not show in its times
        printf '%s %s\n' "$stats" "$old_digest" | keep "$record"
    fi
    echo "$old_digest"
}

json_of() # PROGRAM COMMAND FILE: what the tool says of a file, apart from its own version
{
    "$programs/$1" "$2" --json -q -- "$3" 2> /dev/null | grep -v '^  "tool":'
    return "${PIPESTATUS[0]}"
}

# The device's hash in the database: of its figures. Without a name, of all there are.
hardware_of() # DATABASE DEVICE
{
    local json hash
    json=$(json_of thermo-profile show "$1") || return
    hash=$(name=$2 awk 'BEGIN { want = ENVIRON["name"]; gsub(/["\\]/, "\\\\&", want); want = "      \"name\": \"" want "\"," }
        $0 == want { getline; gsub(/.*: "|",?$/, ""); print; exit }' <<< "$json")
    [ -z "$2" ] || [ -n "$hash" ] || return 5
    echo "${hash:-$(digest_of <<< "$json")}"
}

trace_hashes() { grep -E -m 2 '^ +"(content_)?hash": ' | tr -dc '0-9a-f\n' | tr '\n' ' '; }
layout_of() { sed -n '/^    "layout": {/,/^    }/s/^      "hash": "\(.*\)".*/\1/p' < "$1"; }
version_of() { "$programs/$1" --version | tr '\n' ' '; }

# ---- records ----
# $state/STAGE is a list of NAME<tab>VALUE that the stage's result was made from, and what the result was.

field() { [ ! -e "$state/$1" ] || sed -n "s/^$2	//p" < "$state/$1"; } # STAGE NAME

# differs STAGE KEY: what of KEY the record of the stage has otherwise, in words; nothing when the record holds.
differs()
{
    [ -e "$state/$1" ] || { echo "it was not made yet"; return; }
    awk -F '\t' 'NR == FNR { old[$1] = $2; next }
        !($1 in old) || old[$1] != $2 { what = what (what ? ", " : "") ($1 ~ /^--/ && ($1 in old) ? $1 " (was " (old[$1] == "" ? "not given" : old[$1]) ")" : $1) }
        END { if (what) print what " changed" }' - <(printf '%s\n' "$2") < "$state/$1"
}

# made STAGE KEY RESULT: keeps the record of a result that is there.
made()
{
    printf '%s\nresult\t%s\n' "$2" "$3" | keep "$state/$1" || exit 1
}

# quoted WORD...: as one would type them.
quoted()
{
    local word line=
    for word in "$@"; do
        case $word in
        '' | *[!A-Za-z0-9_./:=,+-]*) line="$line '${word//\'/\'\\\'\'}'" ;;
        *) line="$line $word" ;;
        esac
    done
    echo "${line# }"
}

show() { echo "   $(quoted "$@")" >&2; } # COMMAND...: the command as one would type it

# run COMMAND...: its exit status; what it prints is talk.
run()
{
    show "$@"
    "$@" >&2
}

ended() # STATUS TITLE: ends this script where the stage failed
{
    [ "$1" -ne 0 ] || return 0
    [ "$1" -ne 130 ] || fail 130 "'$2' was interrupted; the same command goes on from there"
    fail "$1" "'$2' failed (exit status $1)"
}

# stage NUMBER-AND-NAME ABOUT WHY: announces a stage; true when it has to be done.
stage()
{
    if [ -z "$3" ]; then
        echo "== $1: up to date" >&2
        return 1
    fi
    case $3 in
    "it was not made yet") echo "== $1: $2" >&2 ;;
    *) echo "== $1: $2; again, because $3" >&2 ;;
    esac
}

# ---- the folder ----

[[ $model == */* ]] && name=${model##*/} || name=$model
name=${name%.gguf}
[ "$(printf %s "$name" | wc -c)" -le 200 ] || name=long-name-$(printf %s "$name" | digest_of) # a folder's name has at most 255 bytes
case $name in '' | . | ..) name=model ;; esac
[ -n "$out" ] || out=$home${default_out%NAME}$name
state=$out/.pipeline
traces=$out/traces.h5 plan=$out/plan.json pack=$out/model.thermo measured=$out/hardware.sqlite
if [ ! -d "$state" ] && [ ! -e "$out/trace.settings" ]; then
    for f in "$traces" "$plan" "$pack" "$measured"; do
        [ ! -e "$f" ] || fail 1 "'$f' was not made here and would be replaced: move it, or name another folder with --out"
    done
fi
mkdir -p -- "$state" || exit 1
[ -w "$out" -a -w "$state" ] || fail 1 "'$out' cannot be written; name another folder with --out"
if command -v flock > /dev/null; then
    exec 9>> "$state/lock" || exit 1
    flock -n 9 || { echo "$prog: another one works in '$out'; waiting until it has ended" >&2; flock 9 || exit 1; }
fi
rm -f -- "$out"/{traces.h5,plan.json,model.thermo}.tmp-* "$out"/{trace,plan}.settings # of programs that were killed, of older versions
[ -z "$fresh" ] || rm -f -- "$state"/*.digest "$state"/{trace,plan,pack,hardware,trace.begun}

if [ -z "$memory" ]; then # what was free the first time, as long as that much still is: a plan is not made anew at each breath
    free=$(awk '/^MemAvailable/ { print $2 }' /proc/meminfo)
    [ ! -e "$state/memory" ] || read -r memory < "$state/memory"
    [[ $memory =~ ^[0-9]+KiB$ && ${memory%KiB} -le $free ]] || memory=$((free / 2))KiB
    keep "$state/memory" <<< "$memory" || exit 1
fi

if [ -n "$hardware" ]; then
    json=$(json_of thermo-profile show "$hardware") || { # let the tool say what is wrong
        "$programs/thermo-profile" show -- "$hardware" > /dev/null
        exit 3
    }
    [ -n "$device" ] || [ "$(grep -c '^      "hash": ' <<< "$json")" -eq 1 ] ||
        fail 2 "'$hardware' holds no device or several; name one with --device (thermo-profile show lists them)"
    hardware_id=$(hardware_of "$hardware" "$device") ||
        fail 2 "--device: '$hardware' holds no device '$device' (thermo-profile show lists those it holds)"
fi

# ---- is there a plan at all ----

# instead OPTION VALUE: the command that was typed, with this in place of what it had. make and other scripts say in PIPELINE_TYPED how it was.
instead()
{
    local word skip= line=() flags made="--$1([[:space:]]+|=)[^[:space:]'\"]+[[:space:]]*"
    flags=$(quoted "--$1" "$2")
    case ${PIPELINE_TYPED:-} in
    '') ;;
    'make pipeline')
        if [ "$1" = memory ]; then
            PIPELINE_MEMORY=$2
        else
            PIPELINE_FLAGS="${PIPELINE_FLAGS:+$PIPELINE_FLAGS }$flags"
        fi
        echo "make pipeline MODEL=$(quoted "$PIPELINE_MODEL")${PIPELINE_MEMORY:+ MEMORY=$(quoted "$PIPELINE_MEMORY")}" \
            "${PIPELINE_PROMPT:+PROMPT=$(quoted "$PIPELINE_PROMPT") }${PIPELINE_FLAGS:+PIPELINE_FLAGS=$(quoted "$PIPELINE_FLAGS")}"
        return
        ;;
    'make demo') echo "make demo DEMO_FLAGS=$(quoted "$(sed -E "s/$made//; s/[^ ]$/& /" <<< "${DEMO_FLAGS:-}")$flags")"; return ;;
    'make real') echo "make real REAL_FLAGS=$(quoted "$(sed -E "s/$made//; s/[^ ]$/& /" <<< "${REAL_FLAGS:-}")$flags")"; return ;;
    *) echo "$PIPELINE_TYPED$flags"; return ;;
    esac
    for word in "${typed[@]}"; do
        case $word in
        *) [ -z "$skip" ] || { skip=; continue; } ;;&
        "--$1") skip=1 ;;
        "--$1="*) ;;
        --) line+=(${flags:+"--$1" "$2"} --) flags= ;;
        *) line+=("$word") ;;
        esac
    done
    echo "$(quoted "${line[@]}")${flags:+ $flags}"
}

# at_least BYTES: the limits, of which those below so much are so much, rounded up.
at_least()
{
    awk -v least="$1" -v list="$memory" 'function bytes(s, n, u) { n = s + 0; u = s; gsub(/[0-9.]/, "", u)
            return n * (u == "" || u == "B" ? 1 : (u ~ /^.B$/ ? 1000 : 1024) ^ index("KMGT", toupper(substr(u, 1, 1)))) }
        BEGIN { unit = least >= 64 * 1048576 ? 1048576 : 65536; up = int((least + unit - 1) / unit) * unit / 1024
            up = up % 1024 ? up "KiB" : up / 1024 "MiB"
            n = split(list, l, ","); for (i = 1; i <= n; i++) { v = bytes(l[i]) < least ? up : l[i]; if (!seen[v]++) out = out (out ? "," : "") v }
            print out }'
}

# Of the file's header alone, before an hour of tracing. What else may be wrong with it the tracing says.
asked=$("$programs/thermo-plan" solve -q --model "$model" --memory "$memory" ${trace_flags:+--trace-flags "$trace_flags"} \
    "${plan_words[@]}" --json 2> "$state/asked")
r=$?
why=$(sed -n 's/^thermo-plan: error: //p' "$state/asked" | head -n 1)
rm -f -- "$state/asked"
[ $r -ne 2 ] || fail 2 "thermo-plan: $why"
if [ $r -eq 4 ]; then
    nearest() { sed -n "/\"nearest\": {/,/}/s/.*\"$1\": \([0-9]*\).*/\1/p" <<< "$asked"; }
    bytes=$(nearest memory_bytes) context=$(nearest context_tokens)
    echo "$prog: $why" >&2
    [ -z "$bytes$context" ] || echo "$prog: nothing was done; what would do:" >&2
    [ -z "$bytes" ] || echo "   $(instead memory "$(at_least "$bytes")")" >&2
    if [ -n "$context" ]; then
        plan_flags=$(sed -E 's/(^|[[:space:]]+)--context([[:space:]]+|=)[0-9]+//; s/^[[:space:]]+//' <<< "$plan_flags")
        echo "   $(instead plan-flags "${plan_flags:+$plan_flags }--context $context")" >&2
    fi
    exit 4
fi

# ---- 1 trace ----

shards=("$model")
if [[ ${model##*/} =~ ^(.*)-00001-of-([0-9]{5})\.gguf$ ]]; then
    for ((i = 2; i <= 10#${BASH_REMATCH[2]}; i++)); do
        printf -v f '%s-%05d-of-%s.gguf' "${model%-00001-of-*}" "$i" "${BASH_REMATCH[2]}"
        [ ! -e "$f" ] || shards+=("$f")
    done
fi
written=("$traces" "$traces.partial" "$plan" "$pack")
[ -n "$hardware" ] || written+=("$measured")
for f in "${shards[@]}" "$prompts" ${hardware:+"$hardware"}; do
    for o in "${written[@]}"; do
        ! [ "$f" -ef "$o" ] || fail 2 "'$f' and '$o' are the same file, which would be overwritten; nothing was touched: copy it, or name" \
            "another folder with --out"
    done
done
model_stats=$(stats_of "${shards[@]}") && model_id=$(content model "${shards[@]}") || fail 3 "cannot read '$model'"
prompts_id=$(content prompts "$prompts") || fail 3 "cannot read '$prompts'"
version=$(version_of thermo-profile | tr ' ' '\n' | sed -n '/^trace$/,/,/p' | tr -dc '0-9')
trace_key="the model	$model_id
the prompts	$prompts_id
--max-tokens	$max_tokens
--trace-flags	$trace_flags
the format of traces	$version"

# unchanged_model TITLE: a model that is replaced while it is read belongs to nothing.
unchanged_model()
{
    [ "$(stats_of "${shards[@]}")" = "$model_stats" ] ||
        fail 3 "'$model' changed during '$1'; run the same command again"
}

# Whether the trace is the one that was made; predictors that were added since are no reason to trace again.
trace_id=''
trace_intact()
{
    local stats json
    [ -f "$traces" ] || return 1
    stats=$(stats_of "$traces")
    if [ "$stats" = "$(field trace stats)" ]; then
        trace_id=$(field trace identity)
        return
    fi
    json=$(json_of thermo-profile show "$traces") && [ "$(trace_hashes <<< "$json")" = "$(field trace result)" ] || return 1
    trace_made "$json"
}
trace_made() # JSON
{
    trace_id=$(digest_of <<< "$1")
    made trace "$trace_key
stats	$(stats_of "$traces")
identity	$trace_id" "$(trace_hashes <<< "$1")"
}

why=$(differs trace "$trace_key")
[ -n "$why" ] || trace_intact || why="$([ -e "$traces" ] && echo "'$traces' is not what was made" || echo "'$traces' is gone")"
[ -z "$fresh" ] || why="of --fresh"
begun=$(cat -- "$state/trace.begun" 2> /dev/null)
if stage "1 trace" "which neurons fire" "$why"; then
    set_trace() { trace=("$programs/thermo-profile" trace --model "$model" --prompts "$prompts" --out "$traces" \
        ${max_tokens:+--max-tokens "$max_tokens"} "${trace_words[@]}" "$@"); }
    rm -f -- "$state/trace" # the records of what follows tell by its hashes whether they still hold
    r=1
    if [ "$begun" = "$trace_key" ] && { [ -e "$traces.partial" ] || [ -e "$traces" ]; }; then
        echo "   going on where it was interrupted" >&2
        set_trace --resume
        run "${trace[@]}"
        r=$?
        case $r in
        2 | 3 | 5) echo "   what was left of it is of no use: from the beginning" >&2 ;;
        *) ended $r trace ;;
        esac
    fi
    if [ $r -ne 0 ]; then
        rm -f -- "$traces.partial" "$traces" || exit 1
        keep "$state/trace.begun" <<< "$trace_key" || exit 1
        set_trace
        run "${trace[@]}"
        ended $? trace
    fi
    unchanged_model trace
    json=$(json_of thermo-profile show "$traces") || fail 3 "cannot read '$traces', which was just made"
    trace_made "$json"
    rm -f -- "$state/trace.begun"
fi

# ---- 2 hardware ----

machine=$(sed -n '/^model name/{s/.*: //p;q}' /proc/cpuinfo)
if [ -z "$hardware" ]; then
    hardware=$measured device=${device:-this-machine}
    hardware_key="the machine	$machine, $(nproc) processors
--device	$device
--full	$full"
    [ -n "$full" ] || [ "$(field hardware --full)" != 1 ] || hardware_key=${hardware_key%--full*}"--full	1" # as good
    why=$(differs hardware "$hardware_key")
    [ -n "$why" ] || [ -e "$hardware" ] || why="'$hardware' is gone"
    if [ -z "$why" ] && ! hardware_id=$(hardware_of "$hardware" "$device"); then
        why="'$hardware' is not what was made"
    fi
    [ -z "$fresh" ] || why="of --fresh"
    if stage "2 hardware" "what this machine can do" "$why"; then
        rm -f -- "$state/hardware"
        if [ -e "$hardware" ] && ! json_of thermo-profile show "$hardware" > /dev/null; then
            mv -f -- "$hardware" "$hardware.unreadable" || exit 1
            echo "   '$hardware' cannot be read and is now '$hardware.unreadable'" >&2
        fi
        quick=--quick
        [ -z "$full" ] || quick=
        run "$programs/thermo-profile" hardware --db "$hardware" --device "$device" --storage "$out" $quick
        ended $? hardware
        hardware_id=$(hardware_of "$hardware" "$device") || fail 1 "cannot read '$hardware', which was just made"
        made hardware "$hardware_key" "$hardware_id"
    fi
else
    echo "== 2 hardware: from '$hardware'" >&2
fi

# ---- 3 plan ----

# A pack outlives its plan: for another limit or device a new plan for the same pack will do, as long as model and neuron
# order are those it was made from.
pack_key="the model	$model_id
the trace	$trace_id
the program	$(version_of thermo-pack)"
pack_intact()
{
    local stats
    [ -f "$pack" ] || return 1
    stats=$(stats_of "$pack")
    [ "$stats" = "$(field pack stats)" ] && return
    [ "$(json_of thermo-pack inspect "$pack" | digest_of)" = "$(field pack result)" ]
}
pack_why=$(differs pack "$pack_key")
[ -n "$pack_why" ] || pack_intact || pack_why="$([ -e "$pack" ] && echo "'$pack' is not what was made" || echo "'$pack' is gone")"
[ -z "$fresh" ] || pack_why="of --fresh"

plan_key="the trace	$trace_id
the device's figures	$hardware_id
--device	$device
--memory	$memory
--plan-flags	$plan_flags
the program	$(version_of thermo-plan)"
why=$(differs plan "$plan_key")
[ -n "$why" ] || { [ -f "$plan" ] && [ "$(digest_of < "$plan")" = "$(field plan result)" ]; } ||
    why="$([ -e "$plan" ] && echo "'$plan' is not what was made" || echo "'$plan' is gone")"
[ -z "$fresh" ] || why="of --fresh"
if stage "3 plan" "what goes where" "$why"; then
    set_solve() { solve=("$programs/thermo-plan" solve --traces "$traces" --hardware "$hardware" ${device:+--device "$device"} \
        --memory "$memory" "${plan_words[@]}" "$@" --out "$plan"); }
    rm -f -- "$state/plan"
    r=4
    # A layout that is asked for is planned, whatever that of the pack is; stage 4 packs again where the two differ.
    own_layout='\ --(form|packed|down-type|cluster-neurons)[=\ ]'
    if [ -z "$pack_why" ] && ! [[ " ${plan_words[*]} " =~ $own_layout ]]; then
        set_solve --for-pack "$pack"
        run "${solve[@]}"
        r=$?
        [ $r -ne 4 ] || echo "   not with the pack that is there: trying with another layout, which packs again" >&2
    fi
    if [ $r -eq 4 ]; then
        set_solve
        run "${solve[@]}"
        r=$?
    fi
    ended $r plan
    made plan "$plan_key" "$(digest_of < "$plan")"
fi

# ---- 4 pack ----

pack_key="$pack_key
the plan's layout	$(layout_of "$plan")"
[ -n "$pack_why" ] || pack_why=$(differs pack "$pack_key")
if stage "4 pack" "neurons from hot to cold" "$pack_why"; then
    rm -f -- "$state/pack"
    run "$programs/thermo-pack" pack --model "$model" --traces "$traces" --plan "$plan" --out "$pack"
    ended $? pack
    unchanged_model pack
    made pack "$pack_key
stats	$(stats_of "$pack")" "$(json_of thermo-pack inspect "$pack" | digest_of)"
fi

# ---- 5 run ----

[ "$tokens" -ne 0 ] || exit 0
exec 9>&- # who generates keeps nobody from making plans
echo "== 5 run" >&2
set -- "$programs/thermo-run" generate --model "$pack" --plan "$plan" --prompt "$prompt" -n "$tokens" "${run_words[@]}" "$@"
show "$@"
exec "$@"
