#!/bin/sh
# deps.sh [build|all|ci|package]: install the Debian packages that building (and, by default, testing) needs,
# with a processor's OpenCL for testing; ci adds a
# cross compiler and an emulator for aarch64, shells whose completions are tried, what looks at manual pages, Slurm, and z3 as a program;
# package, to build, what makes Debian packages and static programs. As root or with sudo that asks no password it
# installs; else it prints the one command and exits 1.
build='gcc libc6-dev make pkg-config libz3-dev libhdf5-dev libzstd-dev libcsv-dev libsqlite3-dev libjansson-dev
       libxxhash-dev libpcre2-dev liburing-dev libmicrohttpd-dev libedit-dev libopenblas-dev liblapacke-dev'
check='clang clang-format clang-tidy libclang-rt-dev hdf5-tools sqlite3 python3-jsonschema
       binutils git ocl-icd-libopencl1 pocl-opencl-icd'
cross='ccache gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user'
package='dpkg-dev debhelper fakeroot mmdebstrap lintian gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user'
shells='zsh fish mandoc man-db groff-base'
solver='z3'
cluster='slurmctld slurmd slurm-client munge iproute2'
case ${1:-all} in
build) packages=$build ;;
all) packages="$build $check" ;;
ci) packages="$build $check $cross $shells $cluster $solver" ;;
package) packages="$build $package" ;;
*) echo "usage: deps.sh [build|all|ci|package]" >&2; exit 2 ;;
esac
# shellcheck disable=SC2086
set -- $packages

missing=
for p in "$@"; do
    dpkg-query -W -f '${Status}\n' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
done
if [ -z "$missing" ]; then
    echo "all packages are installed"
    exit 0
fi
if ! command -v apt-get > /dev/null; then
    echo "this is no Debian; the packages' names there are:$missing" >&2
    exit 1
fi
if [ "$(id -u)" -eq 0 ]; then
    run=
elif sudo -n true 2>/dev/null; then
    run=sudo
else
    echo "run this, then again what you ran:" >&2
    echo "  sudo apt-get install -y --no-install-recommends$missing" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
$run apt-get update -qq || echo "apt-get update failed; trying with the lists at hand" >&2
# shellcheck disable=SC2086
$run apt-get install -y -qq --no-install-recommends $missing
