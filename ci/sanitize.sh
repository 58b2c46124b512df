#!/usr/bin/env bash
# Runs the tests of the crates with unsafe code, in them or in their dependencies, under the
# sanitizers. There are no suppressions.
#
# | kind | finds | with |
# |---|---|---|
# | address | use after free, out of bounds, double free | nightly |
# | leak | memory that is never freed | nightly |
# | thread | races, as far as they happen; on crossbeam-epoch, since fences and membarrier are not seen | nightly or Debian's rustc-web, its library built from source |
# | memory | use of uninitialized memory | the same |
# | careful | the library's own debug assertions | cargo-careful, the same |
# | miri | undefined behaviour by the rules of Rust, even without effect: pointers used outside of their provenance, races | nightly's miri |
# | valgrind | the errors of `address`, in the plain build | valgrind |
#
# ci/sanitize.sh KIND [PACKAGE...]: the crates with unsafe code, lowwater-shrinker and
# lowwater-pressure by default.
#
# ci/sanitize.sh miri [TEST...]: only the crates with unsafe code. Miri is a few thousand times
# slower, so only the short unit tests run.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/tools/apt.bash
. ci/tools/cargo.bash
. ci/tools/rustc-web.bash

kind="${1:?address, leak, thread, memory, careful, miri or valgrind}"
shift
[ $# -gt 0 ] || [ "$kind" = miri ] || set -- lowwater-base lowwater-rcu lowwater-lru-core lowwater-store lowwater-shrinker lowwater-pressure
chosen=()
for package in "$@"; do chosen+=(-p "$package"); done

target=x86_64-unknown-linux-gnu
# Tests of the allocator, and those that limit the address space, read this variable and skip.
export LOWWATER_SANITIZER="$kind"
# Resolving the lines of an expected panic would take tens of seconds, on a thread that others wait
# for.
export RUST_BACKTRACE=0
# Reports with line numbers, and a reproducible order of tests. Fewer cases, because each is about
# ten times slower.
export CARGO_PROFILE_DEV_DEBUG=line-tables-only CARGO_PROFILE_TEST_DEBUG=line-tables-only PROPTEST_CASES="${PROPTEST_CASES:-32}"
folder=(--target-dir "${CARGO_TARGET_DIR:-target}/sanitize-$kind" --target "$target")
tests=("${chosen[@]}" --lib --tests --no-fail-fast "${folder[@]}")

case "$kind" in
address) RUSTFLAGS="-Zsanitizer=address" cargo +nightly test "${tests[@]}" ;;
leak) RUSTFLAGS="-Zsanitizer=leak" cargo +nightly test "${tests[@]}" ;;
thread)
    rustc_web_get
    RUSTFLAGS="-Zsanitizer=thread --cfg lowwater_epoch" cargo_web test -Zbuild-std "${tests[@]}"
    ;;
memory)
    rustc_web_get
    # MemorySanitizer does not see writes of the vDSO: rustix has to call libc instead.
    RUSTFLAGS="-Zsanitizer=memory -Zsanitizer-memory-track-origins --cfg rustix_use_libc" cargo_web test -Zbuild-std "${tests[@]}"
    ;;
careful)
    rustc_web_get
    tool cargo-careful
    cargo_web careful test "${tests[@]}"
    ;;
miri)
    rustup component add miri --toolchain nightly >/dev/null 2>&1 || true
    # Isolation is off, because tests of time read the clock. Leak checks are off, because a list's
    # box is found again by its address, which Miri's leak check does not follow: the kind `leak`
    # covers that.
    export MIRIFLAGS="${MIRIFLAGS:--Zmiri-disable-isolation -Zmiri-permissive-provenance -Zmiri-ignore-leaks}" PROPTEST_CASES=1
    miri() { cargo +nightly miri test -p lowwater-base -p lowwater-rcu -p lowwater-lru-core -p lowwater-store --lib --no-fail-fast --target-dir "${CARGO_TARGET_DIR:-target}/sanitize-miri" "$@"; }
    if [ $# -gt 0 ]; then
        miri -- "$@"
        exit
    fi
    # Without the tests that use many threads, a thousand groups, or slabs with thousands of slots.
    long=(--skip lists_of_slots_match_a_queue --skip marks_among_slots --skip threads_ --skip l14_ --skip many_groups --skip groups_that_come --skip a_table_shrinks)
    slab=(slab::tests::unit::a_slab_may_end slab::tests::unit::an_ slab::tests::unit::handles_outlive)
    miri -- list::tests list_lru::tests::unit list_lru::tests::resume list_lru::tests::sweep list_lru::tests::slots slots::chunk_table "${slab[@]}" compact_bytes:: zeroed_atomics:: cell:: "${long[@]}"
    # With `std` the chains' read side is crossbeam-epoch, which violates stacked borrows; without
    # `std` it is ours.
    miri --no-default-features -- hash_chains::
    ;;
valgrind)
    command -v valgrind >/dev/null || packages valgrind
    export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="valgrind --quiet --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite --fair-sched=yes"
    # Without the integration tests: those that count allocations would count valgrind's, too.
    # Valgrind hides the vDSO, so rustix has to call libc.
    RUSTFLAGS="--cfg rustix_use_libc" cargo test "${chosen[@]}" --lib "${folder[@]}"
    ;;
*) echo "ci/sanitize.sh: no kind $kind"; exit 2 ;;
esac
