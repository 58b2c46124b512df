#!/usr/bin/env python3
"""Checks docs/HAZARDS.md against ci/API.txt and the sources. The page describes its cells."""

import pathlib
import re
import sys

COLUMNS = ["leak", "other thread", "late drop", "drop in callback", "panic in callback", "re-enter", "mix", "wrap", "lie", "fork", "no memory"]
HEADER = f"| type | {' | '.join(COLUMNS)} |"
DATA_HEADER = "| data, macros | otherwise |"
# The letters of the page, except that of a duty (FORK).
REASONS = set("DBTMPCNOIAGL")
FORK = "F"
CRATES = {
    "lowwater-base": "crates/base",
    "lowwater-rcu": "crates/rcu",
    "lowwater-lru-core": "crates/lru-core",
    "lowwater-store": "crates/store",
    "lowwater-shrinker": "crates/shrinker",
    "lowwater-pressure": "crates/pressure",
    "lowwater-dcache-model": "crates/dcache-model",
    "lowwater": ".",
    "lowwater-adapters": "crates/adapters",
}
ITEM = re.compile(r"(?:#\[[^\]]*\] )*pub (?:unsafe )?(?:struct|enum|union|trait|macro) ([\w:]+)")
NAME = re.compile(r"`([^`]+)`")
# A test in a cell: its name, or the number that it has in the crate's list of tests.
TEST_NAME = r"(?:`\w+`|t\d+)"
NUMBERED = re.compile(r"(t\d+) `(\w+)`")
TEST = re.compile(r"#\[(?:\w+::)?test\]\s*(?:(?://[^\n]*|#\[[^\n]*\])\s*)*(?:async )?fn (\w+)")

root = pathlib.Path(__file__).resolve().parents[2]
faults = []


def fault(line, text):
    faults.append(f"docs/HAZARDS.md:{line}: {text}")


def public_types():
    """Returns for each crate the names of its public structs, enums, traits and macros."""
    types, crate = {}, None
    for line in (root / "ci/API.txt").read_text().splitlines():
        if line.startswith("# "):
            crate = types.setdefault(line[2:].strip(), set())
        elif found := ITEM.match(line):
            crate.add(found.group(1).rstrip(":").rsplit("::", 1)[-1])
    return types


def sources(directory):
    top = root / directory
    return sorted(file for part in ("src", "tests") for file in (top / part).rglob("*.rs"))


def documented(files, path):
    """Returns whether the last name of `path` is a documented item of a file with all names."""
    *owners, name = path.split("::")
    item = re.compile(rf"\s*(?:pub(?:\([^)]*\))? )?(?:unsafe |const |async )*(?:fn|struct|enum|trait|macro_rules!) {name}\b")
    for text in files:
        if not all(re.search(rf"\b{owner}\b", text) for owner in owners):
            continue
        lines = text.splitlines()
        for at in (at for at, line in enumerate(lines) if item.match(line)):
            while at > 0 and lines[at - 1].lstrip().startswith(("#[", "// ")):
                at -= 1
            if at > 0 and lines[at - 1].lstrip().startswith("///"):
                return True
    return False


def check(part, line, directory, texts, numbered):
    """Checks one part of a cell. `numbered` are the tests with a number in this crate."""
    kind, _, rest = part.partition(": ")
    if part in REASONS or (kind == "no" and rest):
        return
    if re.fullmatch(rf"{TEST_NAME}(?:, {TEST_NAME})*", part):
        for name in part.split(", "):
            name = name.strip("`") if name.startswith("`") else numbered.get(name, name)
            if name not in tests:
                fault(line, f"no test {name}")
    elif part == FORK:
        if "//! # Fork" not in (root / directory / "src/lib.rs").read_text().splitlines():
            fault(line, f"no section 'Fork' in {directory}/src/lib.rs")
    elif kind == "doc" and (path := re.fullmatch(r"`([\w:]+)`", rest)):
        if not documented(texts, path.group(1)):
            fault(line, f"no documentation of {path.group(1)} in {directory}")
    else:
        fault(line, f"a cell has no test, no `doc: ...`, and no reason: {part!r}")


def cells_of(cell, line):
    """Returns the cells of a row that is data or a macro but for those of `cell`."""
    found = [["D"] for _ in COLUMNS]
    column = None
    for part in (part for part in cell.split("; ") if part):
        name, sign, rest = part.partition(" = ")
        if sign and name in COLUMNS:
            column, part = name, rest
            found[COLUMNS.index(column)] = []
        if column:
            found[COLUMNS.index(column)].append(part)
        else:
            fault(line, f"no column: {part!r}")
    return found


tests = {name for directory in CRATES.values() for file in sources(directory) for name in TEST.findall(file.read_text())}
types, crate, rows, cells = public_types(), None, {}, 0
for line, text in enumerate((root / "docs/HAZARDS.md").read_text().splitlines(), 1):
    if text.startswith("## "):
        crate, numbered, kind = text[3:].strip(), {}, None
        texts = [file.read_text() for file in sources(CRATES[crate])] if crate in CRATES else []
    if crate not in CRATES:
        continue
    if text.startswith("t1 "):
        numbered = dict(NUMBERED.findall(text))
        for name in set(numbered.values()) - tests:
            fault(line, f"no test {name}")
    if text.startswith("| ") and not text.startswith("| `"):
        kind = text
        if text not in (HEADER, DATA_HEADER):
            fault(line, f"no header of a table: {text!r}")
    if not text.startswith("| `"):
        continue
    names, *row = [cell.strip() for cell in text.strip().removeprefix("|").removesuffix("|").split("|")]
    for name in NAME.findall(names):
        if name not in types[crate]:
            fault(line, f"ci/API.txt has no {name} in {crate}")
        if rows.setdefault((crate, name), line) != line:
            fault(line, f"{name} has a row already")
    if kind == DATA_HEADER and len(row) == 1:
        row = cells_of(row[0], line)
    else:
        row = [cell.split("; ") for cell in row]
    if len(row) != len(COLUMNS):
        fault(line, f"{len(row)} cells, not {len(COLUMNS)}")
    cells += len(row)
    for part in (part for cell in row for part in cell):
        check(part, line, CRATES[crate], texts, numbered)
for crate, names in types.items():
    for name in sorted(names):
        if (crate, name) not in rows:
            faults.append(f"docs/HAZARDS.md: no row for {crate}'s {name}")

print(*faults, sep="\n", end="\n" if faults else "")
print(f"{len(rows)} types, {cells} cells")
sys.exit(bool(faults))
