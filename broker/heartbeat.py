"""Heartbeats between the two ends of a connection (section 4.2.7). Pure; used by server and client alike.

Each end sends something at least every half interval, and gives the other end up after two silent intervals.
"""

from __future__ import annotations

import enum


class HeartbeatVerdict(enum.Enum):
    """What to do now."""

    NOTHING = "nothing"
    SEND = "send a heartbeat frame"
    DEAD = "the other end is gone"


class Heartbeat:
    """`interval`: negotiated seconds, 0 for none. `received`, `sent`: the times of the last input and
    output."""

    __slots__ = ("interval", "received", "sent")

    def __init__(self, now: float) -> None:
        self.interval = 0
        self.received = self.sent = now

    def check(self, now: float, *, listening: bool = True) -> HeartbeatVerdict:
        """Call this when `next_deadline` has come. `listening` False: this end does not read, so silence
        proves nothing."""
        if not self.interval:
            return HeartbeatVerdict.NOTHING
        if not listening:
            self.received = now
        # Adds like `next_deadline`. A difference could round to less, and would be asked for again forever.
        if now >= self.received + 2 * self.interval:
            return HeartbeatVerdict.DEAD
        if now >= self.sent + self.interval / 2:
            self.sent = now
            return HeartbeatVerdict.SEND
        return HeartbeatVerdict.NOTHING

    def next_deadline(self) -> float | None:
        """When to `check` next."""
        if not self.interval:
            return None
        send, dead = self.sent + self.interval / 2, self.received + 2 * self.interval
        return send if send < dead else dead
