#!/usr/bin/env bash
# Builds the memcached that the server is compared with, from the release's own sources, and prints
# the path of the program: target/memcached/memcached-VERSION/memcached. Debian's stable memcached is
# older, and sends each reply by a system call of its own.
#
#   MEMCACHED="$(ci/memcached-source.sh)" ci/against-memcached.sh
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/tools/apt.bash

version=1.6.45 sum=c383a2ad8f973b627c3de472702f46ee33b402750de4fd2d25cef65a00140110
folder="${CARGO_TARGET_DIR:-$PWD/target}/memcached"
program="$folder/memcached-$version/memcached"
if [ ! -x "$program" ]; then
    packages curl xz-utils gcc make autoconf automake libevent-dev pkg-config >&2
    mkdir -p "$folder"
    archive="$folder/memcached_$version.orig.tar.xz"
    # Debian keeps the sources of the version in its newest suite.
    curl --fail --silent --show-error --location --retry 3 -o "$archive" "http://deb.debian.org/debian/pool/main/m/memcached/${archive##*/}"
    echo "$sum  $archive" | sha256sum --check --quiet >&2
    rm -rf "$folder/memcached-$version"
    mkdir "$folder/memcached-$version"
    tar -xJf "$archive" -C "$folder/memcached-$version" --strip-components 1
    (
        cd "$folder/memcached-$version"
        [ -x configure ] || ./autogen.sh
        ./configure
        make -j"$(nproc)"
    ) >"$folder/build.log" 2>&1 || {
        tail -n 30 "$folder/build.log" >&2
        exit 1
    }
fi
echo "$program"
