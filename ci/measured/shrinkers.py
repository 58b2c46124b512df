"""Sections about shrinkers."""
import json
import re
from pathlib import Path

import machine
from section import Section, bold, most, span, table, time

SKIP_EMPTY = Path("benches/skip_empty.rs").read_text()
GROUPS, CACHES, LIVE = (int(re.search(rf"^const {name}: usize = ([\d_]+);$", SKIP_EMPTY, re.M)[1].replace("_", "")) for name in ("GROUPS", "CACHES", "LIVE"))


def collect_skip_empty(_):
    rows = []
    for curve, shape in (("pass, groups", lambda value: (value, LIVE)), ("pass, non-empty pairs", lambda value: (GROUPS, value))):
        ns = machine.criterion(curve)
        for value in sorted(ns["pass"], key=int):
            groups, pairs = shape(int(value))
            rows.append({"groups": groups, "caches": CACHES, "pairs": pairs, "pass_ns": ns["pass"][value], "all_ns": ns["every"][value]})
    return {"rows": rows}


def foreign_skip_empty(figures):
    """Returns the rows of other worlds than those of the bench's two curves."""
    numbers = lambda name: [int(number.replace("_", "")) for number in re.search(rf"let {name} = \[(.*?)\]", SKIP_EMPTY)[1].split(",")]
    worlds = {(groups, CACHES, LIVE) for groups in numbers("groups")} | {(GROUPS, CACHES, pairs) for pairs in numbers("pairs")}
    rows = [(row["groups"], row["caches"], row["pairs"]) for row in figures["rows"]]
    return [f"{groups} groups, {caches} caches, {pairs} pairs: no world of benches/skip_empty.rs" for groups, caches, pairs in rows if (groups, caches, pairs) not in worlds]


def render_skip_empty(figures):
    rows = [[f"{row['groups']:,} x {row['caches']}", f"{row['pairs']:,}", time(row["pass_ns"]), time(row["all_ns"])] for row in figures["rows"]]
    return table(["groups x caches", "non-empty pairs", "pass", "visiting all pairs"], rows)


def collect_drop_caches(outputs):
    runs = [json.loads(line) for line in "".join(outputs).splitlines() if line.startswith("{")]
    many = [run for run in runs if run["live_pairs"] == run["memcgs"]]
    few = {run["memcgs"]: [run["drops"][n]["us"] for n in (0, 1)] for run in runs if run not in many}
    ends = lambda values: [min(values), max(values)]
    later = [drop for run in many for drop in run["drops"][1:]]
    return {
        "pairs": many[0]["live_pairs"],
        "first_us": ends([run["drops"][0]["us"] for run in many]),
        "first_calls": many[0]["drops"][0]["callbacks"],
        "later_us": ends([drop["us"] for drop in later]),
        "later_calls": max(drop["callbacks"] for drop in later),
        "second_us": many[0]["drops"][1]["us"],
        "all_us": many[0]["every_second_us"],
        "few": {str(groups): dict(zip(("first_us", "second_us"), us)) for groups, us in few.items()},
    }


def render_drop_caches(figures):
    large, small = figures["few"]["10000"], figures["few"]["4000"]
    faster, times = figures["all_us"] / figures["second_us"], large["second_us"] / small["second_us"]
    rows = [
        ["4,000 groups x 4,000 mounts, one object each: first drop", "2 ms",
         bold(span([us / 1000 for us in figures["first_us"]], "{:.2f}") + " ms", most(figures["first_us"]) > 2000)],
        ["its calls", "one for each live pair, and one more count each", f"{figures['first_calls']:,} for {figures['pairs']:,} pairs"],
        ["second to fifth drop", "20 us, 0 calls",
         bold(f"{span(figures['later_us'], '{:g}')} us, {figures['later_calls']} calls", most(figures["later_us"]) > 20 or figures["later_calls"] > 0)],
        ["second drop against visiting all pairs, same run", "10,000 x",
         bold(f"{figures['second_us']:.3f} us against {figures['all_us'] / 1e6:.2f} s: {span(faster / 1e6, '{:.0f}')} million x", faster < 10_000)],
        ["second drop at 10,000 x 10,000 with 3 live pairs, against 4,000 x 4,000", "at most 2 x",
         bold(f"{large['second_us']:.3f} against {small['second_us']:.3f} us; the first {large['first_us']:.1f} against {small['first_us']:.1f} us", times > 2)],
    ]
    return table(["what", "target", "measured"], rows)


POLICIES = {"fair": "`Fair`", "proportional": "`Proportional`", "windup": "`Windup`"}


def collect_direct_reclaim(outputs):
    owed, none = (json.loads(text.splitlines()[-1])["policies"] for text in outputs)
    return {name: {
        "most_scanned": run["max_scanned_per_call"],
        "most_scanned_none_owed": none[name]["max_scanned_per_call"],
        "p99": round(run["p99_ns"] / run["p50_ns"], 2),
        "p999": round(run["p999_ns"] / run["p50_ns"], 2),
        "owed": run["debt_end"],
        "freed": run["freed"],
        "no_memory": run["no_memory"],
    } for name, run in owed.items()}


def render_direct_reclaim(figures):
    fair, others = figures["fair"], [figures[name] for name in POLICIES if name != "fair"]
    missed = {"p99": most(fair["p99"]) > 1.1, "p999": most(fair["p999"]) > 2, "owed": most(fair["owed"]) > 0,
              "freed": most(fair["freed"]) < max(most(run["freed"]) for run in others)}
    rows = []
    for name, label in POLICIES.items():
        run, texts = figures[name], []
        for key in ("most_scanned", "p99", "p999", "owed", "freed"):
            text = None if run.get(key) is None else span(run[key], "{:.2f}" if key == "p99" else "{:,}")
            if key == "freed" and run.get("no_memory"):
                text += f", and {span(run['no_memory'])} objects without memory"
            texts.append(bold(text, name == "fair" and missed.get(key, False)) if text else None)
        rows.append([label, *texts])
    targets = ["target of `Fair`", "the bound", "1.1", "2", "0 after 1 s", "no fewer than the others"]
    columns = ["policy", "most scanned in one call", "p99 / p50", "p99.9 / p50", "owed after the load", "freed"]
    return table(columns, [*rows, targets])


SECTIONS = [
    Section("skip-empty", ["cargo bench --bench skip_empty -- --quick --noplot"], "2 min", render_skip_empty, collect_skip_empty, foreign=foreign_skip_empty),
    Section("drop-caches", [
        "for n in 1 2 3 4 5; do cargo run --release --example drop_caches -- --memcgs 4000 --mounts 4000 --json; done",
        "for n in 4000 10000; do cargo run --release --example drop_caches -- --memcgs $n --mounts $n --live-pairs 3 --no-every --json; done",
    ], "1 min", render_drop_caches, collect_drop_caches),
    Section("direct-reclaim", [
        "chrt -r 1 cargo run --release --example deferred_tail -- --time cpu --seconds 1 --json",
        "chrt -r 1 cargo run --release --example deferred_tail -- --time cpu --seconds 1 --debt 0 --json",
    ], "1 min", render_direct_reclaim, collect_direct_reclaim),
]
