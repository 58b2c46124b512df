#!/usr/bin/env bash
# Checks that base, rcu, lru-core, store and shrinker build without an operating system.
# ci/platforms.sh checks other systems.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/tools/rust.bash
. ci/tools/source.bash

std_less=(-p lowwater-base -p lowwater-rcu -p lowwater-lru-core -p lowwater-store -p lowwater-shrinker --no-default-features)

# A crate that needs std would build on a target with std, so the names of the dependencies are
# checked as well.
pulled="$(cargo tree "${std_less[@]}" -e normal --prefix none --format '{p} {f}' | sort -u)"
if grep -E '^(parking_lot|rustix|libc|dashmap|tokio|linux-raw-sys|memchr) |[ ,]std([ ,]|$)' <<<"$pulled"; then
    echo "FAILED: the above come with --no-default-features and need std"
    exit 1
fi
echo "no crate that needs std"

# check_on TARGET ARGUMENT...: runs `cargo check` for TARGET, if the toolchain is available.
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

# Bare metal with 32 bits and without 64-bit atomics, and with the library built from source: no
# prebuilt one is needed, and an Arc can report that there is no memory. (ci/kmod.sh does the same
# for x86_64-unknown-none.)
bare32=riscv32imac-unknown-none-elf
work="$(realpath -m "${CARGO_TARGET_DIR:-target}")"
if (rust_from_source "$work/rust-source"); then
    (
        rust_from_source "$work/rust-source"
        for features in "" lowwater-store/embedder; do
            RUSTFLAGS="--cfg=lowwater_try_arc ${features:+--cfg=lowwater_wide_lock}" cargo check --target "$bare32" --target-dir "$work/from-source" \
                -Zbuild-std=core,alloc "${std_less[@]}" --features "$features"
            echo "builds for $bare32 with its library from source${features:+, with $features}"
        done
    )
elif target thumbv7m-none-eabi; then
    check_on thumbv7m-none-eabi "${std_less[@]}"
    echo "NOT CHECKED with the library from source, which is not available"
else
    echo "NOT CHECKED on 32 bits: neither Rust's library in source nor a prebuilt one is available"
fi
