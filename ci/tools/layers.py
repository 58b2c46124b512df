#!/usr/bin/env python3
"""Finds the dependencies between the source files of a crate, from `use` lines and paths in code.

layers.py CRATE_ROOT...: one or more `lib.rs` or `main.rs`. Prints each cycle of files and exits with
1 if there is one.
layers.py --edges CRATE_ROOT: prints all dependencies of the crate's files, each with its path.
layers.py --order CRATE_ROOT: prints the files from the lowest to the highest.

A path is a dependency on the file that defines its item: re-exports are resolved. A file does not
depend on the modules that it declares or re-exports. Tests and model checks (`#[cfg(test)]`, files
called tests or loom) are left out.
"""
import re
import sys
from collections import defaultdict
from pathlib import Path

ITEM = re.compile(
    r"^\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?(?:default\s+)?(?:const\s+)?(?:async\s+)?(?:unsafe\s+)?(?:extern\s+(?:\"[^\"]*\"\s+)?)?"
    r"(?:fn|struct|enum|union|trait|type|const|static(?:\s+ref|\s+mut)?|macro_rules!)\s+(\w+)",
    re.M,
)
MODULE = re.compile(r"((?:#\[[^\n]*\]\s*)*)(pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*([;{])")
USE = re.compile(r"^\s*(?P<pub>pub(?:\([^)]*\))?\s+)?use\s+(?P<tree>[\w:$*{},\s]+);", re.M)


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def strip(text):
    """Returns the code without comments and string literals; newlines stay."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?c?"(?:\\.|[^"\\])*"|b?\'(?:\\.[^\']*|[^\'\\])\'', re.S)
    return token.sub(blank, text)


def block_end(code, start):
    """Returns the end of the block with its `{` at `start`."""
    depth = 0
    for at in range(start, len(code)):
        depth += (code[at] == "{") - (code[at] == "}")
        if depth == 0:
            return at + 1
    return len(code)


def without_tests(code):
    """Blanks the items under `#[cfg(test)]` and `#[cfg(lowwater_loom)]`."""
    while True:
        found = re.search(r"#\[cfg\((?:all\()?(?:test|lowwater_loom)\b(?![^\]]*not\(any)[^\]]*\]", code)
        if not found:
            return code
        at = found.end()
        # The end of the item is a `;` or a `{` block outside of brackets.
        depth = 0
        while at < len(code):
            c = code[at]
            if c in "([":
                depth += 1
            elif c in ")]":
                depth -= 1
            elif c == ";" and depth == 0:
                at += 1
                break
            elif c == "{" and depth == 0:
                at = block_end(code, at)
                # A `use {..};`, a match arm or the value of a field may continue after the block.
                break
            elif c in ",}" and depth <= 0:
                break
            at += 1
        code = code[: found.start()] + re.sub(r"[^\n]", " ", code[found.start() : at]) + code[at:]


class File:
    def __init__(self, path, module):
        self.path, self.module = path, module
        # The path of a visibility is no dependency.
        self.code = without_tests(re.sub(r"pub\(in [^)]*\)", "pub", strip(path.read_text())))
        self.children, self.inline, self.names = {}, {}, {}


class Crate:
    def __init__(self, root):
        self.files, self.modules = [], {}
        self.root = root
        self.load(root, (), root.parent)

    def load(self, path, module, folder):
        file = File(path, module)
        self.files.append(file)
        self.read(file, file.code, module, folder)

    def read(self, file, code, module, folder):
        """Reads a module: that of a file, or an inline one."""
        self.modules[module] = {"file": file, "items": set(), "uses": {}, "globs": [], "paths": []}
        this = self.modules[module]
        for m in reversed(list(MODULE.finditer(code))):
            name = m.group(3)
            if m.group(4) == "{":
                end = block_end(code, m.end() - 1)
                self.read(file, code[m.end() : end - 1], module + (name,), folder / name)
                code = code[: m.start()] + re.sub(r"[^\n]", " ", code[m.start() : end]) + code[end:]
            elif name not in ("tests", "loom"):
                given = re.search(r'#\[path = "([^"]+)"\]', file.path.read_text()[: m.end()].rsplit("\n", 2)[-2] if "path" in m.group(1) else "")
                options = [folder / f"{name}.rs", folder / name / "mod.rs"]
                if given:
                    options.insert(0, file.path.parent / given.group(1))
                for option in options:
                    if option.exists():
                        self.load(option, module + (name,), folder / name)
                        break
                code = code[: m.start()] + re.sub(r"[^\n]", " ", code[m.start() : m.end()]) + code[m.end() :]
        for m in USE.finditer(code):
            for path, name in self.flatten(m.group("tree").strip(), ()):
                if path and path[-1] == "*":
                    this["globs"].append((path[:-1], bool(m.group("pub"))))
                else:
                    # One name may be imported from several places under several configurations.
                    this["uses"].setdefault(name, []).append((path, bool(m.group("pub"))))
        code = USE.sub(blank, code)
        this["items"] = set(ITEM.findall(code))
        found = re.findall(r"(?<![\w:$])((?:\w+::)+\w+)", code)
        this["paths"] = [tuple(p.split("::")) for p in found]

    def flatten(self, tree, prefix):
        tree = tree.strip()
        if tree.startswith("{"):
            depth, start, inner = 0, 1, tree[1 : tree.rindex("}")]
            parts, last = [], 0
            for at, c in enumerate(inner):
                depth += (c == "{") - (c == "}")
                if c == "," and depth == 0:
                    parts.append(inner[last:at])
                    last = at + 1
            parts.append(inner[last:])
            for part in parts:
                if part.strip():
                    yield from self.flatten(part, prefix)
            return
        head, sep, rest = tree.partition("::")
        head = head.strip()
        if sep:
            yield from self.flatten(rest, prefix + (head,) if head else prefix)
            return
        name, _, alias = head.partition(" as ")
        name, alias = name.strip(), alias.strip()
        path = prefix if name == "self" else prefix + (name,)
        yield path, alias or path[-1]

    def absolute(self, path, module, seen=frozenset()):
        """Returns the path from the crate's root; None if its item is in another crate."""
        head = path[0]
        if (module, head) in seen:
            return None
        if head in ("crate", "$crate"):
            return path[1:]
        if head == "self":
            return module + path[1:]
        if head == "super":
            up = 0
            while up < len(path) and path[up] == "super":
                up += 1
            return module[:-up] + path[up:]
        this = self.modules[module]
        if module + (head,) in self.modules:
            return module + path
        if head in this["uses"]:
            for target, _ in this["uses"][head]:
                found = self.absolute(target, module, seen | {(module, head)})
                if found is not None:
                    return found + path[1:]
        return None

    def resolve(self, path, seen=frozenset()):
        """Returns the files that define the item of an absolute path."""
        if path in self.modules:
            return {self.modules[path]["file"]}
        for cut in range(len(path) - 1, -1, -1):
            module = path[:cut]
            if module in self.modules:
                break
        key = (module, path[cut : cut + 1])
        if key in seen:
            return set()
        seen = seen | {key}
        this = self.modules[module]
        name, rest = path[cut], path[cut + 1 :]
        if name in this["items"]:
            return {this["file"]}
        found = set()
        for target, _ in this["uses"].get(name, []):
            there = self.absolute(target, module)
            if there is not None:
                found |= self.resolve(there + rest if there in self.modules or not rest else there, seen)
        if found or name in this["uses"]:
            return found
        for target, _ in this["globs"]:
            there = self.absolute(target, module)
            if there is not None:
                found |= self.resolve(there + path[cut:], seen)
        return found

    def edges(self):
        edges = defaultdict(dict)
        for module, this in self.modules.items():
            file = this["file"]
            wanted = [(p, pub) for ps in this["uses"].values() for p, pub in ps if self.absolute(p, module) not in self.modules]
            wanted += [(p, pub) for p, pub in this["globs"]]
            wanted += [(p, False) for p in this["paths"]]
            for path, public in wanted:
                there = self.absolute(path, module) if path else None
                if there is None or not there:
                    continue
                if public:
                    continue  # A re-export is no dependency.
                for target in self.resolve(there):
                    if target is not file and not (there in self.modules and target.module == module + there[-1:]):
                        edges[file].setdefault(target, "::".join(path))
        return edges


def cycles(files, edges):
    """Returns the strongly connected components with more than one file (Tarjan's algorithm), and all
    files from the lowest to the highest."""
    index, low, stack, on, result, order = {}, {}, [], set(), [], []
    sys.setrecursionlimit(10_000)

    def visit(f):
        index[f] = low[f] = len(index)
        stack.append(f)
        on.add(f)
        for g in edges.get(f, {}):
            if g not in index:
                visit(g)
                low[f] = min(low[f], low[g])
            elif g in on:
                low[f] = min(low[f], index[g])
        if low[f] == index[f]:
            group = []
            while True:
                g = stack.pop()
                on.discard(g)
                group.append(g)
                if g is f:
                    break
            order.extend(group)
            if len(group) > 1:
                result.append(group)

    for f in files:
        if f not in index:
            visit(f)
    return result, order


def main():
    words = sys.argv[1:]
    option = words.pop(0) if words and words[0].startswith("--") else ""
    bad = 0
    for root in map(Path, words):
        crate = Crate(root)
        edges = crate.edges()
        show = lambda f: str(f.path.relative_to(root.parent))
        groups, order = cycles(crate.files, edges)
        if option == "--edges":
            for f in crate.files:
                for g, path in edges.get(f, {}).items():
                    print(f"{show(f)} -> {show(g)}  ({path})")
        elif option == "--order":
            for f in order:
                print(show(f))
        for group in groups:
            bad += 1
            print(f"{root}: a cycle of {len(group)} files:")
            for f in sorted(group, key=show):
                for g, path in edges[f].items():
                    if g in group:
                        print(f"    {show(f)} -> {show(g)}  ({path})")
        print(f"{root}: {len(crate.files)} files, {sum(map(len, edges.values()))} dependencies, {len(groups)} cycles")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
