#!/usr/bin/env python3
"""Keeps the results of ci/seeds.sh, and writes docs/SEEDS.md from them.

page.py add linux LOAD KERNEL    adds the figures on stdin, one JSON object, to results/linux.json
page.py lowwater [NAME...]       runs lowwater's programs (all by default): results/lowwater.json
page.py --render | --check       writes docs/SEEDS.md, or checks it and the quotations

| file | content |
|---|---|
| `guest.c` | the loads on a guest's kernel |
| `deferred.c` | the load "deferred": a module of the guest's kernel |
| `programs.py` | the loads on lowwater |
| `reports.py` | the reports: their figures, and the rows of their tables |
"""
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from programs import EXAMPLE, PROGRAMS
from reports import REPORTS, Figures

PAGE = Path("docs/SEEDS.md")
RESULTS = Path(__file__).parent / "results"
NO_FIGURE = "-"
HEAD = """# The reports, reproduced

Five reports about Linux are the reason for lowwater. `ci/seeds.sh` writes this page. A letter after a
figure names its command below the table; `cargo run --release --example` runs those that begin with an
example's name.

Linux runs in an emulated guest (QEMU's TCG, 2 processors), about eight times slower than a real
processor: its times are upper bounds, without the contention of many processors, and no ratio may be
made of them. Bytes and counts do not depend on emulation. lowwater's times are those of
[MEASURED](MEASURED.md), which has [both inside one kernel](MEASURED.md#inside-a-kernel), too; its memory
is that of lists, groups and shrinkers, without Linux' file systems and processes.
"""


def load(name):
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def store(name, results):
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n")


def add(side, name, kernel):
    results = load(side)
    results[name] = {"kernel": kernel, "date": time.strftime("%Y-%m-%d"), "figures": json.loads(sys.stdin.read())}
    store(side, results)


def run(names):
    results = load("lowwater")
    for name in names or PROGRAMS:
        command, collect = PROGRAMS[name]
        print(f"$ {command}", flush=True)
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", command], stdout=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"exit status {done.returncode}: {command}")
        results[name] = {"command": command, "date": time.strftime("%Y-%m-%d"), "figures": collect(done.stdout)}
        store("lowwater", results)


def section(report, figures):
    """Returns the lines of a report: its table, and the commands of the cells."""
    commands = []

    def cell(value):
        """`value` is a text, None, or a function of the figures, which notes the commands it uses."""
        if value is None:
            return NO_FIGURE
        if isinstance(value, str):
            return value
        figures.used = []
        try:
            text = value(figures)
        except KeyError:
            return NO_FIGURE
        for command in figures.used:
            if command not in commands:
                commands.append(command)
        return " ".join([text, *(f"[{chr(ord('a') + commands.index(command))}]" for command in dict.fromkeys(figures.used))])

    rows = [[what, told or NO_FIGURE, *(cell(value) for value in rest)] for what, told, *rest in report.rows]
    # Linux today has a column only if it has a figure, and a row needs one, too.
    has_linux = any(callable(row[2]) and cells[2] != NO_FIGURE for row, cells in zip(report.rows, rows))
    columns = [column for n, column in enumerate(report.columns(figures), 1) if n != 2 or has_linux]
    lines = [f"## {report.title}", "", report.about, "", "| |" + "".join(f" {column} |" for column in columns), "|---" * (len(columns) + 1) + "|"]
    for row, cells in zip(report.rows, rows):
        if row[1] or any(callable(value) and text != NO_FIGURE for value, text in zip(row[2:], cells[2:])):
            lines.append("| " + " | ".join(text for n, text in enumerate(cells) if n != 2 or has_linux) + " |")
    lines.append("")
    for n, command in enumerate(commands):
        lines.append(f"- [{chr(ord('a') + n)}] `{command.removeprefix(f'{EXAMPLE} ').removesuffix(' --json')}`")
    lines += [""] if commands else []
    notes = [report.note] * bool(report.note) + [report.guest_note] * bool(report.guest_note and has_linux)
    return [*lines, *notes] if notes else lines[:-1] if not lines[-1] else lines


def rendered():
    figures = Figures(load("linux"), load("lowwater"))
    lines = HEAD.splitlines()
    for report in REPORTS:
        lines += ["", *section(report, figures)]
    return "\n".join(lines) + "\n"


def misquoted(folder):
    """Returns the figures of reports that are not in their documents."""
    words = lambda text: re.sub(r"\s+", " ", text)
    documents = {path.name: words(path.read_text()) for path in Path(folder).glob("*.txt")}
    for report in REPORTS:
        document = next((text for text in documents.values() if words(report.document) in text), None)
        if document is None:
            yield f"no document {report.document!r}"
            continue
        for quotation in report.quotations:
            if words(quotation) not in document:
                yield f"{report.title}: the document has no {quotation!r}"


def check():
    problems = [] if PAGE.read_text() == rendered() else [f"{PAGE} differs from its results: ci/seeds.sh --render"]
    if os.environ.get("LOWWATER_SEEDS"):
        problems += misquoted(os.environ["LOWWATER_SEEDS"])
    sys.exit("\n".join(problems) or 0)


def main():
    words = sys.argv[1:]
    if words[0] == "add":
        add(*words[1:])
    elif words[0] == "lowwater":
        run(words[1:])
    elif words[0] == "--render":
        PAGE.write_text(rendered())
    else:
        check()


main()
