"""Sections about Rust modules in a kernel with Rust, from the output of ci/rust-kernel.sh."""
import re

from section import Section, as_table, table


def guests(output):
    """Returns the guests, each as its heading and its figures by name."""
    found = []
    for line in output.splitlines():
        if line.startswith("== "):
            found.append((line, {}))
        elif found and (figure := re.fullmatch(r" +([\w.]+) (\d+)", line)):
            found[-1][1][figure[1]] = int(figure[2])
    return found


def collect_pairs(outputs):
    figures = next(figures for heading, figures in guests(outputs[0]) if "instructions" in heading)
    spans = [16, 1000, 20000]
    names = {"lowwater_peer": "the kernel's `list_lru`, called from C", "lowwater_peer_known": "the same, which is told the group", "on_list_lru": "`list_lru`, through `kernel_lru`", "on_lowwater": "lowwater's lists, from Rust"}
    rows = []
    for file, name in names.items():
        pairs = [figures[f"{file}.pair_{span}"] for span in spans]
        ratio = pairs[1] / figures["lowwater_peer.pair_1000"]
        rows.append([name, *map(str, pairs), "" if file == "lowwater_peer" else f"{ratio:.3f}" if ratio > 1 else f"{ratio:.2f}"])
    return {"columns": ["", "16 objects in turn", "1,000", "20,000", "to C"], "rows": rows}


def render_pairs(figures):
    """Returns the table, with one column for all spans if none has other figures than the first."""
    columns, rows = figures["columns"], figures["rows"]
    if any(len(set(row[1:4])) > 1 for row in rows):
        return as_table(figures)
    return table([columns[0], "16, 1,000 or 20,000 objects in turn", columns[4]], [[row[0], row[1], row[4]] for row in rows])


def collect_caches(outputs):
    figures = next(figures for heading, figures in guests(outputs[0]) if "groups and 1,000 caches" in heading)
    kib, ms = (lambda name, more=" more": f"{figures[name]:,} KiB{more}"), (lambda name: f"{figures[name] / 1000:.2f} ms")
    rows = [["the guest with 10,000 groups, without a module", kib("many.groups_kib", ""), ms("many.drop_us"), "", ""]]
    drops = lambda module: [ms(f"{module}.drop_us"), ms(f"{module}.drop_live_us")]
    rows.append(["1,000 shrinkers with a `list_lru` each", kib("many_on_list_lru.kib"), *drops("many_on_list_lru"), kib("many_on_list_lru.kib_left")])
    # The loss of free memory varies by more than this; so these are the bytes of the module's allocator.
    memory = kib("many_on_lowwater.kib_allocated") + f", of which the groups {figures['many_on_lowwater.kib_of_groups']:,}"
    rows.append(["1,000 shrinkers with lists of lowwater, and 10,000 groups of lowwater", memory, *drops("many_on_lowwater"), ""])
    return {"columns": ["", "memory", "`drop_caches`, no object", "`drop_caches`, three objects", "memory after the unload"], "rows": rows}


COMMANDS = ["ci/rust-kernel.sh --all"]
SECTIONS = [
    Section("rust-kernel-pairs", COMMANDS, "hours", render_pairs, collect_pairs, is_timed=False),
    Section("rust-kernel-caches", COMMANDS, "hours", as_table, collect_caches, is_timed=False),
]
