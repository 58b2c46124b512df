#!/usr/bin/env bash
# Checks the dependencies and the public interface.
#
# | part | check | needs |
# |---|---|---|
# | minimal | the libraries build with the oldest versions that Cargo.toml allows | a registry |
# | powerset | every combination of features builds (hwloc where its headers are installed) | cargo-hack |
# | deny | licenses, sources, duplicates: deny.toml | cargo-deny |
# | names | lowwater alone can name each type in its interface: ci/API.txt, read by ci/tools/names.py | python3 |
# | api | ci/API.txt equals the public items that rustdoc lists; `api write` writes it; and `names` | cargo-public-api, nightly |
# | removed REV | no line of REV's ci/API.txt is gone, unless the version says that programs may break | git |
# | semver REV | no item of REV was removed or changed, with all features; for the last release: `semver v0.1.0` | cargo-semver-checks, libhwloc-dev, libudev-dev |
#
# ci/supply.sh [PART...]: without arguments `minimal`, `names`, and the parts whose program is installed.
# Building a program takes up to a quarter of an hour, so only parts named as arguments build
# theirs.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/tools/cargo.bash

packages=(lowwater-base lowwater-rcu lowwater-lru-core lowwater-store lowwater-shrinker lowwater-pressure lowwater-dcache-model lowwater lowwater-adapters)

# The items that a feature adds are listed under a heading of their own.
declare -A featured=([lowwater-base]=serde [lowwater-shrinker]=metrics,tracing [lowwater]=async,metrics,serde,tracing)

minimal() {
    local copy
    copy="$(mktemp -d)"
    git ls-files -z | xargs -0 cp --parents -t "$copy"
    (
        export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}/minimal"
        cd "$copy"
        rm -f Cargo.lock
        # `minimal-versions` is unstable, so a stable compiler needs permission. Our direct
        # dependencies get their oldest versions, transitive ones the newest that fit.
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
    # Advisories are in a repository of their own; where it can be reached, `cargo deny check`
    # checks them, too.
    cargo deny --all-features check bans licenses sources
}

names() {
    python3 ci/tools/names.py ci/API.txt
}

# items PACKAGE [OPTION...]
items() {
    cargo +nightly public-api --package "$@" -sss 2>/dev/null
}

api() {
    tool cargo-public-api
    local listed plain with
    listed="$(mktemp)" plain="$(mktemp)" with="$(mktemp)"
    for package in "${packages[@]}"; do
        items "$package" >"$plain"
        echo "# $package"
        cat "$plain"
        echo
        [ -n "${featured[$package]-}" ] || continue
        echo "# $package, further items with the features ${featured[$package]}"
        items "$package" --features "${featured[$package]}" >"$with"
        # Status 1: the features add nothing.
        grep -vxFf "$plain" "$with" || [ $? -eq 1 ]
        echo
    done >"$listed"
    rm "$plain" "$with"
    if [ "${1-}" = write ]; then
        mv "$listed" ci/API.txt
        chmod 644 ci/API.txt
    else
        diff -u ci/API.txt "$listed" || { echo "the public names have changed: look at each, then ci/supply.sh api write"; return 1; }
        rm "$listed"
    fi
    echo "$(grep -c '^pub' ci/API.txt) public names"
    names
}

# plain: of a listing, the items without features.
plain() {
    awk '/^# / { on = !/, further items/; next } on'
}

# missing HEADING [FILTER]: the lines of a listing that ci/API.txt, through FILTER, does not have.
missing() {
    comm -23 <(grep -v "$1" | sort -u) <("${2:-cat}" <ci/API.txt | grep -v "$1" | sort -u)
}

removed() {
    local before gone old new
    git rev-parse --quiet --verify "$1^{commit}" >/dev/null || { echo "no revision $1"; return 1; }
    before="$(git show "$1:ci/API.txt")" || { echo "$1 has no ci/API.txt"; return 1; }
    # The headings are the lines that begin with "# "; attributes of items begin with "#[".
    gone="$(missing '^# ' <<<"$before")"
    # An item that is only there with a feature now is gone for programs without it.
    gone="$({ echo "$gone"; plain <<<"$before" | missing '^# ' plain; } | sort -u | sed '/^$/d')"
    # Of 0.x versions, those with one x are compatible; later, those with one major number.
    old="$(git show "$1:Cargo.toml" | compatible)" new="$(compatible <Cargo.toml)"
    if [ -n "$gone" ]; then
        echo "$gone"
        echo "$(wc -l <<<"$gone") lines of ci/API.txt in $1 are gone; $1 is $old.*, this is $new.*"
        [ "$old" != "$new" ]
        return
    fi
    echo "no public item of $1 is gone"
}

compatible() {
    sed -nE 's/^version = "(0\.[0-9]+|[1-9][0-9]*)\..*/\1/p' | head -1
}

semver() {
    tool cargo-semver-checks
    cargo semver-checks --workspace --baseline-rev "$1"
}

if [ $# -eq 0 ]; then
    minimal
    names
    for part in powerset:cargo-hack deny:cargo-deny api:cargo-public-api; do
        if command -v "${part#*:}" >/dev/null; then "${part%%:*}"; else echo "not looked at: ${part%%:*} (ci/supply.sh ${part%%:*} builds ${part#*:})"; fi
    done
    exit
fi
while [ $# -gt 0 ]; do
    part="$1"
    shift
    case "$part" in
    minimal | powerset | deny | names) "$part" ;;
    api) if [ "${1-}" = write ]; then shift; api write; else api; fi ;;
    removed | semver) "$part" "${1:?a revision to compare with}"; shift ;;
    *) echo "ci/supply.sh: no part $part"; exit 2 ;;
    esac
done
