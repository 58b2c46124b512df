#!/usr/bin/env bash
# Everything at once for MINUTES (1 by default), looked at every second: examples/soak. CPU is the part of one processor, in percent,
# that its threads take together; 100 by default.
#
# ci/soak.sh [MINUTES [CPU]]
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --release --quiet --example cache_server --example soak
binaries="${CARGO_TARGET_DIR:-target}/release/examples"
"$binaries/soak" --seconds "$((${1:-1} * 60))" --cpu "${2:-100}" --server "$binaries/cache_server"
