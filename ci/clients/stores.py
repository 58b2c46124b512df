"""Sets that a server may refuse while the thread that frees memory waits for a processor."""

import time

PATIENCE = 60
# The server refuses a set at once, or after 500 pauses of 1 ms without room (crates/server/src/store/update.rs).
REFUSAL_TIME_MIN = 0.5
NO_ROOM = b"SERVER_ERROR out of memory storing object\r\n"


def store(connection, replies, sets):
    """Sends sets in one write, and again those without room, for PATIENCE at most; any other reply, and a refusal before
    REFUSAL_TIME_MIN, is an error."""
    begun = time.monotonic()
    while sets:
        sent = time.monotonic()
        connection.sendall(b"".join(sets))
        refused = []
        for one in sets:
            reply = replies.readline()
            if reply == b"STORED\r\n":
                continue
            now = time.monotonic()
            if reply != NO_ROOM or now - sent < REFUSAL_TIME_MIN or now - begun > PATIENCE:
                raise AssertionError("%r was answered with %r after %.1f s" % (one[:80], reply, now - sent))
            refused.append(one)
        sets = refused
