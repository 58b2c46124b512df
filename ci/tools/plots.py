#!/usr/bin/env python3
"""Checks SVG plots: the expected labels are there, every text is inside the picture, no text
overlaps another text, a bar or a curve, and the axes of curves end where the curves end.

plots.py FILE [LABEL...]: a label is the whole text of an element, or its begin if it ends with `*`.

The width of a text is estimated from its number of characters, because a font is not known.
"""
import re
import sys
import xml.etree.ElementTree as tree

# Parts of the font's size: the mean width of a character of a sans-serif font, and the height of
# a line without the space between lines.
CHARACTER, LINE = 0.55, 0.72
ANCHORS = {"start": 0.0, "middle": 0.5, "end": 1.0}
# The part of a chart's width, and of its height, that the longest and the highest curve reach at
# least. The height's is lower: a logarithmic axis has at least one decade.
REACHED_ACROSS, REACHED_UP = 0.9, 0.5
# How the baseline is below the text's `y`, in parts of the font's size.
BASELINE = re.compile(r"(-?[\d.]+)(?:em|ex)?")


def tag(element):
    return element.tag.rpartition("}")[2]


def number(element, name, default=0.0):
    return float(element.get(name, default))


def box_of_text(element, size):
    """Returns left, top, right and bottom of a text; None for an empty one."""
    text = "".join(element.itertext()).strip()
    if not text:
        return None
    x, y = number(element, "x"), number(element, "y")
    wide = len(text) * size * CHARACTER
    shift = BASELINE.match(element.get("dy", "0"))
    baseline = float(shift[1]) * size * (0.5 if element.get("dy", "").endswith("ex") else 1)
    left = -wide * ANCHORS[element.get("text-anchor", "start")]
    box = (left, baseline - LINE * size, left + wide, baseline)
    turn = re.search(r"rotate\((-?\d+)", element.get("transform", ""))
    angle = int(turn[1]) % 360 if turn else 0
    if angle == 90:
        box = (-box[3], box[0], -box[1], box[2])
    elif angle == 270:
        box = (box[1], -box[2], box[3], -box[0])
    return text, (x + box[0], y + box[1], x + box[2], y + box[3])


def overlap(a, b):
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def crosses(box, begin, end):
    """Returns whether a line from `begin` to `end` enters the box (the method of Liang and Barsky)."""
    (x, y), dx, dy, low, high = begin, end[0] - begin[0], end[1] - begin[1], 0.0, 1.0
    for part, rest in ((-dx, x - box[0]), (dx, box[2] - x), (-dy, y - box[1]), (dy, box[3] - y)):
        if part == 0:
            if rest < 0:
                return False
            continue
        at = rest / part
        if part < 0:
            low = max(low, at)
        else:
            high = min(high, at)
    return low < high


def points(element):
    pairs = re.findall(r"(-?[\d.]+)[ ,]+(-?[\d.]+)", element.get("points", ""))
    return [(float(x), float(y)) for x, y in pairs]


def beyond_data(curves, grid):
    """Yields a problem for each axis that continues beyond its data. The grid covers the chart."""
    (left, right), (top, bottom) = ((min(ends), max(ends)) for ends in zip(*grid))
    xs, ys = zip(*(point for curve in curves for point in curve))
    across, up = (max(xs) - left) / (right - left), (bottom - min(ys)) / (bottom - top)
    for axis, part, least in (("horizontal", across, REACHED_ACROSS), ("vertical", up, REACHED_UP)):
        if part < least:
            yield f"the {axis} axis continues beyond its data: the curves reach {part:.0%} of it"


def problems(path, labels):
    root = tree.parse(path).getroot()
    width, height = number(root, "width"), number(root, "height")
    texts, rects, curves, grid = [], [], [], []
    for element in root.iter():
        if tag(element) == "text":
            found = box_of_text(element, number(element, "font-size", root.get("font-size", 12)))
            if found:
                texts.append(found)
        elif tag(element) == "rect" and "%" not in element.get("width", "") and element.get("fill") != "none":
            x, y = number(element, "x"), number(element, "y")
            rect = (x, y, x + number(element, "width"), y + number(element, "height"))
            if rect[2] - rect[0] < width:
                rects.append(rect)
        elif tag(element) in ("polyline", "polygon"):
            # Ticks are lines of two points beside their numbers.
            found = points(element)
            if len(found) > 2:
                curves.append(found)
        elif tag(element) == "line":
            grid += [(number(element, f"x{end}"), number(element, f"y{end}")) for end in (1, 2)]
    if not texts:
        yield "it has no text"
    if curves and not grid:
        yield "it has curves without a grid"
    elif curves:
        yield from beyond_data(curves, grid)
    for text, box in texts:
        if box[0] < 0 or box[1] < 0 or box[2] > width or box[3] > height:
            yield f"{text!r} is not inside {width:g} x {height:g}: {[round(n) for n in box]}"
        if any(overlap(box, rect) for rect in rects):
            yield f"{text!r} overlaps a bar"
        if any(crosses(box, *pair) for curve in curves for pair in zip(curve, curve[1:])):
            yield f"{text!r} overlaps a curve"
    for n, (text, box) in enumerate(texts):
        for other, its in texts[n + 1 :]:
            if overlap(box, its):
                yield f"{text!r} overlaps {other!r}"
    for label in labels:
        if not any(text.startswith(label[:-1]) if label.endswith("*") else text == label for text, _ in texts):
            yield f"no label {label!r}"


def main():
    path, *labels = sys.argv[1:]
    found = list(problems(path, labels))
    sys.exit("\n".join(f"{path}: {problem}" for problem in found) or 0)


main()
