#!/usr/bin/env bash
# Runs a test program, and ends it when the first test has failed: others may wait for ever for what that one broke.
set -uo pipefail
coproc tests { exec "$@" 2>&1; }
pid=$tests_PID
while IFS= read -r line <&"${tests[0]}"; do
    printf '%s\n' "$line"
    if [[ $line == "test "*" ... FAILED" ]]; then
        kill -9 "$pid"
        exit 101
    fi
done
wait "$pid"
