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

check "checksums of datasets/models" sums
check "files named by the model card exist" card
done_testing
