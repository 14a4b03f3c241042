"""Origin: the queue of another broker that a queue of this one follows; and the ids by which it does.

It is part of the level that is stamped on the queue (`QueueDeclare.replicate`), which no client can set: so
it is stored, recovered and gone with the queue itself, and cannot disagree with it.

A message keeps the sequence that it has at the source. Its epoch here is the place of the source's epoch in
`epochs`, counted from `first`: the order is the same, two brokers' epochs never meet in one queue, and all of
it lies below any epoch that a broker serves in (those begin at 2^16). So the queue can become an ordinary one
at any moment, without a message being touched.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from broker.model.history.records import MessageId

if TYPE_CHECKING:
    from broker.model.queue.contents import QueueContents

PREFIX = "replica "
MOST_EPOCHS = 1 << 16
"""Epochs that one queue can ever be followed through."""
KEPT = 1000
"""Epochs that are remembered although no message of them is held: one may come back after a failover."""
MOST_TEXT = 60_000
"""Characters of the stamp, all of them ASCII: a record holds 65,535 octets of it."""
LAST = 2**64 - 1


@dataclass(slots=True, frozen=True)
class Origin:
    """`addresses`: HOST:PORT, where the source may serve. `uuid`: of the queue there, which tells it from
    another of the same name. `epochs`: the source's, ascending, as far as they matter.
    """

    addresses: tuple[str, ...]
    queue: str
    uuid: bytes
    first: int = 1
    epochs: tuple[int, ...] = ()

    def text(self) -> str:
        """As it is stamped on the queue."""
        return PREFIX + json.dumps(
            [list(self.addresses), self.queue, self.uuid.hex(), self.first, list(self.epochs)],
            separators=(",", ":"),
        )

    @property
    def newest(self) -> int:
        """The latest epoch of the source that was followed; 0 before the first."""
        return self.epochs[-1] if self.epochs else 0

    def local(self, epoch: int) -> int | None:
        """The epoch here, if that of the source is known."""
        at = bisect_right(self.epochs, epoch) - 1
        return self.first + at if at >= 0 and self.epochs[at] == epoch else None

    def source(self, local: int) -> int:
        """The other way. IndexError if there is none."""
        if local < self.first:
            raise IndexError(local)
        return self.epochs[local - self.first]

    def bound(self, upto: MessageId) -> MessageId:
        """Up to where that is, in ids of here: nothing is held of an epoch that is not known."""
        epoch, sequence = upto
        at = bisect_right(self.epochs, epoch) - 1
        known = at >= 0 and self.epochs[at] == epoch
        return self.first + at, sequence if known else LAST

    def emptied(self) -> Origin:
        """All that was held is dropped: whatever comes has a place again."""
        return replace(self, first=self.first + len(self.epochs), epochs=())

    def extended(self, epochs: Iterable[int], held: Collection[int]) -> Origin:
        """With these epochs of the source as well, and without the oldest, if they are many, of which no
        message is held (`held`: local ones). ValueError if one is not known, but older than one that is: its
        messages would have no place; or if all of them are too many to be remembered.
        """
        new = sorted({epoch for epoch in epochs if self.local(epoch) is None})
        if not new:
            return self
        if new[0] < self.newest:
            raise ValueError(f"epoch {new[0]} after epoch {self.newest}")
        first, kept = self.first, list(self.epochs)
        while len(kept) > KEPT and first not in held:
            del kept[0]
            first += 1
        if first + len(kept) + len(new) >= MOST_EPOCHS:
            raise ValueError("the source has been through too many epochs")
        longer = replace(self, first=first, epochs=(*kept, *new))
        if len(longer.text()) > MOST_TEXT:
            raise ValueError("messages of too many epochs of the source")
        return longer


def follows(queue: QueueContents) -> bool:
    """Its messages are another broker's to decide about: nobody publishes to it or consumes from it here."""
    return queue.replicate.startswith(PREFIX)


def origin_of(queue: QueueContents) -> Origin | None:
    """Whom it follows. None for an ordinary queue. ValueError if its stamp cannot be read."""
    if not follows(queue):
        return None
    addresses, name, uuid, first, epochs = json.loads(queue.replicate[len(PREFIX) :])
    return Origin(tuple(addresses), name, bytes.fromhex(uuid), first, tuple(epochs))
