"""Membership: the members of the pair, the status of this node, and the one table of its transitions.

Owner: HaBroker, the only caller. After Qpid's `Membership`, with `active -> joining` added, which Qpid lacks:
a primary that meets a newer one must be able to step down.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from ha.core.clocks import Comparison
from ha.core.errors import IllegalTransition


class Status(enum.Enum):
    """What a node is doing, as users see it."""

    STANDALONE = "standalone"
    """Not in a pair; serves clients."""
    JOINING = "joining"
    """Looks for a primary; serves nobody."""
    CATCH_UP = "catch-up"
    """Fetches from the primary what it lacks."""
    READY = "ready"
    """In the record: holds every confirmed message, may be promoted. Survives the loss of its link."""
    RECOVERING = "recovering"
    """Primary that still waits for backups it expects; serves, and holds confirms."""
    ACTIVE = "active"
    """Primary."""

    @property
    def serves(self) -> bool:
        return self in _SERVING


_SERVING = (Status.ACTIVE, Status.STANDALONE, Status.RECOVERING)

TRANSITIONS: dict[Status, frozenset[Status]] = {
    Status.STANDALONE: frozenset(),
    Status.JOINING: frozenset({Status.CATCH_UP, Status.RECOVERING}),
    Status.CATCH_UP: frozenset({Status.READY, Status.JOINING}),
    Status.READY: frozenset({Status.CATCH_UP, Status.JOINING, Status.RECOVERING}),
    Status.RECOVERING: frozenset({Status.ACTIVE, Status.JOINING}),
    Status.ACTIVE: frozenset({Status.JOINING}),
}
"""From each status, where to. Anything else stops the node."""


@dataclass(slots=True)
class Member:
    """Another node, as far as this one knows."""

    node_id: str
    name: str = ""
    address: str = ""
    """Where clients find it."""
    incarnation: int = 0
    status: str = "unknown"
    epoch: int = 0
    in_sync: bool = False
    connected: bool = False
    differs: str = ""
    """Why it does not follow this node, which serves: what the two are configured to differently."""
    clock: Comparison = field(default_factory=Comparison)
    """Its machine's wall clock, against this one's."""

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "node_id": self.node_id,
            "address": self.address,
            "incarnation": self.incarnation,
            "status": self.status,
            "epoch": self.epoch,
            "in_sync": self.in_sync,
            "connected": self.connected,
            "clock_ahead_ms": None if self.clock.ahead_ms is None else round(self.clock.ahead_ms),
        }


class Membership:
    """This node's status and the others'."""

    def __init__(self, initial: Status) -> None:
        self._status = initial
        self.members: dict[str, Member] = {}

    @property
    def status(self) -> Status:
        return self._status

    def become(self, status: Status) -> None:
        """Change to `status`; IllegalTransition unless the table has it. The same again is no change."""
        if status is self._status:
            return
        if status not in TRANSITIONS[self._status]:
            raise IllegalTransition(f"illegal transition from {self._status.value} to {status.value}")
        self._status = status

    def member(self, node_id: str) -> Member:
        """The entry of `node_id`, made if there is none."""
        found = self.members.get(node_id)
        if found is None:
            found = self.members[node_id] = Member(node_id)
        return found
