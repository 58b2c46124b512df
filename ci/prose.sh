#!/usr/bin/env bash
# Measures how plain the English of comments, pages and messages is, and fails beyond the bounds of
# ci/tools/prose.py. Also fails if docs/MEASURED.md or docs/SEEDS.md is not the page of its results.
#
# ci/prose.sh [--list N]: with the N worst sentences.
set -euo pipefail
cd "$(dirname "$0")/.."
python3 ci/tools/prose.py "$@"
ci/measured.sh --check
ci/seeds.sh --check
