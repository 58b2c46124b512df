#!/usr/bin/env bash
# The page of lowwater-server --http in a headless Chromium: live numbers that are the server's, on a screen and on a phone, in light and in
# dark, with a thousand tenants; nothing asked of anybody else, nothing on the console, no key and no value.
#
# ci/page.sh [FOLDER]: leaves screenshots there.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/tools/apt.bash
. ci/clients/server.bash

command -v chromium >/dev/null || packages chromium
build_server
printf 'shop low=2M\nsearch max=1M\n' >"$scratch/tenants.conf"
start_server page -m 8 --http 0 --pressure --config "$scratch/tenants.conf"
http="$(sed -n 's/^http .*http:\/\/\([^/]*\)\/ .*/\1/p' "$scratch/page.out")"
[ -n "$http" ] || { cat "$scratch/page.out"; fail "the server does not say where its page is"; }
python3 ci/clients/page.py "$http" "$port" "$pid" "$scratch/profile" "${1:-$scratch}"
