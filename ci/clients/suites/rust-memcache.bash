# The crate memcache: its tests name the ports 12345 to 12351 and 22345, the latter for UDP, and two
# unix sockets.
version=0.21.0

prepare_suite() {
    [ "$(cat "$sources/pinned" 2>/dev/null)" = "$version" ] && return
    rm -rf "${sources:?}"/*
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
    sed -i "s|/tmp/memcached|$sources/memcached|" "$sources"/crate/src/*.rs "$sources"/crate/tests/*.rs
    echo '[workspace]' >>"$sources/crate/Cargo.toml"
    CARGO_TARGET_DIR="$sources/target" cargo test --locked --all-features --lib --tests --no-run \
        --manifest-path "$sources/crate/Cargo.toml"
    echo "$version" >"$sources/pinned"
}

# tests ARGUMENT...: runs `cargo test` on the copy of the crate.
tests() {
    CARGO_TARGET_DIR="$sources/target" timeout 120 cargo test --locked --all-features \
        --manifest-path "$sources/crate/Cargo.toml" "$@"
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
    # Not in parallel: some tests flush the server that others use. The test of UDP waits for replies
    # for ever.
    tests --lib --tests --no-fail-fast -- --test-threads=1 --skip udp_test 2>&1 | tee "$scratch/rust-memcache.tests" || true
    awk '/^ *Running / { binary = $2 == "unittests" ? "lib" : $2 }
        /^test .* \.\.\. ok$/ { print "pass " binary "::" $2 }
        /^test .* \.\.\. FAILED$/ { print "fail " binary "::" $2 }' "$scratch/rust-memcache.tests" >"$3"
    local udp=pass
    tests --test tests -- --exact udp_test || udp=fail
    echo "$udp tests/tests.rs::udp_test" >>"$3"
}
