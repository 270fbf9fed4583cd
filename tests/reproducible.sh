#!/bin/bash
# reproducible.sh: two builds of everything that is installed, in two folders, under another umask, time zone, locale and
# number of jobs: the same bytes. Called by make check-reproducible; not part of make check.
. tests/tap.sh
scratch
version=$(sed -n 's/^#define THERMO_VERSION "\(.*\)"/\1/p' common/base/version.h)

# build FOLDER JOBS COMMAND...: what `make dist` packs, unpacked into FOLDER, built and installed by COMMAND make.
build()
{
    local at=$1 jobs=$2
    shift 2
    mkdir -p "$at" && tar -xzf "build/thermocline-$version.tar.gz" -C "$at" --strip-components=1 || return 1
    (cd "$at" && CCACHE_DISABLE=1 MAKEFLAGS= nice "$@" "${MAKE:-make}" -s -j"$jobs" CC="$CC" PREFIX=/usr DESTDIR=root install > log 2>&1) ||
        { tail -n 20 "$at/log"; return 1; }
}
digests() { (cd "$1/root" && find . -type f | sort | xargs sha256sum && find . -type l | sort | xargs ls -l | sed 's/.* \.\//.\//'); }
same()
{
    digests "$tmp/a" > "$tmp/digests.a"
    digests "$tmp/somewhere else" > "$tmp/digests.b"
    echo "$(wc -l < "$tmp/digests.a") files"
    [ "$(wc -l < "$tmp/digests.a")" -gt 50 ] && diff "$tmp/digests.a" "$tmp/digests.b"
}
archive()
{
    sha256sum < "build/thermocline-$version.tar.gz" > "$tmp/archive"
    sleep 1 # gzip would note the second
    "${MAKE:-make}" -s --no-print-directory dist > /dev/null && sha256sum < "build/thermocline-$version.tar.gz" | cmp - "$tmp/archive"
}

check "make dist" "${MAKE:-make}" -s --no-print-directory dist
check "make dist: the same archive again" archive
check "a build" build "$tmp/a" 2 env TZ=UTC LC_ALL=C
check "another" build "$tmp/somewhere else" 1 sh -c 'umask 077; exec env TZ=Asia/Kathmandu LC_ALL=C.UTF-8 "$@"' sh
check "the same bytes" same
done_testing
