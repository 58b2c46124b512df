#!/usr/bin/env python3
"""Checks logins, listeners, sockets and limits of running servers.

    doors.py login HOST:PORT HOST:PORT     the same commands for memcached -Y and lowwater-server: equal replies
    doors.py tags PORT PORT                the common port, and the port of the tenant `shop`
    doors.py socket PATH                   a unix socket
    doors.py full PORT                     a server of 8 MB with -M
    doors.py limits PORT                   a server of 64 MB; its budget and tenants change while clients write
"""

import socket
import sys
import threading
import time

from stores import store


class Client:
    def __init__(self, where):
        if isinstance(where, str) and where.startswith("/"):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(60)
            self.socket.connect(where)
        else:
            host, _, port = str(where).rpartition(":")
            self.socket = socket.create_connection((host or "127.0.0.1", int(port)), timeout=60)
        self.replies = self.socket.makefile("rb")

    def ask(self, command, lines=1):
        self.socket.sendall(command)
        return b"".join(self.replies.readline() for _ in range(lines))

    def expect(self, command, expected):
        got = self.ask(command, expected.count(b"\r\n"))
        if got != expected:
            raise AssertionError("%r was answered with %r, not %r" % (command, got, expected))

    def set(self, key, value):
        return self.ask(b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value))

    def stats(self, command=b"stats"):
        self.socket.sendall(command + b"\r\n")
        return dict(line.split()[1:3] for line in iter(self.replies.readline, b"END\r\n"))


def login(reference, subject):
    conversation = [b"get k\r\n", b"version\r\n", b"set a 0 0\r\n", b"add a 0 0 11\r\n", b"set a 0 0 x\r\n",
                    b"set a 0 0 4\r\nshop\r\n", b"set a 0 0 10\r\nshop wrong\r\n", b"set a 0 0 12\r\nother secret\r\n",
                    b"set a 0 0 11\r\nshop secretXY", b"mn\r\n", b"set a 9 9 11 noreply\r\nshop secret\r\n", b"get k\r\n",
                    b"set k 0 0 1\r\nx\r\n", b"mn\r\n"]
    first, second = Client(reference), Client(subject)
    for words in conversation:
        expected, got = first.ask(words), second.ask(words)
        if expected != got:
            raise AssertionError("%r: %r from memcached, %r from us" % (words, expected, got))
    print("a login in %d lines, equal byte for byte" % len(conversation))


def tags(everybody, tenant):
    all, shop = Client(everybody), Client(tenant)
    shop.expect(b"set k 0 0 1\r\nx\r\n", b"STORED\r\n")
    all.expect(b"get k shop:k\r\n", b"VALUE shop:k 0 1\r\nx\r\nEND\r\n")
    shop.expect(b"flush_all\r\n", b"CLIENT_ERROR not allowed on a tenant's own connection\r\n")
    all.expect(b"flush_all\r\n", b"OK\r\n")
    shop.expect(b"mg k v\r\n", b"EN\r\n")
    print("a tagged listener leads to its tenant's keys and no others")


def unix_socket(path):
    client = Client(path)
    client.expect(b"set k 0 0 1\r\nx\r\nget k\r\n", b"STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n")
    print("a unix socket serves")


def full(port):
    client = Client(port)
    stored = 0
    while client.set(b"k%d" % stored, b"v" * 10_000) == b"STORED\r\n":
        stored += 1
    reply = client.set(b"more", b"v" * 10_000)
    if reply != b"SERVER_ERROR out of memory storing object\r\n" or stored < 600:
        raise AssertionError("%d values stored, then %r" % (stored, reply))
    for n in range(stored):
        client.expect(b"mg k%d\r\n" % n, b"HD\r\n")
    stats = client.stats()
    if stats[b"evictions"] != b"0":
        raise AssertionError("%s evictions with -M" % stats[b"evictions"])
    print("with -M: %d values of 10 kB in 8 MB, then an error, and none was dropped" % stored)


def limits(port):
    failures, done, sets = [], threading.Event(), [0]

    def write(tenant):
        try:
            client, n = Client(port), 0
            while not done.is_set():
                store(client.socket, client.replies, [b"set %s:%d 0 0 5000\r\n%s\r\n" % (tenant, n % 20_000, b"v" * 5000)])
                n += 1
                sets[0] += 1
        except BaseException as failure:
            failures.append(failure)

    writers = [threading.Thread(target=write, args=(tenant,)) for tenant in (b"a", b"b")]
    for writer in writers:
        writer.start()
    client = Client(port)
    below = 0.0
    for megabytes in (16, 48, 9, 64, 24):
        client.expect(b"cache_memlimit %d\r\n" % megabytes, b"OK\r\n")
        changed = time.monotonic()
        while int(client.stats()[b"bytes"]) > megabytes << 20:
            if time.monotonic() - changed > 60:
                raise AssertionError("the budget was not reached in 60 s")
        below = max(below, time.monotonic() - changed)
        time.sleep(0.2)
    client.expect(b"tenant set a max=2M\r\n", b"OK\r\n")
    changed = time.monotonic()
    while int(client.stats(b"stats tenants")[b"a:bytes"]) > 2 << 20:
        if time.monotonic() - changed > 60:
            raise AssertionError("a tenant's max was not reached in 60 s")
    tenant = time.monotonic() - changed
    done.set()
    for writer in writers:
        writer.join()
    if failures:
        raise failures[0]
    print("under %d sets: five budgets, each reached in %.0f ms at most; a tenant's new max in %.0f ms"
          % (sets[0], below * 1000, tenant * 1000))


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    {"login": login, "tags": tags, "socket": unix_socket, "full": full, "limits": limits}[command](*arguments)
