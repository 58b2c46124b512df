#!/usr/bin/env bash
# Runs the model checks of the read side of hash chains on the real crossbeam-epoch, under that
# crate's own loom cfg; see ci/epoch. With at most one preemption; LOOM_MAX_PREEMPTIONS=2 takes
# long.
set -euo pipefail
cd "$(dirname "$0")/.."

RUSTFLAGS="--cfg crossbeam_loom" timeout 1200 cargo test --release --manifest-path ci/epoch/Cargo.toml --target-dir "${CARGO_TARGET_DIR:-target}/epoch"
