#!/usr/bin/env bash
# Every public type and macro has a row in docs/HAZARDS.md, every cell is filled, and what a cell names exists.
set -euo pipefail
cd "$(dirname "$0")/.."

python3 ci/tools/hazards.py
