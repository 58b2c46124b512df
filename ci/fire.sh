#!/usr/bin/env bash
# lowwater-server under fire: 10,000 idle clients, slow and half-open ones, values that stop, random bytes, floods, keys and lengths at the
# edge, no more connections, no more files, no room for the log, SIGTERM under load. Memory stays bounded, others are served, and it ends
# with 0.
#
# ci/fire.sh [MEGABYTES]: so much random bytes, 64 by default.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/clients/server.bash

build_server
timeout 900 python3 ci/clients/fire.py "$server" --megabytes "${1:-64}"
