#!/usr/bin/env bash
# What comes in and what goes out: the crates we depend on, and the names others may depend on.
#
# | part | what | needs |
# |---|---|---|
# | minimal | the libraries build with the oldest versions that Cargo.toml allows | a registry |
# | powerset | every combination of features builds (hwloc where its headers are) | cargo-hack |
# | deny | licenses, sources, doubles: deny.toml | cargo-deny |
# | api | docs/API.txt is what rustdoc sees; `api write` writes it | cargo-public-api, nightly |
# | semver REV | nothing that REV had is gone or changed; for the last release: `semver v0.1.0` | cargo-semver-checks |
#
# ci/supply.sh [PART...]: without arguments `minimal`, and those whose program is there already. Building one takes up to a quarter
# of an hour, so that is done only for a part that was asked for.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/tools/cargo.bash

packages=(lowwater-base lowwater-rcu lowwater-lru-core lowwater-store lowwater-shrinker lowwater-pressure lowwater-dcache-model lowwater)

minimal() {
    local copy
    copy="$(mktemp -d)"
    git ls-files -z | xargs -0 cp --parents -t "$copy"
    (
        export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}/minimal"
        cd "$copy"
        rm -f Cargo.lock
        # Unstable, so a stable compiler has to be told that it may. Ours are the oldest, those they need the newest that fit.
        RUSTC_BOOTSTRAP=1 cargo update --quiet -Z direct-minimal-versions
        cargo check --quiet --workspace --lib
        cargo check --quiet --workspace --lib --features tracing,metrics
    )
    rm -rf "$copy"
    echo "the libraries build with the oldest versions they allow"
}

powerset() {
    tool cargo-hack
    local without=()
    pkg-config --exists hwloc libudev 2>/dev/null || without=(--exclude-features hwloc)
    cargo hack check --workspace --exclude lowwater-server --lib --feature-powerset ${without[@]+"${without[@]}"}
}

deny() {
    tool cargo-deny
    # Advisories come from a repository of their own; where that can be reached, `cargo deny check` looks at them, too.
    cargo deny --all-features check bans licenses sources
}

api() {
    tool cargo-public-api
    local listed
    listed="$(mktemp)"
    for package in "${packages[@]}"; do
        echo "# $package"
        cargo +nightly public-api --package "$package" -sss 2>/dev/null
        echo
    done >"$listed"
    if [ "${1-}" = write ]; then
        mv "$listed" docs/API.txt
        chmod 644 docs/API.txt
    else
        diff -u docs/API.txt "$listed" || { echo "the public names have changed: look at each, then ci/supply.sh api write"; return 1; }
        rm "$listed"
    fi
    echo "$(grep -c '^pub' docs/API.txt) public names"
}

semver() {
    tool cargo-semver-checks
    cargo semver-checks --workspace --baseline-rev "$1"
}

if [ $# -eq 0 ]; then
    minimal
    for part in powerset:cargo-hack deny:cargo-deny api:cargo-public-api; do
        if command -v "${part#*:}" >/dev/null; then "${part%%:*}"; else echo "not looked at: ${part%%:*} (ci/supply.sh ${part%%:*} builds ${part#*:})"; fi
    done
    exit
fi
while [ $# -gt 0 ]; do
    part="$1"
    shift
    case "$part" in
    minimal | powerset | deny) "$part" ;;
    api) if [ "${1-}" = write ]; then shift; api write; else api; fi ;;
    semver) semver "${1:?a revision to compare with}"; shift ;;
    *) echo "ci/supply.sh: no part $part"; exit 2 ;;
    esac
done
