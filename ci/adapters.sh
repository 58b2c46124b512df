#!/usr/bin/env bash
# Runs the tests of ci/adapters: memory of C libraries in one budget with a lowwater cache, by
# `lowwater_adapters::adapt` and `evict_by`. Building jemalloc and SQLite takes some minutes on two
# processors, and RocksDB must be installed, so they are no dependencies of the workspace. `.github/workflows/scheduled.yml` calls this script
# once a week.
#
# | test | memory |
# |---|---|
# | jemalloc | pages that jemalloc keeps for later allocations |
# | sqlite | the page cache of an SQLite connection |
# | rocksdb | the block cache of a RocksDB database, with Debian's RocksDB |
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/tools/apt.bash
. ci/tools/rust.bash

component clippy
packages make librocksdb-dev libclang-dev
export ROCKSDB_INCLUDE_DIR=/usr/include ROCKSDB_LIB_DIR
ROCKSDB_LIB_DIR="$(dirname "$(cc -print-file-name=librocksdb.so)")"
package=(--manifest-path ci/adapters/Cargo.toml --locked --target-dir "${CARGO_TARGET_DIR:-target}/adapters")

timeout 1200 cargo clippy "${package[@]}" --all-targets -- -D warnings
timeout 1200 cargo test "${package[@]}" --tests
