#!/bin/bash
# The page of thermo-serve in Chromium, by Python's playwright (PAGE_PYTHON: an interpreter that has it; CHROMIUM: the browser).
. tests/run_chain.sh
python=${PAGE_PYTHON:-python3}
"$python" -c 'import playwright' 2> /dev/null || { echo "1..0 # SKIP Python's playwright is not installed"; exit 77; }
export CHROMIUM=${CHROMIUM:-$(command -v chromium)}
[ -n "$CHROMIUM" ] || { echo "1..0 # SKIP chromium is not installed"; exit 77; }
scratch
chain_start
chain split --max-batch 4 || { echo "not ok 1 - chain"; echo "1..1"; exit 1; }
cat > "$tmp/template" << 'T'
{%- for m in messages %}
    {{- '[' ~ m.role ~ '] ' ~ m.content | trim ~ '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '[teller]' }}{% endif %}
T
"$python" -B tests/cli/page.py "$BIN" "$tmp/split.thermo" "$tmp/split.json" "$tmp/template"
