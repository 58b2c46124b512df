#!/usr/bin/env bash
# Runs the benches. The machine should be idle; benches/add_del.rs reports whether it has two free
# cores.
#
# ci/bench.sh [BENCH [CRITERION FLAG...]]: one of benches/; without arguments all of them, quickly,
# with a check that the report has their curves. With at most 2 processors it also fails if the
# benches take more than 300 s; curves against threads have more points on other machines.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds_max=300
if [ $# -gt 0 ]; then
    bench="$1"
    shift
    exec cargo bench --bench "$bench" -- "$@"
fi
cargo bench --no-run
report="${CARGO_TARGET_DIR:-target}/criterion"
# Curves of an earlier run must not pass for those of this one; its baselines stay.
began="$(mktemp)"
trap 'rm -f "$began"' EXIT
SECONDS=0
cargo bench -- --quick
took=$SECONDS
missing=0
# The names of folders, in which criterion replaces some characters.
for group in "add+del" "add+del, groups" "add+del, nodes" "walk, objects" "pass, groups" "pass, non-empty pairs" "pass, nodes" "pass, threads" "map, threads" \
    get insert mixed entries nodes tenants "dcache, threads" "dcache, names" "dcache, groups" "dcache, nodes" "dcache, negatives in a watched directory" \
    "registration, threads" "registration, shrinkers" "registration, groups" "registration, nodes" "one call, objects owed" footprint; do
    grep -q "$group" "$report/report/index.html" || { echo "$group is not in the report"; missing=1; }
    # With one processor, a curve against threads is a point.
    [ "$(nproc)" -eq 1 ] || [ "$report/$group/report/lines.svg" -nt "$began" ] || { echo "$group has no curve"; missing=1; }
done
[ "$missing" -eq 0 ] || exit 1
echo "all curves are in $report/report/index.html"
echo "the benches took $took s on $(nproc) processors; at most $seconds_max s on 2"
if [ "$(nproc)" -le 2 ] && [ "$took" -gt "$seconds_max" ]; then
    echo "too slow: run it again on a quiet machine, or take points from the curves"
    exit 1
fi
