#!/usr/bin/env bash
# Counts the instructions of the server for a request with callgrind; other load on the machine
# changes the counts little. Fails when a load has 5 % more than ci/instructions/server.txt (10 %
# more with another compiler), and names loads with 2 % less, for which the file is to be updated.
#
# ci/server-instructions.sh [--commit]: --commit updates the file.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/tools/apt.bash

committed=ci/instructions/server.txt commit=
case "${1:-}" in
    --commit) commit=yes ;;
    '') ;;
    *) echo "ci/server-instructions.sh: there is no option $1"; exit 2 ;;
esac
command -v valgrind >/dev/null || packages valgrind
folder="${CARGO_TARGET_DIR:-$PWD/target}/instructions"
# Valgrind hides the page of system calls, for which rustix looks.
RUSTFLAGS="${RUSTFLAGS:-} --cfg rustix_use_libc" cargo build --locked --release --quiet -p lowwater-server --target-dir "$folder"

head="# verb, requests sent together, bytes of a value, instructions of a request; rustc $(rustc --version | cut -d ' ' -f 2)"
echo "$head" >"$folder/server.txt"
failed=0 more=10
[ "$head" != "$(head -n 1 "$committed" 2>/dev/null)" ] || more=5
for load in "get 16 100" "set 16 100" "get 1 100" "set 1 100" "get 16 4096" "set 16 4096"; do
    # shellcheck disable=SC2086 # The load is three words.
    instructions="$(python3 ci/tools/server_instructions.py "$folder/release/lowwater-server" "$folder" $load)"
    echo "$load $instructions" | tee -a "$folder/server.txt"
    [ -z "$commit" ] || continue
    before="$(sed -n "s/^$load //p" "$committed")"
    if [ -z "$before" ]; then
        echo "ci/server-instructions.sh: $committed has no load $load"
        failed=1
    elif [ $((instructions * 100)) -gt $((before * (100 + more))) ]; then
        echo "ci/server-instructions.sh: $load has $instructions instructions, and had $before"
        failed=1
    elif [ $((instructions * 100)) -lt $((before * 98)) ]; then
        echo "$load had $before before: ci/server-instructions.sh --commit"
    fi
done
[ -z "$commit" ] || cp "$folder/server.txt" "$committed"
exit $failed
