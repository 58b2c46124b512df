#!/usr/bin/env python3
"""Lists the source lines at which an object file can panic: panics.py OBJECT ROOT.

A panic with a location passes a `Location` of 24 bytes: the pointer to the file's name, the length of
the name, line and column. The locations that are left after optimization are in read-only data, with
a relocation for the pointer. For each of them the file, relative to ROOT, and the text of the line
are printed; not the line's number, which changes more often than its text.
"""
import struct
import subprocess
import sys

obj, root = sys.argv[1], sys.argv[2].rstrip("/") + "/"
data = open(obj, "rb").read()
assert data[:4] == b"\x7fELF" and data[4] == 2, "a 64-bit object file"
shoff, = struct.unpack_from("<Q", data, 0x28)
shentsize, shnum, shstrndx = struct.unpack_from("<HHH", data, 0x3A)
sections = []
for i in range(shnum):
    name, kind, flags, addr, off, size, link, info, align, entsize = struct.unpack_from("<IIQQQQIIQQ", data, shoff + i * shentsize)
    sections.append(dict(name=name, kind=kind, flags=flags, off=off, size=size, link=link, info=info))
strtab = sections[shstrndx]
def text(table, at):
    start = table["off"] + at
    return data[start:data.index(b"\0", start)].decode()
symtab = next(s for s in sections if s["kind"] == 2)
symbols = []
for i in range(symtab["size"] // 24):
    name, info, other, shndx, value, size = struct.unpack_from("<IBBHQQ", data, symtab["off"] + i * 24)
    symbols.append((shndx, value))

found = set()
for rela in sections:
    if rela["kind"] != 4:
        continue
    target = sections[rela["info"]]
    if target["flags"] & 4 or not target["flags"] & 2:  # Code, or not loaded.
        continue
    for i in range(rela["size"] // 24):
        at, info, addend = struct.unpack_from("<QQq", data, rela["off"] + i * 24)
        if info & 0xFFFFFFFF != 1 or at + 24 > target["size"]:  # R_X86_64_64
            continue
        shndx, value = symbols[info >> 32]
        if not 0 < shndx < shnum or sections[shndx]["kind"] == 8:
            continue
        length, line, column = struct.unpack_from("<QII", data, target["off"] + at + 8)
        start = value + addend
        if not 4 < length < 300 or not 0 < line < 100000 or not 0 < column < 1000 or start + length > sections[shndx]["size"]:
            continue
        name = data[sections[shndx]["off"] + start:][:length]
        if not name.endswith(b".rs") or not name.isascii():
            continue
        found.add((name.decode(), line))

lines = set()
for name, line in sorted(found):
    try:
        code = open(name if name.startswith("/") else root + name).read().splitlines()[line - 1].strip()
    except (OSError, IndexError):
        code = ""
    short = name.removeprefix(root)
    for mark in ("/library/", "/registry/src/"):
        if mark in short:
            short = short[short.index(mark) + len(mark):]
            if mark == "/registry/src/":
                short = short[short.index("/") + 1:]
    lines.add(f"{short}: {code}")
print("\n".join(sorted(lines)))
