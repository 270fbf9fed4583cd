#!/bin/bash
# Chat templates made at random give what jinja2 makes of them, or are refused (tests/template_oracle.py). CASES=N and SEED=N make
# others.
. tests/tap.sh
scratch
B=${B:-build/$(uname -m)}
tool=$B/tests/tools/template-lines
oracle()
{
    local r=0
    python3 -B tests/template_oracle.py "$tool" "${CASES:-$(of 20000 4000)}" "${SEED:-1}" 5 > "$tmp/out" 2> "$tmp/err" || r=$?
    cat "$tmp/out" "$tmp/err"
    # what is refused for want of support is a small part, and templates are rendered at all
    [ $r -eq 0 ] && python3 - "$tmp/out" <<'P'
import re, sys
n = {k: int(v) for k, v in re.findall(r'([a-z ]+): (\d+)', open(sys.argv[1]).readline())}
assert n[' same'] > 10 * n.get(' by design', 0) and n[' same'] > 4 * n[' not supported'], n
P
}
if ! python3 -c 'import jinja2' 2> /dev/null; then
    skip "templates made at random against jinja2" "python3's jinja2 is not installed"
elif [ ! -x "$tool" ]; then
    skip "templates made at random against jinja2" "$tool is not built"
else
    check "templates made at random: jinja2's text, or refused" oracle
fi
done_testing
