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
    """The text with single spaces, also beside bars, without emphasis, quote marks and bullets at the line starts."""
    text = re.sub(r"(?m)^\s*(?:[*>]\s+)?", "", text)
    return re.sub(r"\s+", " ", text.replace("**", "").replace("|", " | ")).strip()


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
    elif path.endswith(".rs") and (re.fullmatch(r"[a-z0-9_]{8,}", name) or name in TEST.findall(text)):
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


def check_rows(quotes):
    """Every row of a table of docs/MIGRATING.md is exercised in tests/migrating, or quoted in ci/claims.md.

    A comment `// row: TEXT` above a statement of a test names the row of its section whose first cell begins with
    TEXT. A row needs none if lowwater has no counterpart and the last cell names no call. Each call in the second
    column is in the file, too.
    """
    document, count, section, rows, is_header = "docs/MIGRATING.md", 0, "", {}, True
    methods = set()
    for line in read(document).splitlines():
        if line.startswith("## "):
            section = {"What differs from all of them": "differences"}.get(line[3:], line[3:])
        elif line.startswith("|") and not line.startswith("|-") and not is_header:
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            rows.setdefault(section, []).append((cells[0].replace("`", ""), cells, line))
        is_header = not line.startswith("|")
    for section, table in rows.items():
        named, programs = set(), ""
        for file in sorted((root / "tests/migrating").glob(f"{section}*.rs")):
            programs += file.read_text()
            for text, statement in re.findall(r"// row: (.*)\n(.*)", file.read_text()):
                path = file.relative_to(root)
                found = [cell for cell, *_ in table if cell == text] or [cell for cell, *_ in table if cell.startswith(text)]
                if len(found) != 1:
                    faults.append(f"{path}: {len(found)} rows of {document} begin with '{text}'")
                elif not statement.startswith("    ") or statement.lstrip().startswith(("//", "}")):
                    faults.append(f"{path}: no statement follows the row '{text}'")
                named.update(found)
        for cell, cells, line in table:
            is_absent = cells[1] == "none" and "`" not in cells[-1]
            is_quoted = any(quote in words(line) for quote in quotes[document])
            if cell not in named and not is_absent and not is_quoted:
                faults.append(f"{document}: no `// row:` in tests/migrating/{section}*.rs for '{cell}'")
            count += cell in named
            for call in set(re.findall(r"\b([a-z]\w+)\(", " ".join(CODE.findall(cells[1])))) - PLACEHOLDERS:
                methods.add(call)
                if not re.search(rf"\b{call}\(", programs):
                    faults.append(f"{document}: no test in tests/migrating/{section}*.rs calls {call}(), of '{cell}'")
    return count, len(methods)


# Placeholders of the reader's own in the second column.
PLACEHOLDERS = {"changed", "init"}

quotes = {document: [] for document in DOCUMENTS}
check_table(quotes)
check_tables(quotes)
blocks_checked = check_numbers(quotes)
rows, methods = check_rows(quotes)
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
      f"{blocks_checked} paragraphs with numbers are covered; tests/migrating has {rows} rows of MIGRATING, and calls all {methods} methods of their second cells")
