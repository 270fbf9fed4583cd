#!/bin/sh
# C sources and headers: at most 140 columns a line and 1000 lines a file, no tab, trailing blank or carriage return, and a
# final newline. Test scripts may be executed.
. tests/tap.sh
scratch

# files: every C source and header, but for what a build made.
files()
{
    { git ls-files '*.c' '*.h' 2> /dev/null | grep . || find . -name '*.[ch]' ! -path './build/*'; } | while read -r f; do
        [ ! -e "$f" ] || echo "$f"
    done
}

# lines FILE...: each place as FILE:LINE: what; fails where there is any. A column is a character of UTF-8: bytes that continue
# one are not counted.
lines()
{
    [ $# -gt 0 ] || { echo "no C source found"; return 1; }
    LC_ALL=C awk '
        function found(what) { print FILENAME ":" FNR ": " what; bad = 1 }
        FNR == 1001 { found("more than 1000 lines") }
        /\t/ { found("tab") }
        /\r/ { found("carriage return") }
        /[ \t\f\v]\r?$/ { found("trailing blank") }
        length($0) > 140 {
            text = $0
            gsub(/[\200-\277]/, "", text)
            if (length(text) > 140)
                found(length(text) " columns; at most 140")
        }
        END { exit bad }' "$@"
    _r=$?
    for f in "$@"; do
        [ -z "$(tail -c 1 "$f")" ] || { echo "$f:$(($(wc -l < "$f") + 1)): no newline at the end"; _r=1; }
    done
    return "$_r"
}

# finds FORMAT ARGUMENT PATTERN: in a file of that text, printed by printf, PATTERN is found, at its line.
finds()
{
    # shellcheck disable=SC2059
    printf "$1" "$2" > "$tmp/a.c"
    says 1 "^$tmp/a.c:$3\$" lines "$tmp/a.c"
}
# passes FORMAT ARGUMENT
passes()
{
    # shellcheck disable=SC2059
    printf "$1" "$2" > "$tmp/a.c"
    lines "$tmp/a.c"
}

wide=$(printf '%0140d' 0)
# What run.sh calls by its name.
scripts_run() { find tests/cli tests/e2e tests/check-*.sh -name '*.sh' ! -perm -u+x | grep . && return 1; return 0; }
check "every test script may be executed" scripts_run
# shellcheck disable=SC2046
check "every line and file within limits" lines $(files)
check "140 columns" passes '%s\n' "$wide"
check "140 columns of more bytes" passes '%s\n' "$(echo "$wide" | sed 's/0/─/g')"
check "141 columns are found" finds 'first\n%s1\n' "$wide" "2: 141 columns; at most 140"
check "1000 lines" passes '%s\n' "$(seq 1000)"
check "1001 lines are found" finds '%s\n' "$(seq 1001)" "1001: more than 1000 lines"
check "a tab is found" finds 'first\n%s\tb\n' a "2: tab"
check "a trailing blank is found" finds 'first\n%s \n' a "2: trailing blank"
check "a carriage return is found" finds 'first\n%s\r\n' a "2: carriage return"
check "no final newline is found" finds 'first\n%s' a "2: no newline at the end"
check "an empty file" passes '%s' ''
done_testing
