#!/usr/bin/env bash
# Misuses lowwater-server: 10,000 idle clients, slow and half-open ones, values that stop in the
# middle, random bytes, floods, keys and lengths at their limits, exhausted connections and files, a
# full disk for the log, SIGTERM under load. Checks that memory stays bounded, that other clients
# are served, and that the exit status is 0.
#
# ci/fire.sh [MEGABYTES]: the amount of random bytes, 64 by default.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/clients/server.bash

build_server
timeout 900 python3 ci/clients/fire.py "$server" --megabytes "${1:-64}"
