#!/usr/bin/env bash
# Layers: fails when source files of a crate depend on each other in a circle. Tests and model checks are left out.
#
# ci/layers.sh: all crates. ci/layers.sh --edges lib.rs: the dependencies of one crate and the paths that make them.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -eq 0 ] || exec python3 ci/tools/layers.py "$@"
mapfile -t roots < <(git ls-files src/lib.rs 'crates/*/src/lib.rs' 'crates/*/src/main.rs')
python3 ci/tools/layers.py "${roots[@]}"
