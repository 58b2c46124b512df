#!/usr/bin/env bash
# Runs a test program and kills it when the first test has failed, since other tests may then wait
# for ever.
set -uo pipefail
# Not a coprocess: bash closes its pipe as soon as it has ended, even if output is unread.
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
