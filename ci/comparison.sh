#!/usr/bin/env bash
# Checks benches/comparison: it builds as locked, without a warning; the programs of
# docs/MIGRATING.md pass, including moka's, and so do tests of what that page says of the other
# caches; and each section prints results. It builds for some minutes, so it is no step of .ci/run.
# No figures are checked: the sizes are small, and the machine may have other work.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/tools/rust.bash

component clippy
target="${CARGO_TARGET_DIR:-benches/comparison/target}"
package=(--manifest-path benches/comparison/Cargo.toml --locked --target-dir "$target")

cargo clippy "${package[@]}" --all-targets -- -D warnings
cargo test "${package[@]}" --bins --tests
cargo test "${package[@]}" --doc -- --include-ignored
cargo build "${package[@]}" --release

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
# A small trace in which every key is requested twice.
python3 -c 'import struct,sys
for n in range(20000): sys.stdout.buffer.write(struct.pack("<Q", n // 2 if n % 2 else n * 7 % 5000))' >"$folder/made.u64"
printf '%s\n' '<!-- benches/comparison: begin -->' '<!-- benches/comparison: end -->' >"$folder/measured.md"
"$target/release/lowwater-comparison" all --quick --json --plot "$folder" --record "$folder/measured.md" --traces "$folder" >"$folder/figures.json"
python3 - "$folder" <<'CHECK'
import json, os, sys
folder = sys.argv[1]
figures = json.load(open(f"{folder}/figures.json"))
tables = ["throughput-zipf", "throughput-hits", "throughput-95-5", "latency-insert-1", "latency-insert-2", "latency-zipf-2",
          "memory-entries", "memory-empty", "memory-tenants", "stalls", "tenants", "tenants-scan", "hit-ratio", "hit-ratio-mean"]
for table in tables:
    assert figures[table]["rows"], f"{table} has no row"
contenders = {row["cache"] for row in figures["throughput-hits"]["rows"]}
wanted = {"lowwater", "moka", "mini-moka", "quick_cache", "foyer", "lru", "scc", "dashmap", "papaya"}
assert wanted <= contenders, f"missing: {wanted - contenders}"
pictures = [name for name in os.listdir(folder) if name.endswith(".svg")]
assert len(pictures) >= 10, f"{len(pictures)} plots"
record = open(f"{folder}/measured.md").read()
assert "### Where another is better" in record and record.count("](plots/") >= 10, record[:2000]
print(f"{len(tables)} tables, {len(pictures)} plots")
CHECK
