#!/usr/bin/env python3
"""Attacks a lowwater-server with hostile clients: fire.py BINARY [--megabytes N] [--idle N]

One client is well behaved from the beginning to the end and must always be served; all other clients
are hostile. The memory of the server must stay bounded, no thread may panic, and each server that is
started here must exit with status 0 after SIGTERM.
"""

import argparse
import os
import random
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from stores import store

HOST = "127.0.0.1"
# A time limit for all waits, long enough for a busy machine.
PATIENCE = 30
# Tests of the server hold the exact bound.
CLOSE_TIME_MAX = 10


def check(good, text):
    if not good:
        raise AssertionError(text)


class Server:
    """A server that is started here, and always stopped."""

    def __init__(self, binary, *flags, stderr=None, stdout=None, port=None):
        self.log = tempfile.TemporaryFile() if stderr is None else stderr
        self.process = subprocess.Popen([binary, "-p", str(port or 0), *flags], stderr=self.log, stdout=stdout or subprocess.PIPE)
        self.http = None
        self.port = port
        if port is None:
            try:
                self.greeted("--http" in flags)
            except BaseException:
                self.process.kill()
                raise

    def greeted(self, http):
        """Reads the addresses that the server prints on stdout."""
        first = self.process.stdout.readline().decode()
        self.port = int(first.rsplit(":", 1)[1])
        if http:
            line = next(line for line in iter(self.process.stdout.readline, b"") if line.startswith(b"http "))
            self.http = int(re.search(rb":(\d+)/", line)[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def connect(self, timeout=PATIENCE):
        return socket.create_connection((HOST, self.port), timeout=timeout)

    def client(self):
        return Client(self.connect())

    def resident(self):
        with open("/proc/%d/status" % self.process.pid) as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024

    def files(self):
        return len(os.listdir("/proc/%d/fd" % self.process.pid))

    def stop(self):
        """Sends SIGTERM; expects exit status 0 in seconds, and no panic in the output."""
        started = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE)
        took = time.monotonic() - started
        check(code == 0, "SIGTERM: exit status %d" % code)
        check(took < CLOSE_TIME_MAX, "SIGTERM: closing took %.1f s" % took)
        if self.log.readable() and self.log.seekable():
            self.log.seek(0)
            said = self.log.read()
            check(b"panicked" not in said, "a panic: %r" % said[-2000:])
        return took


class Client:
    """A client that compares each reply with the expected one."""

    def __init__(self, sock):
        self.socket = sock
        self.replies = sock.makefile("rb")

    def ask(self, command, *lines):
        self.socket.sendall(command)
        for line in lines:
            got = self.replies.readline()
            check(got == line + b"\r\n", "%r was answered with %r, not %r" % (command[:80], got[:200], line))

    def in_step(self):
        self.ask(b"mn\r\n", b"MN")

    def close(self):
        self.socket.close()


class Behaves(threading.Thread):
    """The well-behaved client: writes and reads all the time, and records the slowest round."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.client, self.done, self.failure = server.client(), threading.Event(), None
        self.rounds, self.slowest = 0, 0.0
        # `low` protects the client's value, so that it is never evicted before the client reads it.
        self.client.ask(b"tenant set good low=1M\r\n", b"OK")

    def run(self):
        try:
            while not self.done.is_set():
                started = time.monotonic()
                value = b"%020d" % self.rounds
                store(self.client.socket, self.client.replies, [b"set good:k 0 0 20\r\n%s\r\n" % value])
                self.client.ask(b"get good:k\r\n", b"VALUE good:k 0 20", value, b"END")
                self.slowest = max(self.slowest, time.monotonic() - started)
                self.rounds += 1
                time.sleep(0.001)
        except BaseException as failure:  # Raised again by `end`, on the main thread.
            self.failure = failure

    def end(self):
        self.done.set()
        self.join(PATIENCE)
        if self.failure:
            raise self.failure
        check(not self.is_alive(), "the client that behaves waits for an answer")
        return "%d rounds, the slowest %.0f ms" % (self.rounds, self.slowest * 1000)

    def is_served(self):
        rounds, until = self.rounds, time.monotonic() + PATIENCE
        while self.rounds < rounds + 3:
            check(self.failure is None and time.monotonic() < until, "the client that behaves is not served: %r" % self.failure)
            time.sleep(0.01)


def reset(sock):
    """Closes the connection with a reset, as after a restart of the client's machine."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def listening(pid):
    """Returns the addresses on which a process listens, from /proc."""
    inodes = set()
    for name in os.listdir("/proc/%d/fd" % pid):
        try:
            inodes.add(os.readlink("/proc/%d/fd/%s" % (pid, name)))
        except OSError:
            pass
    for table in ("tcp", "tcp6", "udp", "udp6"):
        try:
            lines = open("/proc/net/" + table).read().splitlines()[1:]
        except FileNotFoundError:
            continue
        for line in lines:
            fields = line.split()
            if "socket:[%s]" % fields[9] in inodes and (fields[3] == "0A" or table.startswith("udp")):
                yield table, fields[1].split(":")[0]


def fill(server, megabytes):
    client, value = server.client(), b"v" * 4000
    for n in range(megabytes << 8):
        client.socket.sendall(b"set fill:%d 0 0 4000 noreply\r\n%s\r\n" % (n, value))
    client.in_step()
    client.close()
    return "%.0f MB resident" % server.resident()


def stays_at_home(server):
    found = list(listening(server.process.pid))
    check(len(found) == 2, "it listens for memcached and for HTTP, and not %r" % found)
    check(all(place == ("tcp", "0100007F") for place in found), "it listens beyond this machine: %r" % found)
    return "2 sockets, both on 127.0.0.1"


def tells_no_secrets(server):
    key, value = b"secretkey31415", b"secretvalue92653"
    client = server.client()
    for tenant in (b"", b"shop:"):
        client.ask(b"set %s%s 0 0 %d\r\n%s\r\n" % (tenant, key, len(value), value), b"STORED")
    client.ask(b"get %s\r\n" % key, b"VALUE %s 0 %d" % (key, len(value)), value, b"END")
    seen = 0
    for path in ("/", "/metrics", "/debug/shrinker", "/debug/shrinker/", "/debug", "/" + key.decode(), "/metrics?" + key.decode()):
        try:
            body = urllib.request.urlopen("http://%s:%d%s" % (HOST, server.http, path), timeout=PATIENCE).read()
        except urllib.error.HTTPError as refused:
            body = refused.read()
        check(value not in body, "%s shows a value" % path)
        check(key not in body, "%s shows a key" % path)
        seen += len(body)
        for link in re.findall(rb'href="(/[^"]*)"', body):
            body = urllib.request.urlopen("http://%s:%d%s" % (HOST, server.http, link.decode()), timeout=PATIENCE).read()
            check(key not in body and value not in body, "%r shows a key or value" % link)
            seen += len(body)
    check(seen > 1000, "HTTP said nothing at all")
    return "%d bytes of HTTP looked through" % seen


def idle(server, wanted):
    before, held = server.resident(), []
    try:
        while len(held) < wanted:
            held.append(server.connect())
    except OSError as error:
        print("    only %d: %s" % (len(held), error))
    until = time.monotonic() + PATIENCE
    client = server.client()
    while True:  # Accepted, not only in the backlog.
        client.socket.sendall(b"stats\r\n")
        stats = dict(line.split(b" ")[1:3] for line in iter(client.replies.readline, b"END\r\n"))
        if int(stats[b"curr_connections"]) > len(held):
            break
        check(time.monotonic() < until, "%s of %d connections are accepted" % (stats[b"curr_connections"], len(held)))
        time.sleep(0.1)
    server_mb = server.resident() - before
    for sock in random.sample(held, min(100, len(held))):
        other = Client(sock)
        other.in_step()
    for sock in held:
        sock.close()
    check(server_mb * 1024 / len(held) < 4, "%.0f MB for %d idle connections" % (server_mb, len(held)))
    return "%d connections, %.1f kB of memory each" % (len(held), server_mb * 1024 / len(held))


def slow_loris(server, seconds=4):
    loris = [server.connect() for _ in range(300)]
    http = [socket.create_connection((HOST, server.http), timeout=PATIENCE) for _ in range(100)]
    lines = [b"set slow 0 0 1000000\r\n" + b"x" * 1000, b"get " + b"k" * 240, b"ms slow 100000\r\n" + b"y" * 1000, b"gat 100 k k k k k k k k"]
    until, at, gone = time.monotonic() + seconds, 0, 0
    while time.monotonic() < until:
        for n, sock in enumerate(loris + http):
            text = b"GET /metrics HTTP/1.1\r\nX: " + b"a" * 999 if n >= len(loris) else lines[n % len(lines)]
            try:
                sock.sendall(text[at:at + 1])
            except OSError:
                gone += 1
        at += 1
        time.sleep(0.05)
    for sock in loris + http:
        sock.close()
    return "400 clients at 20 bytes a second, %d writes refused" % gone


def unfinished(server):
    """Sends values without their last bytes: their memory is bounded, and freed in the end."""
    client, held = server.client(), []

    def send(n):
        sock = server.connect()
        sock.sendall(b"set held%d 0 0 1000000\r\n" % n + b"x" * 999_000)
        held.append(sock)

    def arriving():
        client.socket.sendall(b"stats reclaim\r\n")
        stats = dict(line.split(b" ")[1:3] for line in iter(client.replies.readline, b"END\r\n"))
        return int(stats[b"arriving_bytes"]) / (1 << 20)

    threads = [threading.Thread(target=send, args=(n,)) for n in range(400)]
    for thread in threads:
        thread.start()
    most, until = 0, time.monotonic() + 3
    # The sent bytes may be in the kernel's buffers for a while.
    while any(thread.is_alive() for thread in threads) or time.monotonic() < until:
        most = max(most, arriving())
        time.sleep(0.05)
    for thread in threads:
        thread.join()
    check(len(held) == 400, "only %d were sent" % len(held))
    check(0 < most < 34, "%.0f MB of 64 are taken by values that have not arrived" % most)
    for sock in held:
        sock.close()
    until = time.monotonic() + PATIENCE
    while arriving() > 0:
        check(time.monotonic() < until, "%.1f MB are kept for values that will not come" % arriving())
        time.sleep(0.05)
    client.in_step()
    return "400 values stopped just before their end, %.0f MB at most" % most


def half_open(server):
    before = server.files()
    pieces = [b"", b"get", b"set k 0 0 10\r\nhalf", b"set k 0 0 10\r\n", b"ms k 5\r\nabc", b"get k\r\nget", b"\r", b"mg"]
    for n in range(800):
        sock = server.connect()
        sock.sendall(pieces[n % len(pieces)])
        if n % 3 == 0:
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(4096):  # The server answers complete commands, then closes.
                pass
            sock.close()
        elif n % 3 == 1:
            reset(sock)
        else:
            sock.close()
    until = time.monotonic() + PATIENCE
    while server.files() > before + 2:
        check(time.monotonic() < until, "%d files open, %d before" % (server.files(), before))
        time.sleep(0.05)
    return "800 gone in 8 places, all %d files back" % (server.files())


def random_bytes(server, megabytes):
    words = [b"get ", b"gets ", b"set ", b"add ", b"cas ", b"incr ", b"mg ", b"ms ", b"md ", b"ma ", b"me ", b"mn\r\n", b"k ", b"0 ", b"5 ", b"-1 ", b"T0 ",
             b"18446744073709551616 ", b"noreply", b"\r\n", b"\n", b"\r", b" ", b"\0", b"\xff\xfe", b"base64 b ", b"touch ", b"gat ", b"verbosity ", b"stats ",
             b"tenant set a low=", b"cache_memlimit x", b"flush_all 9999 ", b"watch evictions", b"set k 0 0 3\r\nabc\r\n", b"A" * 300]
    sent, reconnects, lock, failures = [0], [0], threading.Lock(), []

    def one(seed):
        source = random.Random(seed)
        # Generated once: otherwise the generator would be slower than the server.
        noise = [source.randbytes(1 << 16) for _ in range(16)]
        for _ in range(16):
            noise.append(b"".join(source.choices(words, k=8000))[:1 << 16])
        sock = None
        try:
            while sent[0] < megabytes << 20:
                if sock is None:
                    sock = server.connect()
                    sock.settimeout(0.2)
                    with lock:
                        reconnects[0] += 1
                at = source.randrange(1 << 15)
                block = noise[source.randrange(32)][at:at + source.choice((10, 1000, 30000))]
                try:
                    done = sock.send(block)
                    with lock:
                        sent[0] += done
                    sock.setblocking(False)
                    try:
                        while sock.recv(1 << 20):
                            pass
                        raise ConnectionResetError
                    except BlockingIOError:
                        sock.settimeout(0.2)
                except (ConnectionError, TimeoutError):
                    sock.close()
                    sock = None
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=one, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return "%d MB in %d connections" % (sent[0] >> 20, reconnects[0])


def flood(server):
    """Sends commands until the server stops reading, and only then reads the replies, in order."""
    client = server.client()
    client.ask(b"set f 0 0 1\r\nx\r\n", b"STORED")
    sock, asked = client.socket, 0
    sock.settimeout(1)
    block = b"get f\r\n" * 1000
    pending = b""
    try:
        while asked < 3_000_000:
            pending = pending or block
            n = sock.send(pending)
            pending = pending[n:]
            asked += 0 if pending else 1000
    except TimeoutError:
        pass
    held = server.resident()
    # A thread sends the rest of the cut command while this one reads.
    sock.settimeout(PATIENCE)
    rest = pending
    asked += 1000 if rest else 0
    writer = threading.Thread(target=sock.sendall, args=(rest + b"mn\r\n",))
    writer.start()
    answer = b"VALUE f 0 1\r\nx\r\nEND\r\n"
    left = asked * len(answer)
    while left:
        got = client.replies.read(min(left, len(answer) * 50_000))
        check(got and got == answer * (len(got) // len(answer)), "an answer is not the one to its question")
        left -= len(got)
    writer.join()
    check(client.replies.readline() == b"MN\r\n", "out of step")
    return "%d commands before a read, all answered; %.0f MB resident" % (asked, held)


def edges(server):
    client = server.client()
    ok, long = b"k" * 250, b"k" * 251
    client.ask(b"set %s 0 0 1\r\nx\r\n" % ok, b"STORED")
    client.ask(b"get %s\r\n" % ok, b"VALUE %s 0 1" % ok, b"x", b"END")
    for command in (b"get %s\r\n", b"set %s 0 0 1\r\nx\r\n", b"delete %s\r\n", b"incr %s 1\r\n", b"mg %s\r\n", b"ms %s 1\r\nx\r\n", b"touch %s 1\r\n"):
        other = server.client()
        other.socket.sendall(command % long)
        check(other.replies.readline().startswith(b"CLIENT_ERROR"), "a key of 251 bytes is taken by %r" % command)
        other.in_step()
    refused = 0
    for length in (b"-1", b"-2147483648", b"2147483648", b"4294967295", b"9223372036854775807", b"18446744073709551615", b"99999999999999999999999", b"1e3", b"0x10", b""):
        for command in (b"set l 0 0 %s\r\n", b"add l 0 0 %s noreply\r\n", b"ms l %s\r\n", b"cas l 0 0 %s 1\r\n", b"append l 0 0 %s\r\n"):
            other = server.client()
            other.socket.sendall(command % length)
            # No reply may be right, and no time proves that none comes.
            may_be_silent = b"noreply" in command or length == b"1e3"
            other.socket.settimeout(0.3 if may_be_silent else PATIENCE)
            try:
                got = other.socket.recv(4096)
                check(b"ERROR" in got or not got, "%r was answered with %r" % (command % length, got))
                refused += 1
            except TimeoutError:
                check(may_be_silent, "%r is not answered" % (command % length))
            other.close()
    client.in_step()
    huge = b"set h 0 0 1048577\r\n" + b"x" * 1048577 + b"\r\n"
    client.ask(huge, b"SERVER_ERROR object too large for cache")
    client.in_step()
    return "250 taken, 251 refused seven times, %d wrong lengths refused" % refused


def full(binary):
    with Server(binary, "-c", "10") as server:
        held = [server.client() for _ in range(10)]
        for client in held:
            client.in_step()
        for _ in range(50):
            check(server.client().replies.readline() == b"ERROR Too many open connections\r\n", "an eleventh of ten is let in")
        held.pop().close()
        until = time.monotonic() + PATIENCE
        while True:
            client = server.client()
            client.socket.sendall(b"mn\r\n")
            try:
                if client.replies.readline() == b"MN\r\n":
                    break
            except ConnectionError:
                pass
            check(time.monotonic() < until, "a freed connection slot is not reused")
        for client in held:
            client.in_step()
        server.stop()
    return "50 refused, a freed connection slot reused"


def few_files(binary):
    """Opens more connections than the server may have files: the open ones are served, and the
    others are refused at once."""
    # Each thread of the server has files of its own.
    with Server(binary, "-t", "2") as server:
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (64, 64))
        first = server.client()
        first.in_step()
        crowd = [server.connect() for _ in range(100)]
        served = 0
        for sock in crowd:
            try:
                sock.sendall(b"mn\r\n")
                answer = sock.recv(100)
            except ConnectionError:
                answer = b""
            check(answer in (b"MN\r\n", b"", b"ERROR Too many open connections\r\n"), "the answer is %r" % answer)
            served += answer == b"MN\r\n"
        check(20 <= served < 64, "%d clients are served with 64 files" % served)
        first.in_step()
        for sock in crowd:
            sock.close()
        until = time.monotonic() + PATIENCE
        while True:
            try:
                late = server.client()
                late.socket.sendall(b"mn\r\n")
                if late.replies.readline() == b"MN\r\n":
                    break
            except ConnectionError:
                pass
            check(time.monotonic() < until, "no file that was closed is used again")
        server.stop()
    return "100 clients, %d of them served" % served


def no_room_for_the_log(binary):
    """Starts a server with stdout and stderr on a full disk, and a verbose log."""
    port = free_port()
    disk = open("/dev/full", "wb")
    with Server(binary, "-vv", stderr=disk, stdout=disk, port=port) as server:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                client = server.client()
                break
            except ConnectionRefusedError:
                check(time.monotonic() < until and server.process.poll() is None, "it does not start")
                time.sleep(0.05)
        for n in range(1000):
            client.ask(b"set k%d 0 0 1\r\nx\r\n" % n, b"STORED")
        client.socket.sendall(b"nonsense\r\n")
        check(client.replies.readline() == b"ERROR\r\n", "out of step")
        client.in_step()
        server.stop()
    return "1000 commands served, none told"


def free_port():
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        return sock.getsockname()[1]


def terminated_under_load(binary):
    with Server(binary, "-m", "32") as server:
        stop = threading.Event()

        def load(seed):
            source = random.Random(seed)
            value = source.randbytes(4000)
            try:
                with server.connect() as sock:
                    while not stop.is_set():
                        sock.sendall(b"".join(b"set %d:%d 0 0 4000\r\n%s\r\nget %d:1\r\n" % (seed, source.randrange(9999), value, seed) for _ in range(20)))
                        if seed % 3:
                            sock.recv(1 << 20)
            except OSError:
                pass

        threads = [threading.Thread(target=load, args=(seed,), daemon=True) for seed in range(30)]
        for thread in threads:
            thread.start()
        time.sleep(2)
        took = server.stop()
        stop.set()
        for thread in threads:
            thread.join(PATIENCE)
    return "30 writers, exit status 0 after %.0f ms" % (took * 1000)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--megabytes", type=int, default=64)
    # The system's limits on open files and ports must permit this many connections.
    parser.add_argument("--idle", type=int, default=10_000)
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    memory = 64
    # Two threads: each may keep freed memory in an arena of its own.
    with Server(options.binary, "-t", "2", "-m", str(memory), "-c", str(options.idle + 2000), "--http", "0") as server:
        good = Behaves(server)
        good.start()
        print("%-30s          %s" % ("filled", fill(server, 2 * memory)))
        # Memory above this is the allocator's: freed memory that a thread's arena does not return.
        most = filled = server.resident()

        def run(name, attack):
            started = time.monotonic()
            told = attack()
            good.is_served()
            print("%-30s %5.1f s  %3.0f MB  %s" % (name, time.monotonic() - started, server.resident(), told), flush=True)

        for name, attack in (
            ("listens at home only", lambda: stays_at_home(server)),
            ("HTTP tells no key or value", lambda: tells_no_secrets(server)),
            ("keys and lengths at the edge", lambda: edges(server)),
            ("half-open sockets", lambda: half_open(server)),
            ("unfinished values", lambda: unfinished(server)),
            ("slow loris", lambda: slow_loris(server)),
            ("pipelined flood", lambda: flood(server)),
            ("random bytes", lambda: random_bytes(server, options.megabytes)),
        ):
            run(name, attack)
            most = max(most, server.resident())
        # After `most` is taken: the memory of idle connections has a bound of its own.
        run("idle connections", lambda: idle(server, options.idle))
        print("%-30s          %s" % ("the client beside them", good.end()))
        check(most < 3 * memory, "resident memory reached %.0f MB with -m %d" % (most, memory))
        check(most - filled < memory / 2, "resident memory grew from %.0f to %.0f MB under fire" % (filled, most))
        print("%-30s          %.0f MB when full with -m %d, %.0f MB at most" % ("resident memory", filled, memory, most))
        server.stop()
    for name, attack in (
        ("connection limit", full),
        ("out of files", few_files),
        ("no room for the log", no_room_for_the_log),
        ("SIGTERM under load", terminated_under_load),
    ):
        started = time.monotonic()
        told = attack(options.binary)
        print("%-30s %5.1f s  %s" % (name, time.monotonic() - started, told), flush=True)


if __name__ == "__main__":
    main()
