"""Role: the base of Primary and Backup; and the identity of this node.

Owner: HaBroker. A role puts effects into the outbox and calls the model through its port; it never calls
HaBroker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ha.core.record.in_sync_record import Incarnation


@dataclass(slots=True)
class OwnIdentity:
    """The identity of this node. `number` (1..65535) goes into the epochs that it mints and must differ
    within a pair: Lineage changes it if it does not. All else is fixed.

    `life` is drawn at each start and written nowhere: it tells apart two processes that run on copies of one
    data directory.
    """

    node_id: str
    name: str
    incarnation: int
    number: int
    version: str = ""
    life: str = ""

    @property
    def who(self) -> Incarnation:
        return Incarnation(self.node_id, self.incarnation)


class Role(Protocol):
    """What HaBroker may ask of either."""

    def peer_lost(self, peer: int, clean: bool, now: float) -> None: ...

    def end_tick(self, now: float) -> None:
        """After the history of the tick was flushed, or the link's frames applied."""

    def timers(self, now: float) -> None: ...

    def next_deadline(self) -> float | None: ...

    def reason(self) -> str:
        """One sentence on how things stand."""
