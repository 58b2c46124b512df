#!/usr/bin/env python3
"""Checks ci/claims.md, which describes its cells, against the documents and the sources.

claims.py: checks all rows. claims.py tests: prints a `cargo test` command for the tests of each package.
"""

import os
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = ("README.md", "docs/GUIDE.md", "docs/MIGRATING.md")
TEST = re.compile(r"#\[(?:\w+::)?test\]\s*(?:(?://[^\n]*|#\[[^\n]*\])\s*)*(?:async )?fn (\w+)")
PROPTEST = re.compile(r"#\[test\]\s*fn (\w+)\(")
# The second cell begins at the last bar before a backquote, as a quote may contain bars.
ROW = re.compile(r"\| (.+) \| (`.+`) \|")
# A quoted text of a file may contain code: an item ends at a backquote before a comma or the end.
ITEM = re.compile(r"`(.+?)`(?=, `|$)")
CODE = re.compile(r"`([^`]+)`")
STEPS = re.search(r"(?m)^steps=\((.*)\)", (root / ".ci/run").read_text()).group(1).split()
# The tests of these packages that need a feature.
FEATURES = {"lowwater": "async,metrics", "lowwater-server": "tls"}
faults, evidence, tests = [], 0, {}


def words(text):
    """The text with single spaces, without emphasis, quote marks and bullets at the line starts."""
    text = re.sub(r"(?m)^\s*(?:[*>]\s+)?", "", text)
    return re.sub(r"\s+", " ", text.replace("**", ""))


def read(path):
    file = root / path
    return file.read_text() if file.is_file() else None


def blocks(document):
    """The paragraphs and list items of a document, without code, tables and headings."""
    text = re.sub(r"(?ms)^```.*?^```$", "", read(document))
    for block in re.split(r"\n\s*\n|\n(?=\* )", text):
        if block.strip() and not block.lstrip().startswith(("|", "#")):
            yield words(block)


def check_tables(quotes):
    """Every row of README's comparison is quoted in the table as a whole."""
    document = "README.md"
    section = re.search(r"(?ms)^## Comparison$(.*?)^## ", read(document)).group(1)
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    for row in rows:
        if not any(words(row).strip("| ") in quote for quote in quotes[document]):
            faults.append(f"{document}: no row of ci/claims.md quotes '{row}'")


def packages():
    return sorted(((file.parent.relative_to(root), re.search(r'name = "([^"]+)"', file.read_text()).group(1))
                   for file in [root / "Cargo.toml", *root.glob("crates/*/Cargo.toml")]), key=lambda pair: -len(str(pair[0])))


def check_item(item, fault):
    """Checks one piece of evidence: TEST (as PATH: NAME), a script, or a text in a file."""
    path, colon, name = item.partition(": ")
    text = read(path)
    if text is None:
        fault(f"no file {path}")
    elif not colon:
        by_hand = re.search(rf"`{path}[^|]*\| by hand", read("CONTRIBUTING.md"))
        if os.access(root / path, os.X_OK):
            if pathlib.PurePath(path).stem not in STEPS and not by_hand:
                fault(f"{path} is no step of .ci/run, and CONTRIBUTING.md does not say that it is run by hand")
        else:
            fault(f"{path} cannot be executed; a file that is no program needs `: ` and a text or a test")
    elif path.endswith(".rs") and re.fullmatch(r"[a-z0-9_]{8,}", name):
        if name in TEST.findall(text) or name in PROPTEST.findall(text):
            package = next(package for folder, package in packages() if pathlib.PurePath(path).is_relative_to(folder))
            tests.setdefault(package, set()).add(name)
        else:
            fault(f"no test {name} in {path}")
    elif words(name) not in words(text):
        fault(f"{path} does not contain '{name}'")


def check_table(quotes):
    """Checks the rows of ci/claims.md, and collects the quotes of each document."""
    global evidence
    document = None
    for number, line in enumerate((root / "ci/claims.md").read_text().splitlines(), 1):
        def fault(text):
            faults.append(f"ci/claims.md:{number}: {text}")
        if line.startswith("## "):
            document = line[3:]
            if document not in DOCUMENTS:
                fault(f"no document {document}")
        elif document and line.startswith("| ") and not line.startswith(("| claim ", "|--")):
            cells = ROW.fullmatch(line)
            if not cells:
                fault("a row has a quote, and evidence in backquotes")
                continue
            quote, shown = words(cells[1]), ITEM.findall(cells[2])
            if quote not in words(read(document)):
                fault(f"{document} does not contain '{quote}'")
            quotes[document].append(quote)
            evidence += len(shown)
            for item in shown:
                check_item(item, fault)


def check_numbers(quotes):
    """Every paragraph and list item with a number has a row in the table."""
    count = 0
    for document in DOCUMENTS:
        for block in blocks(document):
            # Numbers in code, links and versions are no claims.
            plain = re.sub(r"`[^`]*`|\([^)]*\.md[^)]*\)|\[[^\]]*\]", "", block)
            if re.search(r"\d", plain):
                count += 1
                if not any(quote in block for quote in quotes[document]):
                    faults.append(f"{document}: no row of ci/claims.md quotes '{block[:90]}...', which has a number")
    return count


def check_methods():
    """Every method that docs/MIGRATING.md names in its second column is a public function."""
    sources = [file for folder in ("src", "crates") for file in (root / folder).rglob("*.rs")]
    public = set(re.findall(r"\bpub (?:const |async |unsafe )*fn (\w+)", "\n".join(file.read_text() for file in sources)))
    named, section = set(), ""
    for line in read("docs/MIGRATING.md").splitlines():
        cells = re.split(r"(?<!\\)\|", line)
        if line.startswith("| ") and len(cells) >= 4:
            for code in CODE.findall(cells[2]):
                named |= set(re.findall(r"(?<!\w\()(?:^|[ .:!])([a-z][a-z_]{3,})\(", code))
    unknown = sorted(named - public - ALIEN)
    faults.extend(f"docs/MIGRATING.md names {name}(), which ci/API.txt does not list" for name in unknown)
    return len(named)


# Functions of `std` and placeholders of the reader's own in the second column.
ALIEN = {"clone", "to_owned", "ok_or", "matches", "init", "find", "map_or", "unwrap", "changed", "iter", "drop", "async"}

quotes = {document: [] for document in DOCUMENTS}
check_table(quotes)
check_tables(quotes)
blocks_checked = check_numbers(quotes)
methods = check_methods()
if faults:
    print("\n".join(faults))
    sys.exit(f"FAILED: {len(faults)} faults")
if sys.argv[1:] == ["tests"]:
    for package, names in sorted(tests.items()):
        features = f" --features {FEATURES[package]}" if package in FEATURES else ""
        print(f"cargo test -p {package}{features} -- {' '.join(sorted(names))}")
    sys.exit()
total = sum(map(len, quotes.values()))
print(f"{total} claims with {evidence} pieces of evidence, {sum(map(len, tests.values()))} of them tests; "
      f"{blocks_checked} paragraphs with numbers are covered; {methods} methods in MIGRATING exist")
