"""Authority: who says which node may be primary, and keeps the record. One small interface; `manual` and
`register` implement it.

Owner: HaBroker. A verdict is made from evidence only: no I/O, no waiting. What an authority has to be asked
for is an effect, and its answer comes in later: see RecordKeeper, which alone calls `read` and `swap`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from broker.model.values import Position
from ha.core.compatibility import Compatibility
from ha.core.effects import ReadRegister, SwapRegister
from ha.core.membership import Status
from ha.core.record.in_sync_record import InSyncRecord, RecordVersion
from ha.core.record.link_end import LinkEnd
from ha.core.refusal import with_next
from ha.core.role import OwnIdentity
from understudy.shared.codes import Coded


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
    resetting: int = 0
    """Queues of a copy in sync that it had to fetch again, and has not got whole."""
    number: int = 0
    seen: int = 0
    """The highest epoch it knows to have been minted, used or not."""
    promoting: bool = False
    """Its own promotion is being decided: of two that ask at once, neither may build on the other's
    silence."""
    output_fenced: bool = False
    """It serves, and cannot prove that it is the primary: clients get nothing from it."""
    follows: str = ""
    """The name of the primary to which it has a link; "" without one."""
    role: str = ""
    """In a pair that decides by itself: its `ha.role`."""
    state: str = ""
    """The same: the state of its controller."""
    clients: int = 0
    """Of applications, connected to it."""
    takes_messages: bool = False
    """It knows `amq.peer`."""
    life: str = ""
    said: int = 0
    """Which hello of this process it is, where these are numbered."""
    compatibility: Compatibility = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class Evidence:
    """All that a promotion is judged by."""

    me: OwnIdentity
    status: Status
    record: InSyncRecord | None
    """This node's own copy."""
    newest: InSyncRecord | None
    """What the authority holds; as far as that was not read, the newest that any of them knows of."""
    record_lost: bool
    """It holds what it had in a cluster, and no record of that."""
    incomplete: bool
    resetting: int
    """Queues of a copy in sync that are being fetched again."""
    ended: int
    """Queues of an expected member that were deleted with messages which may have moved."""
    position: Position
    linked: bool
    link_end: LinkEnd | None
    answers: Mapping[str, PeerAnswer] = field(default_factory=dict)
    """By node id, of those that answered since the promotion was asked for."""
    unanswered: Sequence[str] = ()
    """Of each broker that nothing is known of: "H:P does not answer", or what else it does."""
    foreign: Sequence[str] = ()
    """Of each broker that answers and is of another cluster: a sentence that says so."""
    copies: Sequence[str] = ()
    """Of each broker that answers and has this node's identity: a sentence that says so."""
    ack_timeout: float = 2.0
    served: tuple[str, float] | None = None
    """Which other node was heard to serve last, and how many seconds ago."""
    silent: bool = False
    """In a pair that decides by itself: the other node is gone, by its kernel's word or by its silence."""
    left_out: str = ""
    """Why this node's own address is not in its list, if it is not: a sentence."""


FORCED = "force-lossy"


@dataclass(slots=True, frozen=True)
class Verdict:
    """`how`: unforced, bootstrap, cold or FORCED; `reason`: one sentence, whichever way it went; `way`:
    what to do next, if it is refused.
    """

    granted: bool
    reason: str
    how: str = ""
    way: str = ""
    code: str = ""
    """Of a refusal."""
    final: bool = False
    """Force does not help: another node that answers has more."""

    @property
    def said(self) -> Coded:
        """Why it is refused."""
        return Coded(self.code, self.reason)

    @property
    def sentence(self) -> str:
        return with_next(self.reason, self.way)


class Authority(Protocol):
    ARBITRATES: bool
    """Of two promotions at once it lets one win, and of two primaries the later."""
    AUTOMATIC: bool
    """It keeps a lease of the record's owner, and a node promotes itself once that has run out."""

    def judge(self, evidence: Evidence, *, force_lossy: bool) -> Verdict:
        """May this node be primary now?"""

    def mint(self, me: OwnIdentity, seen: int) -> int:
        """A new epoch above `seen`, that no other node can mint."""

    def read(self, request_id: int, *, renews: bool = False) -> ReadRegister | None:
        """How to ask what it holds; None: it holds nothing but what the brokers tell each other. `renews`:
        see ReadRegister."""

    def swap(
        self, request_id: int, expected: RecordVersion | None, record: InSyncRecord
    ) -> SwapRegister | None:
        """How to have `record` replace the one of version `expected`; None: this node's own copy is all there
        is, so that it is done with the save that follows.
        """
