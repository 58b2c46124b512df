#!/usr/bin/env bash
# Which lines of the four crates no test runs, and which conditions are never true or never false. Prints the table of files, and what
# each crate comes to; fails below 90 % of the lines or 80 % of the branches. Examples in the documentation are not run here.
# docs/UNCOVERED.md says why each of those lines is not run.
#
# ci/coverage.sh [FLAG...]: flags for `cargo llvm-cov report`, such as --html or --show-missing-lines. Branches are counted by nightly, with
# its llvm-tools; where those cannot be had, the lines are counted with Debian's llvm-22 as ci/tools/rustc-web.bash gets it.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/tools/cargo.bash
. ci/tools/rustc-web.bash
tool cargo-llvm-cov

compiler=() branch=()
if rustup component add llvm-tools --toolchain nightly >/dev/null 2>&1; then
    compiler=(+nightly) branch=(--branch)
else
    bin="$(rustc --print sysroot)/lib/rustlib/x86_64-unknown-linux-gnu/bin"
    if [ ! -x "$bin/llvm-cov" ]; then
        rustc_web_get
        bin="$(echo "$rustc_web"/usr/lib/llvm-*/bin)"
        export LD_LIBRARY_PATH="$rustc_web/usr/lib/x86_64-linux-gnu:$rustc_web/usr/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    fi
    export LLVM_COV="$bin/llvm-cov" LLVM_PROFDATA="$bin/llvm-profdata"
fi

packages=(-p lowwater-base -p lowwater-rcu -p lowwater-lru-core -p lowwater-store -p lowwater-shrinker -p lowwater-pressure -p lowwater-dcache-model)
# Tests and model checks in files of their own are not what is asked about.
ignored='/tests/|/tests\.rs|loom\.rs'
# Reused between runs; the profiles are not.
export CARGO_LLVM_COV_TARGET_DIR="${CARGO_TARGET_DIR:-target}/coverage"
llvm_cov() {
    cargo "${compiler[@]}" llvm-cov "$@"
}
llvm_cov clean --workspace --profraw-only
llvm_cov test "${branch[@]}" --no-report "${packages[@]}" --lib --tests
# Allocations that fail, in all of them.
llvm_cov test "${branch[@]}" --no-report -p lowwater --test faults_memory
report=(report "${branch[@]}" "${packages[@]}" --ignore-filename-regex "$ignored")
llvm_cov "${report[@]}" "$@"
llvm_cov "${report[@]}" --json --summary-only | python3 ci/tools/coverage.py 90 80
