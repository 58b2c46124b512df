"""Sections about the cache: eviction orders, several caches under one budget, instructions."""
import re
from statistics import mean

from section import Section, bold, span, table

ORDERS = ["Lru", "SecondChance", "Sieve", "S3Fifo", "Adaptive"]
SIZES = ["0.1", "1", "5", "10"]


def collect_hit_ratio(outputs):
    rows, means = [], {}
    for words in map(str.split, outputs[0].splitlines()):
        if len(words) == 3 + len(ORDERS) and words[0] != "trace":
            rows.append({"trace": words[0], "percent": words[1], **dict(zip(ORDERS, map(float, words[3:])))})
        elif words[:1] == ["mean"]:
            means = dict(zip(ORDERS, map(float, words[1:])))
    by_size = {size: round(mean(row["Adaptive"] for row in rows if row["percent"] == size), 2) for size in SIZES}
    return {"rows": rows, "means": means, "adaptive_by_size": by_size}


def render_hit_ratio(figures):
    # The comparison with other caches has a table by trace.
    return table(["mean of all", *(f"`{order}`" for order in ORDERS)], [["hit ratio, %", *(f"{figures['means'][order]:.2f}" for order in ORDERS)]])


def collect_several(outputs):
    text = outputs[0]
    ends = lambda values: [min(values), max(values)]
    all_of = lambda pattern: [float(value) for value in re.findall(pattern, text, re.M)]
    without, beside = re.search(r"([\d.]+) without, ([\d.]+) beside a scan", text).groups()
    freed, background = map(int, re.search(r"(\d+) freed, (\d+) in the background", text).groups())
    idle = all_of(r"\b\w+ \d+ own=\w+: ([\d.]+)")
    return {
        "idle": {"cases": len(idle), "least": round(min(idle), 3)},
        "equal": [round(end, 2) for end in ends(all_of(r"zipf=\w+: ([\d.]+)"))],
        "foreign": [round(end, 2) for end in ends(all_of(r"beside ours: .*: ([\d.]+)$"))],
        "scan_loss": round(float(without) - float(beside), 1),
        "dear": [round(end, 2) for end in ends(all_of(r"\bdear \w+: ([\d.]+)"))],
        "hot_budgets": [round(end, 1) for end in ends([float(n) for phase, n in re.findall(r"\bphase (\d+): ([\d.]+) budgets", text, re.M) if int(phase) > 1])],
        "inserts_percent": round(100 * (freed - background) / freed),
    }


def render_several(figures):
    idle = figures["idle"]
    rows = [
        ["hit ratio of B (100 to 20,000 hot entries) beside a filled, idle A, in each eviction order, in the root or in groups of their own",
         f"at least {idle['least']:.3f} in all {idle['cases']} cases"],
        ["share of the second of two caches in equal use, uniform and Zipf, in each eviction order", span(figures["equal"], "{:.2f}")],
        ["share of a foreign LRU beside a `Cache`, or beside another foreign one", span(figures["foreign"], "{:.2f}")],
        ["hit ratio of three caches beside one that scans, against without", span(figures["scan_loss"], "{:.1f}") + " points less"],
        ["share of a cache whose misses cost 20 times as much", span(figures["dear"], "{:.2f}")],
        ["inserts until a cache that becomes hot has 90 % of its hits", span(figures["hot_budgets"], "{:.1f}") + " budgets"],
        ["evictions of three caches in steady use by inserts, and not by the reclaimer", span(figures["inserts_percent"]) + " %"],
    ]
    return table(["what", "figure"], rows)


MIX = re.compile(r"^(\S.*?)\s+[\d.]+ static\s+[\d.]+ \(\s*([+-][\d.]+)\) shared\s+([\d.]+) cost ([\d.]+)$", re.M)
LOOP, STATIC_MIN, WORST_MIN = "lirs-loop", -0.3, -3


def collect_mixes(outputs):
    def row(mixes):
        return {
            "mixes": len(mixes),
            "to_static": round(mean(float(mix[1]) for mix in mixes), 2),
            "worst": round(min(float(mix[1]) for mix in mixes), 1),
            "to_shared": round(mean(float(mix[2]) for mix in mixes), 2),
            "not_below": sum(float(mix[2]) >= 0 for mix in mixes),
            "cost": round(mean(float(mix[3]) for mix in mixes), 3),
        }

    def mixes_of(text):
        # The third figure becomes the difference to one shared cache.
        found = [(match, re.search(r"\s([\d.]+) static", match[0])) for match in MIX.finditer(text)]
        return [(match[1], match[2], float(one[1]) - float(match[3]), match[4]) for match, one in found]

    adaptive, lru, s3 = map(mixes_of, outputs)
    return {
        "all": row(adaptive),
        "without": row([mix for mix in adaptive if LOOP not in mix[0]]),
        "with": row([mix for mix in adaptive if LOOP in mix[0]]),
        "Lru": row(lru),
        "S3Fifo": row(s3),
    }


def render_mixes(figures):
    titles = {"all": "all {}", "without": f"the {{}} without `{LOOP}`", "with": "the {} with it", "Lru": "all {} with `Eviction::Lru`", "S3Fifo": "all {} with `Eviction::S3Fifo`"}
    rows = []
    for key, title in titles.items():
        run = figures[key]
        average = bold(f"{run['to_static']:+.2f}", run["to_static"] < STATIC_MIN and key != "with")
        worst = bold(f"{run['worst']:+.1f}", run["worst"] < WORST_MIN and key == "without")
        rows.append([title.format(run["mixes"]), f"{average} ({worst})", f"{run['to_shared']:+.2f}", run["not_below"]])
    # The results also have the ratio of the miss costs.
    return table(["mixes", "hit ratio to the best static split, points, mean (worst)", "to one shared cache, mean", "mixes not below that"], rows)


LOADS = {
    "hit": "`get`: hit",
    "miss": "`get`: miss",
    "insert": "`insert` of a new key into a full cache",
    "insert1000": "the same, 1,000 groups",
    "mix": "`get` and `insert` after a miss, Zipf 0.99",
    "overwrite": "`insert` of a present key",
}


def render_instructions(figures):
    counts = {words[0]: words[1:] for words in map(str.split, figures["text"].splitlines()) if words[0] != "#"}
    rows = [[LOADS[load], f"{int(counts[load][0]):,}", counts[load][1]] for load in LOADS]
    return table(["load (callgrind; 20,000 entries)", "instructions", "locked ones"], rows)


MIXES = 'cargo bench --bench several_caches -- "$LOWWATER_TRACES" every=3 verbose'
SECTIONS = [
    Section("hit-ratio", ['cargo bench --bench hit_ratio -- "$LOWWATER_TRACES"'], "10 min", render_hit_ratio, collect_hit_ratio, is_timed=False),
    Section("several-caches", ["cargo test --release --test several_caches -- --nocapture --test-threads=1"], "5 min", render_several, collect_several, is_timed=False),
    Section("mixes", [MIXES, f"{MIXES} order=lru", f"{MIXES} order=s3fifo"], "hours", render_mixes, collect_mixes, is_timed=False),
    Section("instructions", ["ci/instructions.sh --commit"], "2 min", render_instructions, is_timed=False, source="ci/instructions/committed.txt"),
]
