#!/usr/bin/env python3
"""Sends the same random commands to two memcached servers and compares their replies byte for byte.

    differential.py HOST:PORT HOST:PORT [--commands N] [--seed S]

The first is the reference. Unique numbers (gets, cas) differ between servers: they are left out of the comparison, and a
cas names each server's own. What is known to differ is not generated: numbers that wrap in
memcached 1.6.18 and are refused by us; store lines with a bad key, whose block it runs as commands and we swallow; incr of
numbers from 2^63 on, for which it looks for a minus sign beyond the value's end. Start the reference with `-o no_modern`: its
background threads hold items now and then, and then decr does not fill up with spaces.
"""

import argparse
import random
import re
import socket
import sys

KEYS = [b"a", b"b", b"t:a", b"t:b", b"k" * 250, b"num", b"t:num"]
VALUES = [b"", b"x", b"0", b"9", b"10", b"99 ", b" 7", b"7x", b"-3", b"9007199254740993", b"18446744073709551616"]


class Server:
    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=5)
        self.file = self.socket.makefile("rb")
        self.uniques = {}

    def ask(self, command):
        """Sends one command, and a version behind it so that silence is seen; returns all of the reply."""
        self.socket.sendall(command + b"version\r\n")
        reply = []
        while True:
            line = self.file.readline()
            if not line:
                reply.append(b"<closed>")
                break
            if line.startswith(b"VERSION "):
                break
            if line.startswith(b"VALUE "):
                words = line.split()
                body = self.file.read(int(words[3]) + 2)
                if len(words) == 5:
                    self.uniques[words[1]] = words[4]
                    line = b" ".join(words[:4]) + b" U\r\n"
                line += body
            reply.append(line)
        return b"".join(reply)

    def fill_in(self, command):
        """A cas names the number this server gave for the key."""
        def number(match):
            return self.uniques.get(match.group(1), b"0")
        return re.sub(rb"<unique of ([^>]+)>", number, command)


def command(random):
    key = random.choice(KEYS)
    keys = b" ".join(random.choice(KEYS) for _ in range(random.randint(1, 4)))
    noreply = random.choice([b"", b"", b"", b" noreply", b" maybe"])
    silent = random.choice([b"", b"", b"", b" noreply"])
    exptime = random.choice([b"0", b"0", b"0", b"100", b"-1", b"2592000", b"2592001", b"1000000000"])
    value = random.choice(VALUES + [random.randbytes(random.choice([5, 300, 5000])).replace(b"\n", b"\r")])
    flags = random.choice([b"0", b"1", b"4294967295"])
    number = random.choice([b"0", b"1", b"5", b"100", b"4294967296", b"x", b"-1", b"1x", b"18446744073709551616"])
    pick = random.randint(0, 99)
    if pick < 25:
        verb = random.choice([b"set", b"set", b"add", b"replace", b"append", b"prepend"])
        return b"%s %s %s %s %d%s\r\n%s\r\n" % (verb, key, flags, exptime, len(value), noreply, value)
    if pick < 32:
        unique = random.choice([b"<unique of %s>" % key] * 3 + [b"1", b"0"])
        return b"cas %s %s %s %d %s%s\r\n%s\r\n" % (key, flags, exptime, len(value), unique, noreply, value)
    if pick < 50:
        return b"%s %s\r\n" % (random.choice([b"get", b"gets", b"gets"]), keys)
    if pick < 55:
        return b"%s %s %s\r\n" % (random.choice([b"gat", b"gats"]), random.choice([exptime, b"x"]), keys)
    if pick < 70:
        return b"%s %s %s%s\r\n" % (random.choice([b"incr", b"decr"]), random.choice([b"num", b"t:num", key]), number, silent)
    if pick < 75:
        return b"touch %s %s%s\r\n" % (key, random.choice([exptime, b"x"]), silent)
    if pick < 81:
        return b"delete %s%s%s\r\n" % (key, random.choice([b"", b"", b" 0", b" 5"]), silent)
    if pick < 83:
        return b"flush_all%s%s\r\n" % (random.choice([b"", b" 0", b" x", b" -1"]), silent)
    if pick < 85:
        return b"verbosity %s%s\r\n" % (random.choice([b"0", b"x"]), silent)
    if pick < 88:
        return b"set %s 0 0 3\r\nabcdef\r\n" % key
    if pick < 90:
        return b"set %s 0 0 1048576%s\r\n%s\r\n" % (key, silent, b"z" * 1048576)
    words = [b"get", b"set", b"cas", b"delete", b"incr", b"touch", b"verbosity", b"flush_all", b"gat", b"nothing", b"Get",
             b"x", b"a", b"0", b"-5", b"noreply", b"k" * 251, b""]
    line = b" ".join(random.choice(words) for _ in range(random.randint(0, 7)))
    # A store line that is right by chance would take the next command for its block.
    if re.match(rb" *(set|cas) +\S+ +\S+ +\S+ +\S+", line):
        return b"\r\n"
    return line + b"\r\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reference")
    parser.add_argument("subject")
    parser.add_argument("--commands", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    reference, subject = Server(arguments.reference), Server(arguments.subject)
    source = random.Random(arguments.seed)
    for server in (reference, subject):
        server.ask(b"flush_all\r\n")
    history = []
    for count in range(arguments.commands):
        text = command(source)
        expected = reference.ask(reference.fill_in(text))
        got = subject.ask(subject.fill_in(text))
        history.append(text[:120])
        if expected != got:
            print("differs at command %d of seed %d" % (count, arguments.seed))
            for earlier in history[-12:]:
                print("   ", earlier)
            print("reference:", expected[:300])
            print("subject:  ", got[:300])
            return 1
    print("%d commands, seed %d: replies equal byte for byte" % (arguments.commands, arguments.seed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
