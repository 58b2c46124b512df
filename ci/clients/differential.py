#!/usr/bin/env python3
"""Sends the same random commands to two memcached servers and compares their replies byte for byte.

    differential.py HOST:PORT HOST:PORT [--commands N] [--seed S]

The first server is the reference, memcached 1.6.18; the second is lowwater-server. CAS numbers (gets,
cas, and the c flag of the meta commands) differ between servers: they are not compared, and a cas
sends each server its own number. Seconds (t, l, exp, la) may differ by one, since the commands are not
sent at the same instant. The sign of exp is not compared: 1.6.18 shows the seconds left as a negative
number, later versions as a positive one.

Commands with known differences are not generated:

- numbers that wrap in memcached and are refused by lowwater-server;
- store lines with a bad key: memcached runs their data block as commands, lowwater-server skips it;
- incr of numbers from 2^63 on, for which memcached looks for a minus sign beyond the value's end;
- a time in the past that is shown as seconds left, which wraps in memcached;
- an ma that sets a time on a number that grows in length: memcached loses the time;
- features of this server that memcached has only after 1.6.18: the flag s of ms, C of mg, E, x, and N of an
  ms that appends; an ma that creates a value and has q, to which 1.6.18 answers;
- base64 keys of values that memcached created by a meta command or appended to: it shows these keys
  without base64.

Start the reference with `-o no_modern`: otherwise its background threads sometimes hold an item, and
then decr does not pad the number with spaces.
"""

import argparse
import base64
import random
import re
import socket
import sys
import time

KEYS = [b"a", b"b", b"t:a", b"t:b", b"k" * 250, b"num", b"t:num"]
VALUES = [b"", b"x", b"0", b"9", b"10", b"99 ", b" 7", b"7x", b"-3", b"5\0", b"5\0x", b"9007199254740993", b"18446744073709551616",
          b"%04096d" % 7, b"%04096dx" % 7]


class Server:
    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.file = self.socket.makefile("rb")
        self.uniques = {}

    def ask(self, command):
        """Sends a command, and `version` so that a missing reply is noticed; returns the reply."""
        self.socket.sendall(command + b"version\r\n")
        reply = []
        while True:
            line = self.file.readline()
            if not line:
                reply.append(b"<closed>")
                break
            if line.startswith(b"VERSION "):
                break
            if line.startswith(b"VA "):
                line += self.file.read(int(line.split()[1]) + 2)
            elif line.startswith(b"VALUE "):
                words = line.split()
                body = self.file.read(int(words[3]) + 2)
                if len(words) == 5:
                    self.uniques[words[1]] = words[4]
                    line = b" ".join(words[:4]) + b" U\r\n"
                line += body
            reply.append(line)
        return b"".join(reply)

    def fill_in(self, command):
        """Puts the number that this server returned for the key into a cas command."""
        def number(match):
            return self.uniques.get(match.group(1), b"0")
        return re.sub(rb"<unique of ([^>]+)>", number, command)

    def learn(self, key, reply):
        """Stores the CAS number of a meta reply; removes the parts that always differ."""
        head, end, tail = reply.partition(b"\r\n")
        told = re.search(rb" c(\d+)(?= |$)", head)
        if told and told.group(1) != b"0":
            self.uniques[key] = told.group(1)
            head = head.replace(told.group(0), b" cU")
        head = re.sub(rb" (cas|cls)=\d+", rb" \1=U", head)
        head = re.sub(rb" exp=-(?!1 )", b" exp=", head)
        return head + end + tail


SECONDS = re.compile(rb" (t|l|exp=|la=)(-?\d+)(?= |$)")


def equal(expected, got, apart):
    """Compares two replies byte for byte, except that seconds may differ by one, and by the longest time in seconds
    between the two executions of a command."""
    if expected == got:
        return True
    (expected, _, values), (got, _, others) = expected.partition(b"\r\n"), got.partition(b"\r\n")
    pairs = list(zip(SECONDS.findall(expected), SECONDS.findall(got)))
    return (values == others and SECONDS.sub(b" s", expected) == SECONDS.sub(b" s", got)
            and all(a[0] == b[0] and ((a[1] == b"-1") == (b[1] == b"-1")) and (a[0] in (b"l", b"la=") or abs(int(a[1]) - int(b[1])) <= 1 + int(apart))
                    for a, b in pairs))


def meta(random):
    """Returns a random meta command and its key."""
    key = random.choice(KEYS)
    binary = random.random() < 0.2
    if binary:
        # Keys that text commands do not use: see the last known difference above.
        key = random.choice([b"\0bin", b"two words", b"\xff\n:x", b"bin"])
    word = base64.b64encode(key) if binary else key
    exptime = random.choice([b"0", b"100", b"100", b"1000", b"2592000", b"-1", b"x"])
    flags = random.sample([b"c", b"f", b"h", b"k", b"l", b"s", b"v", b"t", b"u", b"q", b"q", b"Oopaque", b"Pproxy", b"L"],
                          random.randint(0, 6))
    if random.random() < 0.05:
        flags.append(random.choice([b"z", b"v", b"\x80", b"T", b"Fx", b"Mxx", b"Jx", b"Dx", b"Cx", b"F1", b"S5", b"O" + b"o" * 31, b"N1x"]))
    verb = random.choice([b"mg", b"mg", b"mg", b"ms", b"ms", b"md", b"ma", b"ma", b"me", b"mn", b"mx"])
    unique = random.choice([b"C<unique of %s>" % key] * 3 + [b"C1", b"C0"])
    if binary:
        flags.append(b"b")
    if verb == b"mg":
        if random.random() < 0.2 and not binary and exptime != b"-1":
            flags.append(b"N" + exptime)
        if random.random() < 0.2:
            flags.append(b"R" + random.choice([b"0", b"30", b"500", b"5000", b"-1"]))
        if random.random() < 0.1 and exptime != b"-1":
            flags.append(b"T" + exptime)
    if verb == b"md":
        flags += [flag for flag in (unique, b"I", b"I", b"T" + exptime) if random.random() < 0.3 and flag not in flags]
    if verb == b"ma":
        word, key, flags = (word, key, flags) if binary else (b"num", b"num", flags)
        mode = random.choice([b"MI", b"M+", b"MD", b"M-", b"M-", b"Mx", b"M"])
        flags += [flag for flag in (unique, b"D" + random.choice([b"1", b"7", b"x"]), mode) if random.random() < 0.4]
        if mode in (b"MD", b"M-") and mode in flags and not binary:
            flags += [flag for flag in (b"N" + exptime, b"J50", b"T" + exptime) if random.random() < 0.4 and flag[1:] != b"-1"]
        if binary and b"M-" not in flags:
            flags = [flag for flag in flags if flag[:1] != b"M"] + [b"M-"]
        if any(flag[:1] == b"N" for flag in flags):
            flags = [flag for flag in flags if flag != b"q"]
    if verb == b"ms":
        flags = [flag for flag in flags if flag != b"s" and flag[:1] != b"N"]
    if verb == b"mg":
        flags = [flag for flag in flags if flag[:1] != b"C" or flag == b"Cx"]
    random.shuffle(flags)
    if verb == b"ms":
        value = random.choice(VALUES + [random.randbytes(random.choice([5, 300, 5000])).replace(b"\n", b"\r")])
        flags += [flag for flag in (b"T" + exptime, b"F" + random.choice([b"0", b"7", b"4294967295"]), b"I") if random.random() < 0.3]
        mode = random.choice([b"ME", b"MR", b"MS", b"Mz"] + ([] if binary else [b"MA", b"MP"]))
        flags += [flag for flag in (mode, unique) if random.random() < 0.4]
        length = random.choice([b"%d" % len(value)] * 9 + [b"%d" % (len(value) + 1)])
        if random.random() < 0.03:
            value = b"z" * 1048576
            length = b"1048576"
        if length != b"%d" % len(value):
            value += b"y"
        return key, b" ".join([verb, word, length] + flags) + b"\r\n" + value + b"\r\n"
    if verb == b"me":
        return key, b" ".join([verb, word] + ([b"b"] if binary else [])) + b"\r\n"
    if random.random() < 0.03:
        word, flags = random.choice([(b"k" * 251, flags), (b"Zg", flags), (b"", [])])
    if random.random() < 0.03:
        flags += [b"c", b"f", b"h", b"k", b"l", b"s", b"v", b"t", b"u", b"q", b"Oa", b"b"] * 2
    return key, b" ".join([verb, word] + flags) + b"\r\n"


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
    # A store line that is valid by chance would take the next command as its data block.
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
    history, apart = [], 0.0
    for count in range(arguments.commands):
        key, text = meta(source) if source.random() < 0.4 else (None, command(source))
        asked = time.monotonic()
        expected = reference.ask(reference.fill_in(text))
        got = subject.ask(subject.fill_in(text))
        apart = max(apart, time.monotonic() - asked)
        if key:
            expected, got = reference.learn(key, expected), subject.learn(key, got)
        history.append(text[:120])
        if not equal(expected, got, apart):
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
