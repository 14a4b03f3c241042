"""Lease: how long this node may act on being primary without new proof; and the proof that peers can give.

Owner: Primary, one per term of serving, which dates the proof and heeds the expiry; the node fences output.
Dates are on this node's own clock, and of the moment at which it *asked*: an answer that lay about while the
process was stopped proves nothing of now.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

FOR_EVER = float("inf")


class Lease:
    """One term. `until`: from then on nothing that confirms or delivers may leave; `expired`:
    nothing does.
    """

    def __init__(self, length: float, proven_at: float) -> None:
        self.length = length
        self.until = proven_at + length
        self.expired = False

    def proven(self, at: float) -> None:
        """The proof is as old as that. It may be older than the one before: a rival has been added."""
        self.until = at + self.length

    def holds(self, now: float) -> bool:
        """It is proven, and was all the time."""
        return not self.expired and now < self.until

    def change(self, now: float) -> bool:
        """Set `expired`; whether it has changed since this was last asked."""
        expired = now >= self.until
        changed = expired is not self.expired
        self.expired = expired
        return changed


class Heard(Protocol):
    """What is known of one configured address: when it last answered the current question, or failed to."""

    def heard_since(self, asked_at: float) -> bool:
        """This node itself, or it has answered since, or could not be reached since."""


@dataclass(slots=True, frozen=True)
class HelloRound:
    """A round in which every broker is asked how it stands. An answer with a higher epoch ends the term;
    silence proves nothing."""

    asked_at: float
    deadline: float

    def done(self, peers: Iterable[Heard], now: float) -> bool:
        """All that can be reached have answered, or had their time to."""
        return now >= self.deadline or all(entry.heard_since(self.asked_at) for entry in peers)
