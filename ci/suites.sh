#!/usr/bin/env bash
# Runs the own test suites of memcached client libraries against memcached and against
# lowwater-server. Fails if a test passes on memcached and not here, unless
# ci/clients/suites/expected.txt lists the test with a reason, and if a listed test passes here.
# Takes too long for .ci/run: to be run by hand and weekly.
#
# ci/suites.sh [NAME...]: the suites ci/clients/suites/NAME.bash, by default all of them whose sources
# are in package registries. Those with github.sh are run by name only.
#
# | variable | default | |
# |---|---|---|
# | MEMCACHED | Debian's | the program |
# | SERVER | built here | lowwater-server |
# | RESULTS | none | a folder in which the output of the suites stays |
#
# A suite is a file that defines `run_suite HOST PORT OUTFILE`, which writes one line `pass TEST` or
# `fail TEST` to OUTFILE for each test, and `prepare_suite`, which is run once, before the servers
# start, and brings the sources, pinned by version, into the folder $sources. A failed test is no
# failure of run_suite. Both find:
#
# | name | |
# |---|---|
# | sources | a folder of this suite, kept between runs |
# | program | the server under test, for a suite that starts servers with flags of its own |
# | start_program NAME FLAG... | starts $program on a free port; sets $pid and $port |
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/clients/server.bash
. ci/tools/apt.bash

suites=ci/clients/suites
memcached="${MEMCACHED:-memcached}"
[ -n "${MEMCACHED:-}" ] || need memcached memcached
if [ -n "${SERVER:-}" ]; then server="$SERVER"; else cargo build --release --quiet -p lowwater-server --features tls; fi
memcached="$(realpath "$(command -v "$memcached")")" server="$(realpath "$server")"
results="${RESULTS:-$scratch/results}"
mkdir -p "$results"
"$memcached" -V

# start_program NAME FLAG...: starts $program on a free port; sets $pid and $port.
start_program() {
    local out="$scratch/$1.program"
    shift
    port="$(free_port)"
    "$program" -u "$(id -un)" -l 127.0.0.1 -p "$port" -U 0 "$@" >"$out" 2>&1 &
    pid=$!
    children+=("$pid")
    wait_for_port "$port"
}

# stop_on_exit: lets a subshell stop the servers that it starts, and no others. The parent removes
# the scratch directory.
stop_on_exit() {
    children=()
    trap 'for child in ${children[@]+"${children[@]}"}; do kill -9 "$child" 2>/dev/null || true; done' EXIT
}

# inside LOG COMMAND...: runs the command in a subshell that ends with the first command that fails,
# with its output in LOG, which is shown if it fails.
inside() {
    local log="$1" code=0
    shift
    # Not as an operand of ||, which would turn errexit off inside.
    set +e
    (
        set -e
        stop_on_exit
        "$@"
    ) >"$log" 2>&1
    code=$?
    set -e
    [ "$code" -eq 0 ] || { tail -n 40 "$log"; fail "$* exited with $code"; }
}

# prepare SUITE: brings the sources of the suite.
prepare() {
    sources="$folder/$1"
    . "$suites/$1.bash"
    prepare_suite
}

# run_on NAME PROGRAM SUITE: runs the suite against the program, in a subshell. Writes the sorted
# results to NAME.all, and the sorted names of the tests that passed to NAME.passed.
run_on() (
    stop_on_exit
    name="$1" program="$2" suite="$3"
    here="$results/$suite" sources="$folder/$suite"
    . "$suites/$suite.bash"
    : >"$here/$name.out"
    start_program "$suite" -m 1024
    inside "$here/$name.log" run_suite 127.0.0.1 "$port" "$here/$name.out"
    kill -0 "$pid" 2>/dev/null || fail "$suite ended $name"
    LC_ALL=C sort -u "$here/$name.out" >"$here/$name.all"
    # A test that ran more than once passes if it always did.
    sed -n 's/^fail //p' "$here/$name.all" | LC_ALL=C sort -u >"$here/$name.failed"
    sed -n 's/^pass //p' "$here/$name.all" | LC_ALL=C sort -u | LC_ALL=C comm -23 - "$here/$name.failed" >"$here/$name.passed"
)

folder="$(realpath -m "${CARGO_TARGET_DIR:-target}/suites")"
names=("$@")
[ "$#" -gt 0 ] || for file in "$suites"/*.bash; do
    name="$(basename "$file" .bash)"
    if grep -q '/github\.sh"$' "$file"; then echo "$name: run by name only"; else names+=("$name"); fi
done
bad=0
for suite in "${names[@]}"; do
    [ -f "$suites/$suite.bash" ] || fail "no suite $suite"
    here="$results/$suite"
    mkdir -p "$here" "$folder/$suite"
    inside "$here/prepare.log" prepare "$suite"
    run_on memcached "$memcached" "$suite"
    run_on ours "$server" "$suite"
    [ -s "$here/memcached.passed" ] || fail "$suite: no test passes on memcached"
    awk -F '\t' -v suite="$suite" '$1 == suite { print $2 }' "$suites/expected.txt" | LC_ALL=C sort >"$here/expected"
    LC_ALL=C comm -23 "$here/memcached.passed" "$here/ours.passed" >"$here/missing"
    LC_ALL=C comm -23 "$here/missing" "$here/expected" >"$here/unexpected"
    # Some tests depend on the load of the machine: a difference counts if it is there twice.
    if [ -s "$here/unexpected" ]; then
        run_on again "$server" "$suite"
        LC_ALL=C comm -12 "$here/unexpected" "$here/again.passed" >"$here/unsteady"
        sed "s/^/  $suite: fails here once, and passes in a second run: /" "$here/unsteady"
        LC_ALL=C comm -23 "$here/unexpected" "$here/unsteady" >"$here/twice"
        mv "$here/twice" "$here/unexpected"
    fi
    LC_ALL=C comm -12 "$here/expected" "$here/ours.passed" >"$here/stale"
    printf '%s: %s pass on memcached, %s here, %s of %s differences are expected\n' "$suite" \
        "$(wc -l <"$here/memcached.passed")" "$(wc -l <"$here/ours.passed")" \
        "$(LC_ALL=C comm -12 "$here/missing" "$here/expected" | wc -l)" "$(wc -l <"$here/missing")"
    while read -r test; do
        echo "  passes on memcached only: $test"
        bad=1
    done <"$here/unexpected"
    while read -r test; do
        echo "  is listed in expected.txt, but passes here: $test"
        bad=1
    done <"$here/stale"
done
[ "$bad" -eq 0 ] || fail "differences from memcached"
