# aiomcache: its tests name the port 11211 and a unix socket. 0.8.0 is the last version whose source
# distribution has tests.
. "$suites/python.sh"

prepare_suite() {
    prepare_sdist aiomcache 0.8.0 pytest==8.3.5 pytest-asyncio==0.26.0 docker==7.1.0 python-memcached==1.62
}

run_suite() {
    # The server of the socket listens on no port.
    local socket="$scratch/aiomcache.sock"
    "$program" -u "$(id -un)" -s "$socket" &
    children+=("$!")
    for _ in $(seq 1200); do [ -S "$socket" ] && break; sleep 0.05; done
    # No test uses docker, whose interface has changed.
    local edit="s/docker_mod.Client/object/; s/\"localhost\"/\"$1\"/; s/port: int = 11211/port: int = $2/; s|/tmp/memcached.sock|$socket|"
    run_pytest "$3" tests -o asyncio_mode=auto
}
