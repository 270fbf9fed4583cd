#!/bin/bash
# thermo-serve and two programs that speak with many servers: Python's litellm, by three forms, and llm (CLIENTS_PYTHON: an interpreter that has them).
. tests/run_chain.sh
python=${CLIENTS_PYTHON:-python3}
have=
for m in litellm llm; do
    "$python" -c "import importlib.util, sys; sys.exit(not importlib.util.find_spec('$m'))" && have+=" $m"
done
[ -n "$have" ] || { echo "1..0 # SKIP neither Python's litellm nor llm is installed"; exit 77; }
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
# shellcheck disable=SC2086
"$python" -B tests/cli/server-clients.py "$BIN" "$tmp/split.thermo" "$tmp/split.json" "$tmp/template" $have
