#!/bin/bash
# thermo-run chat at a terminal: typed.py, in a pseudo terminal, with a template that shows the beginning of messages alone.
. tests/run_chain.sh
scratch
chain_start
chain split || { echo "not ok 1 - chain"; echo "1..1"; exit 1; }
printf '%s' "{%- for m in messages %}{{- '[' ~ m.role ~ '] ' ~ (m.content | trim)[:60] ~ '\\n' }}{%- endfor %}{{ '[teller]' }}" > "$tmp/template"
slow=-
if [ -z "$SANITIZE" ]; then
    ${CC:-cc} -D_GNU_SOURCE -shared -fPIC -O1 -o "$tmp/slow.so" tests/preload/slow.c -ldl 2> "$tmp/log" && slow=$tmp/slow.so
fi
python3 -B tests/cli/typed.py "$run" "$tmp/split.thermo" "$tmp/split.json" "$tmp/template" "$tmp/typed" "$slow"
