#!/usr/bin/env bash
# Mutation test: a random sample of small changes to the code of the library packages (`lowwater`
# and all of crates/ but the server), each of which must make a test fail. Fails below 95 %, and if
# no mutant was tried. Writes target/mutants/report.md, also if it is interrupted: the mutants are
# tried in random order.
#
# ci/mutants.sh COUNT [SEED]: without a seed a random one is chosen and printed.
# LOWWATER_MUTANTS_AT_ONCE=2 runs two at a time. A mutant is also caught when a program takes 20 s
# and four times its usual time. Each failure is repeated, with the mutant and without, so other work
# on the machine costs time but changes no result.
# ci/mutants.sh --check: only whether all mutants of ci/mutants/explained.toml still exist. That
# file has the mutants that tests miss for a known reason.
#
# cargo-mutants lists the changes; ci/mutants/ compiles those of the sample into one build, in which
# an environment variable activates one, so that a mutant costs a run of the tests but no build.
#
# Not in the sample: weaker orderings and changed interleavings, which the model checks have as
# mutants of their own (docs/ORDERINGS.md); `Debug`, `Display` and `assert_valid`; tests and their
# helpers; deleted fields of struct expressions, which cannot be switched. Mutants that do not
# build, and those in constants and constant functions, are counted and left out.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/tools/cargo.bash
tool cargo-mutants

[ "${1:-}" != --check ] || exec python3 ci/mutants/run.py --check

count="${1:?how many mutants}" seed="${2:-$RANDOM}"
work="${LOWWATER_MUTANTS:-${CARGO_TARGET_DIR:-$PWD/target}/mutants}"
cargo build --quiet --release --manifest-path ci/mutants/Cargo.toml --target-dir "$work/tool"
python3 ci/mutants/run.py "$count" "$seed" "$work/tool/release/lowwater-mutants" "$work"
