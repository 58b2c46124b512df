#!/usr/bin/env bash
# The fuzz targets of fuzz/. Without arguments: their bodies on a fixed set of inputs, then each of them fuzzed for 60 s, two at a time,
# with the compiler at hand and no sanitizer; assertions and overflow checks are on. With a number of seconds each is fuzzed for so long under
# AddressSanitizer, one after the other, which needs a nightly compiler. Installs a C++ compiler and cargo-fuzz if missing.
#
# What is found is kept in fuzz/artifacts, and printed with the command that runs it again; so that it stays mended, it goes to
# fuzz/regressions/TARGET. What was learnt on the way is kept in fuzz/corpus, and the next run begins there.
#
# ci/fuzz.sh [SECONDS [TARGET...]]; SANITIZER=none takes the compiler at hand, two at a time, with arguments, too.
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
[ $# -gt 0 ] || set -- $(cargo fuzz list)

compiler=() jobs=2
[ "$sanitizer" = none ] || compiler=(+nightly) jobs=1
flags=(--sanitizer "$sanitizer" --target-dir "${CARGO_TARGET_DIR:-$PWD/target}/fuzz-$sanitizer")
# A body takes microseconds to milliseconds: what takes a minute hangs.
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

# quietly TARGET: says how far it came, or what it found.
quietly() {
    if run "$1" >"$logs/$1"; then
        sed -nE "s/^#([0-9]+)\s+DONE\s+cov: ([0-9]+).*/$1: no finding in \1 executions, \2 edges/p" "$logs/$1"
        return
    fi
    # Without the fuzzer's progress.
    grep -vE '^#[0-9]+|NEW_FUNC|^INFO:' "$logs/$1" | tail -n 80 | sed "s/^/$1: /"
    echo "$1" >>"$logs/found"
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
