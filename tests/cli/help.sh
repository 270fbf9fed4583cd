#!/bin/sh
# What every program and subcommand does alike: --help, --version, and exit status 2 for what it does not know.
. tests/tap.sh
scratch

# prints STATUS PATTERN COMMAND...: exits with STATUS and prints a line with PATTERN on stdout, nothing on stderr.
prints()
{
    want=$1 pattern=$2
    shift 2
    "$@" > "$tmp/out" 2> "$tmp/err"
    got=$?
    [ $got -eq "$want" ] || { echo "exit status $got instead of $want"; cat "$tmp/err"; return 1; }
    [ ! -s "$tmp/err" ] || { echo "on stderr:"; cat "$tmp/err"; return 1; }
    grep -q -e "$pattern" "$tmp/out" || { echo "no '$pattern' in:"; cat "$tmp/out"; return 1; }
}

# refuses STATUS PATTERN COMMAND...: exits with STATUS, one message with PATTERN on stderr, nothing on stdout.
refuses()
{
    want=$1 pattern=$2
    shift 2
    "$@" > "$tmp/out" 2> "$tmp/err"
    got=$?
    [ $got -eq "$want" ] || { echo "exit status $got instead of $want"; cat "$tmp/err"; return 1; }
    [ ! -s "$tmp/out" ] || { echo "on stdout:"; cat "$tmp/out"; return 1; }
    grep -q -e "$pattern" "$tmp/err" || { echo "no '$pattern' in:"; cat "$tmp/err"; return 1; }
}

narrow()
{
    "$@" | sed '/^examples:/,$d' | awk 'length > 100 { print; bad = 1 } END { exit bad }'
}

full_disk()
{
    "$@" > /dev/full 2> /dev/null
    [ $? -eq 1 ]
}

for name in thermo-profile thermo-plan thermo-pack thermo-run thermocline; do
    program=$BIN/$name
    check "$name --help" prints 0 "^usage: $name" "$program" --help
    check "$name --version" prints 0 "^$name [0-9]" "$program" --version
    check "$name alone" refuses 2 "usage: $name" "$program"
    check "$name with an unknown command" refuses 2 "unknown command 'frobnicate'\\|'frobnicate' is neither a file nor a command" "$program" frobnicate
    check "$name with an unknown option" refuses 2 "unknown option --frobnicate" "$program" --frobnicate
    [ ! -e /dev/full ] || check "$name --help to a full disk" full_disk "$program" --help
    commands=$("$program" --help | sed -n '/^commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p')
    check "$name lists commands" [ -n "$commands" ]
    for c in $commands; do
        check "$name $c --help" prints 0 "^usage: $name $c" "$program" "$c" --help
        check "$name help $c" prints 0 "^usage: $name $c" "$program" help "$c"
        check "$name $c --help fits the screen" narrow "$program" "$c" --help
        check "$name $c with an unknown option" refuses 2 "unknown option --frobnicate" "$program" "$c" --frobnicate
    done
done
# The one without subcommands.
program=$BIN/thermo-serve
check "thermo-serve --help" prints 0 "^usage: thermo-serve" "$program" --help
check "thermo-serve --help fits the screen" narrow "$program" --help
check "thermo-serve --version" prints 0 "^thermo-serve [0-9]" "$program" --version
check "thermo-serve alone" refuses 2 "--model FILE is required" "$program"
check "thermo-serve with an unknown option" refuses 2 "unknown option --frobnicate" "$program" --frobnicate
check "thermo-serve with an argument" refuses 2 "options of the engine come after --" "$program" --model x --plan y frobnicate
[ ! -e /dev/full ] || check "thermo-serve --help to a full disk" full_disk "$program" --help
program=$BIN/thermo-quantize
check "thermo-quantize --help" prints 0 "^usage: thermo-quantize" "$program" --help
check "thermo-quantize --help fits the screen" narrow "$program" --help
check "thermo-quantize --version" prints 0 "^thermo-quantize [0-9]" "$program" --version
check "thermo-quantize alone" refuses 2 "TYPE are needed" "$program"
check "thermo-quantize with an unknown option" refuses 2 "unknown option --frobnicate" "$program" --frobnicate
check "a list of many choices is whole" eval '"$BIN/gguf-make" random --help | grep -q "rwkv6\. Default: llama"'
check "and an error names --help in its place" says 2 "must be one of those that --help lists" "$BIN/gguf-make" random --arch none x.gguf
done_testing
