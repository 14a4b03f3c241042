"""Lease: how long this node may act as primary until it is renewed; and how peers renew it.

Owner: Primary, one per term of serving, which renews it and heeds the expiry; the node fences output.
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

    def __init__(self, length: float, renewed_at: float) -> None:
        self.length = length
        self.until = renewed_at + length
        self.expired = False

    def renewed(self, at: float) -> None:
        """It runs from `at` on. That may be earlier than before: a rival has been added."""
        self.until = at + self.length

    def holds(self, now: float) -> bool:
        """It is good, and was all the time."""
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
