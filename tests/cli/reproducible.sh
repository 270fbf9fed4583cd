#!/bin/sh
# Objects and archives are the same bytes whatever the folder, the time, the time zone and the umask. Here of three
# modules, with debug information; of the programs and all that is installed: make check-reproducible.
. tests/tap.sh
scratch
objects='common/base/err.o common/base/hash.o common/base/log.o'

# built FOLDER UMASK TZ: a copy of what these modules need, and an archive of them.
built()
{
    mkdir -p "$1" && cp -r GNUmakefile common datasets docs planner profiler packer runtime server driver quantizer schemas scripts "$1" && mkdir "$1/tests" &&
        cp tests/module.mk "$1/tests" || return 1
    (
        umask "$2"
        export TZ="$3" CCACHE_DISABLE=1 MAKEFLAGS=
        cd "$1" || exit 1
        # shellcheck disable=SC2046,SC2086
        ${MAKE:-make} -s CC="${CC:-cc}" B=out $(printf 'out/%s ' $objects) && cd out && ar rcsD all.a $objects
    )
}
same()
{
    for f in $objects all.a; do
        cmp "$tmp/a/out/$f" "$tmp/another folder, of a longer name/out/$f" || return 1
    done
}
names_no_folder() { ! grep -rlF "$tmp" "$tmp/a/out" --include='*.o' --include='*.a'; }

check "a build" built "$tmp/a" 022 UTC
check "elsewhere, at another time" built "$tmp/another folder, of a longer name" 077 Asia/Kathmandu
check "the same bytes" same
check "objects do not name their folder" names_no_folder
done_testing
