"""Delayed completion by watermarks: has every gate reached a position?

Owner: the engine, one per broker. Channels ask at the end of each tick. The store and the high-availability
adapter add and remove gates. Nothing here counts messages.
"""

from __future__ import annotations

from typing import Protocol

from broker.model.values import FOREVER, Need, Position


class Gate(Protocol):
    """A component that confirms wait for. Watermarks never go back."""

    @property
    def applied(self) -> Position:
        """The components behind this gate hold everything up to here in memory."""

    @property
    def durable(self) -> Position:
        """The components behind this gate hold everything up to here on disk."""


class Completion:
    """The lowest watermark of a list of gates, computed on each call because gates come and go.

    `disk`: the gate that is this node's own disk; None: there is none. `floor`: what is for the disk waits
    for this at least, whatever less its queue asks for.
    """

    __slots__ = ("disk", "floor", "gates")

    def __init__(self, gates: list[Gate] | None = None) -> None:
        self.gates: list[Gate] = gates if gates is not None else []
        self.disk: Gate | None = None
        self.floor = Need.DURABLE

    @property
    def applied(self) -> Position:
        """All gates have applied everything up to here; FOREVER without a gate."""
        return min((g.applied for g in self.gates), default=FOREVER)

    @property
    def durable(self) -> Position:
        """All gates have everything up to here on disk; FOREVER without a gate."""
        return min((g.durable for g in self.gates), default=FOREVER)

    def reached(self, position: Position, need: Need) -> bool:
        """Whether output that waits for `position` may leave, as far as `need` demands.

        (epoch, 0) is the position before the first batch of a serving epoch, so it stands for recovered or
        promoted contents. The owner of a store reports this position to it when it begins to serve. The
        position is reached once those contents are on disk.
        """
        if need is Need.APPLIED:
            return all(g.applied >= position for g in self.gates)
        if need is Need.DURABLE or self.floor is Need.DURABLE:
            return all(g.durable >= position for g in self.gates)
        if not all(g.applied >= position for g in self.gates):
            return False
        in_memory = need is Need.MEMORY and self.floor is Need.MEMORY
        return in_memory or self.disk is None or self.disk.durable >= position
