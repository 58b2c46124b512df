#!/usr/bin/env bash
# Opens the page of lowwater-server --http in a headless Chromium: its live numbers equal the
# server's, on a desktop and a phone screen, in light and dark mode, with a thousand tenants; it
# makes no requests to other hosts, logs nothing to the console, and shows no key and no value.
#
# ci/page.sh [FOLDER]: saves screenshots there.
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
