#!/bin/sh
# thermo-serve: server.py, on the embedded model with a template of its own.
. tests/tap.sh
. tests/chain.sh
scratch
cat > "$tmp/template" << 'T'
{%- for m in messages %}
    {{- '[' ~ m.role ~ '] ' ~ m.content | trim ~ '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '[teller]' }}{% endif %}
T
python3 -B tests/cli/server.py "$BIN" "$packed" "$plan" "$tmp/template"
