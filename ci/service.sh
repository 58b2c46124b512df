#!/usr/bin/env bash
# By hand: runs the service of ci/service, which has at most 200 lines, and fails if its resident
# memory is more than 15 % and 10 MiB above its budget of 64 MiB after the first fifth of the time.
#
# ci/service.sh [SECONDS [RESIDENT_MAX]]: 600 and 74MiB by default; `max` is no maximum.
# MALLOC_ARENA_MAX and the like are passed on.
set -euo pipefail
cd "$(dirname "$0")/.."

source=ci/service/src/main.rs
lines="$(wc -l <"$source")"
rustfmt --check --edition 2021 "$source"
[ "$lines" -le 200 ] || { echo "$source has $lines lines, of 200"; exit 1; }
work="${CARGO_TARGET_DIR:-$PWD/target}/service"
cargo build --quiet --release --locked --manifest-path ci/service/Cargo.toml --target-dir "$work"
"$work/release/service" "${1:-600}" "${2:-74MiB}"
