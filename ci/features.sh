#!/usr/bin/env bash
# Builds and tests these combinations of features; `ci/supply.sh powerset` builds all of them.
#
# | package | features | check |
# |---|---|---|
# | all | the default ones | ci/test.sh |
# | lowwater-base, -rcu, -lru-core, -store, -shrinker | none | the tests that need no thread identity, on the spin lock and the counted read side |
# | lowwater-rcu | embedder | the test of the embedder's read side, on a small embedder |
# | two of them | `std` for the lower one alone | builds |
# | lowwater-lru-core | hwloc | tests, with synthetic machines and this one |
# | lowwater | hwloc | builds |
# | lowwater-shrinker | metrics | its tests of the published metrics |
# | lowwater | async, metrics | their tests, and the programs of the documentation that use them |
# | lowwater-base, lowwater | serde | tests; builds without `std`, and through lowwater |
# | lowwater | fuse | without warnings; ci/fuse.sh uses it |
# | lowwater-server | tls | the tests of TLS; without warnings |
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/tools/apt.bash
. ci/tools/rust.bash

for package in base rcu lru-core store; do
    cargo test -p "lowwater-$package" --no-default-features
done
cargo test -p lowwater-rcu --no-default-features --features embedder --test embedder
# Without `std` threads cannot be distinguished, so tests/invariants.rs, which re-enters callbacks on
# purpose, is left out.
cargo test -p lowwater-shrinker --no-default-features --lib --test baseline

# `std` on in a lower package and off in an upper one: a dependency graph may contain both.
mixed="$(mktemp -d)"
trap 'rm -rf "$mixed"' EXIT
mkdir "$mixed/src"
touch "$mixed/src/lib.rs"
# mix UPPER LOWER [FEATURE]: UPPER without its default features.
mix() {
    cat >"$mixed/Cargo.toml" <<-END
	[package]
	name = "mixed"
	edition = "2021"
	[dependencies]
	lowwater-$1 = { path = "$PWD/crates/$1", default-features = false, features = [${3:+"\"$3\""}] }
	lowwater-$2 = { path = "$PWD/crates/$2" }
	[workspace]
	END
    cp Cargo.lock "$mixed/Cargo.lock"
    cargo check --manifest-path "$mixed/Cargo.toml" --target-dir "${CARGO_TARGET_DIR:-target}/mixed"
}
mix rcu base embedder
mix lru-core base
mix lru-core rcu embedder
mix store rcu
mix store lru-core embedder
mix shrinker base

packages pkg-config libhwloc-dev libudev-dev
cargo test -p lowwater-base --features serde serde
cargo check -p lowwater-base --no-default-features --features serde
cargo check -p lowwater --features serde
cargo test -p lowwater-lru-core --features hwloc topology
cargo check -p lowwater --features hwloc --all-targets
cargo test -p lowwater --features async --test async_loads --test async_reloads --test migrating
cargo test -p lowwater --features metrics --lib metrics
cargo test -p lowwater --features metrics --example service
cargo test -p lowwater-shrinker --features metrics --lib --test see
cargo test -p lowwater --features async,metrics --doc
cargo test -p lowwater-server --features tls --bin lowwater-server -- tls compatibility
component clippy
cargo clippy -p lowwater --features fuse --example fuse_mirror -- -D warnings
cargo clippy -p lowwater-server --features tls --all-targets -- -D warnings
