#!/usr/bin/env bash
# Runs the README's test command, exactly as written there.
set -euo pipefail
cd "$(dirname "$0")/.."

grep -qx 'cargo test --workspace' README.md || { echo "README.md does not tell 'cargo test --workspace' any more"; exit 1; }
cargo test --workspace
