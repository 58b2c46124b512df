#!/usr/bin/env bash
# Which lines of the three crates no test runs. Prints the table of files and the total, and
# fails below 90 % of the lines. Examples in the documentation are not run here.
#
# ci/coverage.sh [FLAG...]: flags for `cargo llvm-cov report`, such as --html or --show-missing-lines. Needs llvm-cov of the compiler's
# LLVM: rustup's llvm-tools, or Debian's llvm-22 as ci/tools/rustc-web.bash gets it.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/tools/cargo.bash
. ci/tools/rustc-web.bash
tool cargo-llvm-cov

bin="$(rustc --print sysroot)/lib/rustlib/x86_64-unknown-linux-gnu/bin"
if [ ! -x "$bin/llvm-cov" ]; then
    rustc_web_get
    bin="$(echo "$rustc_web"/usr/lib/llvm-*/bin)"
    export LD_LIBRARY_PATH="$rustc_web/usr/lib/x86_64-linux-gnu:$rustc_web/usr/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi
export LLVM_COV="$bin/llvm-cov" LLVM_PROFDATA="$bin/llvm-profdata"

packages=(-p lowwater-lru-core -p lowwater-shrinker -p lowwater-dcache-model)
# Tests and model checks in files of their own are not what is asked about.
ignored='/tests/|/tests\.rs|loom\.rs'
# Reused between runs; the profiles are not.
export CARGO_LLVM_COV_TARGET_DIR="${CARGO_TARGET_DIR:-target}/coverage"
cargo llvm-cov clean --workspace --profraw-only
cargo llvm-cov test --no-report "${packages[@]}" --lib --tests
cargo llvm-cov report "${packages[@]}" --ignore-filename-regex "$ignored" --fail-under-lines 90 "$@"
