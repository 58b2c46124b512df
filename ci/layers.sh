#!/usr/bin/env bash
# Fails when source files of a crate depend on each other in a cycle. Tests and model checks are
# left out.
#
# ci/layers.sh: all crates. ci/layers.sh --edges lib.rs: the dependencies of one crate and the paths
# that create them.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -eq 0 ] || exec python3 ci/tools/layers.py "$@"
# Assigned first: `mapfile` from a process would ignore a failure of git.
files="$(git ls-files src/lib.rs 'crates/*/src/lib.rs' 'crates/*/src/main.rs')"
mapfile -t roots <<<"$files"
python3 ci/tools/layers.py "${roots[@]}"
