#!/usr/bin/env bash
# Runs random programs over the whole public interface of a runtime (tests/programs), for SECONDS
# (60 by default), with memory poisoned when the library frees it. The seed is from the clock, and
# printed; a failing program is reduced to the fewest steps that fail, and printed with the command
# that runs it again.
#
# ci/programs.sh [--address] [SECONDS]: with --address under AddressSanitizer, which needs a nightly
# compiler.
# SEED=N begins with that seed. LOWWATER_PROGRAMS_WITHOUT=A,B switches off features that
# tests/programs/feature.rs lists.
set -euo pipefail
cd "$(dirname "$0")/.."

compiler=() flags='--cfg lowwater_poison' kind=poison target=()
if [ "${1:-}" = --address ]; then
    shift
    compiler=(+nightly) kind=address target=(--target x86_64-unknown-linux-gnu)
    flags="$flags --cfg lowwater_poison=\"address\" -Zsanitizer=address"
fi
export RUSTFLAGS="${RUSTFLAGS:-} $flags" CARGO_PROFILE_DEV_DEBUG=line-tables-only CARGO_PROFILE_TEST_DEBUG=line-tables-only RUST_BACKTRACE=0
export LOWWATER_PROGRAMS_SECONDS="${1:-60}" LOWWATER_PROGRAMS_SEED="${SEED:-$(date +%s)}"

# Child processes end while threads of the library still run; the ledger finds objects that are not
# dropped.
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0}"

build=("${target[@]}" --target-dir "${CARGO_TARGET_DIR:-target}/programs-$kind" --features async,metrics --test programs)
cargo "${compiler[@]}" test "${build[@]}" --no-run
echo "seed $LOWWATER_PROGRAMS_SEED, $LOWWATER_PROGRAMS_SECONDS s"
cargo "${compiler[@]}" test --quiet "${build[@]}" -- --exact programs --nocapture
