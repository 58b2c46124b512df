#!/usr/bin/env bash
# Checks that every package can be published: its manifest is complete, CHANGELOG.md dates its
# version, its files are those that a user needs, and it builds from them alone.
#
# ci/publish.sh: manifests, lists of files, and a dry run of publishing all packages in order, in
# which each is packed and resolved against the others' archives. ci/publish.sh build: the dry run
# also builds each package from its archive.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    echo "failed: $*" >&2
    exit 1
}

packages="$(cargo metadata --no-deps --format-version 1 | python3 -c '
import json, re, sys
for package in json.load(sys.stdin)["packages"]:
    if package["publish"] == []:
        continue
    name = package["name"]
    for key in ("description", "license", "readme", "rust_version", "documentation"):
        if not package[key]:
            sys.exit(f"{name}: no {key} in its Cargo.toml")
    for key, least, most in (("keywords", 1, 5), ("categories", 1, 5)):
        if not least <= len(package[key]) <= most:
            sys.exit(f"{name}: {len(package[key])} {key}, not {least} to {most}")
    for keyword in package["keywords"]:
        if not re.fullmatch("[A-Za-z0-9][A-Za-z0-9_+-]{0,19}", keyword):
            sys.exit(f"{name}: crates.io refuses the keyword {keyword}")
    if not (package["metadata"] or {}).get("docs", {}).get("rs"):
        sys.exit(f"{name}: no [package.metadata.docs.rs] in its Cargo.toml")
    if len(package["description"]) > 150:
        sys.exit(f"{name}: the description is longer than 150 characters")
    # A dependency by path needs a version, or it cannot be published.
    for dependency in package["dependencies"]:
        if dependency.get("path") and dependency["kind"] is None and dependency["req"] == "*":
            sys.exit(name + ": its dependency " + dependency["name"] + " has no version")
    print(name)
')" || fail "a manifest is not complete"

# CHANGELOG.md dates the version that is published: "## 0.1.0 - 2026-11-27".
version="$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml)"
grep -qE "^## ${version//./\\.} - 20[0-9]{2}-[01][0-9]-[0-3][0-9]$" CHANGELOG.md ||
    fail "CHANGELOG.md has no section '## $version - ' with the date of the release"

for package in $packages; do
    files="$(cargo package --list --allow-dirty -p "$package")"
    for file in Cargo.toml README.md LICENSE-MIT LICENSE-APACHE; do
        grep -qx "$file" <<<"$files" || fail "$package would be published without $file"
    done
    grep -qE '^src/(lib|main)\.rs$' <<<"$files" || fail "$package would be published without its code"
    odd="$(grep -E '^(ci|fuzz|target|\.ci|\.github)/|\.(orig|rej|swp|xz|profraw)$' <<<"$files" | grep -vx Cargo.toml.orig || true)"
    [ -z "$odd" ] || fail "$package would be published with $odd"
    echo "$package: $(wc -l <<<"$files") files"
done

verify=--no-verify
[ "${1-}" != build ] || verify=
# shellcheck disable=SC2086
cargo publish --workspace --dry-run --allow-dirty --quiet $verify
echo "$(wc -l <<<"$packages") packages can be published"
