#!/usr/bin/env bash
# Builds the Debian package of the server from [package.metadata.deb] in crates/server/Cargo.toml, and
# checks what is in it: the program starts, the manual page and the completions are read without an
# error, and systemd accepts the units.
#
# ci/package.sh [FOLDER]: writes the package there.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/tools/apt.bash
. ci/clients/server.bash

build_server
made="${CARGO_TARGET_DIR:-target}/package"
rm -rf "$made"
mkdir -p "$made"
"$server" --print man >"$made/lowwater-server.8"
for shell in bash zsh fish; do
    "$server" --print "$shell" >"$made/lowwater-server.$shell"
done
command -v dpkg-deb >/dev/null || { echo "skipped: there is no dpkg-deb here"; exit 0; }
package="$(python3 ci/tools/deb.py "$made" "${1:-$made}")"

root="$scratch/root"
dpkg-deb --extract "$package" "$root"
dpkg-deb --info "$package"
for file in usr/bin/lowwater-server usr/share/man/man8/lowwater-server.8.gz usr/lib/systemd/system/lowwater-server.service etc/default/lowwater-server; do
    [ -s "$root/$file" ] || fail "the package has no $file"
done
"$root/usr/bin/lowwater-server" -V | grep -q '^lowwater-server ' || fail "the packaged program does not start"
bash -n "$root/usr/share/bash-completion/completions/lowwater-server"
command -v groff >/dev/null || packages groff
zcat "$root/usr/share/man/man8/lowwater-server.8.gz" >"$scratch/page.8"
warnings="$(groff -man -ww -Tascii -P-cbou "$scratch/page.8" 2>&1 >"$scratch/page.txt")"
[ -z "$warnings" ] || fail "the manual page: $warnings"
grep -q -- '--save-file' "$scratch/page.txt" || fail "the manual page has no --save-file"
if command -v systemd-analyze >/dev/null; then
    # The units name the installed program.
    sed "s|/usr/bin/lowwater-server|$root/usr/bin/lowwater-server|" "$root/usr/lib/systemd/system/lowwater-server.service" >"$scratch/lowwater-server.service"
    cp "$root/usr/lib/systemd/system/lowwater-server.socket" "$scratch/"
    complaints="$(systemd-analyze verify --man=no "$scratch/lowwater-server.service" "$scratch/lowwater-server.socket" 2>&1 | grep lowwater | grep -v "Unknown key" || true)"
    [ -z "$complaints" ] || fail "the units: $complaints"
else
    echo "skipped: there is no systemd-analyze here to check the units"
fi
echo "$package"
