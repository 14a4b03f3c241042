"""Authority: who says which node may be primary. One small interface; `manual` is the first to implement it.

Owner: HaBroker. A verdict is made from evidence only: no I/O, no waiting. After a verdict that grants,
HaBroker makes the record durable before anything is served.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from broker.model.values import Position
from ha.core.backup import LinkEnd
from ha.core.in_sync_record import InSyncRecord
from ha.core.membership import Status
from ha.core.role import Self_


@dataclass(slots=True, frozen=True)
class PeerAnswer:
    """What another node said of itself when asked."""

    node_id: str
    name: str
    incarnation: int
    status: str
    serving: bool
    epoch: int
    position: Position
    record: InSyncRecord | None
    cluster_id: str | None = None
    incomplete: bool = False
    number: int = 0
    seen: int = 0
    """The highest epoch it knows to have been minted, used or not."""
    promoting: bool = False
    """Its own promotion is being decided: of two that ask at once, neither may build on the other's
    silence."""


@dataclass(slots=True, frozen=True)
class Evidence:
    """All that a promotion is judged by."""

    me: Self_
    status: Status
    record: InSyncRecord | None
    incomplete: bool
    position: Position
    linked: bool
    link_end: LinkEnd | None
    answers: Mapping[str, PeerAnswer] = field(default_factory=dict)
    """By node id, of those that answered since the promotion was asked for."""
    unanswered: Sequence[str] = ()
    """Of each broker that nothing is known of: "H:P does not answer", or what else it does."""
    foreign: Sequence[str] = ()
    """Of each broker that answers and is of another cluster: a sentence that says so."""
    ack_timeout: float = 2.0


@dataclass(slots=True, frozen=True)
class Verdict:
    """`how`: unforced, bootstrap, cold or force-lossy; `reason`: one sentence, whichever way it went."""

    granted: bool
    reason: str
    how: str = ""


class Authority(Protocol):
    def judge(self, evidence: Evidence, *, force_lossy: bool) -> Verdict:
        """May this node be primary now?"""

    def mint(self, me: Self_, seen: int) -> int:
        """A new epoch above `seen`, that no other node can mint."""
