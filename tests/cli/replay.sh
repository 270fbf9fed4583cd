#!/bin/bash
# thermo-serve: answers that come back in a conversation are read as they were sampled: replay.py.
. tests/run_chain.sh
scratch
chain_start
chain split --max-batch 8 || { echo "not ok 1 - chain"; echo "1..1"; exit 1; }
cat > "$tmp/template" << 'T'
{%- if tools %}Environment: ipython {"name": "", "parameters": {}}{{ '\n' }}{% endif %}
{%- for m in messages %}
    {{- '[' ~ m.role ~ '] ' }}
    {%- if m.reasoning_content %}{{ '<think>' ~ m.reasoning_content }}{{ '</think>' if m.content or m.tool_calls }}{% endif %}
    {{- m.content }}
    {%- for c in m.tool_calls or [] %}{{ '{"name": "' ~ c.function.name ~ '", "parameters": ' ~ c.function.arguments ~ '}' }}{% endfor %}
    {{- eos_token if m.role == 'assistant' else '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '[assistant] ' ~ ('<think>' if reasoning_effort == 'high') }}{% endif %}
T
python3 -B tests/cli/replay.py "$BIN" "$tmp/split.thermo" "$tmp/split.json" "$tmp/template" "$tmp/prefixes"
