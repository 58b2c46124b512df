"""A section of docs/MEASURED.md, and helpers for its tables."""
import re
from dataclasses import dataclass
from typing import Callable, Optional


@dataclass
class Section:
    """Commands, and the functions that make figures of their output and lines of the figures."""

    name: str
    commands: list
    # Of all commands, including their builds.
    duration: str
    # Lines of Markdown from the figures.
    render: Callable[[dict], list]
    # Figures from the output of each command. None: the figures are typed into the results by hand.
    collect: Optional[Callable[[list], dict]] = None
    # Whether the control is measured before.
    is_timed: bool = True
    # Another file with the figures, which the commands write themselves.
    source: Optional[str] = None
    # Figures that its commands do not give, as texts.
    foreign: Callable[[dict], list] = lambda figures: []


def table(columns, rows):
    """Returns the lines of a table. Cells are texts or None."""
    line = lambda cells: "|" + "".join("|" if cell is None else f"{cell}|" for cell in cells)
    lines = [line(columns), "|-" * len(columns) + "|"]
    return lines + [line(row) for row in rows]


def as_table(figures):
    """Renders figures that are a table already: `columns` and `rows` of texts."""
    return table(figures["columns"], figures["rows"])


def span(value, text="{:,}"):
    """Formats a figure, or a list of the least and the greatest of several runs."""
    ends = value if isinstance(value, list) else [value]
    texts = [text.format(end) for end in ends]
    return " to ".join(dict.fromkeys(texts))


def most(value):
    return max(value) if isinstance(value, list) else value


def bold(text, is_missed):
    """Marks a figure that misses its target."""
    return f"**{text}**" if is_missed else text


def time(ns):
    """Formats a duration with three digits."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1)):
        if ns >= size or unit == "ns":
            value = ns / size
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"


def number(pattern, text):
    """Returns the first group of the pattern's only match."""
    found = re.search(pattern, text)
    if not found:
        raise ValueError(f"no {pattern!r} in the output:\n{text[-2000:]}")
    return float(found[1].replace(",", ""))
