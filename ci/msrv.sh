#!/usr/bin/env bash
# Builds and tests with the oldest Rust that the packages promise: `rust-version` in Cargo.toml.
#
# | packages | check |
# |---|---|
# | all that are published | `cargo check` of libraries and programs, with every feature that needs no C library, and TLS |
# | lowwater-adapters | without `foyer`, which needs a later compiler than lowwater |
# | the libraries | their unit tests |
# | pages and tool settings | name the same version |
#
# Benches, examples and integration tests are built with the current compiler only (`ci/test.sh`).
set -euo pipefail
cd "$(dirname "$0")/.."

version="$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)"
toolchain="$version.0"

# states FILE TEXT: FILE contains TEXT.
states() {
    grep -qF -- "$2" "$1" || { echo "FAILED: $1 does not contain '$2', and Cargo.toml has rust-version $version"; exit 1; }
}
states clippy.toml "msrv = \"$version\""
states README.md "Rust $version or later"
states docs/DESIGN.md "Rust $version"
states docs/COMPARISON.md "|oldest Rust|$version|"
echo "the pages and clippy.toml name Rust $version"

if ! command -v rustup >/dev/null; then
    echo "NOT CHECKED with Rust $toolchain: no rustup"
    exit 0
fi
rustup run "$toolchain" rustc --version 2>/dev/null ||
    timeout 300 rustup toolchain install "$toolchain" --profile minimal --no-self-update || {
    echo "NOT CHECKED with Rust $toolchain: rustup cannot download it (see above)"
    exit 0
}

# A folder of its own: the two compilers would build everything anew in turn.
CARGO_TARGET_DIR="$(realpath -m "${CARGO_TARGET_DIR:-target}")/msrv"
export CARGO_TARGET_DIR CARGO_INCREMENTAL=0
trap 'rm -rf "$CARGO_TARGET_DIR"' EXIT

cargo "+$toolchain" check --workspace --exclude lowwater-adapters --features lowwater/async,lowwater/metrics,lowwater/tracing,lowwater/serde,lowwater-server/tls
cargo "+$toolchain" check -p lowwater-adapters --features quick_cache,lru,hashlink
for package in base rcu lru-core store shrinker; do
    cargo "+$toolchain" check -p "lowwater-$package" --no-default-features
done
cargo "+$toolchain" test --lib -p lowwater-base -p lowwater-rcu -p lowwater-lru-core -p lowwater-store \
    -p lowwater-shrinker -p lowwater-pressure -p lowwater-dcache-model -p lowwater
echo "builds with Rust $toolchain, and its unit tests pass"
