"""The wall clock for message expiry, which does not jump when the machine's clock is set. Owner: `Broker`;
pure.

Message timestamps are wall-clock times that go to disks and other nodes. If an operator or a daemon set the
clock of a running node, messages would expire too late or too early. So the broker absorbs a jump slowly, as
Erlang's clock does in its default mode (`no_time_warp`), and so RabbitMQ's.
"""

from __future__ import annotations

JUMP_MS = 50
"""A larger difference is a jump; a smaller one is followed at once."""
NEAR_MS = 1
"""A jump is absorbed when the remaining difference is at most this. The rest is followed at once; it is too
small to expire a message early."""
CORRECTION = 0.01
"""Part of the elapsed time by which a jump is absorbed."""


class WallClock:
    """`at(now)` is in milliseconds; `now` is in seconds of the broker's own clock, which never jumps."""

    __slots__ = ("_catching_up", "_followed", "_offset")

    def __init__(self) -> None:
        self._offset = 0.0
        self._followed: float | None = None
        self._catching_up = False
        """A jump is being absorbed."""

    def at(self, now: float) -> int:
        return int(now * 1000 + self._offset)

    def put(self, now: float, wall_ms: float) -> None:
        """Set the clock to `wall_ms`, whatever the machine's clock says."""
        self._offset, self._followed = wall_ms - now * 1000, now

    def follow(self, now: float, wall_ms: int) -> int:
        """Take the machine's clock `wall_ms` into account. Returns the time that counts here."""
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
        """When it will be `wall_ms`, on the clock of `now`. Half a millisecond late, so that `at` has then
        reached `wall_ms`."""
        return (wall_ms - self._offset + 0.5) / 1000
