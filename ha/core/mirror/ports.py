"""What ad-hoc replication asks of the broker around it, at either end. Implemented by the adapter;
synchronous, no I/O waits.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from broker.model.history.records import Dequeue, Entry, MessageId, Piece
from ha.core.ports import IdsByEpoch


class CopyWire(Protocol):
    """The connections, by the number of the peer. What goes to one that is gone goes nowhere."""

    def send(self, peer: int, method: int, payload: bytes) -> None:
        """One method, that fits the smallest frame."""

    def send_pieces(self, peer: int, method: int, parts: list[bytes]) -> None:
        """As many methods as it takes: the other end puts them together again."""

    def close(self, peer: int, code: int, text: str) -> None: ...


class Found(NamedTuple):
    """A queue at the source, and why it cannot be replicated, if so."""

    uuid: bytes
    refusal: str = ""


class SourceStanding(NamedTuple):
    """How the source stands. `refusal`: why it serves no queue now, as a sentence; "" while it does."""

    node_id: str
    name: str
    epoch: int
    cluster_id: str
    members: frozenset[str]
    """Node ids of its cluster, its own among them."""
    refusal: str
    wall_ms: int
    """The clock that it dates messages by."""


class SourceModel(Protocol):
    """Reads from a virtual host that serves; asked between ticks, right after the history was flushed."""

    def standing(self) -> SourceStanding: ...

    def find(self, name: str) -> Found | None: ...

    def has(self, queue: bytes) -> bool: ...

    def declared(self, queue: bytes) -> bytes:
        """Its declaration, encoded. The queue is there, here as below."""

    def last_id(self, queue: bytes) -> MessageId:
        """All that it holds, or ever held, lies up to there; what comes lies beyond."""

    def total(self, queue: bytes) -> int:
        """Messages held."""

    def piece(self, queue: bytes, after: MessageId, most: int) -> Piece:
        """The next messages that it holds now, at most so many."""

    def encode(self, records: list[Dequeue]) -> list[bytes]: ...

    def encode_runs(self, queue: bytes, entries: list[Entry]) -> list[bytes]:
        """Entries as encoded EnqueueRun records."""

    def watch(self, wanted: bool) -> None:
        """Whether history must tell of every queue, also of those that no store and no link sees."""


class CopyModel(Protocol):
    """One queue here that follows, or is to. Ids are the source's throughout."""

    @property
    def uuid(self) -> bytes | None:
        """Which queue of the source is followed; None as long as none is."""

    @property
    def newest_epoch(self) -> int:
        """The latest of the source that was followed; 0 before the first."""

    def count(self) -> int:
        """Messages held."""

    def held(self) -> IdsByEpoch: ...

    def dated_by(self, wall_ms: int, now: float) -> None:
        """The source's clock, now: messages taken from then on are dated by this broker's instead."""

    def declare(self, uuid: bytes, payload: bytes) -> None:
        """The queue comes to be here, if it is not there yet. LinkError if it cannot."""

    def take_piece(self, after: MessageId, upto: MessageId, ids: IdsByEpoch, payload: bytes) -> None:
        """The source holds `ids` of that stretch: what else is held of it goes, the runs come."""

    def leave(self, payload: bytes) -> None:
        """Dequeues; of ids that are not held too."""
