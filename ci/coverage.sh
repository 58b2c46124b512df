#!/usr/bin/env bash
# Reports the lines of the library crates that no test runs, and the conditions that are never true
# or never false. Prints the table of files, and the totals of each crate; fails below 90 % of the
# lines or 80 % of the branches. Examples in the documentation are not run here.
#
# `--show-missing-lines` lists the lines that no test runs. At the last review of that list (480
# lines) the reasons were:
#   150  `Debug` and `Display` texts
#   120  functions that only doc examples, other crates or benches call
#    60  second attempts after a lost race; the model checks (ci/loom.sh) explore those
#    45  answers of the operating system that could not be provoked: partial writes, `EINTR`, a
#        missing control group
#    25  `unreachable!`, aborts, and panics that report a bug of the library
#    20  second allocations of one step; tests/faults_memory.rs fails only the first 40 of an
#        operation
#    18  constants that the compiler evaluates, and code of other targets
#    42  single early returns: a counter at its maximum, work that ended between two steps of a pass
#
# ci/coverage.sh [FLAG...]: flags for `cargo llvm-cov report`, such as --html or
# --show-missing-lines. Branches are counted by nightly, with its llvm-tools; where those are not
# available, only lines are counted, with Debian's llvm-22 as ci/tools/rustc-web.bash gets it.
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
# Tests and model checks in files of their own are excluded.
ignored='/tests/|/tests\.rs|loom\.rs'
# The build is reused between runs; the profiles are not.
export CARGO_LLVM_COV_TARGET_DIR="${CARGO_TARGET_DIR:-target}/coverage"
llvm_cov() {
    cargo "${compiler[@]}" llvm-cov "$@"
}
llvm_cov clean --workspace --profraw-only
llvm_cov test "${branch[@]}" --no-report "${packages[@]}" --lib --tests
# The test in which allocations fail, in all crates.
llvm_cov test "${branch[@]}" --no-report -p lowwater --test faults_memory
report=(report "${branch[@]}" "${packages[@]}" --ignore-filename-regex "$ignored")
llvm_cov "${report[@]}" "$@"
llvm_cov "${report[@]}" --json --summary-only | python3 ci/tools/coverage.py 90 80
