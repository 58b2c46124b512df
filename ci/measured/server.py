"""Sections about the cache server."""
import re

from section import Section, as_table, bold, number, table

RATIOS = {
    # Label, and whether less than as much as memcached misses the target, or more.
    "operations_per_second": ("operations a second", lambda ratio: ratio < 1),
    "p50_us": ("p50", lambda ratio: False),
    "p99_us": ("p99", lambda ratio: ratio > 1),
    "hit_percent": ("hits, %", lambda ratio: False),
    "items per resident MB": ("items per resident MB", lambda ratio: ratio <= 1),
}


def collect_memcached(outputs):
    parts = re.split(r"^(\d+) bytes, -m .*$", outputs[-1], flags=re.M)
    return {size: {name: [float(cell) for cell in re.search(rf"^\| {name} \| (.*) \|$", text, re.M)[1].split(" | ")] for name in RATIOS}
            for size, text in zip(parts[1::2], parts[2::2])}


def render_memcached(figures):
    def cell(name, run):
        ours, theirs, ratio = run[name]
        if name == "hit_percent":
            return f"{ours:.1f} / {theirs:.1f}"
        # Figures that were typed in have ratios alone.
        absolute = f" of {theirs:,.0f}" if name == "operations_per_second" and theirs else ""
        return bold(f"{ratio:.2f}", RATIOS[name][1](ratio)) + absolute

    rows = [[label, *(cell(name, figures[size]) for size in ("100", "4000"))] for name, (label, _) in RATIOS.items()]
    return table(["lowwater / memcached", "values of 100 bytes", "4,000 bytes"], rows)


def collect_flood(outputs):
    names = ["flood_megabytes", "flood_seconds", "charged_bytes_max", "server_errors", "read_back_percent", "quiet_alone_percent",
             "quiet_flooded_percent", "poor_alone_percent", "poor_flooded_percent"]
    figures = {name: number(rf"(?m)^{name} ([\d.]+)", outputs[0]) for name in names}
    return {**figures, "resident_kb_max": number(r"VmHWM\s+(\d+)", outputs[0])}


def render_flood(figures):
    budget, alone_and_flooded = 64 << 20, lambda tenant: f"{figures[f'{tenant}_alone_percent']:.0f} % alone, {figures[f'{tenant}_flooded_percent']:.0f} % in the flood"
    return table(["", ""], [
        ["written", f"{figures['flood_megabytes']:,.0f} MB by 8 connections in {figures['flood_seconds']:.1f} s, while 4 read"],
        ["highest charge", f"{figures['charged_bytes_max']:,.0f} of {budget:,} bytes"],
        ["highest resident memory", f"{figures['resident_kb_max']:,.0f} kB, which is {figures['resident_kb_max'] * 1024 / budget:.2f} times the budget"],
        ["values refused", f"{figures['server_errors']:.0f}"],
        ["just written and read back", f"{figures['read_back_percent']:.1f} %"],
        ["hits of a tenant whose `low` covers its working set", alone_and_flooded("quiet")],
        ["hits of the same without `low`", alone_and_flooded("poor")],
    ])


SECTIONS = [
    Section("memcached", ["MEGABYTES=64 ci/against-memcached.sh 5 3"], "10 min", render_memcached, collect_memcached),
    Section("flood", ["ci/budget.sh"], "2 min", render_flood, collect_flood, is_timed=False),
    Section("fire", ["ci/fire.sh 1024"], "10 min", as_table),
]
