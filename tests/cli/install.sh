#!/bin/sh
# make install puts everything under DESTDIR and PREFIX, what it put there works, and uninstall takes it away.
. tests/tap.sh
scratch
root=$tmp/root

mk()
{
    MAKEFLAGS='' ${MAKE:-make} --no-print-directory -s CC="$CC" SANITIZE="$SANITIZE" DESTDIR="$root" PREFIX=/opt/tc "$@"
}

manual()
{
    page=$root/opt/tc/share/man/man1/$1.1
    [ -s "$page" ] && grep -q 'EXIT STATUS' "$page" || return 1
    ! command -v mandoc > /dev/null || mandoc -T lint -W error "$page"
}

gone()
{
    left=$(find "$root" -type f)
    [ -z "$left" ] || { echo "left: $left"; return 1; }
}

outside()
{
    [ "$(ls "$root")" = opt ]
}

check "make install" mk install
for p in thermo-profile thermo-plan thermo-pack thermo-run; do
    check "$p runs" "$root/opt/tc/bin/$p" --version
    check "$p has a manual page" manual $p
done
check "nothing outside PREFIX" outside
check "schemas" [ -s "$root/opt/tc/share/thermocline/schemas/plan.schema.json" ]
check "the embedded model" cmp datasets/models/reglu-tales-10m-f16.gguf \
    "$root/opt/tc/share/thermocline/datasets/models/reglu-tales-10m-f16.gguf"
check "licence" cmp LICENSE "$root/opt/tc/share/doc/thermocline/LICENSE"
check "make uninstall" mk uninstall
check "nothing is left" gone
done_testing
