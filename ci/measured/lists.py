"""Sections about lists."""
import json

import machine
from section import Section, bold, number, table

BAREST_MAX, ONE_GROUP_MIN = 1.5, 0.7
ADD_DEL = {
    "lowwater, own groups": "`ListLru`, items behind an `Arc`, each thread its own group",
    "lowwater, one group": "the same, one group",
    "lowwater, one group, split": "the same, one group, split before",
    "one lock": "a mutex around one hand-made list of the same handles",
    "boxes, own groups": "`ListLru`, items in a `Box`, each thread its own group",
    "boxes, one lock": "a mutex around a list of raw links, boxes",
}


def collect_add_del(outputs):
    ns, text = machine.criterion("add+del"), outputs[0]
    return {
        "ns": {row: {threads: round(value, 1) for threads, value in ns[row].items()} for row in ADD_DEL},
        "to_same_handles": round(ns["lowwater, own groups"]["1"] / ns["one lock"]["1"], 2),
        "to_raw_links": round(ns["boxes, own groups"]["1"] / ns["boxes, one lock"]["1"], 2),
        "one_group": {
            "median": number(r"reach ([\d.]+) times", text),
            "runs": int(number(r"middle of (\d+)", text)),
            "least": number(r"from ([\d.]+) to", text),
            "most": number(r"from [\d.]+ to ([\d.]+)\)", text),
        },
    }


def render_add_del(figures):
    one, barest = figures["one_group"], figures["to_raw_links"]
    rows = [[label, *(f"{figures['ns'][row][threads]:.1f}" for threads in ("1", "2"))] for row, label in ADD_DEL.items()]
    ratios = [
        ["one thread, boxes, to the list of raw links", f"at most {BAREST_MAX}", bold(f"{barest:.2f}", barest > BAREST_MAX)],
        ["throughput of two threads, one group to own groups", f"at least {ONE_GROUP_MIN}", bold(f"{one['median']:.2f}", one["median"] < ONE_GROUP_MIN)
         + f" (median of {one['runs']} pairs of runs, {one['least']:.2f} to {one['most']:.2f})"],
    ]
    return table(["ns of an add and a del", "1 thread", "2 threads"], rows) + [""] + table(["ratio", "target", "measured"], ratios)


def collect_containers(outputs):
    return {str(run["nodes"]): run for run in map(json.loads, outputs[0].splitlines())}


def render_containers(figures):
    runs = [figures[nodes] for nodes in ("2", "8")]
    more = [run["bytes_during"] - run["bytes_before"] for run in runs]
    rows = [
        ["bytes before anything, after all are gone", *(f"{run['bytes_before']:,}, {run['bytes_after']:,}" for run in runs)],
        ["more while all live", f"{more[0]:,} ({more[0] / (1 << 20):.2f} MiB)", f"{more[1]:,} ({100 * (more[1] / more[0] - 1):+.1f} %)"],
        ["resident memory, more while all live", *(f"{(run['rss_during'] - run['rss_before']) / 1e6:.0f} MB" for run in runs)],
        ["a list for every group, mount and node, computed", *(f"{run['eager_bytes_predicted'] / 1e9:.1f} GB" for run in runs)],
    ]
    return table(["", "2 nodes", "8 nodes"], rows)


SECTIONS = [
    Section("add-del", ["chrt -r 1 cargo bench --bench add_del -- --quick --noplot"], "2 min", render_add_del, collect_add_del),
    Section("containers", ["for n in 2 8; do cargo run --release --example containers -- --nodes $n --json; done"], "1 min",
            render_containers, collect_containers, is_timed=False),
]
