#!/bin/bash
# thermo-serve and Python's openai (OPENAI_PYTHON: an interpreter that has it).
. tests/run_chain.sh
python=${OPENAI_PYTHON:-python3}
"$python" -c 'import openai' 2> /dev/null || { echo "1..0 # SKIP Python's openai is not installed"; exit 77; }
scratch
chain_start
chain split --max-batch 8 || { echo "not ok 1 - chain"; echo "1..1"; exit 1; }
cat > "$tmp/template" << 'T'
{%- for m in messages %}
    {{- '[' ~ m.role ~ '] ' ~ m.content | trim ~ '\n' }}
{%- endfor %}
{%- if tools %}Environment: ipython {"name": "", "parameters": {}}{% endif %}
{%- if add_generation_prompt %}{{ '[teller]' }}{% endif %}
T
"$python" -B tests/cli/server-openai.py "$BIN" "$tmp/split.thermo" "$tmp/split.json" "$tmp/template"
