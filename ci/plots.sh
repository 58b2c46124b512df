#!/usr/bin/env bash
# Draws the plots of all examples, at small sizes, and checks them and those of docs/plots: labels
# are there and inside the picture, and cover no bar, no curve and no other label
# (ci/tools/plots.py). Each plot is rendered as a bitmap.
#
# ci/plots.sh [FOLDER]: leaves the plots and the bitmaps there, for inspection.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/tools/apt.bash

packages librsvg2-bin
folder="${1:-$(mktemp -d)}"
[ $# -gt 0 ] || trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder"
binaries="${CARGO_TARGET_DIR:-target}/release/examples"

failed=0
# check FILE LABEL...
check() {
    python3 ci/tools/plots.py "$@" || failed=1
    rsvg-convert "$1" -o "$folder/$(basename "$1" .svg).png" || failed=1
}
# draw NAME EXAMPLE ARGUMENT...: the example's plot.
draw() {
    local file="$folder/$1.svg" example="$2"
    shift 2
    "$binaries/$example" "$@" --json --plot "$file" >/dev/null
}

cargo build --release --quiet --example containers --example drop_caches --example deferred_tail --example negative_flood
draw containers containers --memcgs 1000 --mounts 1000
check "$folder/containers.svg" "Linux 5.10" "one array for all nodes" "lists on first use" "xarray, lists on first use" \
    "every list for every id" lowwater "Linux, model" computed counted MiB
draw drop-caches drop_caches --memcgs 400 --mounts 400
check "$folder/drop-caches.svg" "drop 1" "drop 2" "drop 3" "drop 4" "drop 5" "drop 2, all pairs asked" lowwater "baseline*" us
draw drop-caches-alone drop_caches --memcgs 40 --mounts 40 --no-every --repeat 12
check "$folder/drop-caches-alone.svg" "drop 1" "drop 12" us
draw deferred-tail deferred_tail --objects 100000 --debt 50000 --seconds 0.3
check "$folder/deferred-tail.svg" windup proportional fair "latency, us" "calls that took longer*"
draw negative-flood negative_flood --buckets 65536 --seconds 2
check "$folder/negative-flood.svg" seconds negatives "Negatives that stay cached*"

plots=0
for plot in docs/plots/*.svg; do
    check "$plot"
    plots=$((plots + 1))
done
[ "$failed" -eq 0 ] || exit 1
echo "5 plots of examples and $plots of docs have their labels"
