#!/usr/bin/env python3
"""Checks by `stats tenants` how tenants share 64 MiB of memory: sharing.py HOST PORT

The server must have the limits `capped max=2M` and `trimmed high=4M`.
"""

import socket
import sys
import time

from stores import store

MIB = 1 << 20
BUDGET = 64 * MIB
VALUE = b"v" * 10_000


class Client:
    def __init__(self, address):
        self.socket = socket.create_connection(address, timeout=60)
        self.replies = self.socket.makefile("rb")

    def write(self, tenant, megabytes):
        """Writes `megabytes` MB of values, each under a key of its own; each set must be stored."""
        count = megabytes * 1_000_000 // len(VALUE)
        for first in range(0, count, 50):
            keys = [b"%s:%d" % (tenant, n) for n in range(first, min(first + 50, count))]
            store(self.socket, self.replies, [b"set %s 0 0 %d\r\n%s\r\n" % (key, len(VALUE), VALUE) for key in keys])

    def bytes_of(self, *tenants):
        self.socket.sendall(b"stats tenants\r\n")
        stats = {}
        for line in iter(self.replies.readline, b"END\r\n"):
            _, name, value = line.split()
            stats[name] = value
        return [int(stats[tenant + b":bytes"]) for tenant in tenants]


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def shown(*sizes):
    return " and ".join("%.1f MiB" % (size / MIB) for size in sizes)


def main():
    client = Client((sys.argv[1], int(sys.argv[2])))
    client.write(b"first", 100)
    [first] = client.bytes_of(b"first")
    check(0.85 * BUDGET < first <= BUDGET, "a tenant alone has " + shown(first))
    print("a tenant alone fills the memory: " + shown(first))

    # The second tenant writes the same keys again and so has a use for memory; the first has none.
    for _ in range(5):
        client.write(b"second", 50)
    first, second = client.bytes_of(b"first", b"second")
    check(second > BUDGET / 2 and first < BUDGET / 2, "idle and busy tenant have " + shown(first, second))
    print("the next tenant borrows the idle bytes of the first: " + shown(first, second))

    client.write(b"capped", 20)
    [capped] = client.bytes_of(b"capped")
    check(0 < capped <= 2 * MIB, "a tenant with max=2M has " + shown(capped))
    print("a tenant with max=2M was written 20 MB and has " + shown(capped))

    client.write(b"trimmed", 20)
    end = time.monotonic() + 60
    while True:
        [trimmed] = client.bytes_of(b"trimmed")
        if trimmed <= 4.5 * MIB or time.monotonic() > end:
            break
        time.sleep(0.05)
    check(0 < trimmed <= 4.5 * MIB, "a tenant with high=4M has " + shown(trimmed))
    print("a tenant with high=4M was written 20 MB and has " + shown(trimmed))


if __name__ == "__main__":
    main()
