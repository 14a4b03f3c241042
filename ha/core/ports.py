"""What the core asks of the broker's model, in both roles. Implemented by the adapter; synchronous, no I/O
waits.

`PrimaryModel` reads from a virtual host that serves, `ReplicaModel` writes to one that follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from broker.model.history.records import Entry, MessageId, Piece
from broker.model.history.replication_id_set import ReplicationIdSet
from broker.model.values import Need, Position
from ha.core.record.in_sync_record import InSyncRecord
from understudy.shared.codes import Coded

IdsByEpoch = dict[int, ReplicationIdSet]
"""Ids of one queue: a set of sequences per epoch, no empty sets."""


class DefinitionsPart(NamedTuple):
    """A part of the definitions of one position, in an order that applies: entries of the directory, what
    history ever had in deleted queues, exchanges, queues, bindings, what it ever had in each queue."""

    records: list[bytes]
    """Encoded."""
    queues: list[tuple[bytes, int]]
    """Uuid and next sequence of the queues of which it says how far history had got."""


class PrimaryModel(Protocol):
    """Asked between ticks, right after the history was flushed: what it shows is what `position` says."""

    def position(self) -> Position:
        """Of the last batch flushed; (epoch, 0) before the first."""

    def durable(self) -> Position:
        """All up to it is on this node's disk."""

    def weakest_confirm(self) -> Need:
        """The weakest level that confirms of persistent messages are to go by, in any queue."""

    def definitions(self, most: int) -> Iterator[DefinitionsPart]:
        """All replicated objects as they are now, in parts of at most so many records, which are made when
        they are asked for, ticks later perhaps."""

    def next_sequence(self, queue: bytes) -> int:
        """Of the next message that is published to the queue, which is there."""

    def piece(self, queue: bytes, after: MessageId, most: int) -> Piece | None:
        """The next messages that the queue holds now, at most so many; None if the queue is gone."""

    def has(self, queue: bytes) -> bool:
        """Whether there still is such a queue."""

    def all_answered(self) -> bool:
        """No client waits for a confirm or a reply that is not out."""

    def contents(self) -> list[bytes]:
        """Uuids of the queues whose messages are replicated."""

    def message_count(self, queue: bytes) -> int | None:
        """All that the queue holds; None if it is gone."""

    def held(self, queue: bytes) -> IdsByEpoch:
        """Ids of what the queue holds, which is there."""

    def make_history_checkpoint(self) -> bool:
        """All members hold all of history up to the last history checkpoint: make another one in the next
        batch, if there is anything to settle or to forget. Returns whether there was."""

    def encode_runs(self, queue: bytes, entries: list[Entry]) -> list[bytes]:
        """Entries of one queue as encoded EnqueueRun records."""


class BadEvent(NamedTuple):
    """What a follower could not apply to one of its queues, and why."""

    queue: bytes
    sentence: str


class Dropped(NamedTuple):
    """How many messages a comparison with the primary cost."""

    messages: int = 0
    quarantined: int = 0


class ReplicaModel(Protocol):
    """Every change is also handed to the store; `mark` and `synced` tell when it is on disk."""

    def held(self) -> dict[bytes, IdsByEpoch]:
        """Replicated queues and the ids this node has."""

    def held_in(self, queue: bytes) -> IdsByEpoch:
        """Those of one queue; none if it is not here, or not replicated."""

    def save_incomplete(self, record: InSyncRecord) -> None:
        """Durable on return, before the first drop: this copy is being changed and may lack some."""

    def begin_epoch(self, epoch: int) -> None:
        """History of this epoch follows."""

    def keep_what_is_here(self, epoch: int | None) -> None:
        """A primary of `epoch` expects this node, which is promotable while it catches up: no message of an
        earlier epoch leaves until `let_go` or `go_back`. None: it is not expected, and nothing is kept.
        """

    @property
    def no_way_back(self) -> frozenset[bytes]:
        """Queues that held messages then, and have been deleted since: `go_back` does not bring them back,
        and what had moved from there may not be where it went yet.
        """

    def let_go(self) -> None:
        """The copy is complete: messages that the primary does not hold, or that have left meanwhile, go now.
        What was missing of queues that were deleted meanwhile no longer matters."""

    def go_back(self) -> None:
        """This node is promoted before its copy was complete. What came meanwhile was confirmed to no
        publisher: it goes to quarantine, except what had been in history here before and had left. What the
        node held before stays."""

    def apply_batch(self, position: Position, wall_ms: int, payload: bytes) -> tuple[list[BadEvent], bool]:
        """What cannot be applied to its queue, or does not follow from what the queue got before, is left
        out and told. Also returns whether any of its records is not for the disk.
        """

    def name_of(self, queue: bytes) -> str | None:
        """None if there is no such queue."""

    def renew_queue(self, queue: bytes) -> None:
        """The copy of this queue cannot be trusted, and is sent again. The old copy is kept until the new one
        is whole."""

    def abandon(self) -> None:
        """No more comes: the old copies stay, with what came of the new ones, and without what left."""

    def begin_definitions(self) -> None:
        """All definitions of a primary follow, in parts."""

    def take_definitions(self, position: Position, payload: bytes) -> None:
        """A part of what it had at `position`: it is declared here. LinkError if it cannot be read or
        applied."""

    def end_definitions(self, position: Position) -> list[Coded]:
        """The definitions are complete, and history goes on from `position`: what the primary does not have
        is exported and then dropped. Returns what to log of each thing dropped."""

    def begin_queue(self, queue: bytes, end: MessageId) -> str:
        """Expect a snapshot up to `end`; what is not here counts as missing. Returns the queue's name."""

    def take_piece(
        self, queue: bytes, after: MessageId, upto: MessageId, ids: IdsByEpoch, payload: bytes
    ) -> Dropped:
        """The primary holds `ids` of that stretch: drop what is not among them, take what is missing.
        Messages that the primary's history never had, by its definitions, are exported durably before they
        are dropped."""

    def end_queue(self, queue: bytes) -> None:
        """It is whole."""

    def mark(self) -> int:
        """A point after everything handed over so far."""

    @property
    def synced(self) -> int:
        """Highest mark up to which all is on disk."""

    @property
    def durable(self) -> Position:
        """Highest batch that is on disk with all before it."""
