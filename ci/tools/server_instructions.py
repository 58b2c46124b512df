#!/usr/bin/env python3
"""Counts the instructions that the server executes for a request.

server_instructions.py PROGRAM FOLDER VERB DEPTH BYTES: starts PROGRAM under callgrind twice, sends a
smaller and a larger number of requests, DEPTH at a time, with values of BYTES bytes, and prints the
difference of the counts for a request. FOLDER is for callgrind's files.

Keys and their order are fixed. The cache holds all values, so every `get` hits and every `set`
overwrites.
"""
import re
import socket
import subprocess
import sys

KEYS = 1000
FEW, MANY = 2048, 2048 + 8192


def lines(stream, expected, count):
    for _ in range(count):
        line = stream.readline()
        if not line.startswith(expected):
            sys.exit(f"the server answered {line!r}, not {expected!r}")


def count(program, folder, verb, depth, size, requests):
    """Returns the instructions of a server that answers `requests` requests, and starts and ends."""
    out = f"{folder}/server-{verb}-{depth}-{size}.out"
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", program, "-p0", "-m64", "-t1"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        host, port = server.stdout.readline().decode().split()[-1].rsplit(":", 1)
        client = socket.create_connection((host, int(port)))
        client.settimeout(60)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        replies = client.makefile("rb")
        value = b"v" * size
        store = lambda key: b"set key-%016d 0 0 %d\r\n%s\r\n" % (key, size, value)
        for key in range(KEYS):
            client.sendall(store(key))
            lines(replies, b"STORED", 1)
        for first in range(0, requests, depth):
            keys = [number * 7 % KEYS for number in range(first, first + depth)]
            if verb == "set":
                client.sendall(b"".join(map(store, keys)))
                lines(replies, b"STORED", depth)
                continue
            client.sendall(b"".join(b"get key-%016d\r\n" % key for key in keys))
            for _ in keys:
                lines(replies, b"VALUE", 1)
                replies.read(size + 2)
                lines(replies, b"END", 1)
    finally:
        server.terminate()
        server.wait()
    return int(re.search(r"^(?:summary|totals): (\d+)", open(out).read(), re.MULTILINE)[1])


def main():
    program, folder, verb, depth, size = sys.argv[1:]
    few, many = (count(program, folder, verb, int(depth), int(size), requests) for requests in (FEW, MANY))
    print(f"{(many - few) / (MANY - FEW):.0f}")


main()
