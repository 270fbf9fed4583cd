#!/bin/sh
# Whatever a program prints for people goes through common/base/print.h or the log, which escape it; messages are one line (tests/prints.py).
. tests/tap.sh
scratch
command -v python3 > /dev/null || { echo "1..0 # SKIP python3 is not installed"; exit 77; }

# finds TEXT PATTERN: in a source that holds TEXT in its second line, it is found there.
finds()
{
    printf '%s\n' '/* printf("%s", name); */' "$1" > "$tmp/a.c"
    says 1 "^$tmp/a.c:2: $2" python3 -B tests/prints.py "$tmp/a.c"
}
passes()
{
    printf '%s\n' "$1" > "$tmp/b.c"
    python3 -B tests/prints.py "$tmp/b.c"
}

check "every source prints by print, or the log" python3 -B tests/prints.py
check "printf is found" finds 'printf("%s\n", name);' 'printf: print'
check "over two lines, and after a call" finds 'f("(", g()); vprintf("%s",' 'vprintf: print'
check "puts of a value" finds 'puts(name);' 'puts of what is no constant'
check "fputs of one to a standard stream" finds 'fputs(x ? name : "", stderr);' 'fputs of what is no constant'
check "fwrite to one" finds 'fwrite(text, 1, len, stdout);' 'fwrite to a standard stream'
check "write" finds 'write(STDERR_FILENO, text, len);' 'write to a standard stream'
check "fprintf" finds 'fprintf(stdout, "%d", 1);' 'fprintf to a standard stream'
check "fprintf of text to any file" finds 'fprintf(f, "%d" "%s", 1, name);' 'fprintf of text'
check "a message that is formatted otherwise" finds 'vsnprintf(text, sizeof text, fmt, ap);' 'vsnprintf: print_into_va'
check "perror" finds 'perror(name);' 'perror'
check "a message of two lines" finds 'err_set(e, ERR_USAGE, "one" "\ntwo");' 'a message is one line'
check "a real of JSON" finds 'print_to(f, "{\"a\":%d,\"b\":%.3f}", 1, x);' 'print_to of a real of JSON'
check "one of an array, in a buffer" finds 'snprintf(s, n, "%s%.6g", i ? "," : "[", x);' 'snprintf of a real of JSON'
check "one that print_json_to prints passes" passes 'print_json_to(f, ",\"b\":%.3f}", x);'
check "a conversion that print has not" finds 'err_set(e, ERR_SYS, "%s: %" PRIu64 " %p", s, n, p);' '%p'
check "a size in another order" finds 'err_set(e, ERR_LIMIT, "a tile of %d bytes; the limit is %u", n, most);' 'of sizes: X, more than the limit of Y'
check "constants pass" passes 'fputs("{\"a\":", stdout); puts("b"); putc('"'\\n'"', stdout); fprintf(f, "%d", n); snprintf(s, n, "%s\n", t);'
check "a backslash in a message is none" passes 'err_set(e, ERR_USAGE, "none of \\n");'
done_testing
