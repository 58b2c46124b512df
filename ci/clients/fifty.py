#!/usr/bin/env python3
"""Checks a server with pymemcache and 50 concurrent connections: fifty.py HOST PORT"""

import sys
import threading
import time

from pymemcache.client.base import Client

CONNECTIONS = 50
ROUNDS = 40


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def one(number, address, start):
    """Runs every operation of a client on keys of its own, then on keys that all clients share."""
    client = Client(address, timeout=60, connect_timeout=60)
    tenant = "tenant%d:" % (number % 7)
    key = tenant + "key%d" % number
    start.wait()
    for round in range(ROUNDS):
        value = b"%d-%d " % (number, round) * (1 + round * 40)
        check(client.set(key, value, noreply=False), "set")
        check(client.get(key) == value, "get returns the value that was set")
        check(not client.add(key, b"x", noreply=False), "add finds it there")
        check(client.replace(key, b"7", noreply=False), "replace")
        check(client.append(key, b"8", noreply=False) and client.prepend(key, b"6", noreply=False), "append, prepend")
        check(client.get(key) == b"678", "joined")
        check(client.incr(key, 22) == 700 and client.decr(key, 1) == 699, "incr, decr")
        check(client.decr(key, 690) == 9 and client.get(key) == b"9  ", "decr keeps the length")
        old, unique = client.gets(key)
        check(client.cas(key, b"new", unique, noreply=False) is True, "cas with the number it has")
        check(client.cas(key, b"newer", unique, noreply=False) is False, "cas with an old number")
        check(client.cas(key + "-none", b"x", unique, noreply=False) is None, "cas of nothing")
        check(client.touch(key, 1000, noreply=False), "touch")
        check(client.delete(key, noreply=False) and client.get(key) is None, "delete")
        check(not client.delete(key, noreply=False), "delete of nothing")
        many = {"%smany-%d-%d" % (tenant, number, i): b"%d" % i for i in range(50)}
        check(client.set_many(many, noreply=False) == [], "set_many")
        check(client.get_many(list(many)) == many, "get_many")
        check(client.delete_many(list(many), noreply=False), "delete_many")
        client.set(key, b"silent", noreply=True)
        check(client.get(key) == b"silent", "a silent set is done before the next command")
        client.incr("shared:count", 1)
        while True:
            old, unique = client.gets("shared:cas")
            if client.cas("shared:cas", b"%d" % (int(old) + 1), unique, noreply=False):
                break
    client.close()


def in_time(steps):
    """Returns the result of steps that must end within a second, and are repeated if a busy machine has delayed them."""
    for _ in range(50):
        started = time.monotonic()
        result = steps()
        if time.monotonic() - started < 0.9:
            return result
    raise AssertionError("no steps end within a second")


def expiry(client):
    def values():
        client.set("soon", b"x", expire=1, noreply=False)
        client.set("later", b"x", expire=100, noreply=False)
        client.set("date", b"x", expire=int(time.time()) + 2, noreply=False)
        client.set("past", b"x", expire=-1, noreply=False)
        client.set("touched", b"x", noreply=False)
        client.touch("touched", 1, noreply=False)
        before = [client.get(key) for key in ("past", "soon", "later", "date", "touched")]
        client.append("soon", b"y", noreply=False)
        return before, client.get("soon")

    def flushed():
        client.set("flushed", b"x", noreply=False)
        client.flush_all(delay=1, noreply=False)
        return client.get("flushed")

    (past, *others), joined = in_time(values)
    check(past is None, "a negative time is over at once")
    check(others == [b"x"] * 4, "not yet over")
    check(joined == b"xy", "append keeps the time")
    time.sleep(3.1)
    check(client.get("soon") is None and client.get("date") is None and client.get("touched") is None, "over")
    check(client.get("later") == b"x", "still there")
    check(in_time(flushed) == b"x", "flush_all waits for its time")
    time.sleep(2.1)
    check(client.get("flushed") is None, "flush_all when its time has come")


def main():
    address = (sys.argv[1], int(sys.argv[2]))
    client = Client(address, timeout=60)
    client.flush_all(noreply=False)
    client.set("shared:count", b"0", noreply=False)
    client.set("shared:cas", b"0", noreply=False)
    before = client.stats()
    start = threading.Barrier(CONNECTIONS)
    failures = []

    def guarded(number):
        try:
            one(number, address, start)
        except BaseException as failure:
            failures.append((number, failure))

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(CONNECTIONS)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(not failures, failures[:3])
    seconds = time.monotonic() - started
    total = CONNECTIONS * ROUNDS
    check(client.get("shared:count") == b"%d" % total, "incr of all connections adds up")
    check(client.get("shared:cas") == b"%d" % total, "cas of all connections adds up")

    stats = client.stats()
    commands = sum(stats[b"cmd_" + name] - before[b"cmd_" + name] for name in (b"get", b"set", b"touch"))
    check(stats[b"cas_hits"] - before[b"cas_hits"] == 2 * total, "cas_hits")
    check(stats[b"get_hits"] + stats[b"get_misses"] == stats[b"cmd_get"], "each get is a hit or a miss")
    check(stats[b"limit_maxbytes"] == 64 << 20 and 0 < stats[b"bytes"] <= 64 << 20, "bytes")
    check(stats[b"curr_connections"] >= 1 and stats[b"total_connections"] >= CONNECTIONS, "connections")
    for name in b"pid uptime time version pointer_size curr_items total_items threads evictions".split():
        check(name in stats, name)
    check(client.stats("settings")[b"item_size_max"] == 1 << 20, "stats settings")
    tenants = client.stats("tenants")
    check(tenants[b"shared:items"] == 2 and tenants[b"tenant1:hits"] > 0, "stats tenants")
    expiry(client)
    print("%d connections, %d get, set and touch commands in %.1f s; %d increments and %d cas none lost"
          % (CONNECTIONS, commands, seconds, total, total))


if __name__ == "__main__":
    main()
