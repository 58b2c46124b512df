# memaslap of libmemcached-tools, where it is called memcaslap: short runs of its default load, with
# the text and the binary protocol, with one key and with 20 keys a get. A run passes if each
# operation was done, no get missed, and nothing but the statistics was printed: refused sets and
# wrong replies are lines of their own. The runs that overwrite do not verify, because memaslap
# itself then compares with the wrong value.
operations=200000

prepare_suite() { need memcaslap libmemcached-tools; }

# load NAME FLAG...: runs the load once. A lost reply would make it wait for ever.
load() {
    local name="$1" out="$scratch/memaslap" code=0
    shift
    timeout 120 memcaslap -s "$server_at" -x "$operations" "$@" >"$out" 2>&1 || code=$?
    cat "$out"
    awk -v name="$name" -v code="$code" -v operations="$operations" '
        /^(cmd_get|cmd_set):/ { done += $2; next }
        /^(get_misses|expired_get|unexpired_unget|verify_misses|verify_failed):/ { failed += $2; next }
        /^(servers|threads count|concurrency|execute number|windows size|set proportion|get proportion): ?/ { next }
        /^(set_prop|get_prop|written_bytes|read_bytes|object_bytes|packet_)/ { next }
        /^Run time: / { ended = 1; next }
        /[^ ]/ { failed++ }
        END { print (code == 0 && ended && done == operations && !failed ? "pass " : "fail ") name }' "$out" >>"$results_to"
}

run_suite() {
    local server_at="$1:$2" results_to="$3" protocol flag
    for protocol in text binary; do
        flag=()
        [ "$protocol" = text ] || flag=(-B)
        load "$protocol" "${flag[@]}"
        load "$protocol, verified" "${flag[@]}" -v 0.2
        load "$protocol, expiring" "${flag[@]}" -v 0.2 -e 0.1
        load "$protocol, overwriting" "${flag[@]}" -o 0.2
        load "$protocol, 20 keys a get" "${flag[@]}" -d 20 -v 0.2
        load "$protocol, 16 KiB values" "${flag[@]}" -X 16384
    done
}
