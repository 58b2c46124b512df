#!/usr/bin/env bash
# Checks that all code is formatted as in rustfmt.toml, including the packages of fuzz/ and
# benches/comparison/ and the example's parts.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/tools/rust.bash

component rustfmt
cargo fmt --all --check
cargo fmt --manifest-path fuzz/Cargo.toml --check
cargo fmt --manifest-path benches/comparison/Cargo.toml --check
