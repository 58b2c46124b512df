#!/usr/bin/env bash
# Runs all parts at once for MINUTES (1 by default), with checks every second: examples/soak. CPU is
# the processor time that its threads use together, in percent of one processor; 100 by default.
#
# ci/soak.sh [MINUTES [CPU]]
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --release --quiet -p lowwater-server
cargo build --release --quiet --example soak
target="${CARGO_TARGET_DIR:-target}"
"$target/release/examples/soak" --seconds "$((${1:-1} * 60))" --cpu "${2:-100}" --server "$target/release/lowwater-server"
