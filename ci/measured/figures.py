"""Draws the two figures of README.md from the results of the comparison with other caches:
docs/plots/readme-scan.svg and readme-shrink.svg."""

import math

from comparison import Tables

DARK, LIGHT = "#1f77b4", "#aec7e8"
WIDTH, LEFT, RIGHT, BAR = 760, 200, 90, 16

TENANTS = "Hit ratio, %, of 1000 tenants x 10000 keys in 200000 entries; "
SHRINK = "2000000 entries are to become a tenth, with a reader on them"


def figure(value):
    """Three digits or more, with separators."""
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"


def draw(title, legend, rows, scale):
    """Returns a bar chart: for each row a label and two figures, which `scale` maps to 0..1."""
    out = []
    y = 64
    for label, bars in rows:
        out.append(f'<text x="{LEFT - 10}" y="{y + BAR + 4}" text-anchor="end">{label}</text>')
        for colour, value in zip((LIGHT, DARK), bars):
            length = max(1, scale(value) * (WIDTH - LEFT - RIGHT))
            out.append(f'<rect x="{LEFT}" y="{y}" width="{length:.0f}" height="{BAR - 2}" fill="{colour}"/>')
            out.append(f'<text x="{LEFT + length + 6:.0f}" y="{y + BAR - 4}">{figure(value)}</text>')
            y += BAR
        y += 10
    keys = []
    for n, (colour, text) in enumerate(zip((LIGHT, DARK), legend)):
        x = LEFT + n * 250
        keys.append(f'<rect x="{x}" y="36" width="12" height="12" fill="{colour}"/><text x="{x + 18}" y="47">{text}</text>')
    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 6}" font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="20" y="22" font-size="15">{title}</text>',
        *keys,
        *out,
        "</svg>",
    ]
    return "\n".join(svg) + "\n"


def scan(tables):
    alone, beside = tables.rows(TENANTS + "without a scan"), tables.rows(TENANTS + "one more scans, with half of all requests")
    names = ["lowwater, a group each", "foyer, shared", "quick_cache, shared", "moka, shared", "lru, shared"]
    rows = [(name, (float(alone[name]["quiet"]), float(beside[name]["quiet"]))) for name in names]
    title = "Hit ratio of the 990 quiet tenants, % (more is better)"
    return draw(title, ("no scan", "one tenant scans"), rows, lambda value: value / 30)


def shrink(tables):
    names = {
        "lowwater: set_budget": "lowwater, set_budget",
        "mini-moka: invalidate_all, sync": "mini-moka, invalidate_all",
        "moka: invalidate_all, run_pending_tasks": "moka, invalidate_all",
        "quick_cache: set_capacity": "quick_cache, set_capacity",
        "foyer: resize": "foyer, resize",
        "lru: resize": "lru with a lock, resize",
    }
    found = tables.rows(SHRINK)
    rows = [(label, (float(found[name]["p99.9 us"]), int(found[name]["max unpreempted us"]))) for name, label in names.items()]
    title = "Lookup latency while 2,000,000 entries shrink to a tenth, us, log scale (less is better)"
    return draw(title, ("99.9th percentile", "longest without preemption"), rows, lambda value: (math.log10(value) + 1) / 7)


def draw_all(figures):
    """Returns the drawings by the names of their files."""
    tables = Tables(figures)
    return {"docs/plots/readme-scan.svg": scan(tables), "docs/plots/readme-shrink.svg": shrink(tables)}
