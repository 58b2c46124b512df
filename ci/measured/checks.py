"""Sections about checks: in a kernel, soak, failing allocations, coverage, fuzzing."""
import re

from section import Section, as_table, table


def collect_faults(outputs):
    found = re.findall(r"^(.+): (\d+) reported or tolerated, (\d+) abort the process$", outputs[0], re.M)
    return {"columns": ["operation", "continued or returned an error", "ends the process"], "rows": [list(row) for row in found]}


def render_faults(figures):
    # The text around the table has the operations that never end the process.
    return table(figures["columns"], [row for row in figures["rows"] if row[2] != "0"])


def collect_coverage(outputs):
    found = re.findall(r"^([\w-]+): ([\d.]+) % of (\d+) (lines|branches)", outputs[0], re.M)
    kinds = ["lines", "branches"]
    counts = {crate: {kind: (float(percent), int(count)) for other, percent, count, kind in found if other == crate} for crate, *_ in found}

    def together(kind):
        both = [crate[kind] for crate in counts.values() if kind in crate]
        total = sum(count for _, count in both)
        return (sum(percent * count for percent, count in both) / total, total) if both else None

    cell = lambda pair: f"{pair[0]:.1f} % of {pair[1]:,}" if pair else None
    rows = [[crate, *(cell(of.get(kind)) for kind in kinds)] for crate, of in counts.items()]
    return {"columns": ["", *kinds], "rows": [*rows, ["together", *map(cell, map(together, kinds))]]}


def render_coverage(figures):
    # The results have a row for each crate.
    _, lines, branches = figures["rows"][-1]
    return [f"Lines: {lines}; branches: {branches or 'not counted'}."]


def render_kernel(figures):
    # The results also have the objects that walks put back.
    return [f"Nodes: {nodes}; loads: {loads}." for nodes, loads, _ in figures["rows"]]


SECTIONS = [
    Section("kernel", ["ci/kmod.sh --all"], "hours", render_kernel),
    Section("kernel-pairs", ["ci/kmod.sh --all"], "hours", as_table),
    Section("soak", ["ci/soak.sh 60 25"], "1 h", as_table),
    Section("faults-memory", ["cargo test --test faults_memory -- --nocapture"], "5 min", render_faults, collect_faults, is_timed=False),
    Section("coverage", ["ci/coverage.sh"], "30 min", render_coverage, collect_coverage, is_timed=False),
    Section("fuzz", ["ci/fuzz.sh 1800"], "4 h", as_table),
]
