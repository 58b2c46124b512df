#!/usr/bin/env python3
"""Prints the coverage of each crate, and fails if it is below a minimum.

coverage.py LINES BRANCHES < summary: the minima in percent. The input is the output of
`cargo llvm-cov report --json --summary-only`.
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
