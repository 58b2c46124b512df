#!/usr/bin/env bash
# Runs a test program, and ends it when the first test has failed: others may wait for ever for what that one broke.
set -uo pipefail
# Not a coprocess: bash forgets its pipe as soon as it has ended, read or not.
exec {tests}< <(exec "$@" 2>&1)
pid=$!
while IFS= read -r line <&"$tests"; do
    printf '%s\n' "$line"
    if [[ $line == "test "*" ... FAILED" ]]; then
        kill -9 "$pid" 2>/dev/null
        exit 101
    fi
done
wait "$pid"
