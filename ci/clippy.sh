#!/usr/bin/env bash
# Fails on any warning in libraries, tests, benches and examples, and on a public item without
# documentation.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/tools/rust.bash

component clippy
cargo clippy --workspace --all-targets -- -D warnings -D missing_docs
# Code behind `not(feature = "std")` is compiled by no other step.
cargo clippy -p lowwater-base -p lowwater-rcu -p lowwater-lru-core -p lowwater-store --lib --tests --no-default-features -- -D warnings -D missing_docs
cargo clippy -p lowwater-shrinker --lib --no-default-features -- -D warnings -D missing_docs
