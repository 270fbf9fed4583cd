#!/bin/sh
# bench.sh: speed against memory, peers and the machine's bounds, as one table. See usage().
usage()
{
    cat << 'END'
usage: bench.sh [--dry-run]          (or: make bench NAME=VALUE...)

Measures tokens per second of a packed model, and of peers on the same GGUF, under each memory limit in turn, beside what this
machine's memory and disk allow. Writes OUT/benchmarks.json (every run), OUT/BENCHMARKS.md and plots; a model's
results replace those of the same NAME. An interrupted benchmark goes on where it was when called again. The machine
should have nothing else to do. --dry-run prints the runs. Without settings: the embedded model, in under three minutes.

Settings, as environment variables or make's NAME=VALUE:
  MODEL=FILE          a packed model (.thermo) with PLAN or with TRACES and HARDWARE; or a GGUF, taken through the
                      whole way first. Default: the embedded model
  PLAN=FILE           its plan, with the limits of MEMORY
  TRACES=FILE HARDWARE=FILE [PLAN_FLAGS=...]
                      instead of PLAN: thermo-plan solve makes it, for the limits of MEMORY
  GGUF=FILE           the same model for the peers
  MEMORY=LIST         resident, floor (the least that MODEL runs in) and sizes: "resident 2500MB 1GiB floor"
  MODES=LIST          of thermo-run --mode, each measured, the ladder in the first; plan is the plan's own. Default: plan
  MODEL_EXACT=FILE PLAN_EXACT=FILE, MODEL_PREDICTED=FILE PLAN_PREDICTED=FILE, MODEL_DENSE=FILE PLAN_DENSE=FILE
                      what a mode of MODES runs with instead of MODEL and PLAN; a plan that is not given is made, for
                      that mode, where TRACES and HARDWARE are
  RUNS=N              of each program under each limit, alternating. Default: 5
  TOKENS=N            of a run. Default: 64.         PEER_TOKENS=N  of peers under a limit. Default: 16
  PROMPT=N            tokens of the prompt that time to first token is measured with; 0: not. Default: 128
  PROMPT_RUNS=N       of these. Default: 1
  LLAMA_CPP=DIR       folder with llama-bench; left out where not set.   LLAMA_CPP_MMAP=DIR  the same, for runs under a
                      limit: a build that does not repack weights, so that the file stays mapped
  IK_LLAMA_CPP=DIR    likewise, of ik_llama.cpp (-rtr 1 when resident).  IK_LLAMA_CPP_MMAP=DIR
  LLAMA_CPP_VERSION=TEXT IK_LLAMA_CPP_VERSION=TEXT
                      what they are, for the page: revision, date, build
  PEERS="NAME=DIR ..." further folders with llama-bench; a NAME that begins with ik has -rtr 1 when resident. One that
                      ends in -TIER (of thermo-run --cpu, "ik-avx2=DIR") was built for that tier, others for this
                      machine: the page has a table by tier, of these and of thermo-run at the same tiers
  TIERS=LIST          of thermo-run to measure instead: "native avx2"
  SMALLTHINKER=DIR    folder with llama-cli of SmallThinker's engine, for models of its architecture; it runs
                      resident with SMALLTHINKER_GGUF=FILE (Down transposed), under a limit with
                      SMALLTHINKER_SLIM=FILE (no experts), SMALLTHINKER_BUNDLE=FILE (its own) and
                      SMALLTHINKER_CACHED=N expert matrices in memory.   SMALLTHINKER_VERSION=TEXT
  LADDER=LIST         limits of MEMORY under which to take away prefetch, pipeline, cache, bundles. Default: the
                      first size; none: nowhere
  FLAT_MODEL=FILE [FLAT_PLAN=FILE]
                      a pack in another form, and its plan: the ladder's last rung
  THREADS=N           of peers and of the bandwidth's measurement. Default: all processors
  NAME=TEXT           of these results. Default: MODEL's file name
  OUT=DIR             Default: docs
  STATE=DIR           where unfinished results are kept. Default: build/bench/NAME/state
  FRESH=1             forget them
  TIMEOUT=S           of one run. Default: 1800.     FIO_SECONDS=S  of fio, each time. Default: 2
  READ_AHEAD_FILE=F   the kernel's read-ahead setting of GGUF's disk, in KiB. Default: found under /sys
END
}

case ${1:-} in
--help | -h) usage; exit 0 ;;
--dry-run | '') ;;
*) echo "bench.sh: unknown option $1; --help lists them" >&2; exit 2 ;;
esac
cd "$(dirname "$0")/.." || exit 1
BIN=${BIN:-build/bin} B=${B:-build/$(uname -m)}
BENCH_KERNELS=${BENCH_KERNELS:-$B/tests/bench/bench_kernels}
COMMIT=$(git describe --always --dirty --exclude '*' 2> /dev/null || echo unknown)
embedded=datasets/models/reglu-tales-10m-f16.gguf
[ -x "$BIN/thermo-run" ] || { echo "bench.sh: no programs in '$BIN'; run make first" >&2; exit 1; }
if [ -z "${MODEL:-}" ]; then
    MODEL=$embedded MEMORY=${MEMORY:-resident 20MiB 18MiB 16MiB floor} PROMPT=${PROMPT:-64}
fi
[ -r "$MODEL" ] || { echo "bench.sh: MODEL: cannot read '$MODEL'" >&2; exit 3; }
MEMORY=${MEMORY:-resident floor}

# The limits to plan for: sizes as they are, and for resident what surely holds all of FILE.
plan_limits()
{
    sizes=
    for word in $(printf '%s' "$MEMORY" | tr ',' ' '); do
        case $word in
        floor) continue ;;
        resident) word=$(($(stat -c %s "$1") * 9 / 8 + 32 * 1024 * 1024)) ;;
        esac
        sizes=$sizes${sizes:+,}$word
    done
    printf '%s' "$sizes"
}

# solve PACK PLAN FLAGS...
solve()
{
    pack=$1 made=$2
    shift 2
    if [ -z "${TRACES:-}" ] || [ -z "${HARDWARE:-}" ]; then
        echo "bench.sh: packed model '$pack' needs a plan, or TRACES and HARDWARE to make one" >&2
        exit 2
    fi
    mkdir -p "$(dirname "$made")" || exit 1
    # shellcheck disable=SC2086
    "$BIN/thermo-plan" solve --traces "$TRACES" --hardware "$HARDWARE" --for-pack "$pack" \
        --memory "$(plan_limits "$pack")" --out "$made.new" ${PLAN_FLAGS:-} "$@" >&2 || exit
    # An unfinished benchmark goes on with the plan that it began with, and that is the same bytes.
    if cmp -s "$made.new" "$made"; then rm "$made.new"; else mv "$made.new" "$made"; fi
}

# plan_for MODE PACK: makes the plan and prints its name.
plan_for()
{
    solve "$2" "build/bench/$NAME/plan-$1.json" --mode "$1" && echo "build/bench/$NAME/plan-$1.json"
}

case $MODEL in
*.thermo)
    NAME=${NAME:-$(basename "$MODEL" .thermo)}
    if [ -z "${PLAN:-}" ]; then
        PLAN=build/bench/$NAME/plan.json
        solve "$MODEL" "$PLAN"
        for mode in $(printf '%s' "${MODES:-}" | tr -s ' ' '\n' | grep -v '^plan$'); do
            case $mode in
            exact) PLAN_EXACT=${PLAN_EXACT:-$(plan_for exact "${MODEL_EXACT:-$MODEL}")} || exit ;;
            predicted) PLAN_PREDICTED=${PLAN_PREDICTED:-$(plan_for predicted "${MODEL_PREDICTED:-$MODEL}")} || exit ;;
            dense) PLAN_DENSE=${PLAN_DENSE:-$(plan_for dense "${MODEL_DENSE:-$MODEL}")} || exit ;;
            *) echo "bench.sh: MODES: '$mode' is not plan, exact, predicted or dense" >&2; exit 2 ;;
            esac
        done
        export PLAN_EXACT PLAN_PREDICTED PLAN_DENSE
    fi
    if [ -n "${FLAT_MODEL:-}" ] && [ -z "${FLAT_PLAN:-}" ]; then
        FLAT_PLAN=build/bench/$NAME/plan-flat.json
        solve "$FLAT_MODEL" "$FLAT_PLAN"
        export FLAT_PLAN
    fi
    ;;
*)
    NAME=${NAME:-$(basename "$MODEL" .gguf)}
    made=build/bench/$NAME GGUF=${GGUF:-$MODEL}
    "$BIN/thermocline" "$MODEL" --memory "$(plan_limits "$MODEL")" --out "$made" --tokens 0 || exit
    MODEL=$made/model.thermo PLAN=$made/plan.json
    ;;
esac
export BIN BENCH_KERNELS COMMIT MODEL PLAN GGUF MEMORY NAME PROMPT
exec python3 -B scripts/bench.py "$@"
