#!/usr/bin/env bash
# Runs the checks that are too slow for each change, each for MINUTES at most (240 by default), and
# random programs for a quarter of that time. Writes the result of each into docs/SANITIZERS.md:
# date, commit, compiler, number of tests, result.
#
# ci/scheduled.sh [MINUTES [KIND...]]: miri, thread, address and programs by default.
set -euo pipefail
cd "$(dirname "$0")/.."

minutes="${1:-240}"
shift || true
[ $# -gt 0 ] || set -- miri thread address programs
table=docs/SANITIZERS.md
logs="${CARGO_TARGET_DIR:-target}/scheduled"
mkdir -p "$logs"

# check KIND: runs the command in ${command[@]}.
check() {
    case "$1" in
    miri | thread | address) command=(ci/sanitize.sh "$1") ;;
    programs) command=(ci/programs.sh --address $((minutes * 15))) ;;
    *) echo "ci/scheduled.sh: no kind $1"; exit 2 ;;
    esac
    local code=0
    timeout --kill-after=60 $((minutes * 60)) nice -n 19 "${command[@]}" >"$logs/$1.log" 2>&1 || code=$?
    return $code
}

# total WORD LOG: the sum over all lines `test result`.
total() {
    { grep -oE "[0-9]+ $1" "$2" || true; } | awk '{ n += $1 } END { print n + 0 }'
}

# result CODE LOG: prints the result in words.
result() {
    local reports
    reports="$(grep -cE 'ThreadSanitizer: |AddressSanitizer: |Undefined Behavior' "$2" || true)"
    if [ "$1" -eq 0 ]; then
        echo "no finding"
    elif [ "$1" -eq 124 ] || [ "$1" -eq 137 ]; then
        echo "not done after $minutes min, $reports reports until then; it was in \`$(grep -oE '^test [^ ]+' "$2" | tail -n 1 | cut -d ' ' -f 2)\`"
    else
        echo "$reports reports; failed: $(grep -E '^test .* FAILED$' "$2" | cut -d ' ' -f 2 | sort -u | paste -sd ' ')"
    fi
}

failed=0
for kind in "$@"; do
    code=0
    check "$kind" || code=$?
    [ "$code" -eq 0 ] || failed=1
    log="$logs/$kind.log"
    row="| $kind | \`${command[*]}\` | $(date -u +%F) | $(git rev-parse --short HEAD) | $(rustc +nightly --version | cut -d ' ' -f 2,4 | tr -d ')') | $(total passed "$log") / $(total failed "$log") | $(result "$code" "$log") |"
    echo "$row"
    # Replaces the row of this kind, and keeps all others.
    KIND="$kind" ROW="$row" awk -F ' *\\| *' '$2 == ENVIRON["KIND"] { print ENVIRON["ROW"]; next } { print }' "$table" >"$logs/table"
    cp "$logs/table" "$table"
done
exit $failed
