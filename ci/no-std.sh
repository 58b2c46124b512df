#!/usr/bin/env bash
# lru-core and shrinker build where there is no operating system, and all libraries build on others than Linux.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/tools/rust.bash

std_less=(-p lowwater-lru-core -p lowwater-shrinker --no-default-features)

# A crate that needs std would pass on a target that has it, so the names are looked at as well.
pulled="$(cargo tree "${std_less[@]}" -e normal --prefix none --format '{p} {f}' | sort -u)"
if grep -E '^(parking_lot|rustix|libc|dashmap|tokio|linux-raw-sys|memchr) |[ ,]std([ ,]|$)' <<<"$pulled"; then
    echo "FAILED: the above come with --no-default-features and need std"
    exit 1
fi
echo "no crate that needs std"

# check_on TARGET ARGUMENT...: `cargo check` there, if the toolchain can be had.
check_on() {
    local target="$1"
    shift
    if target "$target"; then
        cargo check --target "$target" "$@"
        echo "builds for $target"
    else
        echo "NOT CHECKED on $target: rustup cannot get its library (see above); building for this machine instead"
        cargo check "$@"
    fi
}
check_on x86_64-unknown-none "${std_less[@]}"
check_on x86_64-apple-darwin --workspace --lib
check_on x86_64-pc-windows-gnu --workspace --lib
