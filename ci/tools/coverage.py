#!/usr/bin/env python3
"""Reads `cargo llvm-cov report --json --summary-only`; says for each crate how much of it ran, and fails where that is too little.

coverage.py LINES BRANCHES < summary: percent, at least.
"""
import collections
import json
import re
import sys

least = {"lines": float(sys.argv[1]), "branches": float(sys.argv[2])}
counts = collections.defaultdict(lambda: {kind: [0, 0] for kind in least})
for file in json.load(sys.stdin)["data"][0]["files"]:
    crate = re.search(r"crates/([^/]+)/", file["filename"]).group(1)
    for kind, count in counts[crate].items():
        count[0] += file["summary"][kind]["covered"]
        count[1] += file["summary"][kind]["count"]

short = False
for crate, kinds in sorted(counts.items()):
    for kind, (covered, count) in kinds.items():
        # Stable compilers count no branches.
        if count == 0:
            continue
        percent = 100 * covered / count
        short |= percent < least[kind]
        print(f"{crate}: {percent:.1f} % of {count} {kind}, at least {least[kind]:.0f} %")
sys.exit(short)
