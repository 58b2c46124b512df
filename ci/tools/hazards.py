#!/usr/bin/env python3
"""Checks docs/HAZARDS.md against ci/API.txt and the sources. The page describes its cells."""

import pathlib
import re
import sys

COLUMNS = ["leak", "thread", "late", "drop", "panic", "re-enter", "mix", "wrap", "lie", "fork", "memory"]
HEADER = f"|type|{'|'.join(COLUMNS)}|"
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
# Tests in a cell: a name, a number of a list of tests, or how many tests have names with one beginning.
TEST_NAME = r"(?:`\w+`|[gt]\d+|\d+ `\w+\*`)"
NUMBERED = re.compile(r"([gt]\d+) (\w+)")
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
            # "# CRATE", or for the items that features add "# CRATE, further items ...".
            crate = types.setdefault(line[2:].split(",")[0].strip(), set())
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


def check(part, line, directory, texts, numbered, first):
    """Checks one part of a cell. `numbered` are the tests with a number, `first` is the first type of the row."""
    kind, _, rest = part.partition(": ")
    if part in REASONS or (kind == "no" and rest):
        return
    if re.fullmatch(rf"{TEST_NAME}(?:, {TEST_NAME})*", part):
        for name in part.split(", "):
            count, _, beginning = name.rstrip("*`").partition(" `")
            name = name.strip("`") if name.startswith("`") else numbered.get(name, name)
            found = sum(test.startswith(beginning) for test in tests) if beginning else 0
            if beginning and found != int(count):
                fault(line, f"{found} tests begin with {beginning}")
            elif not beginning and name not in tests:
                fault(line, f"no test {name}")
    elif part == FORK:
        if "//! # Fork" not in (root / directory / "src/lib.rs").read_text().splitlines():
            fault(line, f"no section 'Fork' in {directory}/src/lib.rs")
    elif kind == "doc" and (path := re.fullmatch(r"`((?:::)?\w[\w:]*)`|", rest)):
        # Without the name of a type, the item is the row's first type, or one of its functions.
        name = path.group(1) or first
        name = first + name if name.startswith("::") else name
        if not documented(texts, name):
            fault(line, f"no documentation of {name} in {directory}")
    else:
        fault(line, f"a cell has no test, no `doc: ...`, and no reason: {part!r}")


def cells_of(cell, line):
    """Returns the cells of types that are data, or of macros, but for those of `cell`."""
    found = [["D"] for _ in COLUMNS]
    columns = []
    for part in (part for part in cell.split("; ") if part):
        names, sign, rest = part.partition(" = ")
        if sign and set(names.split(", ")) <= set(COLUMNS):
            columns, part = [COLUMNS.index(name) for name in names.split(", ")], rest
            for column in columns:
                found[column] = []
        for column in columns:
            found[column].append(part)
        if not columns:
            fault(line, f"no column: {part!r}")
    return found


tests = {name for directory in CRATES.values() for file in sources(directory) for name in TEST.findall(file.read_text())}
types, crate, rows, cells, common, own, texts = public_types(), None, {}, 0, {}, {}, []
for line, text in enumerate((root / "docs/HAZARDS.md").read_text().splitlines(), 1):
    if text.startswith("## "):
        crate, own, has_header = text[3:].strip(), {}, False
        texts = [file.read_text() for file in sources(CRATES[crate])] if crate in CRATES else []
    if test := NUMBERED.fullmatch(text):
        numbered = common if crate is None else own
        if test.group(1) in numbered or test.group(1)[0] != ("g" if crate is None else "t"):
            fault(line, f"{test.group(1)} is no new number of this list")
        numbered[test.group(1)] = test.group(2)
        if test.group(2) not in tests:
            fault(line, f"no test {test.group(2)}")
    if crate not in CRATES:
        continue
    is_data = text.startswith("* ")
    if text.startswith("|") and not text.startswith(("|`", "|-")):
        has_header = text == HEADER
        if not has_header:
            fault(line, f"no header of a table: {text!r}")
    if not text.startswith("|`") and not is_data:
        continue
    if is_data:
        names, _, rest = text.removeprefix("* ").partition(": ")
        row = cells_of(rest, line)
    else:
        if not has_header:
            fault(line, "a row without a header")
        names, *row = [cell.strip() for cell in text.strip().removeprefix("|").removesuffix("|").split("|")]
        row = [cell.split("; ") for cell in row]
    for name in NAME.findall(names):
        if name not in types[crate]:
            fault(line, f"ci/API.txt has no {name} in {crate}")
        if rows.setdefault((crate, name), line) != line:
            fault(line, f"{name} has a row already")
    if len(row) != len(COLUMNS):
        fault(line, f"{len(row)} cells, not {len(COLUMNS)}")
    cells += len(row)
    for part in (part for cell in row for part in cell):
        check(part, line, CRATES[crate], texts, common | own, next(iter(NAME.findall(names)), ""))
for crate, names in types.items():
    for name in sorted(names):
        if (crate, name) not in rows:
            faults.append(f"docs/HAZARDS.md: no row for {crate}'s {name}")

print(*faults, sep="\n", end="\n" if faults else "")
print(f"{len(rows)} types, {cells} cells")
sys.exit(bool(faults))
