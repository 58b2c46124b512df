#!/usr/bin/env bash
# Runs real memcached clients against lowwater-server: Debian's memccapable; pymemcache with 50
# concurrent connections; memcached itself as the reference for every reply, including meta commands
# and logins; tenants' listeners, sockets and changing limits; misbehaving clients, invalid flags,
# and SIGTERM.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/clients/server.bash

need memccapable libmemcached-tools
need memcached memcached
venv="${CARGO_TARGET_DIR:-target}/ci-venv"
if ! "$venv/bin/python" -c 'import pymemcache' 2>/dev/null; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet 'pymemcache==4.0.0'
fi
build_server

echo "== memccapable -a"
start_server server -m 64
memccapable -a -h 127.0.0.1 -p "$port" >"$scratch/memccapable" 2>&1 || { cat "$scratch/memccapable"; fail "memccapable"; }
grep -q 'All tests passed' "$scratch/memccapable" || { cat "$scratch/memccapable"; fail "memccapable"; }
echo "$(grep -c '\[pass\]' "$scratch/memccapable") tests passed"

echo "== pymemcache"
"$venv/bin/python" ci/clients/fifty.py 127.0.0.1 "$port"

echo "== replies against memcached's own"
reference="$(free_port)"
memcached -u nobody -l 127.0.0.1 -p "$reference" -U 0 -o no_modern &
children+=("$!")
wait_for_port "$reference"
for seed in 1 2 3; do
    python3 ci/clients/differential.py "127.0.0.1:$reference" "127.0.0.1:$port" --seed "$seed"
done

echo "== logins against memcached's own"
printf 'shop:secret\n' >"$scratch/users"
guarded="$(free_port)"
# Not as the user nobody, who cannot read the scratch directory.
memcached -u "$(id -un)" -l 127.0.0.1 -p "$guarded" -U 0 -Y "$scratch/users" &
children+=("$!")
wait_for_port "$guarded"
open_server="$pid" open_port="$port"
start_server logins -Y "$scratch/users" -U 0 -o modern,no_lru_crawler
python3 ci/clients/doors.py login "127.0.0.1:$guarded" "127.0.0.1:$port"
stop_server "$pid"

echo "== tenants' own listeners, unix sockets"
shop="$(free_port)"
start_server tags -l "tag_shop_:127.0.0.1:$shop,127.0.0.1"
python3 ci/clients/doors.py tags "$port" "$shop"
stop_server "$pid"
"$server" -s "$scratch/socket" -a 600 >"$scratch/socket.out" &
pid=$!
children+=("$pid")
for _ in $(seq 1200); do [ -S "$scratch/socket" ] && break; sleep 0.05; done
[ "$(stat -c %a "$scratch/socket")" = 600 ] || fail "the socket's mode is $(stat -c %a "$scratch/socket")"
python3 ci/clients/doors.py socket "$scratch/socket"
stop_server "$pid"
[ ! -e "$scratch/socket" ] || fail "the socket is left behind"

echo "== limits that change while clients write; no evictions"
start_server limits -m 64
python3 ci/clients/doors.py limits "$port"
stop_server "$pid"
start_server full -m 8 -M
python3 ci/clients/doors.py full "$port"
stop_server "$pid"
pid="$open_server" port="$open_port"

echo "== clients that misbehave"
python3 ci/clients/hostile.py 127.0.0.1 "$port" "$pid"
stop_server "$pid"

echo "== SIGTERM with clients connected"
start_server busy -c 3
exec 3<>"/dev/tcp/127.0.0.1/$port" 4<>"/dev/tcp/127.0.0.1/$port" 5<>"/dev/tcp/127.0.0.1/$port"
printf 'set k 0 0 100\r\nhalf a val' >&3
printf 'get k\r\n' >&4
read -r line <&4
[ "$line" = $'END\r' ] || fail "a get was answered with $line"
printf 'version\r\n' >&5
read -r line <&5
exec 6<>"/dev/tcp/127.0.0.1/$port"
read -r line <&6
[ "$line" = $'ERROR Too many open connections\r' ] || fail "the fourth of three connections got: $line"
stop_server "$pid"
exec 3>&- 4>&- 5>&- 6>&-

echo "== bad flags"
printf 'shop low=8Q\n' >"$scratch/bad.conf"
refused=0
refuse() {
    local code=0
    timeout 60 "$server" "$@" >"$scratch/out" 2>"$scratch/err" || code=$?
    case "$code" in 0 | 124) fail "$*: exit status $code" ;; esac
    [ -s "$scratch/err" ] || fail "$*: no message"
    ! grep -q panicked "$scratch/err" || { cat "$scratch/err"; fail "$*: panicked"; }
    refused=$((refused + 1))
}
refuse --no-such-flag
refuse -Z
refuse -p
refuse -p 70000
refuse -p word
refuse -m 0
refuse -m -5
refuse -m word
refuse -t 0
refuse -t 100000
refuse -c 0
refuse -I 1
refuse -I 2g
refuse -m 4 -I 3m
refuse -D ''
refuse -D ab
refuse -l ''
refuse -l 192.0.2.1
refuse -l no.such.host.invalid
refuse -l 127.0.0.1:notaport
refuse -p "$reference"
refuse -U 11211
refuse -s /nonexistent/socket
refuse -s "$scratch/socket" -a 9
refuse -Y "$scratch/missing.users"
refuse -Y "$scratch/out"
refuse -o idle_timeout=soon
refuse -k
refuse --save-file /nonexistent/folder/file
refuse -S
refuse -e "$scratch/memory"
refuse -B udp
refuse -c 9000000000000000000
refuse -P /nonexistent/pid
refuse -d -P /nonexistent/pid
refuse -o nonsense
refuse -l tag__:127.0.0.1
refuse --config "$scratch/missing.conf"
refuse --config "$scratch/bad.conf"
printf 'a min=40M\nb min=40M\n' >"$scratch/much.conf"
refuse -m 64 --config "$scratch/much.conf"
refuse surplus
"$server" -h >"$scratch/out" || fail "-h: exit status $?"
grep -q -- '--max-item-size' "$scratch/out" || fail "-h does not tell the flags"
# The reader of a server's start message may be gone.
"$server" -h | head -c 1 >/dev/null || true
echo "$refused refused with a message"
