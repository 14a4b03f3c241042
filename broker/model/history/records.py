"""History records: what happened to the model, in the one form that store, link and ledger see.

The serving `VirtualHosts` make records. `History` collects them into one `Batch` per tick. A backup or a
recovering node applies them (`VirtualHosts.apply`). A record that identifies an object by name also names its
virtual host (`vhost`); all other objects have a UUID. Binary form: `record_codec`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from broker.model.history.epoch_ends import EpochEnds
from broker.model.history.marks import Marks
from broker.model.octets import as_octets
from broker.model.values import ROOT, Reason, Scope, titled

Origin = tuple[int, int]
"""See `Envelope.origin`."""


@lru_cache(4096)
def _deliver_tail(exchange: str, routing_key: str, redelivered: bool) -> bytes:
    name, key = exchange.encode(), as_octets(routing_key)
    return b"%c%c%b%c%b\xce" % (redelivered, len(name), name, len(key), key)


class Envelope:
    """What all messages of one run share. One object per run; every queue entry of the run refers to it.

    - `deliver_tail`: the end of a basic.deliver method frame: redelivered octet, exchange and routing key
      as short strings, frame-end octet.
    - `channel`: the channel number inside the raw frames.
    - `largest_frame`: bytes of the largest frame, header and end octet included. A delivery on another
      channel, or to a peer with a smaller frame_max, must frame the message again.
    - `wall_ms`: time of the enqueue.
    - `expiration`: the message's own, in milliseconds from then, or None.
    - `priority`: 0 to 255.
    - `blind`: the headers have `BCC`, which dead-lettering needs and no consumer may see.
    - `path`: the federation nodes that the messages came through, the first one first. Empty if a client
      published them here.
    - `origin`: with a path: the epoch of these messages at the first node, and what to add to a sequence here
      for that there (`link_ids`).
    """

    __slots__ = (
        "_redelivered", "blind", "channel", "deliver_tail", "epoch", "exchange", "expiration",
        "largest_frame", "origin", "path", "persistent", "priority", "redelivered", "routing_key", "wall_ms",
    )  # fmt: skip

    def __init__(
        self, epoch: int, exchange: str, routing_key: str, *, persistent: bool, wall_ms: int,
        channel: int, largest_frame: int, redelivered: bool = False, expiration: int | None = None,
        priority: int = 0, blind: bool = False, path: tuple[str, ...] = (),
        origin: Origin | None = None,
    ) -> None:  # fmt: skip
        self.epoch = epoch
        self.exchange = exchange
        self.routing_key = routing_key
        self.persistent = persistent
        self.wall_ms = wall_ms
        self.channel = channel
        self.largest_frame = largest_frame
        self.redelivered = redelivered
        self.expiration = expiration
        self.priority = priority
        self.blind = blind
        self.path = path
        self.origin = origin
        self.deliver_tail = _deliver_tail(exchange, routing_key, redelivered)
        self._redelivered: Envelope | None = None

    def as_expired(self) -> Envelope:
        """A copy for messages that expire as soon as they are enqueued."""
        return self._copy(0, self.origin)

    def with_origin(self, origin: Origin) -> Envelope:
        """A copy for some messages of the run."""
        return self._copy(self.expiration, origin)

    def _copy(self, expiration: int | None, origin: Origin | None) -> Envelope:
        return Envelope(
            self.epoch, self.exchange, self.routing_key, persistent=self.persistent, wall_ms=self.wall_ms,
            channel=self.channel, largest_frame=self.largest_frame, redelivered=self.redelivered,
            expiration=expiration, priority=self.priority, blind=self.blind, path=self.path, origin=origin,
        )  # fmt: skip

    def as_redelivered(self) -> Envelope:
        """The same envelope with the redelivered flag; made once and cached."""
        if self.redelivered:
            return self
        if self._redelivered is None:
            self._redelivered = Envelope(
                self.epoch, self.exchange, self.routing_key, persistent=self.persistent, wall_ms=self.wall_ms,
                channel=self.channel, largest_frame=self.largest_frame, redelivered=True,
                expiration=self.expiration, priority=self.priority, blind=self.blind,
                path=self.path, origin=self.origin,
            )  # fmt: skip
        return self._redelivered


Entry = tuple[int, Envelope, bytes]
"""One message in a queue: its sequence, its run's envelope (which has the epoch), its raw frames."""

MessageId = tuple[int, int]
"""Epoch and sequence: the order of a queue."""


def id_of(entry: Entry) -> MessageId:
    return entry[1].epoch, entry[0]


class Piece(NamedTuple):
    """All that a queue holds above some id, up to `upto`. None: up to the end."""

    entries: list[Entry]
    """Sorted by id."""
    upto: MessageId | None


@dataclass(slots=True)
class RawRun:
    """Messages of one run as one blob: `lengths[i]` bytes each, in order."""

    lengths: list[int]
    blob: bytes | memoryview

    def split(self) -> list[bytes]:
        """Split into messages. Copies the blob; a backup does this only when it is promoted."""
        view, at, out = bytes(self.blob), 0, []
        for length in self.lengths:
            out.append(view[at : at + length])
            at += length
        return out


class Numbering(NamedTuple):
    """Numbers of a run's messages, one after the other. `producer`: its id, a name that outlives connections
    and processes. `epoch`: of the process. `first`: from 1."""

    producer: str
    epoch: int
    first: int


@dataclass(slots=True)
class EnqueueRun:
    """`count` messages of one route, appended to each of `queues` from `firsts[i]` on, in envelope.epoch.

    On the primary `raws` is the list of messages; decoded records have a `RawRun` instead. `producer` and
    `producer_first` are the ledger's. `numbering`: of a producer that numbers its messages.
    """

    queues: list[bytes]
    firsts: list[int]
    envelope: Envelope
    raws: list[bytes] | RawRun
    producer: str | None = None
    producer_first: int = 0
    scope: Scope = Scope.NONE
    numbering: Numbering | None = None

    @property
    def count(self) -> int:
        return len(self.raws.lengths) if isinstance(self.raws, RawRun) else len(self.raws)


@dataclass(slots=True)
class Unrouted:
    """Ledger only (scope NONE): tags first..last of `producer` are in no queue. `reason`, for messages of a
    federation link only: refused, looped, doubled, unreadable; empty where they were routed to none. It has
    no binary form."""

    producer: str
    first: int
    last: int
    scope: Scope = Scope.NONE
    reason: str = ""


@dataclass(slots=True)
class Duplicate:
    """Ledger only, without a binary form: `queue` has had tags first..last of `producer` before, with the
    same numbers, and did not take them again."""

    queue: bytes
    producer: str
    first: int
    last: int
    numbering: Numbering
    scope: Scope = Scope.NONE


@dataclass(slots=True)
class Commit:
    """Ledger only, without a binary form: tags first..last of `producer` are one transaction in this
    batch."""

    producer: str
    first: int
    last: int
    scope: Scope = Scope.NONE


@dataclass(slots=True)
class Dequeue:
    """Messages left one queue for one reason. `ranges`: inclusive, ascending, of sequences in `epoch`."""

    queue: bytes
    epoch: int
    reason: Reason
    ranges: list[tuple[int, int]]
    scope: Scope = Scope.NONE


@dataclass(slots=True)
class QueueDeclare:
    """A queue was declared. `arguments` as declared; `replicate`: the level that the primary stamped."""

    uuid: bytes
    name: str
    durable: bool
    exclusive: bool
    auto_delete: bool
    arguments: Mapping[str, object] = field(default_factory=dict)
    replicate: str = "none"
    scope: Scope = Scope.NONE
    vhost: str = ROOT

    @property
    def title(self) -> str:
        return titled(self.vhost, self.name)

    @property
    def content_scope(self) -> Scope:
        """Which sinks see its messages. At level `configuration`, the link sees only the queue itself."""
        return self.scope & ~Scope.LINK if self.replicate == "configuration" else self.scope


@dataclass(slots=True)
class QueueDelete:
    uuid: bytes
    name: str
    scope: Scope = Scope.NONE


@dataclass(slots=True)
class ExchangeDeclare:
    name: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: Mapping[str, object] = field(default_factory=dict)
    replicate: str = "none"
    scope: Scope = Scope.NONE
    vhost: str = ROOT


@dataclass(slots=True)
class ExchangeDelete:
    name: str
    scope: Scope = Scope.NONE
    vhost: str = ROOT


@dataclass(slots=True)
class Bind:
    """Bind `source` to a queue (by UUID, 16 bytes) or, if `queue` is None, to the exchange `target`."""

    source: str
    queue: bytes | None
    target: str
    routing_key: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    scope: Scope = Scope.NONE
    vhost: str = ROOT


@dataclass(slots=True)
class Unbind:
    source: str
    queue: bytes | None
    target: str
    routing_key: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    scope: Scope = Scope.NONE
    vhost: str = ROOT


@dataclass(slots=True)
class ConsumerSeen:
    """The queue has had a consumer: from now on auto-delete may delete it."""

    queue: bytes
    scope: Scope = Scope.NONE


@dataclass(slots=True)
class QueueEnds:
    """Replaces what is known of the ids that history had in one queue. `deleted`: the queue is deleted; then
    empty `ends` mean that history never had it."""

    queue: bytes
    ends: EpochEnds
    deleted: bool = False
    scope: Scope = Scope.NONE


@dataclass(slots=True)
class QueueMarks:
    """Replaces what is known of the numbers that producers had in one queue."""

    queue: bytes
    marks: Marks
    scope: Scope = Scope.NONE


@dataclass(slots=True)
class IdsNoted:
    """A queue with `x-dedup-window` took messages with these ids (`recent_ids`), at places from `first` on.
    All ids of places below `floor` are forgotten."""

    queue: bytes
    first: int
    floor: int
    wall_ms: int
    keys: list[bytes]
    scope: Scope = Scope.NONE


@dataclass(slots=True)
class QueueIds:
    """What is known of the ids that one queue took. `begin`: replaces all that was known before; otherwise
    these are added. `ids`: with their values, see `RecentIds`."""

    queue: bytes
    begin: bool
    following: int
    floor: int
    ids: list[tuple[bytes, int]]
    scope: Scope = Scope.NONE


@dataclass(slots=True)
class HistoryCheckpoint:
    """A history checkpoint: all known members hold all history up to the previous one. Ends settled by then
    are forgotten. `epoch`: the one served, whose ends stay."""

    epoch: int
    scope: Scope = Scope.NONE


@dataclass(slots=True)
class EntryPut:
    """Puts a directory entry: a virtual host, user, permission or policy (`kind`).

    `vhost` is empty for a virtual host and a user. The `name` of a permission is its user's.
    `model.vhost.directory` describes `value`.
    """

    kind: str
    vhost: str
    name: str
    value: Mapping[str, object] = field(default_factory=dict)
    scope: Scope = Scope.NONE


@dataclass(slots=True)
class EntryDelete:
    """Deletes a directory entry. Deleting a virtual host deletes everything in it."""

    kind: str
    vhost: str
    name: str
    scope: Scope = Scope.NONE


Record = (
    EnqueueRun | Unrouted | Duplicate | Commit | Dequeue | QueueDeclare | QueueDelete | ExchangeDeclare
    | ExchangeDelete | Bind | Unbind | ConsumerSeen | QueueEnds | QueueMarks | IdsNoted | QueueIds
    | HistoryCheckpoint | EntryPut | EntryDelete
)  # fmt: skip
