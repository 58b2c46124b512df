#!/usr/bin/env bash
# Builds the examples as a user does. Checks that the README's first command compiles few crates and
# starts a server that answers, and that the example `service` serves its own load and clients; with
# the feature `metrics` also a scrape. Examples that cannot print or start a thread must end.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/clients/server.bash

# The most crates that the README's first command may compile, including those of the workspace.
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

# Its load prints a line each second; sessions, which are protected, are always found.
"$binaries/service" | tee "$scratch/load.out"
seconds="$(grep -cE '^ +[0-9]+ +[a-z ]+[0-9.]+ MiB +100 %.* of [0-9]+ MiB$' "$scratch/load.out")" || true
[ "$seconds" = 12 ] || fail "the service did not find all sessions in each of 12 seconds, but in $seconds"
grep -qE '^sessions: .* [1-9][0-9]* hits, 0 misses,' "$scratch/load.out" || fail "the service looked up no session, or missed one"

# get PATH EXPECTED: requests a page as the tenant `shop`.
get() {
    local answer
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    printf 'GET %s HTTP/1.1\r\nHost: shop\r\n\r\n' "$1" >&3
    answer="$(cat <&3)"
    exec 3>&-
    grep -q "$2" <<<"$answer" || fail "$1 gave no $2, but $answer"
}
cargo build --release --quiet --example service --features metrics
"$binaries/service" --listen 127.0.0.1:0 >"$scratch/service.out" &
pid=$!
children+=("$pid")
for _ in $(seq 1200); do
    port="$(sed -n 's/^listening on .*:\([0-9]*\)$/\1/p' "$scratch/service.out")"
    [ -z "$port" ] || break
    sleep 0.05
done
[ -n "$port" ] || fail "the service did not say where it listens"
get /session/7 "HTTP/1.1 401"
get /login/7 "HTTP/1.1 200"
get /session/7 "user 7"
get /page/12 "<h1>shop 12</h1>"
get /row/4000 "HTTP/1.1 404"
get /stats "^sessions: .* 1 hits, 1 misses"
get /metrics '^lowwater_group_low_bytes{group="/cache:sessions"} 8388608$'
get /metrics '^Content-Type: text/plain; version=0.0.4; charset=utf-8'
get /nothing "HTTP/1.1 404"
kill "$pid"

stdout=/dev/full
# fails SECONDS COMMAND...: the command prints to $stdout. It must end by itself, with an error.
fails() {
    local seconds="$1" code=0
    shift
    timeout "$seconds" "$@" >"$stdout" 2>"$scratch/said" || code=$?
    [ "$code" -gt 0 ] && [ "$code" -lt 124 ] && [ -s "$scratch/said" ] || fail "$*: exit status $code"
}
fails 30 "$binaries/service"
fails 60 "$binaries/soak" --seconds 12

# A thread does not start in an address space of 19 stacks, and half a GiB for all else.
start_server readme
(
    ulimit -v $((39 << 19))
    export RUST_MIN_STACK=$((1 << 30)) MALLOC_ARENA_MAX=1
    stdout=/dev/null
    for command in "service --threads 64" "service --listen 127.0.0.1:0 --threads 64" \
        "negative_flood --threads 64 --seconds 1" "deferred_tail --threads 64 --objects 10000 --seconds 1" \
        "cache_load 127.0.0.1:$port --writers 64 --alone-seconds 0 --bytes 1000000"; do
        # Unquoted: an example and its options.
        fails 60 "$binaries"/$command
        grep -q "failed to spawn thread" "$scratch/said" || fail "$command: $(cat "$scratch/said")"
    done
)
stop_server "$pid"
for flag in "negative_flood --threads" "cache_load --writers" "cache_load --readers"; do
    said="$("$binaries"/$flag 1025 2>&1)" || true
    grep -q "not in .*=1024" <<<"$said" || fail "$flag 1025 is accepted"
done

# Examples answer --help and --json, and `replay` finds its recording from any directory.
binaries="$(realpath "$binaries")"
for example in own_shrinker replay containers drop_caches clear_and_drop deferred_tail negative_flood service; do
    "$binaries/$example" --help >/dev/null || fail "$example does not answer --help"
done
"$binaries/own_shrinker" --json | python3 -c '
import json, sys
figures = json.load(sys.stdin)
assert figures["reclaimed_bytes"] >= figures["wanted_bytes"] > 0, figures
' || fail "own_shrinker gave back less than wanted"
"$binaries/clear_and_drop" --entries 10000 --caches 100 --rounds 1 --json | python3 -c '
import json, sys
assert all(time > 0 for time in json.load(sys.stdin).values())
' || fail "clear_and_drop does not run"
(cd / && "$binaries/replay" --policy default --buckets 65536 --json) | python3 -c '
import json, sys
assert json.loads(sys.stdin.readline())["policy"] == "default"
' || fail "replay does not run in another directory"
cargo run --quiet --release -p lowwater-adapters --example adapters -- --help >/dev/null || fail "adapters does not answer --help"
cargo run --quiet --release -p lowwater-adapters --example adapters -- --rounds 16 --json | python3 -c '
import json, sys
rows = [json.loads(line) for line in sys.stdin]
assert len(rows) >= 5 and all(row["charged"] <= row["budget"] for row in rows), rows
' || fail "the example adapters exceeds its budget"
