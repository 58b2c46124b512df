"""Sections about the dentry cache. Figures are typed in from several programs."""
from section import Section, as_table

SECTIONS = [
    Section("dentries", [
        "cargo bench --bench lookup -- 10000000",
        "cargo bench --bench negative_flood -- 3 unbounded default",
        "cargo bench --bench negative_flood -- 3 charge",
        "cargo run --release --example negative_flood -- --buckets 65536 --threads 2 --seconds 4 --adversary twice --policy default --json",
        "cargo run --release --example replay -- --flood 1",
    ], "20 min", as_table),
    Section("fuse", ["ci/fuse.sh"], "2 min", as_table),
]
