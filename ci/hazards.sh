#!/usr/bin/env bash
# Checks that every public type and macro has a row in docs/HAZARDS.md, that every cell is filled,
# and that the tests named in it exist.
set -euo pipefail
cd "$(dirname "$0")/.."

python3 ci/tools/hazards.py
