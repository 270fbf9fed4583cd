#!/bin/sh
# deb.sh source|binary|chroot|test [FOLDER]: Debian packages of what is committed, into FOLDER (build/deb).
#   source   the source package: thermocline_VERSION.orig.tar.gz, made by make dist, and debian/
#   binary   packages, built here (the build dependencies must be installed)
#   chroot   packages built in a clean chroot as an ordinary user, and looked at by lintian; then as test
#   test     packages of FOLDER installed in another clean chroot, where their own tests run (debian/tests, by autopkgtest)
# Chroots need root, about ten minutes and 3 GB in FOLDER.
what=$1 out=${2:-build/deb}
suite=${SUITE:-bookworm} mirror=${MIRROR:-http://deb.debian.org/debian}
case $what in source | binary | chroot | test) ;; *) sed -n '2,7s/^# //p' "$0" >&2; exit 2 ;; esac
mkdir -p "$out" && out=$(readlink -f "$out") || exit 1
version=$(dpkg-parsechangelog -S Version) upstream=$(dpkg-parsechangelog -S Version | sed 's/-[^-]*$//')
tree=$out/thermocline-$upstream

fail() { echo "deb.sh: $*" >&2; exit 1; }

source_package()
{
    rm -rf "$tree" "$out"/thermocline_"$upstream"*
    ${MAKE:-make} -s --no-print-directory MAKEFLAGS= dist > /dev/null &&
        cp "build/thermocline-$upstream.tar.gz" "$out/thermocline_$upstream.orig.tar.gz" &&
        tar -xzf "$out/thermocline_$upstream.orig.tar.gz" -C "$out" &&
        git ls-files -z debian | xargs -0 cp --parents -t "$tree" &&
        (cd "$out" && dpkg-source -b "$tree")
}

# base NAME PACKAGES: a chroot of Debian with PACKAGES, kept as an archive; unpacked anew each time.
base()
{
    [ -s "$out/$1.tar" ] || mmdebstrap -q --variant=buildd --include="$2" "$suite" "$out/$1.tar" "deb $mirror $suite main" || return 1
    rm -rf "${out:?}/$1" && mkdir -p "$out/$1" && tar -xf "$out/$1.tar" -C "$out/$1" --exclude='./dev/*'
}
# inside NAME SCRIPT: a shell in the chroot, with /proc and /dev of its own mount namespace.
inside()
{
    # shellcheck disable=SC2016
    unshare --mount --pid --fork sh -c 'mount --rbind /dev "$1/dev" && mount -t proc proc "$1/proc" &&
        cp -L /etc/resolv.conf "$1/etc/resolv.conf" && exec chroot "$1" sh -ec "$2"' sh "$out/$1" "$2"
}

build_dependencies()
{
    sed -n '/^Build-Depends:/,/^[A-Z]/p' debian/control | grep -v -e '^Standards' | tr -d ' \n' |
        sed 's/Build-Depends://; s/([^)]*)//g; s/<[^>]*>//g; s/debhelper-compat/debhelper/'
}

built_in_chroot()
{
    base build "$(build_dependencies),fakeroot,lintian" || return 1
    mkdir -p "$out/build/src" && cp "$out"/thermocline_"$upstream"* "$out/build/src" || return 1
    inside build "
        useradd -m builder && chown -R builder /src && cd /src
        su builder -c 'dpkg-source -x thermocline_$version.dsc && cd thermocline-$upstream && dpkg-buildpackage -us -uc -j2'
        echo '== lintian'
        su builder -c 'lintian -I --pedantic --fail-on error,warning,info,pedantic *.changes'
    " || return 1
    cp "$out"/build/src/*.deb "$out"/build/src/*.changes "$out"/build/src/*.buildinfo "$out" || return 1
    rm -rf "$out/build"
}

tested_in_chroot()
{
    base test autopkgtest || return 1
    mkdir -p "$out/test/src" && cp "$out"/*_"$upstream"* "$out/test/src" || return 1
    inside test "
        apt-get -qq update && cd /src && useradd -m tester
        autopkgtest --user tester ./*_$version*.deb thermocline_$version.dsc -- null
    " || return 1
    rm -rf "$out/test"
}

case $what in
chroot | test)
    [ "$(id -u)" -eq 0 ] || fail "a chroot needs root"
    command -v mmdebstrap > /dev/null || fail "mmdebstrap is needed (scripts/deps.sh package)"
    ;;
esac
[ "$what" = test ] || source_package || fail "no source package"
case $what in
binary) (cd "$tree" && dpkg-buildpackage -b -us -uc) && ls -l "$out"/*.deb ;;
chroot) built_in_chroot && tested_in_chroot && ls -l "$out"/*.deb ;;
test) tested_in_chroot ;;
esac
