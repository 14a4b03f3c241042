"""Delayed completion as a watermark: has everybody whom confirms wait for reached a position?

Owner: the engine, one per broker. Channels ask at the end of each tick; the store and the high-availability
adapter add and remove gates. Nothing here counts messages.
"""

from __future__ import annotations

from typing import Protocol

from broker.model.values import FOREVER, Position


class Gate(Protocol):
    """Somebody whom confirms wait for. Watermarks never go back."""

    @property
    def applied(self) -> Position:
        """Everything up to here is in the memory of all whom this gate stands for."""

    @property
    def durable(self) -> Position:
        """Everything up to here is on the disks of all whom this gate stands for."""


class Completion:
    """The lowest watermark over a list of gates, read anew on each question: gates come and go."""

    __slots__ = ("gates",)

    def __init__(self, gates: list[Gate] | None = None) -> None:
        self.gates: list[Gate] = gates if gates is not None else []

    @property
    def applied(self) -> Position:
        """All gates have applied everything up to here; FOREVER without any gate."""
        return min((g.applied for g in self.gates), default=FOREVER)

    @property
    def durable(self) -> Position:
        """All gates have everything up to here on disk; FOREVER without any gate."""
        return min((g.durable for g in self.gates), default=FOREVER)

    def reached(self, position: Position, durable: bool) -> bool:
        """May what waits for `position` go out? `durable`: it waits for disks, not only for memories.

        (epoch, 0) is before the first batch of a serving epoch: what was there then was recovered or
        promoted. The owner of a store tells it of that position when it begins to serve, so that it is
        reached once all of that is on disk.
        """
        if durable:
            return all(g.durable >= position for g in self.gates)
        return all(g.applied >= position for g in self.gates)
