#!/bin/sh
# sysroot.sh ARCHITECTURE FOLDER: the runtime's libraries for another processor, unpacked from Debian's packages into
# FOLDER; nothing is installed. Compile with CPPFLAGS and LDFLAGS as `make static-aarch64` does.
[ $# -eq 2 ] || { sed -n '2,3s/^# //p' "$0" >&2; exit 2; }
packages='libzstd-dev,libxxhash-dev,libjansson-dev,libpcre2-dev,liburing-dev'
[ ! -e "$2/usr/include/zstd.h" ] || exit 0
command -v mmdebstrap > /dev/null || { echo "sysroot.sh: mmdebstrap is needed (scripts/deps.sh package)" >&2; exit 1; }
. /etc/os-release
rm -rf "$2" && mkdir -p "$(dirname "$2")" &&
    mmdebstrap -q --architectures="$1" --variant=extract --include="$packages" "${VERSION_CODENAME:-bookworm}" "$2"
