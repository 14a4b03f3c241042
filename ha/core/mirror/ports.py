"""The interfaces by which queue mirrors use the broker around them, at either end. The adapter implements
them; synchronous, without I/O waits."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from broker.model.history.records import Dequeue, Entry, MessageId, Piece
from ha.core.ports import IdsByEpoch


class MirrorWire(Protocol):
    """The connections, by the number of the peer. A message to a peer that is gone is dropped."""

    def send(self, peer: int, method: int, payload: bytes) -> None:
        """Send one method that fits the smallest frame."""

    def send_pieces(self, peer: int, method: int, parts: list[bytes]) -> None:
        """Send as many methods as it takes: the other end joins them."""

    def close(self, peer: int, code: int, text: str) -> None: ...


class Found(NamedTuple):
    """A queue at the source, and why it cannot be mirrored, if so."""

    uuid: bytes
    refusal: str = ""


class SourceStanding(NamedTuple):
    """The state of the source. `refusal`: why it serves no queue now, as a sentence; "" while it does."""

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

    def find(self, peer: int, name: str) -> Found | None:
        """In the virtual host that the peer has opened, as far as it may read there."""

    def has(self, queue: bytes) -> bool: ...

    def declared(self, queue: bytes) -> bytes:
        """Its declaration, encoded. The queue must exist, here and in the methods below."""

    def last_id(self, queue: bytes) -> MessageId:
        """The highest id that the queue has ever had; new messages get higher ones."""

    def total(self, queue: bytes) -> int:
        """Messages held."""

    def piece(self, queue: bytes, after: MessageId, most: int) -> Piece:
        """The next messages that the queue holds now, at most so many."""

    def encode(self, records: list[Dequeue]) -> list[bytes]: ...

    def encode_runs(self, queue: bytes, entries: list[Entry]) -> list[bytes]:
        """Entries as encoded EnqueueRun records."""

    def watch(self, wanted: bool) -> None:
        """Whether history must contain every queue, also those that no store and no link sees."""


class MirrorModel(Protocol):
    """One queue here that follows, or is about to. Ids are the source's throughout."""

    @property
    def uuid(self) -> bytes | None:
        """The queue of the source that is followed; None as long as none is."""

    @property
    def newest_epoch(self) -> int:
        """The latest epoch of the source that was followed; 0 before the first."""

    def count(self) -> int:
        """Messages held."""

    def held(self) -> IdsByEpoch: ...

    def dated_by(self, wall_ms: int, now: float) -> None:
        """The source's clock, now. Messages that are taken from then on are dated by this broker's clock
        instead."""

    def declare(self, uuid: bytes, payload: bytes) -> None:
        """Declare the queue here, if it does not exist yet. LinkError if that fails."""

    def take_piece(self, after: MessageId, upto: MessageId, ids: IdsByEpoch, payload: bytes) -> None:
        """The source holds `ids` of that stretch: drop what else is held of it, and take the runs."""

    def leave(self, payload: bytes) -> None:
        """Dequeues; of ids that are not held too."""
