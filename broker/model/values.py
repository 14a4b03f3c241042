"""Value types that the whole program shares: ids, positions, scopes, needs, reasons.

Only comparison, no I/O. `ha.core` may import this module and, of the rest of the model, only the records and
the id sets.
"""

from __future__ import annotations

import enum
from typing import NamedTuple, NewType

Epoch = NewType("Epoch", int)
"""One term of one primary. The authority assigns it; it only grows and never repeats."""

Sequence = NewType("Sequence", int)
"""The number of a message in one queue and one epoch, counted from 1 without gaps."""


class Position(NamedTuple):
    """A point in a primary's history: batch `n` (from 1) of `epoch`. Compares as a tuple does."""

    epoch: int
    n: int


ROOT = "/"
"""The virtual host that always exists."""


def titled(vhost: str, name: str) -> str:
    """A queue's name for people and ledgers: with its virtual host in front, unless that is `/`."""
    return name if vhost == ROOT else f"{vhost}/{name}"


ORIGIN = Position(0, 0)
"""The position before all history."""

FOREVER = Position(2**62, 2**62)
"""After all history: the watermark of a gate that never waits."""


LINK_LIMITS = ("x-max-length-bytes", "x-message-ttl", "x-expires")
"""Arguments of a federation link queue that follow the settings of its agent."""
REPLICATE = "x-replicate"
"""The argument with which a queue or an exchange requests its replication level."""
LEVELS = ("none", "configuration", "all")
UNSET = "unset"
"""The level of objects that a standalone broker declared without one. They get a level when a primary of a
pair begins to serve them."""


def level_of(asked: object) -> str | None:
    """The level that a value of `x-replicate` names; None if it names none."""
    text = asked.decode("utf-8", "replace") if isinstance(asked, bytes) else asked
    return text if isinstance(text, str) and text in LEVELS else None


class Scope(enum.IntFlag):
    """Which sinks see an object's history. The broker itself only knows STORE; a hook may add LINK."""

    NONE = 0
    STORE = 1
    LINK = 2

    def __and__(self, other: int) -> Scope:
        """The bits that both have. Used for each record of each batch; the enum module's own version takes
        four times as long."""
        return _SCOPES[int.__and__(self, other)]

    def __rand__(self, other: int) -> Scope:
        return self & other


_SCOPES = tuple(Scope(bits) for bits in range(4))


class Need(enum.IntEnum):
    """What a confirm or a reply waits for. Ordered: a larger need includes the smaller ones."""

    NONE = 0
    """Nothing of its own, but it still follows its predecessors on the channel."""
    APPLIED = 1
    """Every gate has applied the batch."""
    MEMORY = 2
    """The same, of what goes to disks later: as far as `Completion.floor` lets it."""
    OWN_DISK = 3
    """This node has the batch on disk, and every other gate has applied it: the same."""
    DURABLE = 4
    """Every gate has the batch on disk."""


def need_of(scope: Scope) -> Need:
    """What a reply must wait for after a change with `scope`."""
    if scope & Scope.STORE:
        return Need.DURABLE
    return Need.APPLIED if scope & Scope.LINK else Need.NONE


CONFIRM_LEVELS = {"all-disks": Need.DURABLE, "primary-disk": Need.OWN_DISK, "all-memory": Need.MEMORY}
"""What the confirm of a persistent message may wait for, by name, the strictest first."""
LEVEL_NAMES = {need: name for name, need in CONFIRM_LEVELS.items()}


class Reason(enum.IntEnum):
    """Why a message left its queue. Sent on the link and written to the ledger (as `ledger_name`)."""

    ACKED = 1
    REJECTED = 2
    EXPIRED = 3
    DROPPED = 4
    DEAD_LETTERED = 5
    PURGED = 6
    DELETED = 7
    """The queue itself was deleted."""
    QUEUE_EXPIRED = 8
    """The queue itself was deleted: unused for its time (`x-expires`)."""
    QUEUE_UNUSED = 9
    """The queue itself was deleted: auto-delete, and its last consumer left."""
    OWNER_GONE = 10
    """The queue itself was deleted: exclusive, and its connection was closed."""
    DELIVERY_LIMIT = 11
    """The message came back from consumers more often than the queue's limit."""

    TRANSFERRED = 12
    """The broker downstream has it durably (federation)."""
    LOOPED = 13
    """It came through the node to which it was to go (federation)."""
    MOVED = 14
    """An operator moved it to another queue, which got it in the same batch."""

    @property
    def ledger_name(self) -> str:
        return self.name.lower().replace("_", "-")


DYING = {
    Reason.REJECTED: "rejected", Reason.EXPIRED: "expired", Reason.DROPPED: "maxlen",
    Reason.DELIVERY_LIMIT: "delivery_limit",
}  # fmt: skip
"""Reasons for dead-lettering, if the queue has a dead-letter exchange, with their text in `x-death`."""


class ExchangeType(enum.Enum):
    DIRECT = "direct"
    FANOUT = "fanout"
    TOPIC = "topic"
    HEADERS = "headers"
    FEDERATION_UPSTREAM = "x-federation-upstream"
    """What RabbitMQ's federation declares where it takes messages: a fanout exchange that withholds what has
    been at the broker that takes."""
    CONSISTENT_HASH = "x-consistent-hash"
    MODULUS_HASH = "x-modulus-hash"
    RANDOM = "x-random"
    """These three send each message to one binding (`broker.model.routing.hashing`)."""
    DELAYED = "x-delayed-message"
    """Keeps messages for a while, and routes them then as an exchange of its `x-delayed-type`."""
