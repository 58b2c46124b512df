#!/usr/bin/env bash
# The examples build as a user builds them; the README's first command compiles few crates, and starts a server that answers.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/clients/server.bash

# Crates that the README's first command may compile, those of the workspace included.
crates_max=60

grep -qx 'cargo run --release -p lowwater-server' README.md || fail "README.md does not tell how to run lowwater-server any more"
crates="$(cargo tree -p lowwater-server -e normal,build --prefix none | sed 's/ (\*)$//' | sort -u | wc -l)"
[ "$crates" -le "$crates_max" ] || fail "lowwater-server takes $crates crates to build, more than $crates_max"
echo "lowwater-server takes $crates crates to build"
build_server
cargo build --release --examples
start_server readme
exec 3<>"/dev/tcp/127.0.0.1/$port"
printf 'set shop:cart 0 0 5\r\nhello\r\nget shop:cart\r\n' >&3
for expected in STORED 'VALUE shop:cart 0 5' hello END; do
    read -r line <&3
    [ "$line" = "$expected"$'\r' ] || fail "expected $expected, got $line"
done
exec 3>&-
stop_server "$pid"
