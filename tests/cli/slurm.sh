#!/bin/bash
# scripts/slurm.sh on a real Slurm: slurmctld, munged and a slurmd for each of three nodes, on this machine, in namespaces of their
# own: processes, mounts and a network that is loopback alone, so that nothing is left whatever happens. A corpus is traced in
# shards by a job array; a node is killed in the midst and its shard goes on elsewhere; another shard fails for good and the same
# command goes on with it alone; the merged trace has the hash of a single run. Then a device matrix's plans.
. tests/tap.sh
no() { echo "1..0 # SKIP $1"; exit 77; }
if [ "${1:-}" != inside ]; then
    [ -z "${SANITIZE:-}" ] || no "once, with the plain build"
    for p in slurmctld slurmd sbatch munged unshare ip setsid; do
        command -v $p > /dev/null || no "$p is not installed (scripts/deps.sh ci)"
    done
    [ "$(id -u)" -eq 0 ] || no "slurmd and its network are set up by root alone"
    try='ip link set lo up && ip addr add 127.0.0.2/8 dev lo && mount --bind /etc/hosts /etc/hosts'
    unshare -n -u -m -p -i -f --kill-child --mount-proc sh -c "$try" 2> /dev/null || no "namespaces are not to be had here"
    scratch
    export BIN B
    timeout --foreground -k 2 "${SLURM_TEST_SECONDS:-600}" unshare -n -u -m -p -i -f --kill-child --mount-proc bash "$0" inside "$tmp"
    exit
fi

tmp=$2
hosts=$tmp/hosts key=$tmp/munge/key
nodes=(n1 n2 n3)
mkdir -p "$tmp/munge" "$tmp/ctld" "$tmp/bin"
trap 'kill $(jobs -p) 2> /dev/null' EXIT

# A network of loopback alone. Slurm's names resolve only where some address is not 127.0.0.1: 127.0.0.2 is, and leads nowhere.
ip link set lo up && ip addr add 127.0.0.2/8 dev lo && hostname ctl || exit 1
{ cat /etc/hosts; echo "127.0.0.1 ctl ${nodes[*]}"; } > "$hosts"
mount --bind "$hosts" /etc/hosts || exit 1
head -c 128 /dev/urandom > "$key"
chmod 700 "$tmp/munge"
chmod 600 "$key"
{
    cat << END
ClusterName=thermo
SlurmctldHost=ctl
SlurmctldPort=16817
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$tmp/munge/socket
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation=$tmp/ctld
SlurmctldPidFile=$tmp/ctld.pid
SlurmctldLogFile=$tmp/ctld.log
SlurmdPidFile=$tmp/%n.pid
SlurmdLogFile=$tmp/%n.log
SlurmdSpoolDir=$tmp/spool.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=0,batch_sched_delay=0
MpiDefault=none
SwitchType=switch/none
SlurmdParameters=config_overrides
SlurmdTimeout=4
BatchStartTimeout=1
KillWait=2
ReturnToService=2
END
    port=16820
    for n in "${nodes[@]}"; do
        mkdir -p "$tmp/spool.$n" >&2
        echo "NodeName=$n NodeHostname=$n NodeAddr=127.0.0.1 Port=$((port += 1)) CPUs=1 State=UNKNOWN"
    done
    echo "PartitionName=all Nodes=$(IFS=,; echo "${nodes[*]}") Default=YES MaxTime=INFINITE State=UP"
} > "$tmp/slurm.conf"
export SLURM_CONF=$tmp/slurm.conf

# until SECONDS COMMAND...: once COMMAND succeeds.
until_()
{
    local end=$((SECONDS + $1))
    shift
    while ! "$@" > /dev/null 2>&1; do
        [ $SECONDS -lt $end ] || { echo "gave up waiting for: $*"; return 1; }
        sleep 0.1
    done
}
logs() { tail -n 20 "$tmp"/ctld.log "$tmp"/n?.log "$tmp"/*/log/*.out 2> /dev/null; }
start()
{
    munged --force --key-file="$key" --socket="$tmp/munge/socket" --pid-file="$tmp/munge/pid" --log-file="$tmp/munge/log" \
        --seed-file="$tmp/munge/seed" --num-threads=2 && slurmctld -c || return
    for n in "${nodes[@]}"; do slurmd -N "$n" || return; done
    until_ 60 idle 3
}
idle() { [ "$(sinfo -h -N -t idle -o %N | wc -l)" -ge "$1" ]; }
start > "$tmp/start" 2>&1 || { sed 's/^/# /' "$tmp/start"; logs | sed 's/^/# /'; no "Slurm does not start here"; }

is() { [ "$1" = "$2" ] || { echo "'$1' instead of '$2'"; return 1; }; }
content() { "$BIN/thermo-profile" show --json "$1" | python3 -c "import json, sys; print(json.load(sys.stdin)['content_hash'])"; }
model=datasets/models/reglu-tales-10m-f16.gguf prompts=datasets/prompts/stories-profile.csv work=$tmp/work
options=(--max-tokens 18000 --ctx 96 --samples 30 --window-tokens 100 --threads 1)
slurm() { scripts/slurm.sh trace --shards 3 --work "$work" --out "$tmp/merged.h5" --model "$model" --prompts "$prompts" "$@" -- "${options[@]}" --json; }
check "daemons listen on loopback alone" sh -c "! ss -Hltn | awk '{ print \$4 }' | grep -v '^127\\.'"
check "what would be submitted" says 0 "sbatch --array=0[\\\\],1[\\\\],2 .*trace.sbatch" slurm --dry-run

# A node that is killed: all that runs on it ends at once, as if its power went.
processes_on() { grep -l -z -x -e "SLURMD_NODENAME=$1" /proc/[0-9]*/environ 2> /dev/null | cut -d / -f 3; }
kill_node()
{
    local p parent pids
    pids=$(cat "$tmp/$1.pid")
    for p in $(processes_on "$1"); do
        parent=$(awk '/^PPid:/ { print $2 }' "/proc/$p/status")
        [ "$(cat "/proc/$parent/comm")" != slurmstepd ] || pids+=" $parent"
        pids+=" $p"
    done
    # shellcheck disable=SC2086
    kill -KILL $pids
}
node_of() { squeue -h -r -t RUNNING -o '%K %N' | awk -v i="$1" '$1 == i { print $2 }'; }
# hold NOT: finds a shard, not NOT, whose first chunk of several is done, and has its process stand still; its number is in held.
# The first chunk's record of the longest shard ends at 835,824 bytes and is whole once its tail is synced: beyond 860 KiB the
# second has begun.
# shellcheck disable=SC2086
hold()
{
    local i pid
    for i in $(find "$work" -name 'shard-*.partial' -size +860k | sed 's/.*shard-\([0-9]*\)-of.*/\1/' | grep -v -x "${1:-none}"); do
        pid=$(grep -l -s -F -e "shard-$i-of-3.h5" /proc/[0-9]*/cmdline | cut -d / -f 3)
        [ -n "$pid" ] && kill -STOP $pid 2> /dev/null || continue
        held=$i
        [ -e "$work/shard-$i-of-3.h5.partial" ] && [ ! -e "$work/shard-$i-of-3.h5" ] && return
        kill -CONT $pid
    done
    return 1
}
# Slurm has a requeued job wait for two minutes; here it need not. Once the queue is empty.
none_left()
{
    local job
    for job in $(squeue -h -r -t PENDING -o '%i %r' | awk '$2 == "BeginTime" { print $1 }'); do scontrol update JobId="$job" StartTime=now; done
    [ -z "$(squeue -h)" ]
}

slurm > "$tmp/submitted" 2>&1
check "an array, and the merge after it" grep -q "submitted: array [0-9]*, then job [0-9]*" "$tmp/submitted"
until_ 200 hold
lost=$held node=$(node_of "$lost")
check "a shard has something to lose" test -n "$lost" -a -n "$node"
kill_node "$node"
check "node $node dies with shard $lost half done" test ! -e "$work/shard-$lost-of-3.h5" -a -e "$work/shard-$lost-of-3.h5.partial"
until_ 200 hold "$lost"
cancelled=$held
check "another shard has something to lose" is "$([ "$cancelled" != "$lost" ] && echo other)" other
array=$(sed -n 's/.*array \([0-9]*\),.*/\1/p' "$tmp/submitted")
scancel "${array}_$cancelled"
check "shard $cancelled is cancelled half done" test ! -e "$work/shard-$cancelled-of-3.h5" -a -e "$work/shard-$cancelled-of-3.h5.partial"
check "the queue empties" until_ 300 none_left
check "the lost shard went on elsewhere" grep -q "^shard $lost of 3 on n[123], start 2" "$work/log/thermo-trace-${array}_$lost.out"
check "not on its node" is "$(grep -c "^shard $lost of 3 on $node," "$work/log/thermo-trace-${array}_$lost.out")" 1
check "from where it was" grep -q '"resumed_tokens": [1-9]' "$work/log/thermo-trace-${array}_$lost.out"
check "and is whole" test -e "$work/shard-$lost-of-3.h5" -a ! -e "$work/shard-$lost-of-3.h5.partial"
check "the merge names the one that is not" grep -q "not whole: shard $cancelled of 3" "$work"/log/thermo-merge-*.out
check "and makes no trace" test ! -e "$tmp/merged.h5"
check "other settings are refused" says 5 "another run" scripts/slurm.sh trace --shards 3 --work "$work" --out "$tmp/merged.h5" --model "$model" \
    --prompts "$prompts" -- --max-tokens 100

# The same command again, with two nodes of three.
check "the same command again" says 0 "content [0-9a-f]\\{32\\}" slurm --wait
check "does that shard alone" grep -q "shards to do: $cancelled of 3" "$tmp/said"
check "from where it was" sh -c "grep -h '\"resumed_tokens\": [1-9]' '$work'/log/thermo-trace-*_$cancelled.out"
"$BIN/thermo-profile" trace -q --model "$model" --prompts "$prompts" "${options[@]}" --out "$tmp/single.h5" > /dev/null
check "a single run's content" test -n "$(content "$tmp/single.h5")"
check "is that of the merged shards" is "$(content "$tmp/merged.h5")" "$(content "$tmp/single.h5")"
check "and so is every byte" cmp "$tmp/merged.h5" "$tmp/single.h5"
check "once more: nothing is left but to merge" says 0 "dependency\|merge.sbatch" slurm --dry-run
check "no shard is submitted" sh -c "! grep 'trace.sbatch' '$tmp/said'"

# A device matrix's plans.
plan_flags=(--model datasets/descriptions/small-relu.json --devices "datasets/devices/oneplus-*.csv" --memory "9MiB 10MiB" --flags "--form split --context 256 --policy lru" --state "$tmp/state")
scripts/plans.py "${plan_flags[@]}" --plans "$tmp/kept" > /dev/null 2>&1
check "plans of a matrix by an array" says 0 "4 plans compared with $tmp/kept/small-relu: 0 worse, 0 new" \
    scripts/slurm.sh plans --shards 2 --work "$tmp/plans-work" --baseline "$tmp/kept" --json "$tmp/plans.json" --wait -- "${plan_flags[@]}" --state "$tmp/state2" --plans "$tmp/by-array"
check "are those of one machine" diff -r "$tmp/kept" "$tmp/by-array"
check "made by the array's jobs, not by the last" grep -q '"made": 0' "$tmp/plans.json"
[ -z "${SLURM_TEST_LOGS:-}" ] || cp "$tmp"/*.log "$SLURM_TEST_LOGS"
[ "$bad" -eq 0 ] || logs | sed 's/^/# /'
done_testing
