"""Value types that every room of the house shares: ids, positions, scopes, needs, reasons.

No behaviour beyond comparison; no I/O. `ha.core` may import this module and nothing else of the model but
the records and the id sets.
"""

from __future__ import annotations

import enum
from typing import NamedTuple, NewType

Epoch = NewType("Epoch", int)
"""One period of serving by one owner. Minted by the authority, never repeated, never going back."""

Sequence = NewType("Sequence", int)
"""Place of a message in one queue and one epoch, counted from 1 without gaps."""


class Position(NamedTuple):
    """A point in a primary's history: batch `n` (from 1) of `epoch`. Compares as a tuple does."""

    epoch: int
    n: int


ROOT = "/"
"""The virtual host that is always there."""


def titled(vhost: str, name: str) -> str:
    """A queue's name for people, and in ledgers: with its virtual host in front, if not `/`."""
    return name if vhost == ROOT else f"{vhost}/{name}"


ORIGIN = Position(0, 0)
"""Before all history."""

FOREVER = Position(2**62, 2**62)
"""After all history: the watermark of a gate that never holds anything."""


REPLICATE = "x-replicate"
"""The argument by which a queue or an exchange asks for its level of replication."""
LEVELS = ("none", "configuration", "all")
UNSET = "unset"
"""The level of what a broker of no pair was not told one for: it gets one when a pair's primary serves it."""


def level_of(asked: object) -> str | None:
    """The level that a value of `x-replicate` says; None: it says none."""
    text = asked.decode("utf-8", "replace") if isinstance(asked, bytes) else asked
    return text if isinstance(text, str) and text in LEVELS else None


class Scope(enum.IntFlag):
    """Which sinks see an object's history. The broker itself only knows STORE; a hook may add LINK."""

    NONE = 0
    STORE = 1
    LINK = 2

    def __and__(self, other: int) -> Scope:
        """What both name. Asked for each record of each batch: the enum module's own takes four times as
        long."""
        return _SCOPES[int.__and__(self, other)]

    def __rand__(self, other: int) -> Scope:
        return self & other


_SCOPES = tuple(Scope(bits) for bits in range(4))


class Need(enum.IntEnum):
    """What a publisher's confirm, or a reply, waits for. Ordered: the larger one includes the smaller."""

    NONE = 0
    """Nothing of its own; it still follows its predecessors on the channel."""
    APPLIED = 1
    """Every gate has applied the batch."""
    DURABLE = 2
    """Every gate has the batch on disk."""


class Reason(enum.IntEnum):
    """Why a message left its queue. Travels on the link and into the ledger (as `ledger_name`)."""

    ACKED = 1
    REJECTED = 2
    EXPIRED = 3
    DROPPED = 4
    DEAD_LETTERED = 5
    PURGED = 6
    DELETED = 7
    """The queue itself was deleted."""
    QUEUE_EXPIRED = 8
    """The queue itself ended: nobody used it for its time (`x-expires`)."""
    QUEUE_UNUSED = 9
    """The queue itself ended: auto-delete, and its last consumer is gone."""
    OWNER_GONE = 10
    """The queue itself ended: exclusive, and its connection is gone."""
    DELIVERY_LIMIT = 11
    """It has come back from consumers more often than its queue's limit."""

    @property
    def ledger_name(self) -> str:
        return self.name.lower().replace("_", "-")


DYING = {
    Reason.REJECTED: "rejected", Reason.EXPIRED: "expired", Reason.DROPPED: "maxlen",
    Reason.DELIVERY_LIMIT: "delivery_limit",
}  # fmt: skip
"""Reasons for which a dead letter exchange gets the message, if the queue names one; and what `x-death`
says."""


class ExchangeType(enum.Enum):
    DIRECT = "direct"
    FANOUT = "fanout"
    TOPIC = "topic"
    HEADERS = "headers"
