"""Sets that a server may refuse while the thread that frees memory waits for a processor."""

import sys
import threading
import time

PATIENCE = 60
# The server refuses a set at once, or after 500 pauses of 1 ms without room (crates/server/src/store/update.rs).
REFUSAL_TIME_MIN = 0.5
NO_ROOM = b"SERVER_ERROR out of memory storing object\r\n"
# A busy machine explains a few refusals: this many, or one for so many sets.
REFUSALS_MAX = 5
SETS_PER_REFUSAL = 200

lock = threading.Lock()
# Of all connections of the process. Refusals that follow each other have one cause and count once.
total_sets = total_refusals = 0


def count(sets, refusals):
    """Adds to the totals, and prints them after a refusal; more refusals than a busy machine explains are an error."""
    global total_sets, total_refusals
    with lock:
        total_sets += sets
        total_refusals += refusals
        totals = "%d refusals in %d sets" % (total_refusals, total_sets)
        is_error = total_refusals > max(REFUSALS_MAX, total_sets // SETS_PER_REFUSAL)
    if refusals:
        print(totals, file=sys.stderr, flush=True)
        if is_error:
            raise AssertionError(totals)


def store(connection, replies, sets):
    """Sends sets in one write, and again those without room, for PATIENCE at most; any other reply, and a refusal
    without all its pauses, is an error. The server runs the sets one after the other, so that each refusal takes
    REFUSAL_TIME_MIN by itself."""
    count(len(sets), 0)
    begun = time.monotonic()
    is_repeat = False
    while sets:
        sent = time.monotonic()
        connection.sendall(b"".join(sets))
        refused, was_stored = [], True
        for one in sets:
            reply = replies.readline()
            if reply == b"STORED\r\n":
                was_stored = True
                continue
            now = time.monotonic()
            refused.append(one)
            if reply != NO_ROOM or now - sent < REFUSAL_TIME_MIN * len(refused) or now - begun > PATIENCE:
                raise AssertionError("%r was answered with %r after %.1f s" % (one[:80], reply, now - sent))
            count(0, int(was_stored and not is_repeat))
            was_stored = False
        sets, is_repeat = refused, True
