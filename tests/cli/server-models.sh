#!/bin/bash
# thermo-serve --models and --idle-unload: server-models.py, on a folder of two plans of the embedded model, one that cannot be opened and things that
# are no models.
. tests/run_chain.sh
scratch
chain_start
for form in split bundle; do
    chain $form --max-batch 8 || { echo "not ok 1 - chain"; echo "1..1"; exit 1; }
done
place() # NAME FORM
{
    mkdir -p "$tmp/models/$1" && ln "$tmp/$2.thermo" "$tmp/models/$1/model.thermo" && cp "$tmp/$2.json" "$tmp/models/$1/plan.json"
}
place a split
place 'b 2' bundle
place torn split
rm "$tmp/models/torn/model.thermo"
head -c 100000 "$tmp/split.thermo" > "$tmp/models/torn/model.thermo"
mkdir "$tmp/models/half" "$tmp/models/other" "$tmp/empty"
cp "$tmp/split.json" "$tmp/models/half/plan.json"
cat > "$tmp/template" << 'T'
{%- for m in messages %}
    {{- '[' ~ m.role ~ '] ' ~ m.content | trim ~ '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '[teller]' }}{% endif %}
T
python3 -B tests/cli/server-models.py "$BIN" "$tmp"
