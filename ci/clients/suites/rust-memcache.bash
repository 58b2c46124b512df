# The crate memcache: its tests name the ports 12345 to 12351 and 22345, the latter for UDP, and two
# unix sockets. Many of them use the binary protocol, because it is the client's default: all tests
# are run as they are, and with the text protocol as the default.
version=0.21.0

prepare_suite() {
    [ "$(cat "$sources/pinned" 2>/dev/null)" = "$version" ] && return
    rm -rf "${sources:?}"/*
    packages pkg-config libssl-dev
    # A crate that depends on it, so that cargo brings its source.
    mkdir -p "$sources/brings/src"
    touch "$sources/brings/src/lib.rs"
    printf '[package]\nname = "brings"\nedition = "2024"\n[dependencies]\nmemcache = "=%s"\n[workspace]\n' \
        "$version" >"$sources/brings/Cargo.toml"
    local manifest="$sources/brings/Cargo.toml" found
    found="$(cargo metadata --format-version 1 --manifest-path "$manifest" |
        python3 -c 'import json, os, sys
print(*(os.path.dirname(p["manifest_path"]) for p in json.load(sys.stdin)["packages"] if p["name"] == "memcache"))')"
    cp -r "$found" "$sources/crate"
    echo "[workspace]" >>"$sources/crate/Cargo.toml"
    sed -i "s|/tmp/memcached|$sources/memcached|" "$sources"/crate/src/*.rs "$sources"/crate/tests/*.rs
    sed -i 's/let is_ascii = /&std::env::var_os("TEXT").is_some() || /' "$sources/crate/src/connection.rs"
    CARGO_TARGET_DIR="$sources/target" cargo test --locked --all-features --lib --tests --no-run \
        --manifest-path "$sources/crate/Cargo.toml" --message-format json |
        python3 -c 'import json, sys
for line in map(json.loads, sys.stdin):
    if line.get("executable"):
        print(line["target"]["name"], line["executable"])' >"$sources/programs"
    echo "$version" >"$sources/pinned"
}

# run_each: runs each test by itself, because some flush the server that others use, and because the
# client waits long for a server that does not speak its protocol.
run_each() {
    local name binary test
    cd "$sources/crate" || return
    while read -r name binary; do
        for test in $("$binary" --list --format terse | sed -n 's/: test$//p'); do
            if timeout 15 "$binary" --exact "$test" >&2; then echo "pass $name::$test"; else echo "fail $name::$test"; fi
        done
    done <"$sources/programs"
}

# listen PORT FLAG...: starts the server on the port; fails if another process listens there. A
# program without TLS or without UDP ends at once: the tests of these fail then.
listen() {
    local at="$1"
    shift
    "$program" -u "$(id -un)" -l 127.0.0.1 -p "$at" "$@" &
    children+=("$!")
    local started="$!"
    sleep 0.5
    if kill -0 "$started" 2>/dev/null; then return; fi
    (exec 3<>"/dev/tcp/127.0.0.1/$at") 2>/dev/null && fail "the port $at is in use"
    return 0
}

run_suite() {
    local at tls
    tls="ssl_key=$sources/crate/tests/assets/localhost.key,ssl_chain_cert=$sources/crate/tests/assets/localhost.crt"
    for at in 12345 12346 12347 12348 12349; do listen "$at" -U 0; done
    listen 12350 -U 0 -Z -o "$tls"
    listen 12351 -U 0 -Z -o "$tls,ssl_verify_mode=2,ssl_ca_cert=$sources/crate/tests/assets/RUST_MEMCACHE_TEST_CERT.crt"
    listen "$(free_port)" -U 22345
    for at in memcached memcached2; do
        rm -f "$sources/$at.sock"
        "$program" -u "$(id -un)" -s "$sources/$at.sock" &
        children+=("$!")
    done
    (run_each) >"$3"
    (export TEXT=1; run_each) | sed 's/ / text::/' >>"$3"
}
