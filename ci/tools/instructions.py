#!/usr/bin/env python3
"""Counts all instructions and the locked instructions of a callgrind file with addresses.

instructions.py FILE OPERATIONS: prints both counts, divided by OPERATIONS.

An instruction is locked if it has a `lock` prefix, or is an `xchg` with memory, which locks without a
prefix.
"""
import re
import subprocess
import sys

# `ob=(1) /path` names an object, `ob=(1)` refers to it again.
NAME = re.compile(r"(?:ob|cob)=\((\d+)\)(?: (.*))?$")
# An address, absolute or relative to the last one, the line, and the count.
COST = re.compile(r"(0x[0-9a-f]+|[+-]\d+|\*) (?:[+-]?\d+|\*)(?: (\d+))?$")
LOCKED = re.compile(r"^\s*([0-9a-f]+):\s+(?:[0-9a-f]{2} )+\s+(?:lock\b|xchg\s.*\()")


def counts(path):
    """Returns the number of executions of each instruction, by object and address."""
    objects, ran, current, address, is_call = {}, {}, None, 0, False
    for line in open(path):
        line = line.rstrip("\n")
        if match := NAME.match(line):
            number, name = match.groups()
            objects[number] = name or objects.get(number)
            if line.startswith("ob="):
                current = objects[number]
        elif line.startswith("calls="):
            is_call = True
        elif match := COST.match(line):
            position, count = match.groups()
            if position.startswith("0x"):
                address = int(position, 16)
            elif position != "*":
                address += int(position)
            # The line after `calls=` has the cost of the called function, which is counted there.
            if not is_call:
                key = (current, address)
                ran[key] = ran.get(key, 0) + int(count or 0)
            is_call = False
    return ran


def locked_addresses(path):
    text = subprocess.run(["objdump", "-d", path], capture_output=True, text=True, check=True).stdout
    return {int(match.group(1), 16) for match in map(LOCKED.match, text.splitlines()) if match}


def main():
    path, operations = sys.argv[1], int(sys.argv[2])
    ran = counts(path)
    if not sum(ran.values()):
        sys.exit(f"{path}: no instruction was counted: the program did not call the toggled function")
    files = {name for name, _ in ran if name and name.startswith("/")}
    locked = {(name, address) for name in files for address in locked_addresses(name)}
    print(f"{sum(ran.values()) / operations:.0f} {sum(n for key, n in ran.items() if key in locked) / operations:.1f}")


main()
