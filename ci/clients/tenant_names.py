"""Stores a value under each of 70,000 tenant names, as long as names can be.

Clients choose the names, and a tenant is never removed: all of them must fit beside the budget.
"""

import socket
import sys

from stores import store

NAMES = 70_000
# With the delimiter and the rest of the key, `:k`: memcached's longest key.
NAME_BYTES = 248
VALUE = b"v" * 2_000

with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as client:
    replies = client.makefile("rb")
    for first in range(0, NAMES, 500):
        names = (b"%0*d" % (NAME_BYTES, n) for n in range(first, first + 500))
        store(client, replies, [b"set %s:k 0 0 2000\r\n%s\r\n" % (name, VALUE) for name in names])
print(f"{NAMES} names of {NAME_BYTES} bytes")
