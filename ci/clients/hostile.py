#!/usr/bin/env python3
"""Runs misbehaving clients and one well-behaved client: hostile.py HOST PORT PID

None of them may delay the well-behaved client, and the memory that they take in the server is bounded.
"""

import random
import socket
import sys
import threading


def connect(address):
    return socket.create_connection(address, timeout=60)


def noise(address, seed):
    source = random.Random(seed)
    words = [b"get", b"set", b"cas", b"incr", b"k", b"0", b"5", b"-1", b"99999999999999999999", b"\r\n", b"\n", b" ", b"\0",
             b"noreply", b"set k 0 0 3\r\nab", b"set k 0 0 2147483645\r\n", b"\xff" * 30, b"ms k 3 T0 c\r\nab", b"mg", b"md", b"ma", b"v", b"b", b"I", b"Oq", b"N30", b"mn\r\n"]
    with connect(address) as client:
        client.settimeout(0.05)
        for _ in range(200):
            try:
                client.sendall(source.choice([source.randbytes(50), b" ".join(source.choices(words, k=5)) + b"\r\n"]))
                if source.random() < 0.2:
                    client.recv(65536)
            except (BrokenPipeError, ConnectionResetError):
                return
            except TimeoutError:
                pass


def endless_line(address):
    """Gets an error and is disconnected long before it has sent a megabyte."""
    with connect(address) as client:
        try:
            for _ in range(1000):
                client.sendall(b"x" * 65536)
        except (BrokenPipeError, ConnectionResetError):
            return
    raise AssertionError("a line of 64 MB was listened to")


def never_reads(address, key):
    """Requests 2 GB of replies and reads none."""
    client = connect(address)
    client.settimeout(0.5)
    try:
        for _ in range(20):
            client.sendall(b"get %s\r\n" % key * 100)
    except TimeoutError:
        pass
    return client


def resident(pid):
    with open("/proc/%d/status" % pid) as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) // 1024


def main():
    address, pid = (sys.argv[1], int(sys.argv[2])), int(sys.argv[3])
    good = connect(address)
    replies = good.makefile("rb")
    done = threading.Event()
    rounds, failures = [0], []

    def ask(command, expected):
        good.sendall(command)
        got = replies.read(len(expected))
        if got != expected:
            raise AssertionError("%r was answered with %r" % (command, got))

    def well_behaved():
        try:
            while not done.is_set():
                ask(b"set good:k 0 0 5\r\nvalue\r\n", b"STORED\r\n")
                ask(b"get good:k\r\n", b"VALUE good:k 0 5\r\nvalue\r\nEND\r\n")
                rounds[0] += 1
        except BaseException as failure:
            failures.append(failure)

    big = b"big" * 300_000
    ask(b"set big 0 0 %d\r\n%s\r\n" % (len(big), big), b"STORED\r\n")
    thread = threading.Thread(target=well_behaved)
    thread.start()
    before = resident(pid)
    threads = [threading.Thread(target=noise, args=(address, seed)) for seed in range(20)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for _ in range(5):
        endless_line(address)
    held = [never_reads(address, b"big") for _ in range(20)]
    # Each client announces a megabyte and sends hardly a byte.
    for _ in range(200):
        held.append(connect(address))
        held[-1].sendall(b"set slow 0 0 1000000\r\nx")
    after = resident(pid)
    for client in held:
        client.close()
    done.set()
    thread.join()
    if failures:
        raise failures[0]
    if after - before > 64:
        raise AssertionError("resident memory grew from %d to %d MB" % (before, after))
    print("a client beside them was served %d times; resident memory %d MB before, %d MB with 220 of them held"
          % (rounds[0], before, after))


if __name__ == "__main__":
    main()
