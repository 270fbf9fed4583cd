#!/bin/bash
# thermo-serve and Python's anthropic (ANTHROPIC_PYTHON: an interpreter that has it).
. tests/run_chain.sh
python=${ANTHROPIC_PYTHON:-python3}
"$python" -c 'import anthropic' 2> /dev/null || { echo "1..0 # SKIP Python's anthropic is not installed"; exit 77; }
scratch
chain_start
chain split --max-batch 8 || { echo "not ok 1 - chain"; echo "1..1"; exit 1; }
cat > "$tmp/template" << 'T'
{%- for m in messages %}
    {{- '[' ~ m.role ~ '] ' ~ m.content | trim ~ '\n' }}
{%- endfor %}
{%- if tools %}Environment: ipython {"name": "", "parameters": {}}{% endif %}
{%- if add_generation_prompt %}{{ '[teller]' ~ ('<think>' if reasoning_effort == 'high') }}{% endif %}
T
"$python" -B tests/cli/server-anthropic.py "$BIN" "$tmp/split.thermo" "$tmp/split.json" "$tmp/template"
