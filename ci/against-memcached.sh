#!/usr/bin/env bash
# Compares lowwater-server with memcached: the same client, the same -m, two threads each, nine gets
# to one set. Prints operations per second, processor time of an operation, p99, values held,
# resident memory, and the ratio of ours to theirs. To be run by hand on an idle machine; rounds
# alternate between the servers, and the medians count. Before each timed part the client sends
# WARM_UP requests for each key, so that a server holds what its order of eviction has chosen.
#
# ci/against-memcached.sh [ROUNDS [SECONDS]]: by default 3 rounds of 10 seconds each.
#
# | variable | default | |
# |---|---|---|
# | MEMCACHED | Debian's | the program |
# | MEGABYTES | 256 | `-m` |
# | SIZES | 100 4000 | bytes of a value |
# | DEPTH | 1 | requests that a connection sends together; the latencies are of all of them |
# | WARM_UP | 8 | requests for each key before the clock starts |
# | KEYS_PERCENT | 200 | keys, in percent of those that fit; with 50 all gets hit |
# | LOAD_PERCENT | | compares also at a rate: so many percent of the slower server's operations |
# | PINNED | | anything: one thread of the server on processor 0, the loader on processor 1 |
#
# With LOAD_PERCENT, as many rounds follow for each size, in which both servers get requests at the
# same rate: 100 % are the operations per second of the slower server, its median before. These
# latencies count from the intended time of a request; `send_delay` is the part that the loader adds.
# A server with a `backlog_percent` above 1 has not held the rate.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/clients/server.bash

rounds="${1:-3}" seconds="${2:-10}" megabytes="${MEGABYTES:-256}"
depth="${DEPTH:-1}" percent="${KEYS_PERCENT:-200}" memcached="${MEMCACHED:-memcached}"
load="${LOAD_PERCENT:-}" warm_up="${WARM_UP:-8}" threads=2 loader=() spin=()
[ -z "${PINNED:-}" ] || { threads=1 && loader=(taskset -c 1) && spin=(--spin); }
[[ "$load" =~ ^([1-9][0-9]*)?$ ]] || fail "LOAD_PERCENT is $load, not a number from 1"
[ -z "$load" ] || [ "$depth" -eq 1 ] || fail "LOAD_PERCENT sends single requests: DEPTH must be 1, not $depth"
[ -n "${MEMCACHED:-}" ] || need memcached memcached
# Optimized across crates, as servers are shipped.
server="${CARGO_TARGET_DIR:-target}/shipped/lowwater-server"
binaries="${CARGO_TARGET_DIR:-target}/shipped/examples"
cargo build --profile shipped --quiet -p lowwater-server
cargo build --profile shipped --quiet --example cache_bench
"$memcached" -V

# keys BYTES: prints the number of keys, for values of so many bytes.
keys() { echo $((percent * megabytes * 1024 * 1024 / 100 / ($1 + 100))); }

# measure SERVER BYTES FILE FLAG...: starts the server, loads it, adds its figures to FILE.
measure() {
    local who="$1" bytes="$2" figures="$3"
    shift 3
    if [ "$who" = memcached ]; then
        port="$(free_port)"
        "$memcached" -u "$(id -un)" -l 127.0.0.1 -p "$port" -U 0 -m "$megabytes" -t "$threads" &
        pid=$!
        children+=("$pid")
        wait_for_port "$port"
    else
        start_server ours -m "$megabytes" -t "$threads"
    fi
    [ -z "${PINNED:-}" ] || taskset -apc 0 "$pid" >/dev/null
    ${loader[@]+"${loader[@]}"} "$binaries/cache_bench" "127.0.0.1:$port" --value-bytes "$bytes" --keys "$(keys "$bytes")" --warm-up "$warm_up" --seconds "$seconds" "$@" >>"$figures"
    awk '/^VmRSS/ { printf "resident_megabytes %.1f\n", $2 / 1024 }' "/proc/$pid/status" >>"$figures"
    kill -TERM "$pid"
    wait "$pid" || true
}

# The median of NAME in FILE.
middle() { awk -v name="$1" '$1 == name { print $2 }' "$2" | sort -g | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }

# measure_rounds BYTES LOOP FLAG...: measures both servers in all rounds; they alternate in going first.
measure_rounds() {
    local bytes="$1" loop="$2" round who order
    shift 2
    for round in $(seq "$rounds"); do
        order="ours memcached"
        [ $((round % 2)) -eq 1 ] || order="memcached ours"
        for who in $order; do measure "$who" "$bytes" "$scratch/$who.$bytes.$loop" "$@"; done
    done
}

# compare BYTES LOOP NAME...: prints the medians of both servers and their ratios.
compare() {
    local of_ours="$scratch/ours.$1.$2" of_theirs="$scratch/memcached.$1.$2" name
    shift 2
    printf '| | ours | memcached | ours / theirs |\n|---|---|---|---|\n'
    for name in "$@"; do
        awk -v n="$name" -v o="$(middle "$name" "$of_ours")" -v t="$(middle "$name" "$of_theirs")" \
            'BEGIN { ratio = (t > 0) ? sprintf("%.2f", o / t) : ""; printf("| %s | %s | %s | %s |\n", n, o, t, ratio) }'
    done
}

for bytes in ${SIZES:-100 4000}; do
    measure_rounds "$bytes" closed --depth "$depth"
    printf '\n%s bytes, -m %s, -t %s, %s requests together, %s %% of the keys that fit, the middle of %s rounds of %s s after %s requests for each key\n\n' \
        "$bytes" "$megabytes" "$threads" "$depth" "$percent" "$rounds" "$seconds" "$warm_up"
    compare "$bytes" closed operations_per_second processor_us_per_operation p50_us p99_us p999_us hit_percent items resident_megabytes refused
    ours="$scratch/ours.$bytes.closed" theirs="$scratch/memcached.$bytes.closed"
    awk -v oi="$(middle items "$ours")" -v om="$(middle resident_megabytes "$ours")" \
        -v ti="$(middle items "$theirs")" -v tm="$(middle resident_megabytes "$theirs")" \
        'BEGIN { printf "| items per resident MB | %.0f | %.0f | %.2f |\n", oi / om, ti / tm, oi / om / (ti / tm) }'
    [ -n "$load" ] || continue

    rate="$(printf '%s\n' "$(middle operations_per_second "$ours")" "$(middle operations_per_second "$theirs")" |
        sort -g | awk -v load="$load" 'NR == 1 { printf "%.0f", $1 * load / 100 }')"
    measure_rounds "$bytes" open --rate "$rate" ${spin[@]+"${spin[@]}"}
    printf '\nAt %s operations a second, which is %s %% of the slower server'"'"'s; %s bytes, the middle of %s rounds of %s s\n\n' \
        "$rate" "$load" "$bytes" "$rounds" "$seconds"
    compare "$bytes" open operations_per_second processor_us_per_operation p50_us p99_us p999_us hit_percent send_delay_p50_us send_delay_p99_us backlog_percent
done
