# node memcached: its tests name the ports 11211 to 11213. Those of the client's default port fail
# unless a server listens on it.
version=2.2.2

prepare_suite() {
    need npm npm
    local pinned="memcached@$version mocha@5.2.0 should@13.2.3"
    [ "$(cat "$sources/pinned" 2>/dev/null)" = "$pinned" ] && return
    rm -rf "${sources:?}"/*
    (cd "$sources" && npm pack --silent "memcached@$version" && tar -xzf memcached-*.tgz)
    (cd "$sources/package" && npm install --silent --no-audit --no-save mocha@5.2.0 should@13.2.3)
    echo "$pinned" >"$sources/pinned"
}

run_suite() {
    local edit="s/:11211/:$2/"
    # start_program sets the port and the process id of the server under test: they stay.
    local first="$pid" at
    for at in 11212 11213; do
        start_program "node-memcached-$at"
        edit="$edit; s/:$at/:$port/"
    done
    pid="$first" port="$2"
    rm -rf "${sources:?}/run"
    cp -r "$sources/package" "$sources/run"
    sed -i "$edit" "$sources/run/test/common.js"
    (cd "$sources/run" && MEMCACHED__HOST="$1" node_modules/.bin/mocha --exit --reporter json \
        --timeout 10000 --require should test/*.test.js >"$scratch/node-memcached.json") || true
    python3 - "$scratch/node-memcached.json" >"$3" <<'END'
import json
import sys

# The tests print lines of their own before the results.
text = open(sys.argv[1], encoding="utf-8").read()
results = json.loads(text[text.index('{\n  "stats"'):])
for word, tests in ("pass", results["passes"]), ("fail", results["failures"]):
    for test in tests:
        print(word, test["fullTitle"])
END
}
