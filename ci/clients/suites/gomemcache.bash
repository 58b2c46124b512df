# gomemcache: its tests name the port 11211, and start the program `memcached` with a unix socket
# and with TLS.
gomemcache=github.com/bradfitz/gomemcache@v0.0.0-20260422231931-4d751bb6e37c

prepare_suite() {
    need go golang-go
    [ "$(cat "$sources/pinned" 2>/dev/null)" = "$gomemcache" ] && return
    rm -rf "${sources:?}"/*
    local found
    found="$(cd "$sources" && go mod download -json "$gomemcache" | sed -n 's/.*"Dir": "\(.*\)",*/\1/p')"
    cp -r "$found" "$sources/module"
    chmod -R u+w "$sources/module"
    echo "$gomemcache" >"$sources/pinned"
}

run_suite() {
    rm -rf "${sources:?}/run" "${sources:?}/bin"
    cp -r "$sources/module" "$sources/run"
    mkdir "$sources/bin"
    # memcached wants a user's name if root starts it.
    printf '#!/bin/sh\nexec "%s" -u "%s" "$@"\n' "$program" "$(id -un)" >"$sources/bin/memcached"
    chmod +x "$sources/bin/memcached"
    sed -i "s/localhost:11211/$1:$2/" "$sources"/run/memcache/*_test.go
    (cd "$sources/run" && PATH="$sources/bin:$PATH" go test -v -count=1 ./...) | tee "$scratch/gomemcache.go" || true
    sed -n 's/^ *--- PASS: \([^ ]*\) .*/pass \1/p; s/^ *--- FAIL: \([^ ]*\) .*/fail \1/p' "$scratch/gomemcache.go" >"$3"
}
