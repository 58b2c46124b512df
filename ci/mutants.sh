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
# One failure is enough, and need not be made small: what waits for what a mutant broke may wait for ever.
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="$PWD/ci/tools/first-failure.bash" PROPTEST_MAX_SHRINK_ITERS=0
only=()
for name in "$@"; do only+=(--re "$name"); done
mutants() {
    cargo mutants --workspace --jobs 1 --no-times --output "${CARGO_TARGET_DIR:-target}" ${only[@]+"${only[@]}"} "$@"
}
# First the tests beside the code, which are quick to build; then all of the package's, for what those let through. Exit status 2 and 3:
# some were not caught, or ran for ever.
code=0
mutants -- --lib || code=$?
case "$code" in
0) ;;
2 | 3) mutants --iterate -- --lib --tests ;;
*) exit "$code" ;;
esac
