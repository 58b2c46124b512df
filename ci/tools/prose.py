#!/usr/bin/env python3
"""Measures how plain the English of comments, pages and messages is, and fails beyond the bounds.

prose.py [--list N]: a table with a row for each part of the tree, and the N worst sentences. It reads
pages, the comments of Rust, Python, shell and TOML files, and, as parts of their own, the messages
in Rust and Python files: the string literals of three or more words (docstrings included; neither byte
strings nor raw strings of Rust).

It judges form only: clauses as subjects, relative and indefinite pronouns, and verbs of speech about
code. The bounds are near the rates of well-known crates. It also fails for a doc comment that begins
with Who, What or Whose, for a Rust file without a header, for a file that cites a number of
docs/INVARIANTS.md without naming that page, and for a comment line of Rust that is too long.
"""
import argparse
import ast
import pathlib
import re
import subprocess
import sys

# Rates: the name, the pattern, the greatest rate allowed.
SUBJECTS = re.compile(r"(?:Wh(?:o|ose|om|oever|at|atever)|Of (?:which|what)|That which|Where what)\b")
SUBJECTS_PERCENT_MAX = 0.5
WORDS = [
    ("who/whose/what", re.compile(r"\b(?:who|whom|whose|whoever|whatever|what)\b", re.I), 2.0),
    ("is said/told", re.compile(r"\b(?:is|are|was|were|be) (?:said|told|asked|meant|looked at|gone over|let go|held by|had)\b", re.I), 0.5),
    ("somebody/nobody", re.compile(r"\b(?:some|no|any|every)body\b", re.I), 0.5),
]
FILES = ["*.rs", "*.md", "*.py", "*.sh", "*.toml"]
# Sentences begin with a capital, a code span, a link or an emphasis.
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\[*])")
BULLET = re.compile(r"(?:[-*]|\d+\.) ")
DOC_START = re.compile(r"Wh(?:o|ose|om|oever|at|atever)\b")
COMMENT = {".rs": re.compile(r"//[/!]? ?(.*)")}
COMMENT_OF_SCRIPTS = re.compile(r"#(?: (.*)|$)")
# String literals of Rust; comments, raw strings, characters and byte strings are matched, to be skipped.
RUST_LITERAL = re.compile("|".join([
    r"//[^\n]*", r"/\*.*?\*/", r"'(?:\\.[^']*|[^\\'])'",
    r'''b?r(#*)".*?"\1''', r'''b?"(?:[^"\\]|\\.)*"''',
]), re.S)
# Escapes, and a value that is formatted.
ESCAPE = re.compile(r"\\(?:\n\s*|[nrt])")
VALUE = re.compile(r"\{[^}]*\}|%[-+.\d]*[a-z]")
DOC_LINE = re.compile(r"\s*//[/!] ?(.*)")
# A number of docs/INVARIANTS.md, in a comment.
CITED = re.compile(r"//.*[(, ][DLRS]\d{1,2}(?:[),:;]|, )")

# Columns of a comment line, except in tables and code blocks. A single word (a link) may be longer.
COLUMNS_MAX = 100
LINK_TARGET = re.compile(r"\[[^\]]*\]: ")


def faults_of_docs(name):
    """Yields the faults of a Rust file's doc comments that no rate measures."""
    lines = pathlib.Path(name).read_text(errors="replace").splitlines()
    # Files of Linux begin with their licence.
    header = next((line for line in lines if line and not line.startswith("// SPDX-License-Identifier:")), "")
    if not header.startswith("//!"):
        yield f"{name}:1: the file does not begin with a header (//!)"
    for number, line in enumerate(lines, 1):
        doc, before = DOC_LINE.match(line), lines[number - 2] if number > 1 else ""
        if doc and not DOC_LINE.match(before) and DOC_START.match(doc.group(1)):
            yield f"{name}:{number}: a doc comment begins with {doc.group(1).split()[0]}"
    cited = next((number for number, line in enumerate(lines, 1) if CITED.search(line)), None)
    if cited and not any("INVARIANTS.md" in line for line in lines):
        yield f"{name}:{cited}: cites a number of docs/INVARIANTS.md without naming the page"
    for number, text in text_lines(pathlib.Path(name)):
        columns = len(lines[number - 1])
        if columns > COLUMNS_MAX and len(text.split()) > 1 and not LINK_TARGET.match(text):
            yield f"{name}:{number}: a comment line of {columns} columns, more than {COLUMNS_MAX}"


def text_lines(path):
    """Yields number and text of each line of prose, and an empty text between paragraphs."""
    is_page, is_code = path.suffix == ".md", False
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        text = line.strip()
        if not is_page:
            comment = COMMENT.get(path.suffix, COMMENT_OF_SCRIPTS).match(text)
            is_code = is_code and comment is not None
            text = (comment.group(1) or "").strip() if comment else ""
        if text.startswith("```"):
            is_code, text = not is_code, ""
        is_prose = not is_code and not text.startswith(("|", "#", "<!--", "!["))
        yield number, text if is_prose else ""


def paragraphs(path):
    """Yields first line and text of each paragraph."""
    first, lines = 0, []
    for number, text in [*text_lines(path), (0, "")]:
        bullet = BULLET.match(text)
        if lines and (not text or bullet):
            yield first, " ".join(lines)
            lines = []
        if text:
            first = first if lines else number
            lines.append(text[bullet.end():] if bullet else text)


def literals(path):
    """Yields first line and text of each string literal."""
    source = path.read_text(errors="replace")
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.lineno, node.value
    elif path.suffix == ".rs":
        for token in RUST_LITERAL.finditer(source):
            if token.group().startswith('"'):
                yield source.count("\n", 0, token.start()) + 1, ESCAPE.sub(" ", token.group()[1:-1])


def messages(path):
    """Yields first line and text of each string literal of three or more words, with a capital."""
    for number, text in literals(path):
        text = " ".join(VALUE.sub("_", text).split())
        if len(text.split()) >= 3:
            yield number, text[0].upper() + text[1:]


def texts(name):
    """Yields part, first line and text of each paragraph and message of a file."""
    path = pathlib.Path(name)
    for number, text in paragraphs(path):
        yield part_of(name), number, text
    for number, text in messages(path):
        yield f"messages in {path.suffix}", number, text


def part_of(name):
    folders = name.split("/")
    depth = 2 if folders[0] == "crates" else 1
    return "/".join(folders[:depth]) if len(folders) > depth else "(root)"


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--list", type=int, default=20, metavar="N")
    listed = options.parse_args().list
    names = subprocess.run(["git", "ls-files", *FILES], capture_output=True, text=True, check=True).stdout
    parts, found = {}, []
    faults = [fault for name in names.split() if name.endswith(".rs") for fault in faults_of_docs(name)]
    for name in names.split():
        for part, first, paragraph in texts(name):
            counts = parts.setdefault(part, {"words": 0, "sentences": 0, "subjects": 0, "rates": [0] * len(WORDS)})
            counts["words"] += len(re.findall(r"[A-Za-z']+", paragraph))
            for sentence in SENTENCE_END.split(paragraph):
                if len(sentence.split()) < 3:
                    continue
                is_clause = SUBJECTS.match(sentence) is not None and not sentence.endswith("?")
                hits = [len(pattern.findall(sentence)) for _, pattern, _ in WORDS]
                counts["sentences"] += 1
                counts["subjects"] += is_clause
                counts["rates"] = [a + b for a, b in zip(counts["rates"], hits)]
                if is_clause or sum(hits) > 1:
                    found.append((3 * is_clause + sum(hits), f"{name}:{first}: {sentence}"))
    bounds = [f"{SUBJECTS_PERCENT_MAX} %", *(str(bound) for *_, bound in WORDS)]
    print(f"{'':24}" + "".join(f"{title:>18}" for title in ["clause as subject", *(name for name, *_ in WORDS)]))
    failed = []
    for part, counts in sorted(parts.items()):
        percent = 100 * counts["subjects"] / max(counts["sentences"], 1)
        rates = [1000 * count / max(counts["words"], 1) for count in counts["rates"]]
        print(f"{part:24}{percent:16.1f} %" + "".join(f"{rate:18.1f}" for rate in rates))
        if percent > SUBJECTS_PERCENT_MAX or any(rate > bound for rate, (*_, bound) in zip(rates, WORDS)):
            failed.append(part)
    print(f"{'at most':24}" + "".join(f"{bound:>18}" for bound in bounds))
    for _, sentence in sorted(found, key=lambda item: -item[0])[:listed]:
        print(sentence[:200])
    if faults:
        sys.exit("\n".join(faults))
    if failed:
        sys.exit(f"beyond the bounds: {', '.join(failed)}")


main()
