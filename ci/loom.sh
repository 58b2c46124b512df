#!/usr/bin/env bash
# Runs the model checks: every interleaving, with at most three preemptions, of the models in
# */loom.rs; and their mutants, each of which omits one ordering and must fail. docs/ORDERINGS.md
# lists the test of each pair of orderings.
#
# ci/loom.sh [TEST]: only the tests whose name contains TEST. LOOM_MAX_PREEMPTIONS= (empty) removes
# the bound.
set -euo pipefail
cd "$(dirname "$0")/.."

export RUSTFLAGS="--cfg lowwater_loom"
export LOOM_MAX_PREEMPTIONS="${LOOM_MAX_PREEMPTIONS-3}"
[ -n "$LOOM_MAX_PREEMPTIONS" ] || unset LOOM_MAX_PREEMPTIONS
# A target directory of its own, so that the other cfg does not rebuild the usual one.
build=(cargo test --release --target-dir "${CARGO_TARGET_DIR:-target}/loom" -p lowwater-base -p lowwater-rcu -p lowwater-lru-core -p lowwater-store -p lowwater-shrinker -p lowwater-dcache-model --lib)

"${build[@]}" --no-run
# A model with too large a state space fails here, instead of running for an hour.
timeout 600 "${build[@]}" -- "$@"
