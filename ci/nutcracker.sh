#!/usr/bin/env bash
# Runs three servers behind Debian's nutcracker (twemproxy): 10,000 keys are set and read back
# through it; then one server is killed, and the keys of the other two must still be served.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/clients/server.bash

need nutcracker nutcracker
build_server

pids=() ports=()
for name in one two three; do
    start_server "$name" -m 16
    pids+=("$pid")
    ports+=("$port")
done
# The third server is killed below; the shell need not report that.
disown "${pids[2]}"
proxy="$(free_port)"
# auto_eject_hosts is off. If it were on, the keys of the dead server would move to the others after
# a while, and the test could not distinguish a key that was kept from one that was written again.
# Off, each key keeps its server: requests for keys of the dead server fail at once, all others
# return their value.
cat >"$scratch/nutcracker.yml" <<YML
cache:
  listen: 127.0.0.1:$proxy
  hash: fnv1a_64
  distribution: ketama
  auto_eject_hosts: false
  server_retry_timeout: 500
  timeout: 60000
  servers:
   - 127.0.0.1:${ports[0]}:1 one
   - 127.0.0.1:${ports[1]}:1 two
   - 127.0.0.1:${ports[2]}:1 three
YML
nutcracker -c "$scratch/nutcracker.yml" -o "$scratch/nutcracker.log" -p "$scratch/nutcracker.pid" \
    -a 127.0.0.1 -s "$(free_port)" &
children+=("$!")
wait_for_port "$proxy"

python3 ci/clients/proxied.py "$proxy" "${ports[@]}" "${pids[2]}"
stop_server "${pids[0]}"
stop_server "${pids[1]}"
