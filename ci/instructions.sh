#!/usr/bin/env bash
# Counts the instructions of the cache's operations with callgrind; other load on the machine does
# not change the counts. Fails when a load has 5 % more than ci/instructions/committed.txt (10 % more
# with another compiler), and names loads with 2 % less, for which the file is to be updated.
#
# ci/instructions.sh [LOAD...]: all loads of ci/instructions/src/main.rs by default.
# ci/instructions.sh --commit: counts all loads, and updates the file.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/tools/apt.bash

operations=40000 committed=ci/instructions/committed.txt commit=
if [ "${1:-}" = --commit ]; then
    commit=yes
    shift
    # The file is replaced as a whole.
    [ $# -eq 0 ] || { echo "ci/instructions.sh: --commit takes no load"; exit 2; }
fi
command -v valgrind >/dev/null || packages valgrind
command -v objdump >/dev/null || packages binutils
processor="$(taskset -pc $$ | sed 's/.*: *//; s/[-,].*//')"
folder="${CARGO_TARGET_DIR:-$PWD/target}/instructions"
# Valgrind hides the page of system calls, for which rustix looks.
RUSTFLAGS="${RUSTFLAGS:-} --cfg rustix_use_libc" cargo build --locked --release --quiet --manifest-path ci/instructions/Cargo.toml --target-dir "$folder"
program="$folder/release/lowwater-instructions"
[ $# -gt 0 ] || set -- hit miss insert insert10 insert1000 mix get-or-insert small-mix overwrite

head="# load, instructions and locked instructions of an operation; rustc $(rustc --version | cut -d ' ' -f 2)"
echo "$head" >"$folder/counted.txt"
failed=0 more=10
[ "$head" != "$(head -n 1 "$committed")" ] || more=5
for load in "$@"; do
    # On one processor: each processor has a stock, and near the budget a thread that moves leaves one
    # behind.
    if ! taskset -c "$processor" valgrind --tool=callgrind --dump-instr=yes --toggle-collect='*counted*' --callgrind-out-file="$folder/$load.out" \
        "$program" "$load" "$operations" 2>"$folder/$load.log"; then
        cat "$folder/$load.log"
        exit 1
    fi
    read -r instructions locked < <(python3 ci/tools/instructions.py "$folder/$load.out" "$operations")
    echo "$load $instructions $locked" | tee -a "$folder/counted.txt"
    [ -z "$commit" ] || continue
    before="$(awk -v load="$load" '$1 == load { print $2 }' "$committed")"
    if [ -z "$before" ]; then
        echo "ci/instructions.sh: $committed has no load $load"
        failed=1
    elif [ $((instructions * 100)) -gt $((before * (100 + more))) ]; then
        echo "ci/instructions.sh: $load has $instructions instructions, and had $before"
        failed=1
    elif [ $((instructions * 100)) -lt $((before * 98)) ]; then
        echo "$load had $before before: ci/instructions.sh --commit"
    fi
done
[ -z "$commit" ] || cp "$folder/counted.txt" "$committed"
exit $failed
