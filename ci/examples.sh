#!/usr/bin/env bash
# The examples build as a user builds them, and the README's first command starts a server that answers.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/clients/server.bash

grep -qx 'cargo run --release --example cache_server' README.md || fail "README.md does not tell how to run cache_server any more"
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
