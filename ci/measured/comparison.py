"""The comparison with other caches, in the tables that benches/comparison writes."""
import re
import shutil
from pathlib import Path

from section import Section, bold, table

# `--record` writes into a file with these lines, and plots beside it.
BEGIN, END = "<!-- benches/comparison: begin -->", "<!-- benches/comparison: end -->"
SCRATCH = Path("target/measured")
ZIPF, HITS = "a tenth of the keys fits", "100 % hits"
OURS = "lowwater"
# Titles, or their begins.
BETTER, RATIOS = "Where another is better", "Hit ratio, %"
TENANTS = "Hit ratio, %, of 1000 tenants x 10000 keys in 200000 entries;"
RATIO_TO_OURS = "How many times as much lowwater does as the contender: "
# Of a trace's distinct keys.
SIZES = "caches for 0.1, 1, 5 and 10 % of the keys"


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def tables_of(text):
    """Returns the line about the machine and the contenders, and the tables."""
    about, *parts = re.split(r"^### ", text.split(BEGIN)[1].split(END)[0], flags=re.M)
    tables = []
    for part in parts:
        lines = part.splitlines()
        rows = [cells(line) for line in lines if line.startswith("|")]
        plot = re.search(r"\]\((plots/.*)\)", part)
        tables.append({"title": lines[0], "columns": rows[0], "rows": rows[2:], "plot": plot[1] if plot else None})
    return {"about": about.strip().splitlines()[-1], "tables": tables}


def collect(_):
    for plot in (SCRATCH / "plots").glob("*.svg"):
        shutil.copy(plot, "docs/plots")
    return tables_of((SCRATCH / "comparison.md").read_text())


class Tables:
    """Access to figures by the begin of a title, a row and a column."""

    def __init__(self, figures):
        self.tables = figures["tables"]

    def rows(self, title):
        found = next(table for table in self.tables if table["title"].startswith(title))
        return {row[0]: dict(zip(found["columns"], row)) for row in found["rows"]}

    def figure(self, title, row, column):
        return float(self.rows(title)[row][column])


def targets(figures):
    """Returns the lines of the table of targets."""
    at = Tables(figures)

    def times(title, cache, least):
        ratios = at.rows(f"{RATIO_TO_OURS}{title}")[cache]
        values = [ratios[f"in the same time, threads: {threads}"] for threads in (1, 2, 4)]
        return f"{cache} " + ", ".join(bold(value, float(value) < least) for value in values)

    def insert(threads, tail_max=5, longest_max=200):
        found = at.rows(f"Inserts of new keys into a full cache, {threads} thread")[OURS]
        tail, longest = float(found["p99.9 us"]), int(found["max unpreempted us"])
        return f"{bold(f'{tail:.1f}', tail > tail_max)} us and {bold(f'{longest:,}', longest > longest_max)} us with {threads} thread{'s' * (threads > 1)}"

    means = {row: float(found["mean"]) for row, found in at.rows("Hit ratio, %, mean").items()}
    fixed = means["ref: S3-FIFO"]
    best = max((mean, name) for name, mean in means.items() if not name.startswith("ref: ") and name != OURS)
    ours = means[OURS]
    entry = at.figure("Resident bytes beyond the payload", OURS, "bytes an entry")
    empty = at.rows("Resident bytes of a cache")[OURS]
    a_cache = [int(empty[column]) for column in ("empty", "its first entry adds")]
    tenant = at.rows("Resident bytes of a tenant")[OURS]
    shrink = at.rows("2000000 entries are to become a tenth")[f"{OURS}: set_budget"]
    beside = at.rows(f"{TENANTS} one more scans")[f"{OURS}, a group each"]
    rest = [float(shrink["p99.9 us"]), int(shrink["max unpreempted us"]), int(shrink["% of the freed bytes given back"])]
    tenants = [float(tenant["a cache beside them adds, each"]), int(tenant["its first entry adds"])]
    return table(["target", "this run"], [
        ["get and insert: twice quick_cache, as much as scc, with 1, 2, 4 threads", f"{times(ZIPF, 'quick_cache', 2)}; {times(ZIPF, 'scc', 1)}"],
        ["100 % hits: 0.9 of papaya and of dashmap", f"{times(HITS, 'papaya', 0.9)}; {times(HITS, 'dashmap', 0.9)}"],
        ["0.9 of linear up to 16 cores", "not measured"],
        ["hit ratio: the best contender, and half a point more than S3-FIFO", f"{bold(f'{ours:.2f}', ours < max(best[0], fixed + 0.5))}; {best[1]} {best[0]:.2f}, S3-FIFO {fixed:.2f}"],
        ["32 bytes an entry", bold(f"{entry:.1f}", entry > 32)],
        ["1 KiB an empty cache, its first entry", f"{bold(f'{a_cache[0]:,}', a_cache[0] > 1024)}, {a_cache[1]:,}"],
        ["nearly 0 a tenant without an entry, 256 its first", f"{bold(f'{tenants[0]:.1f}', tenants[0] >= 1)}, {bold(str(tenants[1]), tenants[1] > 256)}"],
        ["a shrink: reader's p99.9 5 us, 200 us at most, 80 % returned",
         f"{bold(f'{rest[0]:.1f} us', rest[0] > 5)}, {bold(f'{rest[1]} us', rest[1] > 200)}, {bold(f'{rest[2]} %', rest[2] < 80)}"],
        ["an insert at capacity: p99.9 5 us, 200 us at most", f"{insert(1)}; {insert(2)}"],
        ["beside a scan all tenants 92 %, the quiet ones 27.5 %",
         f"{bold(beside['all but the scan'], float(beside['all but the scan']) < 92)}, {bold(beside['quiet'], float(beside['quiet']) < 27.5)}"],
    ])


def better(rows):
    """Returns the table of the results in which another is better: a row for each section and contender."""
    merged = {}
    for what, best, *figures in rows:
        section, _, figure = what.partition(": ")
        figure, _, threads = figure.partition(", threads: ")
        merged.setdefault((section, figure if threads else "", best), []).append([threads or figure, *figures])
    return table(["what", "the best", "it", "ours", "ours / it"], [
        [f"{section}: {figure + ', threads: ' if figure else ''}{lists[0]}", best, *lists[1:]]
        for (section, figure, best), found in merged.items()
        for lists in [[", ".join(column) for column in zip(*found)]]
    ])


def hit_ratios(columns, rows):
    """Returns the table of hit ratios with a row for each trace, and its sizes in one cell."""
    traces = {}
    for place, *ratios in rows:
        name, size = place.split(", ")
        traces.setdefault(name, []).append([size.split(" = ")[1], *(f"{float(ratio):.1f}" for ratio in ratios)])
    columns = ["trace: entries", *(column.removeprefix("ref: ") for column in columns[1:])]
    cells = {name: [" ".join(column) for column in zip(*found)] for name, found in traces.items()}
    return table(columns, [[f"{name}: {sizes}", *ratios] for name, (sizes, *ratios) in cells.items()])


def without_refused(found):
    """Returns columns and rows of a table, without the column `refused` if all are 0."""
    columns, rows = found["columns"], found["rows"]
    is_left_out = columns[-1] == "refused" and {row[-1] for row in rows} == {"0"}
    return (columns[:-1], [row[:-1] for row in rows]) if is_left_out else (columns, rows)


def tenants(alone, beside):
    """Returns the tables without and with a scan as one."""
    columns, rows = without_refused(alone)
    beside_columns, beside_rows = without_refused(beside)
    return table([*columns, *(f"{column}, scan" for column in beside_columns[1:])], [[*row, *other[1:]] for row, other in zip(rows, beside_rows)])


def section(found, figures):
    """Returns the heading, the table and the plots of one section of the comparison."""
    title, columns, rows, plots = found["title"], found["columns"], found["rows"], [found["plot"]]
    if title == BETTER:
        lines = better(rows)
    elif title == RATIOS:
        title, lines = f"{RATIOS}, of {SIZES}", hit_ratios(columns, rows)
    elif title.startswith(TENANTS):
        beside = next(other for other in figures["tables"] if other["title"].startswith(TENANTS) and other is not found)
        title, lines = f"{TENANTS} without a scan, and beside one with half of all requests", tenants(found, beside)
        plots.append(beside["plot"])
    else:
        lines = table(*without_refused(found))
    pictures = [" ".join(f"![plot]({plot})" for plot in plots)] if plots[0] else []
    return ["", f"#### {title}", "", *lines, *([""] if pictures else []), *pictures]


def render(figures):
    lines = [f"Versions: {figures['about']}", "", *targets(figures)]
    is_beside = False
    for found in figures["tables"]:
        # The ratios of throughputs follow from the tables before them.
        if found["title"].startswith(RATIO_TO_OURS) or (found["title"].startswith(TENANTS) and is_beside):
            continue
        is_beside |= found["title"].startswith(TENANTS)
        lines += section(found, figures)
    return lines


SECTIONS = [
    Section("comparison", [
        f"mkdir -p {SCRATCH} && cp ci/measured/record.md {SCRATCH}/comparison.md",
        f'cargo run --release --manifest-path benches/comparison/Cargo.toml -- all --rounds 3 --traces "$LOWWATER_TRACES" --record {SCRATCH}/comparison.md',
    ], "2 h", render, collect),
]
