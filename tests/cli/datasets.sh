#!/bin/sh
# The data that comes with the sources is what its checksums and cards say.
. tests/tap.sh

sums()
{
    (cd datasets/models && sha256sum --quiet -c SHA256SUMS)
}

# Every file that the card names in backquotes with a path or an ending we ship is there.
card()
{
    bad=0
    for f in $(grep -oE '`[A-Za-z0-9_./-]+\.(gguf|py|md|model)`' datasets/models/README.md | tr -d '`' | sort -u); do
        [ -e "datasets/models/$f" ] || { echo "named and missing: $f"; bad=1; }
    done
    return $bad
}

# Descriptions follow their schema, and say where each figure comes from: a path in sources speaks for all below it.
descriptions()
{
    python3 - <<'PY'
import glob, json, jsonschema
schema = json.load(open("schemas/model-description.schema.json"))
jsonschema.Draft7Validator.check_schema(schema)
def leaves(d, path):
    for key, value in d.items():
        here = f"{path}.{key}" if path else key
        if isinstance(value, dict):
            yield from leaves(value, here)
        else:
            yield here
files = glob.glob("datasets/descriptions/*.json")
assert len(files) >= 3, files
for f in files:
    d = json.load(open(f))
    jsonschema.validate(d, schema)
    sources = d.pop("sources")
    for key in ("format", "revision", "name"):
        del d[key]
    for leaf in leaves(d, ""):
        assert any(leaf == s or leaf.startswith(s + ".") for s in sources), (f, leaf, "has no source")
PY
}
check "descriptions follow their schema and name their sources" descriptions

check "checksums of datasets/models" sums
check "files named by the model card exist" card
done_testing
