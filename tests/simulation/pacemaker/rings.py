"""corosync: who is in one ring with whom, and messages that all members get in one order.

A member hears its own message at once, the others a little later. While somebody of a ring does not answer,
what is said in it waits; after the token's time those who reach each other form a ring of their own, and
what the others had not got by then they never get. Those who go on together have heard the same (extended
virtual synchrony). Which side notices first is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from tests.simulation.harness.clock import Clock

Message = Callable[[str], None]
"""What is done when a member hears it; called with that member's name."""

SEND = 0.0005
"""Seconds, about, until the token is there."""
AGAIN = 0.02
"""Seconds between two looks whether a ring answers again."""
LATE = 0.05
"""The longest time until another member hears a message."""


class Ring:
    """Those who are together, and what was said among them."""

    __slots__ = ("log", "members")

    def __init__(self, members: frozenset[str]) -> None:
        self.members = members
        self.log: list[tuple[str, Message]] = []


class Rings:
    """`there`: a host is on, and not frozen; `reaches`: its packets reach the other host; `listens`: its CIB
    daemon takes messages."""

    def __init__(
        self, clock: Clock, rng: Random, names: Sequence[str], token: float,
        there: Callable[[str], bool], reaches: Callable[[str, str], bool], listens: Callable[[str], bool],
    ) -> None:  # fmt: skip
        self.clock = clock
        self.rng = rng
        self.names = sorted(names)
        self.token = token
        self.there = there
        self.reaches = reaches
        self.listens = listens
        self.formed: Callable[[Ring, dict[str, Ring]], None] = lambda ring, before: None
        """Told of each new ring, and in which ring its members were before."""
        whole = Ring(frozenset(names))
        self.of: dict[str, Ring] = dict.fromkeys(self.names, whole)
        self._heard: dict[str, int] = dict.fromkeys(self.names, 0)
        self._outbox: dict[str, list[Message]] = {name: [] for name in self.names}
        self._waiting: set[str] = set()
        """Members whose messages are to be tried again."""

    # -- messages

    def send(self, name: str, message: Message) -> None:
        self._outbox[name].append(message)
        self._later(name, SEND * (0.5 + self.rng.random()))

    def caught_up(self, ring: Ring) -> bool:
        """Everybody has heard all that was said in it."""
        return self.intact(ring) and all(self._heard[m] == len(ring.log) for m in ring.members)

    def intact(self, ring: Ring) -> bool:
        members = sorted(ring.members)
        return all(self.of[m] is ring and self.there(m) for m in members) and all(
            self.mutual(a, b) for n, a in enumerate(members) for b in members[n + 1 :]
        )

    def mutual(self, one: str, other: str) -> bool:
        return self.reaches(one, other) and self.reaches(other, one)

    def _later(self, name: str, delay: float) -> None:
        if name not in self._waiting:
            self._waiting.add(name)
            self.clock.after(delay, partial(self._flush, name))

    def _flush(self, name: str) -> None:
        """What waits at this member is said, if its ring answers."""
        self._waiting.discard(name)
        messages = self._outbox[name]
        if not messages:
            return
        ring = self.of[name]
        if not self.intact(ring):
            self._later(name, AGAIN)
            return
        self._outbox[name] = []
        ring.log += [(name, message) for message in messages]
        self._hear(name, ring, len(ring.log))
        for member in sorted(ring.members):
            if member != name:
                late = LATE if self.rng.random() < 0.05 else 0.003
                self.clock.after(late * self.rng.random(), partial(self._hear, member, ring, len(ring.log)))

    def _hear(self, name: str, ring: Ring, upto: int) -> None:
        """This member hears what was said up to there, unless it is elsewhere by now."""
        if self.of[name] is not ring:
            return
        while self.of[name] is ring and self._heard[name] < upto:
            source, message = ring.log[self._heard[name]]
            if not self.listens(name) or not self.reaches(source, name):
                self.clock.after(AGAIN, partial(self._hear, name, ring, upto))
                return
            self._heard[name] += 1
            message(name)

    # -- who is together

    def changed(self) -> None:
        """Packets go other ways now, or a host came or went."""
        for name in self.names:
            if self.there(name):
                self.clock.after(self.token * (1 + 0.5 * self.rng.random()), partial(self._look, name))

    def left(self, name: str) -> None:
        """Its corosync is gone: what it would have said, too; it comes back alone."""
        self._outbox[name] = []
        self.of[name] = Ring(frozenset({name}))
        self._heard[name] = 0

    def began(self, name: str) -> None:
        """It has started, and is alone until others hear of it."""
        self.formed(self.of[name], {})
        self.changed()

    def _look(self, name: str) -> None:
        if not self.there(name):
            return
        group = self._group(name)
        ring = self.of[name]
        if ring.members == group and all(self.of[m] is ring for m in group):
            return
        self._form(group)

    def _group(self, name: str) -> frozenset[str]:
        """Who forms a ring with it: each reaches each of them."""
        groups: list[list[str]] = []
        for one in self.names:
            if self.there(one):
                for group in groups:
                    if all(self.mutual(one, other) for other in group):
                        group.append(one)
                        break
                else:
                    groups.append([one])
        return next(frozenset(group) for group in groups if name in group)

    def _form(self, group: frozenset[str]) -> None:
        before = {name: self.of[name] for name in sorted(group)}
        for name, ring in before.items():
            together = [m for m in group if before[m] is ring]
            upto = max(self._heard[m] for m in together)
            while self._heard[name] < upto:
                _, message = ring.log[self._heard[name]]
                self._heard[name] += 1
                message(name)
        new = Ring(group)
        for name in before:
            self.of[name], self._heard[name] = new, 0
        self.formed(new, before)
        for name in before:
            self._flush(name)
