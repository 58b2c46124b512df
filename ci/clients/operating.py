#!/usr/bin/env python3
"""The scenarios of docs/OPERATING.md: clients with consistent hashing over several servers.

    operating.py spread SERVERS             the keys are spread evenly
    operating.py lost DEAD SERVERS          one server is gone: the keys of the others are served
    operating.py back SERVERS               all keys are there again
    operating.py grown OLD NEW              a server more: few keys move
    operating.py reread SERVERS             after misses are filled again, all keys are there

SERVERS, OLD and NEW are lists of ports of 127.0.0.1 with commas, DEAD is a port. Needs pymemcache.
"""

import sys

from pymemcache.client.hash import HashClient

KEYS = ["shop:key%d" % n for n in range(9_000)]


def value(key):
    return (key * (1 + len(key) * 7 % 20)).encode()


def client(ports, **options):
    servers = [("127.0.0.1", int(port)) for port in ports.split(",")]
    return HashClient(servers, timeout=60, connect_timeout=60, **options)


def hits(client, keys):
    """Returns the number of keys with a value; a wrong value is an error."""
    found = 0
    for key in keys:
        got = client.get(key)
        if got is not None:
            assert got == value(key), "%s has the value of another key" % key
            found += 1
    return found


def fill(client, keys):
    for key in keys:
        if client.get(key) is None:
            assert client.set(key, value(key), noreply=False), key


def owners(ports):
    """Returns the server of each key, as the clients' hashing gives it."""
    hashing = client(ports).hasher
    return {key: hashing.get_node(key) for key in KEYS}


def spread(ports):
    fill(client(ports), KEYS)
    count = len(ports.split(","))
    shares = [0] * count
    names = {}
    for node in owners(ports).values():
        shares[names.setdefault(node, len(names))] += 1
    fair = len(KEYS) / count
    assert all(0.9 * fair < share < 1.1 * fair for share in shares), shares
    assert hits(client(ports), KEYS) == len(KEYS)
    print("%d keys on %d servers: %s" % (len(KEYS), count, shares))


def lost(dead, ports):
    # Errors of the dead server are misses; it is not asked again during the test.
    survivor = client(ports, ignore_exc=True, retry_attempts=0, dead_timeout=600)
    owner = owners(ports)
    kept = [key for key in KEYS if not owner[key].endswith(":" + dead)]
    assert 0.6 * len(KEYS) < len(kept) < 0.75 * len(KEYS), len(kept)
    for key in KEYS[:50]:
        survivor.get(key)
    found = hits(survivor, kept)
    assert found == len(kept), "%d of %d keys of the other servers" % (found, len(kept))
    print("one of three is gone: all %d keys of the other two are served" % found)


def back(ports):
    found = hits(client(ports), KEYS)
    assert found == len(KEYS), "%d of %d" % (found, len(KEYS))
    print("all %d keys are there" % found)


def grown(old, new):
    before, after = owners(old), owners(new)
    moved = sum(before[key] != after[key] for key in KEYS)
    part = 1 / len(new.split(","))
    assert 0.8 * part < moved / len(KEYS) < 1.2 * part, moved
    found = hits(client(new), KEYS)
    assert found == len(KEYS) - moved, "%d found, %d moved" % (found, moved)
    print("a server more: %d of %d keys miss once" % (moved, len(KEYS)))


def reread(ports):
    fill(client(ports), KEYS)
    back(ports)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
