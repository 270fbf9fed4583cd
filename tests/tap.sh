# Sourced by test scripts: `ok COMMAND...` and `check NAME COMMAND...` print one TAP point each, `done_testing` the
# plan and the exit status. `scratch` makes $tmp, removed at exit.
n=0 bad=0
BIN=${BIN:-build/bin} B=${B:-build/$(uname -m)}

# check NAME COMMAND...: a point that passes when COMMAND exits 0; what it printed follows a failure.
check()
{
    _name=$1
    shift
    n=$((n + 1))
    if _out=$("$@" 2>&1); then
        echo "ok $n - $_name"
    else
        bad=$((bad + 1))
        echo "not ok $n - $_name"
        echo "$_out" | head -n 40 | sed 's/^/# /'
    fi
}

# status WANT COMMAND...: succeeds when COMMAND exits with WANT.
status()
{
    _want=$1
    shift
    "$@"
    _got=$?
    [ "$_got" -eq "$_want" ] || { echo "exit status $_got instead of $_want: $*"; return 1; }
}

# says WANT PATTERN COMMAND...: succeeds when COMMAND exits with WANT and prints PATTERN; needs scratch.
says()
{
    _want=$1 _pattern=$2
    shift 2
    "$@" > "$tmp/said" 2>&1
    _got=$?
    [ "$_got" -eq "$_want" ] && grep -q -e "$_pattern" "$tmp/said" && return
    echo "exit status $_got (wanted $_want), looking for '$_pattern' in:"
    cat "$tmp/said"
    return 1
}

# phone_csv FILE, phone DB: figures of a phone with two of its five middle cores: half as many configurations to plan.
phone_csv() { sed 's/\(class=mid,n_cores,\)5,/\12,/' datasets/devices/oneplus-12.csv > "$1"; }
phone() { phone_csv "$1.csv" && "$BIN/thermo-profile" import -q --db "$1" --csv "$1.csv"; }

# leaks_unseen: from here on. Threads of OpenCL's driver may end while LeakSanitizer looks at them, which it takes for a crash of its own.
leaks_unseen() { export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"; }

# Short runs are those of make check and of sanitizers: they reach the same code as whole ones (make check-all, or a script called by itself), on
# fewer plans, models and tokens.
short=${TEST_SHORT:-${SANITIZE:-}}

# unless_short CHECK...: in whole runs only.
unless_short() { [ -n "$short" ] || "$@"; }

# plainly CHECK...: not with sanitizers: of results, by code that other checks reach.
plainly() { [ -n "${SANITIZE:-}" ] || "$@"; }

# of N FEW: N, or FEW in a short run.
of() { [ -n "$short" ] && echo "$2" || echo "$1"; }

skip()
{
    n=$((n + 1))
    echo "ok $n - $1 # SKIP $2"
}

# caught PID: once PID, a program in the background, catches SIGTERM (sooner, a signal meets only its start), or has ended.
caught()
{
    while _exe=$(readlink "/proc/$1/exe"); do
        case $_exe:$(sed -n 's/^SigCgt:.*\(.\)...$/\1/p' "/proc/$1/status" 2> /dev/null) in
        "$(readlink /proc/$$/exe)":*) ;; # still the shell
        *:[4-7c-f]) return ;;
        esac
        sleep 0.01
    done
}

# small_pages COMMAND...: where the system gives no huge pages (PR_SET_THP_DISABLE).
small_pages()
{
    python3 -c 'import ctypes, os, sys
if ctypes.CDLL(None).prctl(41, 1, 0, 0, 0): sys.exit(99)
os.execvp(sys.argv[1], sys.argv[1:])' "$@"
}

scratch()
{
    tmp=$(mktemp -d "${TMPDIR:-/tmp}/thermo-test-XXXXXX") || exit 1
    trap 'rm -rf "$tmp"' EXIT
    trap 'exit 130' INT TERM
}

done_testing()
{
    echo "1..$n"
    [ "$bad" -eq 0 ]
    exit
}
