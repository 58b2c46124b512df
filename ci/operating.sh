#!/usr/bin/env bash
# The scenarios of docs/OPERATING.md: several servers behind clients with consistent hashing, one of
# them killed, restarted without and with its values, one more; a server under the memory limit of a
# control group, with the flags that the page gives. Behind nutcracker: ci/nutcracker.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/clients/server.bash

venv="${CARGO_TARGET_DIR:-target}/ci-venv"
if ! "$venv/bin/python" -c 'import pymemcache' 2>/dev/null; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet 'pymemcache==4.0.0'
fi
build_server
scenario() { "$venv/bin/python" ci/clients/operating.py "$@"; }

# start_at NAME PORT FLAG...: starts a server on this port; sets $pid.
start_at() {
    local name="$1" at="$2"
    shift 2
    start_server "$name" -p "$at" -m 16 --save-file "$scratch/$name.values" "$@"
}

echo "== three servers"
pids=() ports=()
for name in one two three; do
    start_at "$name" "$(free_port)"
    pids+=("$pid")
    ports+=("$port")
done
all="$(IFS=,; echo "${ports[*]}")"
scenario spread "$all"

echo "== one dies"
disown "${pids[2]}"
kill -9 "${pids[2]}"
scenario lost "${ports[2]}" "$all"
echo "== and is started again: it is empty, and fills"
start_at three "${ports[2]}"
pids[2]="$pid"
scenario reread "$all"

echo "== a restart with a save file keeps the values"
stop_server "${pids[2]}"
start_at three "${ports[2]}"
pids[2]="$pid"
scenario back "$all"

echo "== one server more"
start_at four "$(free_port)"
pids+=("$pid")
scenario grown "$all" "$all,$port"
scenario reread "$all,$port"
for pid in "${pids[@]}"; do stop_server "$pid"; done

echo "== a container of 256 MiB"
build cache_load
group=/sys/fs/cgroup/lowwater-operating-$$
limited=
# The folder may be no file system of groups, or one of version 1: then there is no such file.
if mkdir "$group" 2>/dev/null && [ -e "$group/memory.events" ]; then
    echo $((256 << 20)) >"$group/memory.max"
    [ ! -e "$group/memory.swap.max" ] || echo 0 >"$group/memory.swap.max"
    limited=yes
fi
# list BEGINNING FILE: the strings of the list on the line that begins so.
list() { sed -n "s/^$1 \[\(.*\)\]\$/\1/p" "$2" | tr -d '",'; }
# The image's ENTRYPOINT, with the page's `args` in place of its CMD.
read -ra command <<<"$(list ENTRYPOINT crates/server/packaging/Dockerfile) $(list args: docs/OPERATING.md)"
[ "${command[0]} ${command[*]: -4}" = "lowwater-server -m 176 -c 1024" ] || fail "the container's command is ${command[*]}"
start_server container -p "$(free_port)" "${command[@]:1}"
[ -z "$limited" ] || echo "$pid" >"$group/cgroup.procs"
"$binaries/cache_load" "127.0.0.1:$port" --tenants 100 --bytes 600000000 >"$scratch/load"
peak="$(awk '/VmHWM/ { print $2 }' "/proc/$pid/status")"
[ "$peak" -le $((256 * 1024)) ] || fail "a server of 176 MiB took $peak kB at its peak, more than 256 MiB"
echo "-m 176: at most $((peak / 1024)) MiB resident of 256"
stop_server "$pid"
if [ -n "$limited" ]; then
    grep -qx 'oom_kill 0' "$group/memory.events" || fail "the group's limit killed the server"
    echo "in a control group of 256 MiB: nothing was killed"
else
    echo "no control group can be made here: only the resident size was checked"
fi
rmdir "$group" 2>/dev/null || true
