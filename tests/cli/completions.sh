#!/bin/sh
# Completions, as the shells' own engines complete: keys go to an interactive bash, zsh and fish, and what the completed
# line runs says what it was given.
. tests/tap.sh
scratch
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }

check "make completions" env MAKEFLAGS= "${MAKE:-make}" --no-print-directory -s CC="${CC:-cc}" SANITIZE="${SANITIZE:-}" completions
for shell in bash zsh fish; do
    if ! command -v $shell > /dev/null; then
        skip "$shell completes" "$shell is not installed"
        continue
    fi
    check "$shell reads what is made for it" sh -c "for f in $B/completions/*.$shell; do $shell -n \"\$f\" || exit 1; done"
    python3 -B tests/cli/completions.py $shell "$B/completions" "$tmp" > "$tmp/$shell.out" 2>&1
    while IFS='	' read -r line want got; do
        check "$shell: $line" test "$want" = "$got"
    done < "$tmp/$shell.out"
    check "$shell: all lines were tried" test "$(wc -l < "$tmp/$shell.out")" -eq "$(python3 -B tests/cli/completions.py count)"
done
done_testing
