#!/usr/bin/env bash
# Fails on any warning in libraries, tests, benches and examples, and on a public item without
# documentation.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/tools/rust.bash

component clippy
cargo clippy --workspace --all-targets -- -D warnings -D missing_docs
# The code of builds without `std`, and of an embedder: other steps build and test it.
cargo clippy -p lowwater-base -p lowwater-rcu -p lowwater-lru-core -p lowwater-store --lib --tests --no-default-features -- -D warnings -D missing_docs
cargo clippy -p lowwater-shrinker --lib --no-default-features -- -D warnings -D missing_docs
cargo clippy -p lowwater-base -p lowwater-rcu -p lowwater-lru-core -p lowwater-store -p lowwater-shrinker --lib --no-default-features --features lowwater-store/embedder -- -D warnings -D missing_docs
cargo clippy -p lowwater-rcu --test embedder --no-default-features --features embedder -- -D warnings
