#!/usr/bin/env bash
# Compiles the packages for other systems than this one, and runs their unit tests where an
# emulator is available. docs/GUIDE.md, "Platforms", has the table of the results.
#
# | target | compiled | run |
# |---|---|---|
# | x86_64-pc-windows-gnu | libraries and programs of all packages | with `all`: unit tests of base, rcu, lru-core, store, shrinker, pressure and lowwater, under wine |
# | wasm32-wasip1 | lowwater | unit tests of base, rcu, lru-core, store, shrinker, under wasmtime |
# | x86_64-apple-darwin, aarch64-apple-darwin | libraries and programs of all packages | no |
# | aarch64-unknown-linux-musl | libraries and programs of all packages | no |
# | powerpc-unknown-linux-gnu, which has no 64-bit atomics | base, rcu, lru-core, store, shrinker, pressure, dcache-model | no |
#
# A target, wine or wasmtime that is not available is reported as NOT CHECKED or NOT RUN.
#
# ci/platforms.sh [all]: without `all`, nothing is run under wine, which takes some minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/tools/apt.bash
. ci/tools/rust.bash

work="$(realpath -m "${CARGO_TARGET_DIR:-target}")/platforms"
mkdir -p "$work"
below=(-p lowwater-base -p lowwater-rcu -p lowwater-lru-core -p lowwater-store -p lowwater-shrinker)

check_on() {
    local target="$1"
    shift
    if ! target "$target"; then
        echo "NOT CHECKED on $target: rustup cannot get its library"
        return 0
    fi
    cargo check --quiet --target "$target" "$@"
    echo "compiles for $target"
}
check_on x86_64-apple-darwin --workspace --lib --bins
check_on aarch64-apple-darwin --workspace --lib --bins
check_on aarch64-unknown-linux-musl --workspace --lib --bins
check_on x86_64-pc-windows-gnu --workspace --lib --bins
check_on wasm32-wasip1 -p lowwater --features async,metrics
check_on powerpc-unknown-linux-gnu "${below[@]}" -p lowwater-pressure -p lowwater-dcache-model

# programs TARGET ARGUMENT...: builds the unit tests, and prints a line for each: package, program.
programs() {
    local target="$1"
    shift
    cargo test --quiet --target "$target" "$@" --lib --no-run --message-format json |
        python3 -c '
import json, sys
for line in sys.stdin:
    unit = json.loads(line)
    if unit.get("executable"):
        print(unit["target"]["name"], unit["executable"])'
}

# The tests of wasm32-wasip1 have no threads and no unwinding.
wasm() {
    target wasm32-wasip1 || return 0
    if ! { [ -x "$work/venv/bin/python" ] || python3 -m venv "$work/venv"; } ||
        ! "$work/venv/bin/python" -m pip install --quiet wasmtime==50.0.1; then
        echo "NOT RUN on wasm32-wasip1: pip cannot get wasmtime"
        return 0
    fi
    programs wasm32-wasip1 "${below[@]}" --no-default-features >"$work/wasm"
    cut -d' ' -f2 "$work/wasm" | xargs "$work/venv/bin/python" ci/tools/wasi.py
}

windows() {
    target x86_64-pc-windows-gnu || return 0
    if ! packages wine64 gcc-mingw-w64-x86-64; then
        echo "NOT RUN on x86_64-pc-windows-gnu: apt cannot get wine64 and mingw"
        return 0
    fi
    # Rust's library needs this function of Windows 10, which wine 8 does not have.
    if [ ! -f "$work/bcryptprimitives.dll" ]; then
        x86_64-w64-mingw32-gcc -shared -o "$work/bcryptprimitives.dll" ci/tools/bcryptprimitives.c -ladvapi32
    fi
    export WINEPREFIX="$work/wine" WINEDEBUG=-all WINEDLLOVERRIDES="mscoree,mshtml=" WINEPATH="Z:${work//\//\\}"
    programs x86_64-pc-windows-gnu "${below[@]}" -p lowwater-pressure "$@" >"$work/windows"
    local name program
    while read -r name program; do
        if ! /usr/lib/wine/wine64 "$program" </dev/null >"$work/output" 2>&1; then
            cat "$work/output"
            echo "FAILED: $name on x86_64-pc-windows-gnu"
            return 1
        fi
        echo "$name: $(grep '^test result' "$work/output")"
    done <"$work/windows"
}

wasm
[ "${1:-}" != all ] || windows -p lowwater
