"""Clocks: compares the wall clocks of a primary and its backups.

Owner: HaBroker; the node sets the time in each tick. A primary tells with each heartbeat by which clock it
dates messages. A backup that is promoted goes on from that clock, so no message expires early because its own
clock is ahead. People are told how far the machines' clocks are apart: a backup compares its own with its
primary's by heartbeats, a primary with its backups' by their acknowledgements.

A message that takes time to arrive makes the other clock seem behind, never ahead. So the highest of the last
few comparisons is the best one.
"""

from __future__ import annotations

from collections import deque

from ha.core import codes
from understudy.shared.codes import Coded

APART_MS = 1000
"""Clocks that differ by more are told of."""
_KEPT = 8
"""Comparisons: those of some 5 seconds."""
_ENOUGH = 3


class Comparison:
    """How far another clock is ahead of one of this node's, in milliseconds. `apart`: people were told."""

    __slots__ = ("_found", "apart")

    def __init__(self) -> None:
        self._found: deque[float] = deque(maxlen=_KEPT)
        self.apart = False

    def note(self, ahead_ms: float) -> None:
        self._found.append(ahead_ms)

    @property
    def ahead_ms(self) -> float | None:
        """None: it is not known yet."""
        return max(self._found) if len(self._found) >= _ENOUGH else None

    @property
    def best_ms(self) -> float | None:
        """As far as it is known, after the first comparison already."""
        return max(self._found, default=None)

    def news(self) -> bool:
        """Have the clocks come apart, or together, since this was asked last?"""
        ahead = self.ahead_ms
        if ahead is None or (abs(ahead) > APART_MS) is self.apart:
            return False
        self.apart = not self.apart
        return True

    def words(self, name: str) -> Coded:
        """What people are told: the clocks are apart, or together again."""
        ahead = self.ahead_ms or 0.0
        if not self.apart:
            return codes.CLOCKS_AGREE.say(node=name, seconds=APART_MS // 1000)
        way = "ahead of" if ahead > 0 else "behind"
        return codes.CLOCKS_DIFFER.say(node=name, seconds=abs(ahead) / 1000, way=way)


class Clocks:
    """This node's own, and what its primary dates messages by. Times in milliseconds, `now` in seconds.

    A comparison with the primary's clock holds for that primary's epoch, however often this node links. It is
    kept until a primary of another epoch is heard: a node that is promoted before that has nothing better.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._machine = self._wall = 0.0
        self.primary = Comparison()
        """The clock of the primary that is followed, against the one that counts here."""
        self._epoch = 0
        """Of that primary."""

    def tick(self, now: float, machine_ms: float, wall_ms: float) -> None:
        """The machine's clock, and the one that messages are dated by: it follows that without jumps."""
        self._now, self._machine, self._wall = now, machine_ms, wall_ms

    def heard(self, epoch: int, wall_ms: float, now: float) -> None:
        """The primary of `epoch` dates messages by this clock."""
        if epoch != self._epoch:
            self.primary, self._epoch = Comparison(), epoch
        self.primary.note(wall_ms - self.wall_at(now))

    def take_over(self, now: float, least_ms: float) -> float | None:
        """This node is promoted. What it dates messages by from now on, to be made good slowly; None: its own
        clock, from which the last primary's differs by `least_ms` at most, or in an unknown way.

        The difference counts once: this clock is then the primary's.
        """
        ahead, self.primary = self.primary.best_ms, Comparison()
        if ahead is None or abs(ahead) <= least_ms:
            return None
        self._wall += ahead
        return self.wall_at(now)

    def compare(self, clock: Comparison, name: str, machine_ms: float, now: float) -> Coded | None:
        """The wall clock of the machine of `name` showed `machine_ms` in a message that came `now`. Returns
        what to log if the clocks have come apart, or together again; else None."""
        clock.note(machine_ms - self.machine_at(now))
        return clock.words(name) if clock.news() else None

    @property
    def now(self) -> float:
        """Of the last tick, in seconds."""
        return self._now

    def machine_at(self, now: float) -> float:
        return self._machine + (now - self._now) * 1000

    def wall_at(self, now: float) -> float:
        return self._wall + (now - self._now) * 1000
