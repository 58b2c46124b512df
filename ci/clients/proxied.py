#!/usr/bin/env python3
"""Writes and reads 10,000 keys through a proxy with three servers, and kills the third server.

    proxied.py PROXY PORT PORT PORT PID-OF-THE-THIRD
"""

import os
import signal
import socket
import sys
import time

KEYS = ["tenant%d:key%d" % (n % 50, n) for n in range(10_000)]


def value(key):
    return (key * (1 + len(key) * 7 % 40)).encode()


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.replies = self.socket.makefile("rb")

    def set(self, key):
        self.socket.sendall(b"set %s 0 0 %d\r\n%s\r\n" % (key.encode(), len(value(key)), value(key)))
        line = self.replies.readline()
        if line != b"STORED\r\n":
            raise AssertionError("a set was answered with %r" % line)

    def get(self, key):
        """Returns the value; None if the key is missing, False if its server is gone."""
        self.socket.sendall(b"get %s\r\n" % key.encode())
        line = self.replies.readline()
        if line == b"END\r\n":
            return None
        if line.startswith(b"SERVER_ERROR"):
            return False
        words = line.split()
        if words[:1] != [b"VALUE"]:
            raise AssertionError("a get was answered with %r" % line)
        data = self.replies.read(int(words[3]) + len(b"\r\nEND\r\n"))
        return data[:int(words[3])]

    def items(self):
        self.socket.sendall(b"stats\r\n")
        items = None
        for line in self.replies:
            if line == b"END\r\n":
                return items
            if line.startswith(b"STAT curr_items "):
                items = int(line.split()[2])


def main():
    proxy, *servers, third = map(int, sys.argv[1:])
    client = Client(proxy)
    for key in KEYS:
        client.set(key)
    for key in KEYS:
        if client.get(key) != value(key):
            raise AssertionError("%s did not come back" % key)
    items = [Client(port).items() for port in servers]
    if sum(items) != len(KEYS) or min(items) == 0:
        raise AssertionError("the servers hold %s items" % items)
    print("%d keys set and read back; by server: %s" % (len(KEYS), items))

    os.kill(third, signal.SIGKILL)
    time.sleep(0.2)
    served = dead = 0
    client = Client(proxy)
    for key in KEYS:
        got = client.get(key)
        if got is False:
            dead += 1
        elif got == value(key):
            served += 1
        else:
            raise AssertionError("%s of a living server is missing" % key)
    if served != items[0] + items[1] or dead != items[2]:
        raise AssertionError("served %d, failed %d, of %s" % (served, dead, items))
    print("one server killed: %d keys of the others served, %d of its own answered with an error" % (served, dead))


if __name__ == "__main__":
    main()
