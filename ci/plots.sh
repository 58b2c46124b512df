#!/usr/bin/env bash
# Draws the plots of all examples, at small sizes, and checks them and those of docs/plots: labels
# are there and inside the picture, and cover no bar, no curve and no other label, and no axis
# continues beyond its curves (ci/tools/plots.py). Each plot is rendered as a bitmap.
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

# A made-up plot, with a curve up to 60 % of its chart's width, and up to 90 %.
made="$(mktemp -d)"
trap 'rm -rf "$made"; [ $# -gt 0 ] || rm -rf "$folder"' EXIT
for end in 60 90; do
    printf '<svg width="120" height="120"><text x="5" y="115">x</text><line x1="0" y1="0" x2="100" y2="100"/>%s</svg>' \
        "<polyline points=\"0,100 30,50 $end,0\"/>" >"$made/$end.svg"
done
python3 ci/tools/plots.py "$made/90.svg" x || failed=1
if python3 ci/tools/plots.py "$made/60.svg" x 2>/dev/null; then
    echo "an axis beyond its curve is not reported"
    failed=1
fi

plots=0
# docs NAME LABEL...: a plot of docs/plots.
docs() {
    check "docs/plots/$1.svg" "${@:2}"
    plots=$((plots + 1))
}
caches=(lowwater moka mini-moka quick_cache foyer lru scc)
threads=("Mops, threads: 1" "Mops, threads: 2" "Mops, threads: 4")
latencies=("p99.9 us" "max unpreempted us")
tenants=("all but the scan" quiet "lowwater, a group each" "lowwater, a group each, at the limit")
tenants+=("${caches[@]/%/, shared}" "moka, fixed split" "mini-moka, fixed split" "quick_cache, fixed split")
tenants+=("foyer, fixed split" "lru, fixed split" "scc, fixed split")
docs throughput-zipf "${caches[@]}" "${threads[@]}"
docs throughput-hits "${caches[@]}" dashmap papaya "${threads[@]}"
docs throughput-95-5 "${caches[@]}" dashmap papaya "${threads[@]}"
docs latency-insert-1 "${caches[@]}" "${latencies[@]}"
docs latency-insert-2 "${caches[@]}" "${latencies[@]}"
docs latency-zipf-2 "${caches[@]}" "${latencies[@]}"
docs memory-entries "${caches[@]}" dashmap papaya "bytes an entry"
docs memory-empty "${caches[@]}" empty "its first entry adds"
docs memory-tenants lowwater "its first entry adds"
docs stalls "lowwater: *" "moka: *" "mini-moka: *" "quick_cache: *" "foyer: *" "lru: *" "dashmap: *" "${latencies[@]}"
docs tenants "${tenants[@]}"
docs tenants-scan "${tenants[@]}"
docs hit-ratio-mean "${caches[@]}" "ref: S3-FIFO" "ref: ARC" "ref: optimum" mean
docs readme-scan "lowwater, a group each" "foyer, shared" "quick_cache, shared" "moka, shared" "lru, shared" "no scan" "one tenant scans"
docs readme-shrink "lowwater, set_budget" "mini-moka, *" "moka, *" "quick_cache, *" "foyer, resize" "lru with a lock, resize" \
    "99.9th percentile" "longest without preemption"
files=(docs/plots/*.svg)
[ "$plots" -eq ${#files[@]} ] || { echo "ci/plots.sh has labels of $plots plots, and docs/plots has ${#files[@]}"; failed=1; }
[ "$failed" -eq 0 ] || exit 1
echo "5 plots of examples and $plots of docs have their labels"
