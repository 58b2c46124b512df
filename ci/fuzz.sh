#!/usr/bin/env bash
# Runs the fuzz targets of fuzz/. Without arguments: their bodies on fixed inputs, then each target
# is fuzzed for 60 s, two at a time, with the installed compiler and without a sanitizer; assertions
# and overflow checks are on. With a number of seconds each target is fuzzed for that time under
# AddressSanitizer, one after the other, which needs a nightly compiler. Installs a C++ compiler and
# cargo-fuzz if missing.
#
# Failing inputs are kept in fuzz/artifacts, and printed with the command that reproduces them; to
# become regression tests they are moved to fuzz/regressions/TARGET. The corpus is kept in
# fuzz/corpus, where the next run continues.
#
# ci/fuzz.sh [SECONDS [TARGET...]]; with SANITIZER=none the installed compiler is used, two targets
# at a time, also with arguments.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/tools/apt.bash
. ci/tools/cargo.bash

if [ $# -eq 0 ]; then
    cargo test --manifest-path fuzz/Cargo.toml --no-default-features --target-dir "${CARGO_TARGET_DIR:-target}/fuzz"
    set -- 60
    SANITIZER=none
fi
sanitizer="${SANITIZER:-address}"
seconds="$1"
shift
command -v c++ >/dev/null || packages g++
tool cargo-fuzz
if [ $# -eq 0 ]; then
    # Assigned first: `set` would ignore a failure.
    targets="$(cargo fuzz list)"
    set -- $targets
fi

compiler=() jobs=2
[ "$sanitizer" = none ] || compiler=(+nightly) jobs=1
flags=(--sanitizer "$sanitizer" --target-dir "${CARGO_TARGET_DIR:-$PWD/target}/fuzz-$sanitizer")
# A body takes microseconds to milliseconds: an input that takes a minute is a hang.
libfuzzer=(-max_total_time="$seconds" -max_len=4096 -timeout=60 -print_final_stats=1)

cargo "${compiler[@]}" fuzz build "${flags[@]}"
run() {
    cargo "${compiler[@]}" fuzz run "$1" "${flags[@]}" -- "${libfuzzer[@]}" 2>&1
}

if [ "$jobs" -eq 1 ]; then
    for target in "$@"; do run "$target"; done
    exit
fi

logs="$(mktemp -d)"
trap 'rm -r "$logs"' EXIT

# quietly TARGET: prints the coverage that it reached, or its failing input.
quietly() {
    if run "$1" >"$logs/$1"; then
        sed -nE "s/^#([0-9]+)\s+DONE\s+cov: ([0-9]+).*/$1: no finding in \1 executions, \2 edges/p" "$logs/$1"
        return
    fi
    # Recorded first: without a line to print, the filter below ends this subshell.
    echo "$1" >>"$logs/found"
    # Without the fuzzer's progress lines.
    grep -vE '^#[0-9]+|NEW_FUNC|^INFO:' "$logs/$1" | tail -n 80 | sed "s/^/$1: /"
}

running=0
for target in "$@"; do
    if [ "$running" -eq "$jobs" ]; then
        wait -n || true
        running=$((running - 1))
    fi
    quietly "$target" &
    running=$((running + 1))
done
wait
[ ! -e "$logs/found" ] || { echo "found something: $(paste -sd ' ' "$logs/found")"; exit 1; }
