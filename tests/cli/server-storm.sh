#!/bin/bash
# Thirty-two clients of thermo-serve, for STORM_SECONDS (10).
. tests/run_chain.sh
scratch
chain_start
chain split --max-batch 8 || { echo "not ok 1 - chain"; echo "1..1"; exit 1; }
cat > "$tmp/template" << 'T'
{%- for m in messages %}
    {{- '[' ~ m.role ~ '] ' ~ m.content | trim ~ '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '[teller]' }}{% endif %}
T
python3 -B tests/cli/server-storm.py "$BIN" "$tmp/split.thermo" "$tmp/split.json" "$tmp/template" "${STORM_SECONDS:-10}"
