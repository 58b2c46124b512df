#!/usr/bin/env bash
# Mutation test: each small change of the files that .cargo/mutants.toml names must fail a test. docs/MUTANTS.md explains those that
# do not.
#
# ci/mutants.sh [NAME...]: only those whose name, which begins with its file, matches one of these, such as src/deferred.rs. All of
# them take hours.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/tools/cargo.bash
tool cargo-mutants

# Nobody looks at what fails here with a debugger, and linking is most of the time.
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0
only=()
for name in "$@"; do only+=(--re "$name"); done
cargo mutants --workspace --jobs 1 --no-times --output "${CARGO_TARGET_DIR:-target}" ${only[@]+"${only[@]}"}
