"""The comparison with other caches, in the tables that benches/comparison writes."""
import re
import shutil
from pathlib import Path

from section import Section, bold, table

# `--record` writes into a file with these lines, and plots beside it.
BEGIN, END = "<!-- benches/comparison: begin -->", "<!-- benches/comparison: end -->"
SCRATCH = Path("target/measured")
# Each is a run of its own, so that one can be repeated alone; the sections of benches/comparison.
PARTS = ("throughput", "latency", "memory", "stalls", "tenants", "hit-ratio")
ZIPF, HITS = "a tenth of the keys fits", "100 % hits"
# The begins of the titles of throughputs, each with its column and its note.
THROUGHPUTS = {
    ZIPF: ("zipf", "a tenth of 10,000,000 keys fits; a get, and an insert on a miss"),
    HITS: ("hits", "gets of 1,000,000 keys, room for twice as many"),
    "95 % gets": ("95-5", "the same, with 5 % inserts over what is there"),
}
OURS = "lowwater"
# In the results, and in the tables only of a shrink, of the means and of results in which it is the best.
LEFT_OUT = "mini-moka"
# Single-threaded, so that a lock decides: in the results, and not in the tables of throughput and latency.
LOCKED = "lru"
# Titles, or their begins.
BETTER, RATIOS = "Where another is better", "Hit ratio, %"
MEANS = f"{RATIOS}, mean over 13 traces x 4 sizes"
TENANTS = "Hit ratio, %, of 1000 tenants x 10000 keys in 200000 entries;"
RATIO_TO_OURS = "How many times as much lowwater does as the contender: "
FIRST_LATENCY = "Inserts of new keys into a full cache, 1 thread"
LATENCIES = {
    "insert into a full cache, 1 thread": FIRST_LATENCY,
    "2 threads": "Inserts of new keys into a full cache, 2 threads",
}
# In the results, and in the tables only where another is better.
ZIPF_LATENCY = "Zipf 0.99, a tenth of the keys fits, get or get and insert"
ENTRIES, CACHES, TENANT = "Resident bytes beyond the payload", "Resident bytes of a cache", "Resident bytes of a tenant"
SHRINK = "2000000 entries are to become a tenth"
# Of each section, by the begin of its first title: its plots in docs/plots, by their alternative texts.
PLOTS = {
    ZIPF: {"zipf": "throughput-zipf", "hits": "throughput-hits", "95-5": "throughput-95-5"},
    FIRST_LATENCY: {"1 thread": "latency-insert-1", "2 threads": "latency-insert-2", "Zipf": "latency-zipf-2"},
    ENTRIES: {"entry": "memory-entries", "cache": "memory-empty", "tenant": "memory-tenants"},
    SHRINK: {"shrink": "stalls"},
    TENANTS: {"tenants": "tenants", "scan": "tenants-scan"},
    RATIOS: {"means": "hit-ratio-mean"},
}
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
        tables.append({"title": lines[0], "columns": rows[0], "rows": rows[2:]})
    return {"about": about.strip().splitlines()[-1], "tables": tables}


def machine_and_versions(about):
    """Returns the line about a run without the kernel's release, which changes."""
    return re.sub(r", Linux [^;]*", "", about)


def parts():
    """Returns the tables of all parts, with the line about the machine and the contenders, which must be the same."""
    found = {part: tables_of((SCRATCH / f"{part}.md").read_text()) for part in PARTS}
    assert len({machine_and_versions(part["about"]) for part in found.values()}) == 1, f"{SCRATCH}: parts of several machines or versions"
    return found


def copy_plots(part=""):
    for plot in (SCRATCH / "plots").glob(f"{part}*.svg"):
        shutil.copy(plot, "docs/plots")


def collect(_):
    """Returns the figures of all parts: the lists of results in which another is better become one."""
    copy_plots()
    found = parts()
    tables = [table for part in found.values() for table in part["tables"]]
    better = [table for table in tables if table["title"] == BETTER]
    every = {**better[0], "rows": [row for table in better for row in table["rows"]]}
    return {"about": found[PARTS[0]]["about"], "tables": [every, *(table for table in tables if table["title"] != BETTER)]}


def replace(figures, part, origin):
    """Puts the tables of one part, which was measured again, in the place of the old ones, with a text about that run."""
    new = tables_of((SCRATCH / f"{part}.md").read_text())
    assert machine_and_versions(new["about"]) == machine_and_versions(figures["about"]), f"{part}: another machine, or other versions: measure all parts"
    by_title = {table["title"]: table for table in new["tables"]}
    better, *rest = figures["tables"]
    titles = {table["title"] for table in rest}
    assert by_title.keys() - {BETTER} <= titles, f"{part}: tables without a place: measure all parts"
    copy_plots(part)
    figures["tables"] = [better, *(by_title.get(table["title"], table) for table in rest)]
    others = [row for row in better["rows"] if not in_part(row[0], part)]
    better["rows"] = sorted(others + by_title[BETTER]["rows"], key=lambda row: next(n for n, name in enumerate(PARTS) if in_part(row[0], name)))
    figures.setdefault("later", {})[part] = origin


def in_part(what, part):
    """Returns whether a result in which another is better, such as `tenants-scan: quiet`, is of this part."""
    return what.startswith(part)


class Tables:
    """Access to figures by the begin of a title, a row and a column."""

    def __init__(self, figures):
        self.tables = figures["tables"]

    def rows(self, title):
        found = next(table for table in self.tables if table["title"].startswith(title))
        return {row[0]: dict(zip(found["columns"], row)) for row in found["rows"]}

    def figure(self, title, row, column):
        return float(self.rows(title)[row][column])


def cache_bytes(found):
    """Returns the bytes of an empty cache, which have a target, and those that its first entry adds."""
    empty, first = (int(found[column]) for column in ("empty", "its first entry adds"))
    return f"{bold(f'{empty:,}', empty > 1024)}, {first:,}"


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

    means = {row: float(found["mean"]) for row, found in at.rows(MEANS).items()}
    fixed = means["ref: S3-FIFO"]
    best = max((mean, name) for name, mean in means.items() if not name.startswith("ref: ") and name != OURS)
    ours = means[OURS]
    entry = at.figure("Resident bytes beyond the payload", OURS, "bytes an entry")
    empty = at.rows("Resident bytes of a cache")[OURS]
    a_cache = cache_bytes(empty)
    tenant = at.rows("Resident bytes of a tenant")[OURS]
    shrink = at.rows(SHRINK)[f"{OURS}: set_budget"]
    beside = at.rows(f"{TENANTS} one more scans")[f"{OURS}, a group each"]
    alone = at.rows(f"{TENANTS} without a scan")
    mops = [float(found[f"{OURS}, a group each, at the limit"]["Mops"]) / float(found["quick_cache, shared"]["Mops"])
            for found in (alone, at.rows(f"{TENANTS} one more scans"))]
    rest = [float(shrink["p99.9 us"]), int(shrink["max unpreempted us"]), int(shrink["% of the freed bytes given back"])]
    tenants = [float(tenant["a cache beside them adds, each"]), int(tenant["its first entry adds"])]
    return table(["target", "this run"], [
        ["get and insert: twice quick_cache, as much as scc, with 1, 2, 4 threads", f"{times(ZIPF, 'quick_cache', 2)}; {times(ZIPF, 'scc', 1)}"],
        ["100 % hits: 0.9 of papaya and of dashmap", f"{times(HITS, 'papaya', 0.9)}; {times(HITS, 'dashmap', 0.9)}"],
        ["0.9 of linear up to 16 cores", "not measured"],
        ["hit ratio: the best contender, and half a point more than S3-FIFO", f"{bold(f'{ours:.2f}', ours < max(best[0], fixed + 0.5))}; {best[1]} {best[0]:.2f}, S3-FIFO {fixed:.2f}"],
        ["32 bytes an entry", bold(f"{entry:.1f}", entry > 32)],
        ["1 KiB an empty cache, its first entry", a_cache],
        ["nearly 0 a tenant without an entry, 256 its first", f"{bold(f'{tenants[0]:.1f}', tenants[0] >= 1)}, {bold(str(tenants[1]), tenants[1] > 256)}"],
        ["a shrink: reader's p99.9 5 us, 200 us at most, 80 % returned",
         f"{bold(f'{rest[0]:.1f} us', rest[0] > 5)}, {bold(f'{rest[1]} us', rest[1] > 200)}, {bold(f'{rest[2]} %', rest[2] < 80)}"],
        ["an insert at capacity: p99.9 5 us, 200 us at most", f"{insert(1)}; {insert(2)}"],
        ["1,000 tenants, at the limit: as many requests as quick_cache; 0.8 beside a scan", ", ".join(bold(f"{ratio:.2f}", ratio < least) for ratio, least in zip(mops, (1, 0.8)))],
        ["beside a scan all tenants 92 %, the quiet ones 27.5 %",
         f"{bold(beside['all but the scan'], float(beside['all but the scan']) < 92)}, {bold(beside['quiet'], float(beside['quiet']) < 27.5)}"],
    ])


def better(rows):
    """Returns the table of the results in which another is better: a row for each section and contender."""
    merged = {}
    for what, best, _, _, ratio in rows:
        section, _, figure = what.partition(": ")
        figure, _, threads = figure.partition(", threads: ")
        merged.setdefault((section, figure if threads else "", best), []).append([threads or figure, ratio])
    return table(["what", "the best", "ours / it"], [
        [f"{section}: {figure + ', threads: ' if figure else ''}{lists[0]}", best, lists[1]]
        for (section, figure, best), found in merged.items()
        for lists in [[", ".join(column) for column in zip(*found)]]
    ])


def throughputs(figures):
    """Returns the throughputs as a table, with the figures of all numbers of threads in one cell, and a line about the hits."""
    at = Tables(figures)
    loads = [(column, at.rows(title)) for title, (column, _) in THROUGHPUTS.items()]
    assert all(row.get("refused", "0") == "0" for _, rows in loads for row in rows.values()), "these tables have no room for refused inserts"
    caches = [cache for cache in dict.fromkeys(cache for _, rows in loads for cache in rows) if cache not in (LEFT_OUT, LOCKED)]

    def hits(rows):
        # The lowest with the name of its cache, and the highest.
        ratios = sorted((float(row[f"hit %, {threads}"]), cache) for cache, row in rows.items() for threads in (1, 2))
        return f"{ratios[0][0]} ({ratios[0][1]}) to {ratios[-1][0]}"

    kinds = [f"Mops, threads: {threads}" for threads in (1, 2, 4)]
    mops = [[cache, *(", ".join(rows[cache][kind] for kind in kinds) if cache in rows else "" for _, rows in loads)] for cache in caches]
    columns = [column for column, _ in loads]
    return [
        *(f"* {column}: {note}." for column, note in THROUGHPUTS.values()), "",
        *table(["Mops, threads: 1, 2, 4", *columns], mops), "",
        f"Hits, %, with 1 and 2 threads: {'; '.join(f'{column} {hits(rows)}' for column, rows in loads)}.",
    ]


def hit_ratios(columns, rows, means):
    """Returns a table of hit ratios with a row for each trace, the means of its sizes, and the other table with a column for each cache."""
    traces = {}
    for place, *ratios in rows:
        traces.setdefault(place.split(", ")[0], []).append([float(ratio) for ratio in ratios])
    # The references of each trace are in the results.
    names = columns[1:]
    lines = []
    for trace, found in traces.items():
        of = dict(zip(names, (sum(column) / len(column) for column in zip(*found))))
        best, name = max((ratio, name) for name, ratio in of.items() if not name.startswith("ref: ") and name != OURS)
        lines.append([trace, f"{of[OURS]:.1f}", f"{best:.1f} ({name})"])
    labels = {"mean": "mean", "of 50 entries and more": "mean of 50 entries and more"}
    shown = [name for name in names if name != LEFT_OUT]
    every = [[label, *(means[name][kind] for name in shown)] for kind, label in labels.items()]
    return [
        *table(["trace", OURS, "the best other"], lines), "",
        *table(["all traces", *(name.removeprefix("ref: ") for name in shown)], every),
    ]


def without(found, *left_out):
    """Returns columns and rows of a table without some columns; `refused` is left out only if nothing was refused."""
    is_left_out = lambda number, column: column in left_out and (column != "refused" or {row[number] for row in found["rows"]} == {"0"})
    kept = [number for number, column in enumerate(found["columns"]) if not is_left_out(number, column)]
    return [found["columns"][number] for number in kept], [[row[number] for number in kept] for row in found["rows"]]


def tenants(alone, beside):
    """Returns the tables without and with a scan as one, with the figures of each in one cell."""
    (columns, rows), (beside_columns, beside_rows) = without(alone, "held", "refused"), without(beside, "held", "refused")
    figures = ", ".join(columns[1:])
    # Of the caches with a fixed split only those that hit most of these in some column, and ours at its limit is as below it.
    is_split = lambda row: row[0].endswith("fixed split")
    splits = [row + other[1:] for row, other in zip(rows, beside_rows) if is_split(row)]
    hits = [number for number, column in enumerate(columns + beside_columns[1:]) if number and column != "Mops"]
    best = {number: max(float(row[number]) for row in splits) for number in hits}
    is_best = lambda row, other: any(float((row + other[1:])[number]) == most for number, most in best.items())
    return table([columns[0], figures, "the same beside a scan"],
                 [[row[0], ", ".join(row[1:]), ", ".join(other[1:])] for row, other in zip(rows, beside_rows)
                  if not row[0].startswith(LEFT_OUT) and not row[0].endswith("at the limit") and (not is_split(row) or is_best(row, other))])


def latencies(figures):
    """Returns the tables of latencies as one, with the figures of a load in one cell."""
    at, columns = Tables(figures), ["p50 us", "p99 us", "p99.9 us", "max unpreempted us"]
    loads = {name: at.rows(title) for name, title in LATENCIES.items()}
    assert all(row.get("refused", "0") == "0" for rows in loads.values() for row in rows.values()), "this table has no room for refused inserts"
    return table(["cache", *loads], [[cache, *(", ".join(rows[cache][column] for column in columns) for rows in loads.values())] for cache in at.rows(FIRST_LATENCY) if cache not in (LEFT_OUT, LOCKED)])


def memory(figures):
    """Returns the tables of bytes for an entry and for a cache as one, and a line about tenants."""
    at = Tables(figures)
    caches, tenant = at.rows(CACHES), at.rows(TENANT)[OURS]
    rows = [[cache, found["bytes an entry"], *(caches.get(cache, {}).get(column, "") for column in ("empty", "its first entry adds"))]
            for cache, found in at.rows(ENTRIES).items() if cache != LEFT_OUT]
    return [*table(["cache", "an entry", "an empty cache", "its first entry adds"], rows), "", f"A tenant's group takes {tenant['the group itself']} bytes."]


def section(found, figures):
    """Returns the heading and the table of one section of the comparison."""
    title, columns, rows = found["title"], found["columns"], found["rows"]
    if title == BETTER:
        lines = better(rows)
    elif title == RATIOS:
        title, lines = f"{RATIOS}, means of {SIZES}", hit_ratios(columns, rows, Tables(figures).rows(MEANS))
    elif title.startswith(ZIPF):
        title, lines = "Throughput, Zipf 0.99", throughputs(figures)
    elif title.startswith(TENANTS):
        beside = next(other for other in figures["tables"] if other["title"].startswith(TENANTS) and other is not found)
        title, lines = f"{TENANTS} one more scans, with half of all requests", tenants(found, beside)
    elif title.startswith(FIRST_LATENCY):
        title, lines = "p50, p99, p99.9, longest unpreempted, us; 1000000 entries", latencies(figures)
    elif title.startswith(ENTRIES):
        title, lines = f"{title}, and of a cache, mean of 1000", memory(figures)
    else:
        lines = table(*without(found, "reads", "max us", "p50 us", "left", "the call ms", "MB before", "MB after"))
    plots = next((plots for begin, plots in PLOTS.items() if found["title"].startswith(begin)), {})
    pictures = " ".join(f"![{text}](plots/{name}.svg)" for text, name in plots.items())
    return ["", f"#### {title}", "", *lines, *(["", pictures] if plots else [])]


def render(figures):
    _, _, versions = figures["about"].partition("; ")
    runs = {}
    for part, origin in figures.get("later", {}).items():
        runs.setdefault(origin, []).append(part)
    later = [f"Measured again, {origin}: {', '.join(parts)}." for origin, parts in runs.items()]
    lines = [f"Versions: {versions}", *later, "", *targets(figures)]
    # The ratios of throughputs follow from the tables before them.
    in_others = (RATIO_TO_OURS, CACHES, TENANT, MEANS, f"{TENANTS} one more scans", *list(LATENCIES.values())[1:], ZIPF_LATENCY, *list(THROUGHPUTS)[1:])
    for found in figures["tables"]:
        if not found["title"].startswith(in_others):
            lines += section(found, figures)
    return lines


def command(part):
    """Returns the command that measures one part, or all with `$part`."""
    run = "cargo run --release --manifest-path benches/comparison/Cargo.toml --"
    traces = ' --traces "$LOWWATER_TRACES"' if part in ("hit-ratio", "$part") else ""
    return f'cp ci/measured/record.md {SCRATCH}/{part}.md\n{run} {part} --rounds 3{traces} --record {SCRATCH}/{part}.md'


SECTIONS = [
    Section("comparison", [
        f"mkdir -p {SCRATCH}",
        f"for part in {' '.join(PARTS)}; do\n{command('$part')}\ndone",
    ], "2 h", render, collect),
]
