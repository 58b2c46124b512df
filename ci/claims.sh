#!/usr/bin/env bash
# Checks that each claim in ci/claims.md is still a sentence of README.md, docs/GUIDE.md or
# docs/MIGRATING.md, and that the test, script, figure or constant that shows it exists; that every
# paragraph with a number has a row; and that each row of a table of MIGRATING has its program in
# tests/migrating, with the calls that it names.
#
# ci/claims.sh run: also runs the tests of the table, package by package, and fails if one did not run.
# `ci/test.sh` runs all tests.
set -euo pipefail
cd "$(dirname "$0")/.."

python3 ci/tools/claims.py
[ "${1-}" = run ] || exit 0
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
python3 ci/tools/claims.py tests | while IFS= read -r command; do
    echo "$command"
    $command </dev/null | tee "$log"
    for name in ${command##* -- }; do
        grep -qE "^test (.*::)?$name( - should panic)? \.\.\. ok" "$log" || { echo "$name did not run"; exit 1; }
    done
done
