#!/usr/bin/env bash
# The fuzz targets of fuzz/: without arguments their bodies run on a fixed set of inputs, with the stable compiler; with a number of
# seconds each is fuzzed for so long, which needs a nightly compiler, a C++ compiler and cargo-fuzz (installed if missing).
#
# ci/fuzz.sh [SECONDS [TARGET...]]
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/tools/apt.bash

if [ $# -eq 0 ]; then
    exec cargo test --manifest-path fuzz/Cargo.toml --no-default-features --target-dir "${CARGO_TARGET_DIR:-target}/fuzz"
fi
seconds="$1"
shift
[ $# -gt 0 ] || set -- $(sed -n 's/^name = "\(.*\)"/\1/p' fuzz/Cargo.toml | tail -n +2)
command -v c++ >/dev/null || packages g++
cargo fuzz --version >/dev/null 2>&1 || cargo install --locked cargo-fuzz
for target in "$@"; do
    cargo +nightly fuzz run "$target" -- -max_total_time="$seconds" -max_len=4096 -print_final_stats=1
done
