"""The wall clock as expiry counts by it: one that is set does not jump here. Owner: `Broker`; pure.

A message's time is told by wall clock, which goes to disks and other nodes with it. An operator or a daemon
that sets the clock of a running node back, or on, would keep what is over, or expire what is not. So a jump
is made up for slowly, as Erlang's clock does in its default mode (`no_time_warp`), and RabbitMQ's with it.
"""

from __future__ import annotations

JUMP_MS = 50
"""More than this at once is a jump; less is followed as it comes."""
NEAR_MS = 1
"""A jump has been made up for when no more than this is left of it: what is left is followed at once, and a
message must not be over early because of that."""
CORRECTION = 0.01
"""Part of the time that goes by, by which a jump is made up for."""


class WallClock:
    """`at(now)` in milliseconds; `now` in seconds of the broker's own clock, which never jumps."""

    __slots__ = ("_catching_up", "_followed", "_offset")

    def __init__(self) -> None:
        self._offset = 0.0
        self._followed: float | None = None
        self._catching_up = False
        """A jump is being made up for."""

    def at(self, now: float) -> int:
        return int(now * 1000 + self._offset)

    def put(self, now: float, wall_ms: float) -> None:
        """It is `wall_ms`, whatever the machine's clock says."""
        self._offset, self._followed = wall_ms - now * 1000, now

    def follow(self, now: float, wall_ms: int) -> int:
        """The machine's clock says `wall_ms`; what counts here."""
        lag = wall_ms - now * 1000 - self._offset
        if self._followed is None or abs(lag) <= (NEAR_MS if self._catching_up else JUMP_MS):
            self._offset += lag
            self._followed = now
            self._catching_up = False
            return wall_ms
        self._catching_up = True
        most = max(0.0, now - self._followed) * 1000 * CORRECTION
        self._offset += max(-most, min(most, lag))
        self._followed = now
        return self.at(now)

    def when(self, wall_ms: float) -> float:
        """When it will be `wall_ms`, on the clock of `now`; half a millisecond late, so that it has come when
        it is read again."""
        return (wall_ms - self._offset + 0.5) / 1000
