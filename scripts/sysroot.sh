#!/bin/sh
# sysroot.sh ARCHITECTURE FOLDER: the runtime's libraries for another processor, unpacked from Debian's packages into
# FOLDER; nothing is installed. Compile with CPPFLAGS and LDFLAGS as `make static-aarch64` does.
[ $# -eq 2 ] || { sed -n '2,3s/^# //p' "$0" >&2; exit 2; }
packages='libzstd-dev libxxhash-dev libjansson-dev libpcre2-dev liburing-dev'
[ ! -e "$2/usr/include/zstd.h" ] || exit 0
command -v apt-get > /dev/null || { echo "sysroot.sh: this is no Debian: put headers and libraries of $1 into $2" >&2; exit 1; }
rm -rf "$2" "$2.new" && mkdir -p "$2.new/apt/lists/partial" "$2.new/apt/archives/partial" "$2.new/debs" && : > "$2.new/apt/status" || exit 1
new=$(cd "$2.new" && pwd)
arch=$1
apt() # lists and packages of ARCH alone, beside the system's
{
    (cd "$new/debs" && apt-get -qq -o APT::Architecture="$arch" -o APT::Architectures="$arch" -o APT::Sandbox::User=root \
        -o Dir::State="$new/apt" -o Dir::State::status="$new/apt/status" -o Dir::Cache="$new/apt" "$@")
}
# shellcheck disable=SC2086
apt update && apt download $packages || exit 1
for deb in "$new"/debs/*.deb; do
    dpkg-deb -x "$deb" "$new" || exit 1
done
rm -rf "$new/apt" "$new/debs" && mv "$new" "$2"
