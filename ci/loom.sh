#!/usr/bin/env bash
# The model checks: every interleaving, with at most three preemptions, of the stories in */loom.rs; and the twins of each, which
# leave one thing out and must fail. docs/ORDERINGS.md says which test holds which pair.
#
# ci/loom.sh [TEST]: only the tests whose name contains TEST. LOOM_MAX_PREEMPTIONS= (empty) takes the bound away.
set -euo pipefail
cd "$(dirname "$0")/.."

export RUSTFLAGS="--cfg lowwater_loom"
export LOOM_MAX_PREEMPTIONS="${LOOM_MAX_PREEMPTIONS-3}"
[ -n "$LOOM_MAX_PREEMPTIONS" ] || unset LOOM_MAX_PREEMPTIONS
# A folder of its own, so that the other cfg does not rebuild what is there.
build=(cargo test --release --target-dir "${CARGO_TARGET_DIR:-target}/loom" -p lowwater-base -p lowwater-rcu -p lowwater-lru-core -p lowwater-store -p lowwater-shrinker -p lowwater-dcache-model --lib)

"${build[@]}" --no-run
# A story that grew out of hand shall fail here, not fill the hour.
timeout 600 "${build[@]}" -- "$@"
