#!/usr/bin/env python3
"""Measures sections of docs/MEASURED.md, and writes its tables. See ci/measured.sh.

| file | content |
|---|---|
| `section.py` | a section, and helpers for tables |
| `machine.py` | the machine, and commands on it |
| `lists.py` ... `checks.py` | the sections of each group |
| `results/NAME.json` | the figures of a section's last run |
"""
import json
import os
import re
import sys
import textwrap
import time
from pathlib import Path

import cache
import checks
import comparison
import dcache
import figures
import lists
import machine
import rust_kernel
import server
import shrinkers

GROUPS = {
    "lists": lists.SECTIONS,
    "shrinkers": shrinkers.SECTIONS,
    "dcache": dcache.SECTIONS,
    "cache": cache.SECTIONS + comparison.SECTIONS,
    "server": server.SECTIONS,
    "checks": checks.SECTIONS + rust_kernel.SECTIONS,
}
SECTIONS = {section.name: section for group in GROUPS.values() for section in group}
PAGE = Path("docs/MEASURED.md")
RESULTS = Path(__file__).parent / "results"
BEGIN, END = re.compile(r"<!-- measured ([\w-]+) -->"), "<!-- end -->"
WIDTH = 110


def result(section):
    """Returns the last run of a section: machine, date, commit, control, figures."""
    if section.source:
        return {"figures": {"text": Path(section.source).read_text()}}
    return json.loads((RESULTS / f"{section.name}.json").read_text())


def origin(section, run):
    """Returns a line about the run: machine (unless A, as the page says), date, commit and control."""
    if section.source:
        return f"The counts are those of `{section.source}`."
    at = f"commit {run['commit']}" if "commit" in run else f"recorded with {run['recorded_with']}"
    parts = [*([] if run["machine"] == "A" else [f"machine {run['machine']}"]), run["date"], at]
    if "control" in run:
        parts.append(f"control {run['control']:.2f}")
    return f"{'; '.join(parts)}."


def block(section):
    """Returns the lines of a section, with its markers."""
    run, commands = result(section), section.commands
    marker = f"<!-- measured {section.name} -->"
    about = origin(section, run)
    if len(commands) == 1:
        head = textwrap.wrap(f"`{commands[0]}`; {about[0].lower() if section.source else about[0]}{about[1:]}", WIDTH, break_long_words=False, break_on_hyphens=False)
    else:
        head = ["```sh", *commands, "```", "", f"{about[0].upper()}{about[1:]}"]
    return [marker, *head, "", *section.render(run["figures"]), END]


def rendered(text):
    """Returns the page with all sections written again, and the problems of its markers."""
    out, problems, found, inside = [], [], [], False
    for number, line in enumerate(text.splitlines(), 1):
        if begin := BEGIN.fullmatch(line):
            name = begin[1]
            if inside:
                problems.append(f"{PAGE}:{number}: section {name} begins inside another")
            inside = True
            found.append(name)
            if name in SECTIONS:
                out += block(SECTIONS[name])
            else:
                problems.append(f"{PAGE}:{number}: there is no section {name}")
        elif line == END:
            if not inside:
                problems.append(f"{PAGE}:{number}: an end without a section")
            inside = False
        elif "<!-- measured" in line:
            problems.append(f"{PAGE}:{number}: malformed marker")
        elif not inside:
            out.append(line)
    if inside:
        problems.append(f"{PAGE}: section {found[-1]} has no end")
    problems += [f"{PAGE}: {found.count(name)} times section {name}" for name in SECTIONS if found.count(name) != 1]
    return "\n".join(out) + "\n", problems


def malformed_tables(text):
    """Returns the rows that have another number of cells than the first row of their table."""
    problems, cells = [], 0
    for number, line in enumerate(text.splitlines(), 1):
        count = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        if count and cells and count != cells:
            problems.append(f"{PAGE}:{number}: a row of {count - 1} cells in a table of {cells - 1}")
        cells = cells and count or count
    return problems


def readme_figures():
    return figures.draw_all(result(SECTIONS["comparison"])["figures"])


def render():
    text, problems = rendered(PAGE.read_text())
    if problems:
        sys.exit("\n".join(problems))
    PAGE.write_text(text)
    for path, drawing in readme_figures().items():
        Path(path).write_text(drawing)


def check():
    text = PAGE.read_text()
    known = {f"{section.name}.json" for section in SECTIONS.values() if not section.source}
    there = {path.name for path in RESULTS.iterdir()}
    problems = [f"{RESULTS.name}/{name}: no section" for name in sorted(there - known)]
    problems += [f"{RESULTS.name}/{name}: missing" for name in sorted(known - there)]
    if not problems:
        page, problems = rendered(text)
        problems += malformed_tables(text)
        problems += [f"{name}: {what}" for name, section in SECTIONS.items() for what in section.foreign(result(section)["figures"])]
        if not problems and page != text:
            problems.append(f"{PAGE} differs from its results: ci/measured.sh --render")
        problems += [f"{path} differs from its results: ci/measured.sh --render" for path, drawing in readme_figures().items() if Path(path).read_text() != drawing]
    sys.exit("\n".join(problems) or 0)


def show_list():
    for group, sections in GROUPS.items():
        print(f"{group}:")
        for section in sections:
            last = result(section).get("date", section.source)
            how = "" if section.collect or section.source else ", figures by hand"
            print(f"  {section.name:18} {section.duration:10} last {last}{how}")
            for command in section.commands:
                print(f"      {command}")


def measure(section):
    if not section.collect and not section.source:
        return print(f"{section.name}: run its commands, and type the figures into {RESULTS}/{section.name}.json")
    if any("LOWWATER_TRACES" in command for command in section.commands) and not os.environ.get("LOWWATER_TRACES"):
        sys.exit(f"{section.name}: LOWWATER_TRACES is not set")
    run = {"machine": machine.name(), "date": time.strftime("%Y-%m-%d"), "commit": machine.commit()}
    if section.is_timed:
        run["control"] = machine.control()
    outputs = [machine.output(command) for command in section.commands]
    if section.collect:
        run["figures"] = section.collect(outputs)
        (RESULTS / f"{section.name}.json").write_text(json.dumps(run, indent=1, ensure_ascii=False) + "\n")
    render()


def measure_part(part):
    """Measures one part of the comparison again; the others keep their figures."""
    section = SECTIONS["comparison"]
    run = result(section)
    control = machine.control()
    for command in [section.commands[0], comparison.command(part)]:
        machine.output(command)
    comparison.replace(run["figures"], part, f"{time.strftime('%Y-%m-%d')}, commit {machine.commit()}, control {control:.2f}")
    (RESULTS / "comparison.json").write_text(json.dumps(run, indent=1, ensure_ascii=False) + "\n")
    render()


def main():
    words = sys.argv[1:]
    actions = {"--list": show_list, "--render": render, "--check": check}
    if len(words) == 1 and words[0] in actions:
        return actions[words[0]]()
    parts = {f"comparison:{part}": part for part in comparison.PARTS}
    unknown = [word for word in words if word not in SECTIONS and word not in GROUPS and word not in parts]
    if unknown or not words:
        sys.exit(f"no section {' '.join(unknown)}: ci/measured.sh --list" if unknown else "ci/measured.sh SECTION... | --list | --render | --check")
    for word in words:
        if word in parts:
            measure_part(parts[word])
            continue
        for section in GROUPS.get(word) or [SECTIONS[word]]:
            measure(section)


main()
