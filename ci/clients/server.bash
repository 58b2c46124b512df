# For the scripts in ci/: builds servers, starts them on a free port, and always stops them.
# Sourced, not run, in the repository's root.

server="${CARGO_TARGET_DIR:-target}/release/lowwater-server"
binaries="${CARGO_TARGET_DIR:-target}/release/examples"
scratch="$(mktemp -d)"
children=()

stop_all() {
    # The list may be empty, and a child may have ended: neither is an error here.
    for child in ${children[@]+"${children[@]}"}; do
        kill -9 "$child" 2>/dev/null || true
        wait "$child" 2>/dev/null || true
    done
    rm -rf "$scratch"
}
trap stop_all EXIT

# need COMMAND PACKAGE: installs the Debian package if the command is missing.
need() {
    command -v "$1" >/dev/null && return
    echo "installing $2 for $1"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$2" >/dev/null
    # Debian starts the daemons it installs; ours are started below, on ports of their own.
    service "$2" stop >/dev/null 2>&1 || true
}

# build_server: builds lowwater-server in release mode.
build_server() {
    cargo build --release --quiet -p lowwater-server
}

# build EXAMPLE...: builds the examples in release mode.
build() {
    local example
    for example in "$@"; do cargo build --release --quiet --example "$example"; done
}

# start_server NAME FLAG...: starts lowwater-server on a free port; sets $pid and $port.
start_server() {
    local out="$scratch/$1.out"
    shift
    : >"$out"
    "$server" -p 0 "$@" >"$out" &
    pid=$!
    children+=("$pid")
    for _ in $(seq 1200); do
        port="$(sed -n '1s/.*:\([0-9]*\)$/\1/p' "$out")"
        [ -n "$port" ] && return
        kill -0 "$pid" 2>/dev/null || fail "lowwater-server $* did not start"
        sleep 0.05
    done
    fail "lowwater-server $* did not say where it listens"
}

# stop_server PID: SIGTERM; it must exit with 0, in seconds.
stop_server() {
    local code=0 started ended
    started="$(date +%s%N)"
    kill -TERM "$1"
    wait "$1" || code=$?
    ended="$(date +%s%N)"
    local ms=$(((ended - started) / 1000000))
    [ "$code" -eq 0 ] || fail "SIGTERM: exit status $code, not 0"
    # Tests of the server hold the exact bound; this machine may be busy.
    [ "$ms" -lt 10000 ] || fail "SIGTERM: closing took $ms ms"
    echo "SIGTERM: exit status 0 after $ms ms"
}

# free_port: prints a port on which no process listens.
free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# wait_for_port PORT: waits until a process listens on the port, 60 s at most.
wait_for_port() {
    for _ in $(seq 1200); do
        (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return
        sleep 0.05
    done
    fail "nobody listens on port $1"
}

fail() {
    echo "FAILED: $*" >&2
    exit 1
}
