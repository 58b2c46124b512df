"""The reports of docs/SEEDS.md: their documents, figures and tables."""
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

MIB = 1 << 20
MEASURED = Path(__file__).parent.parent / "measured/results"


class Figures:
    """Access to results, which notes the commands that made them."""

    def __init__(self, linux, lowwater):
        self.results, self.used = {"linux": linux, "lowwater": lowwater}, []

    def linux(self, load):
        figures = self.results["linux"][load]["figures"]
        self.used.append(f"ci/seeds.sh linux {load}")
        return figures

    def lowwater(self, name):
        result = self.results["lowwater"][name]
        self.used.append(result["command"])
        return result["figures"]

    def measured(self, section, command):
        """Returns the figures of a section of docs/MEASURED.md, of which `command` made those that are used."""
        self.used.append(command)
        return json.loads((MEASURED / f"{section}.json").read_text())["figures"]

    def kernel(self, load):
        """Returns the version of the kernel without Debian's suffixes."""
        result = self.results["linux"].get(load)
        return f"Linux {result['kernel'].split('+')[0]}" if result else "Linux today"


@dataclass
class Report:
    title: str
    # A line of the document.
    document: str
    about: str
    # The load of the guest, or None.
    load: Optional[str]
    # The row's name, the report's figure, Linux today, further columns.
    rows: list
    # The report's figures as its document has them.
    quotations: list
    ours: tuple = ("lowwater",)
    note: str = ""
    # A note for the column of Linux today.
    guest_note: str = ""

    def columns(self, figures):
        return ["the report", figures.kernel(self.load) if self.load else "Linux today", *self.ours]


def mib_of_kb(run, end, key="used_kb", begin="before"):
    return f"{(run[end][key] - run[begin][key]) / 1024:,.0f} MiB"


def mib(count):
    return f"{count / MIB:,.2f} MiB"


def bytes_during(run):
    return mib(run["bytes_during"] - run["bytes_before"])


ENDS = ("before", "during", "after")


def used(key):
    return lambda at: ", ".join(f"{at.linux('containers')[end][key] / 1024:,.0f}" for end in ENDS) + " MiB"


def lists_of(name):
    return lambda at: ", ".join(f"{at.lowwater(name)[f'bytes_{end}'] / MIB:,.2f}" for end in ENDS) + " MiB"


def drops(*numbers):
    return lambda at: ", ".join(f"{at.linux('drops')['seconds'][n]:.2f}" for n in numbers) + " s"


def span(value, text="{:,}"):
    ends = value if isinstance(value, list) else [value]
    return " to ".join(dict.fromkeys(text.format(end) for end in ends))


def our_drops(figure, unit, scale):
    return lambda at: f"{span([value / scale for value in values(at.measured('drop-caches', 'ci/measured.sh drop-caches')[figure])], '{:g}')} {unit}"


def values(figure):
    return figure if isinstance(figure, list) else [figure]


def asked(key):
    """Returns what Linux asks to scan in batches of 128, its default, and of 1,024."""
    return lambda at: "; ".join(f"{at.linux('deferred')[batch][key]:,}" for batch in ("batch_default", "batch_1024"))


def scanned(name, policy):
    return lambda at: f"{at.lowwater(name)['policies'][policy]['max_scanned_per_call']:,}"


def reclaim(policy, figure):
    return lambda at: span(at.measured("direct-reclaim", "ci/measured.sh direct-reclaim")[policy][figure])


def watch(at):
    rows = at.measured("dentries", "cargo bench --bench lookup -- 10000000")["rows"]
    return next(row[2] for row in rows if row[0] == "set a watch, 100 positives and 10 M negatives") + ", with 10,000,000"


REPORTS = [
    Report(
        title="Memory of lists that nothing uses (2021)",
        document="[PATCH v3 00/76] Optimize list lru memory consumption",
        about="10,000 groups and 10,000 mounts on 2 nodes share nothing. Memory that this takes:",
        load="lists",
        rows=[
            ("before the series; after its patches 7, 70, 72", "24,464; 21,957, 6,895, 4,367 MB", None, None),
            ("today", None, lambda at: f"{mib_of_kb(at.linux('lists'), 'during')}, {mib_of_kb(at.linux('lists'), 'during', 'slab_kb')} in slabs", lambda at: bytes_during(at.lowwater("lists"))),
            ("today: resident memory", None, None, lambda at: mib((run := at.lowwater("lists"))["rss_during"] - run["rss_before"])),
        ],
        quotations=["24464 MB", "21957 MB", "6895 MB", "4367 MB", "10k memory cgroups", "2 numa nodes"],
        note="lowwater has an object on each of the 40,000 lists that groups use; Linux has none.",
    ),
    Report(
        title="kmalloc-32 with 10,000 containers (2021)",
        document="High kmalloc-32 slab cache consumption with 10k containers",
        about="10,000 containers with 7 mounts each on 2 nodes. Figures are before, during and after their life.",
        load="containers",
        ours=("lowwater, 1,000 containers", "lowwater, 10,000 containers"),
        rows=[
            ("used memory", "23, 172, 40 G; with the patch 23, 69, 29 G", used("used_kb"), lists_of("containers"), lists_of("containers-10000")),
            ("slabs", "1.5, 149, 22 G; with the patch 1.5, 45, 10 G", used("slab_kb"), "no slabs", "no slabs"),
            ("kmalloc-32 objects", "178,176, 3,442,409,472, 388,933,632; with the patch 190,464, 468,992, 468,992",
             lambda at: ", ".join(f"{at.linux('containers')[end]['kmalloc_32']:,}" for end in ENDS), None, None),
        ],
        quotations=["23G 172G 40G", "23G 69G 29G", "1.5G 149G 22G", "1.5G 45G 10G", "178176 3442409472 388933632", "190464 468992 468992", "7 FS mounts"],
        guest_note="Linux has 1,000 containers. Its used memory is the whole system's without caches.",
    ),
    Report(
        title="Negative dentries (2021)",
        document="[RFC,0/6] fix the negative dentres bloating system memory usage",
        about="Lookups of missing names: in Linux 1,000,000 of one directory, each once; in lowwater a flood.",
        load="negatives",
        ours=("lowwater, `Unbounded`", "lowwater, `ThreeInARow` (the series' rule)", "lowwater, default"),
        rows=[
            ("negatives on 256 G", "197 G in half an hour; with the series 55,259,084 of them, 10.6 G", None, None, None, None),
            ("negatives on 3 T", "2.4 T in a day; with the series 202,306,756 of them, 38.8 G", None, None, None, None),
            ("names looked up", None, lambda at: f"{at.linux('negatives')['names']:,}",
             *(lambda at, name=name: f"{at.lowwater(name)['lookups']:,}" for name in ("flood-unbounded", "flood-three", "flood"))),
            ("negatives that stay", None, lambda at: f"{(run := at.linux('negatives'))['negatives_after'] - run['negatives_before']:,}",
             *(lambda at, name=name: f"{at.lowwater(name)['negatives']:,}" for name in ("flood-unbounded", "flood-three", "flood"))),
            ("hash buckets", None, None, *(lambda at, name=name: f"{at.lowwater(name)['buckets']:,}" for name in ("flood-unbounded", "flood-three", "flood"))),
            ("their memory", None, lambda at: f"{at.linux('negatives')['kb'] / 1024:,.1f} MiB",
             *(lambda at, name=name: mib(at.lowwater(name)["bytes"]) for name in ("flood-unbounded", "flood-three", "flood"))),
            ("a watch on a directory of 100 positives and 1,000,000 negatives", "soft lockup; none with the series",
             lambda at: f"at most {at.linux('negatives')['watch_s'] * 1000:,.2f} ms",
             watch, None, None),
        ],
        quotations=["55259084 10.6G", "202306756 38.8G", "197G was taken by negative dentry on 256G", "2.4T was taken on 3T", "soft lockup"],
    ),
    Report(
        title="Deferred work of shrinkers (2019)",
        document='Re: [PATCH 1/2] Revert "mm: don\'t reclaim inodes with many attached pages"',
        about="1,800,000 objects; a light pass (priority 12) meets 1,000,000 deferred ones. "
        "`Windup` and `Proportional` follow the rules of Linux to 5.12 and since 5.13.",
        load="deferred",
        ours=("lowwater, `Windup`", "lowwater, `Proportional`", "lowwater, `Fair`"),
        rows=[
            ("scanned by one call, nothing deferred", "800", asked("asked_none"), *(scanned("deferred-none", policy) for policy in ("windup", "proportional", "fair"))),
            ("scanned by one call, 1,000,000 deferred", "1,000,800, clamped to 900,000", asked("asked"), *(scanned("deferred", policy) for policy in ("windup", "proportional", "fair"))),
            ("p99 / p50 of the latency", "1.06 for reads, with the report's change", None, *(reclaim(policy, "p99") for policy in ("windup", "proportional", "fair"))),
            ("deferred objects 1 s after the load", None, None, *(reclaim(policy, "owed") for policy in ("windup", "proportional", "fair"))),
        ],
        quotations=["scan 800 objects", "another 1m objects of deferred work", "1,000,800 objects", "still 900,000 objects in this", "p50: 3,084,288", "p99: 3,256,320"],
        guest_note="Linux: in batches of 128, its default; of 1,024, as in file systems and lowwater, where 800 objects are less than a batch and are deferred. The load is a module, built for the newest kernel with headers in Debian 12.",
    ),
    Report(
        title="drop_caches with 4,000 groups and mounts (2018)",
        document="How and why we optimized the algorithm of cleaning SLAB-caches in the Linux kernel",
        about="Each of 4,000 groups has a file on one of 4,000 mounts.",
        load="drops",
        ours=("lowwater", "lowwater's baseline: every shrinker for every group"),
        rows=[
            ("drop 1", "13.78 s; with the shrinker map 1.10 s", drops(0), our_drops("first_us", "us", 1), None),
            ("drops 2 to 5", "5.60, 5.48, 8.35, 8.35 s; with the map 0.01 s each", drops(1, 2, 3, 4), our_drops("later_us", "us", 1), our_drops("all_us", "s (drop 2)", 1e6)),
        ],
        quotations=["13.78 elapsed", "0: 05.60 elapsed", "05.48elapsed", "08.35elapsed", "01.10elapsed", "00.01elapsed"],
        note="`drop_caches` of Linux also drops the page cache and all other slabs.",
    ),
]
