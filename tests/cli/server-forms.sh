#!/bin/bash
# thermo-serve in the forms of Anthropic's messages and OpenAI's responses: server-forms.py.
. tests/run_chain.sh
scratch
chain_start
chain split --max-batch 8 || { echo "not ok 1 - chain"; echo "1..1"; exit 1; }
cat > "$tmp/template" << 'T'
{%- for m in messages %}
    {{- '[' ~ m.role ~ '] ' }}
    {%- if m.reasoning_content %}{{ '(' ~ m.reasoning_content ~ ') ' }}{% endif %}
    {{- m.content | trim }}
    {%- for c in m.tool_calls or [] %}{{ ' call ' ~ c.id ~ ' ' ~ c.function.name ~ ' ' ~ c.function.arguments }}{% endfor %}
    {%- if m.tool_call_id %}{{ ' of ' ~ m.tool_call_id }}{% endif %}
    {{- '\n' }}
{%- endfor %}
{%- for t in tools or [] %}{{ '{' ~ t.function.name ~ '}' }}{% endfor %}
{%- if tools %}Environment: ipython {"name": "", "parameters": {}}{% endif %}
{%- if reasoning_effort %}{{ 'effort ' ~ reasoning_effort }}{% endif %}
{%- if add_generation_prompt %}{{ '[teller]' ~ ('<think>' if reasoning_effort == 'high') }}{% endif %}
T
python3 -B tests/cli/server-forms.py "$BIN" "$tmp/split.thermo" "$tmp/split.json" "$tmp/template"
