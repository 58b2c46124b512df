#!/usr/bin/env bash
# Compares lowwater-server with memcached: the same client, the same -m, two threads each, nine gets
# to one set. Prints operations per second, processor time of an operation, p99, values held,
# resident memory, and the ratio of ours to theirs. To be run by hand on an idle machine; rounds
# alternate between the servers, and the medians count.
#
# ci/against-memcached.sh [ROUNDS [SECONDS]]: by default 3 rounds of 10 seconds each.
#
# | variable | default | |
# |---|---|---|
# | MEMCACHED | Debian's | the program |
# | MEGABYTES | 256 | `-m` |
# | SIZES | 100 4000 | bytes of a value |
# | DEPTH | 1 | requests that a connection sends together; the latencies are of all of them |
# | KEYS_PERCENT | 200 | keys, in percent of those that fit; with 50 all gets hit |
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/clients/server.bash

rounds="${1:-3}" seconds="${2:-10}" megabytes="${MEGABYTES:-256}"
depth="${DEPTH:-1}" percent="${KEYS_PERCENT:-200}" memcached="${MEMCACHED:-memcached}"
[ -n "${MEMCACHED:-}" ] || need memcached memcached
# Optimized across crates, as servers are shipped.
server="${CARGO_TARGET_DIR:-target}/shipped/lowwater-server"
binaries="${CARGO_TARGET_DIR:-target}/shipped/examples"
cargo build --profile shipped --quiet -p lowwater-server
cargo build --profile shipped --quiet --example cache_bench
"$memcached" -V

# keys BYTES: prints the number of keys, for values of so many bytes.
keys() { echo $((percent * megabytes * 1024 * 1024 / 100 / ($1 + 100))); }

# measure SERVER BYTES FILE: starts the server, loads it, adds its figures to FILE.
measure() {
    local who="$1" bytes="$2" figures="$3"
    if [ "$who" = memcached ]; then
        port="$(free_port)"
        "$memcached" -u "$(id -un)" -l 127.0.0.1 -p "$port" -U 0 -m "$megabytes" -t 2 &
        pid=$!
        children+=("$pid")
        wait_for_port "$port"
    else
        start_server ours -m "$megabytes" -t 2
    fi
    "$binaries/cache_bench" "127.0.0.1:$port" --value-bytes "$bytes" --keys "$(keys "$bytes")" --depth "$depth" --seconds "$seconds" >>"$figures"
    awk '/^VmRSS/ { printf "resident_megabytes %.1f\n", $2 / 1024 }' "/proc/$pid/status" >>"$figures"
    kill -TERM "$pid"
    wait "$pid" || true
}

# The median of NAME in FILE.
middle() { awk -v name="$1" '$1 == name { print $2 }' "$2" | sort -g | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }

for bytes in ${SIZES:-100 4000}; do
    for round in $(seq "$rounds"); do
        # The servers alternate in going first.
        order="ours memcached"
        [ $((round % 2)) -eq 1 ] || order="memcached ours"
        for who in $order; do measure "$who" "$bytes" "$scratch/$who.$bytes"; done
    done
    printf '\n%s bytes, -m %s, -t 2, %s requests together, %s %% of the keys that fit, the middle of %s rounds of %s s\n\n' \
        "$bytes" "$megabytes" "$depth" "$percent" "$rounds" "$seconds"
    printf '| | ours | memcached | ours / theirs |\n|---|---|---|---|\n'
    for name in operations_per_second processor_us_per_operation p50_us p99_us p999_us hit_percent items resident_megabytes refused; do
        ours="$(middle "$name" "$scratch/ours.$bytes")" theirs="$(middle "$name" "$scratch/memcached.$bytes")"
        awk -v n="$name" -v o="$ours" -v t="$theirs" 'BEGIN { ratio = (t > 0) ? sprintf("%.2f", o / t) : ""; printf("| %s | %s | %s | %s |\n", n, o, t, ratio) }'
    done
    awk -v oi="$(middle items "$scratch/ours.$bytes")" -v om="$(middle resident_megabytes "$scratch/ours.$bytes")" \
        -v ti="$(middle items "$scratch/memcached.$bytes")" -v tm="$(middle resident_megabytes "$scratch/memcached.$bytes")" \
        'BEGIN { printf "| items per resident MB | %.0f | %.0f | %.2f |\n", oi / om, ti / tm, oi / om / (ti / tm) }'
done
