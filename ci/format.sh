#!/usr/bin/env bash
# Checks that all code is formatted as in rustfmt.toml, including the packages of fuzz/,
# benches/comparison/ and ci/adapters/ and the example's parts.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/tools/rust.bash

component rustfmt
cargo fmt --all --check
cargo fmt --manifest-path fuzz/Cargo.toml --check
cargo fmt --manifest-path benches/comparison/Cargo.toml --check
cargo fmt --manifest-path ci/adapters/Cargo.toml --check

# The files that a kernel tree compiles, in its style. Each through the standard input: otherwise
# rustfmt follows their modules to files that user space compiles, too.
unformatted=0
for file in examples/kernel_module/{kernel_lru,modules,template}/*.rs; do
    rustfmt --config-path examples/kernel_module/kernel_lru <"$file" | diff "$file" - || { echo "$file is not formatted"; unformatted=1; }
done
exit "$unformatted"
