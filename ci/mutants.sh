#!/usr/bin/env bash
# Mutation test: a random sample of small changes to the four library crates, each of which must fail a test. docs/MUTANTS.md has the
# last result and explains the mutants that were missed. Fails below 95 %.
#
# ci/mutants.sh COUNT [SEED]: without a seed one is chosen and printed. LOWWATER_MUTANTS_AT_ONCE=2 tries two at a time.
#
# cargo-mutants lists the changes; ci/mutants/ puts those of the sample into one build, where a number in the environment switches one
# on, so that a mutant costs a run of the tests and not a build.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/tools/cargo.bash
tool cargo-mutants

count="${1:?how many mutants}" seed="${2:-$RANDOM}"
work="${LOWWATER_MUTANTS:-${CARGO_TARGET_DIR:-$PWD/target}/mutants}"
cargo build --quiet --release --manifest-path ci/mutants/Cargo.toml --target-dir "$work/tool"
python3 ci/mutants/run.py "$count" "$seed" "$work/tool/release/lowwater-mutants" "$work"
