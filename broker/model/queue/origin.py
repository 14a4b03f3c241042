"""Origin: the source queue that a queue mirror follows, and the mapping of message ids between the two.

The origin is part of the level stamped on the queue (`QueueDeclare.replicate`), which no client can set. So
it is stored, recovered and deleted with the queue, and cannot disagree with it.

A message keeps its sequence at the source. Its epoch here is `first` plus the index of the source's epoch in
`epochs`. So the order stays the same, and the epochs of two brokers never meet in one queue. All these epochs
are below those in which a broker serves, which begin at 2^16. The queue can become an ordinary queue at any
moment without a change to its messages.
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
"""Epochs that one queue can ever follow."""
KEPT = 1000
"""Epochs kept without messages, because a message of them may come back after a failover."""
MOST_TEXT = 60_000
"""Maximum length of the stamp in characters, all ASCII. A record holds 65,535 octets of it."""
LAST = 2**64 - 1


@dataclass(slots=True, frozen=True)
class Origin:
    """The origin of a queue mirror.

    - `addresses`: HOST:PORT of each broker that may serve the source queue.
    - `uuid`: that of the source queue, to tell it from another of the same name.
    - `epochs`: the source's epochs, ascending, without those already forgotten.
    - `peering`: the name of the login at those brokers, in `peerings` of the configuration; "": the broker's
      own.
    """

    addresses: tuple[str, ...]
    queue: str
    uuid: bytes
    first: int = 1
    epochs: tuple[int, ...] = ()
    peering: str = ""

    def text(self) -> str:
        """The stamp on the queue."""
        parts = [list(self.addresses), self.queue, self.uuid.hex(), self.first, list(self.epochs)]
        return PREFIX + json.dumps([*parts, self.peering] if self.peering else parts, separators=(",", ":"))

    @property
    def newest(self) -> int:
        """The latest epoch of the source that was followed; 0 before the first."""
        return self.epochs[-1] if self.epochs else 0

    def local(self, epoch: int) -> int | None:
        """The local epoch for a source's epoch, or None if that is unknown."""
        at = bisect_right(self.epochs, epoch) - 1
        return self.first + at if at >= 0 and self.epochs[at] == epoch else None

    def source(self, local: int) -> int:
        """The source's epoch for a local one. Raises IndexError if there is none."""
        if local < self.first:
            raise IndexError(local)
        return self.epochs[local - self.first]

    def bound(self, upto: MessageId) -> MessageId:
        """The local id up to which a source's id reaches. No message of an unknown epoch is held."""
        epoch, sequence = upto
        at = bisect_right(self.epochs, epoch) - 1
        known = at >= 0 and self.epochs[at] == epoch
        return self.first + at, sequence if known else LAST

    def emptied(self) -> Origin:
        """After all messages are dropped: an origin in which any epoch can be added again."""
        return replace(self, first=self.first + len(self.epochs), epochs=())

    def extended(self, epochs: Iterable[int], held: Collection[int]) -> Origin:
        """Add epochs of the source, and drop the oldest ones without messages if there are many.

        `held`: local epochs with messages. Raises ValueError if a new epoch is older than a known one, since
        its messages would be out of order, or if there are too many epochs.
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
    """True if the queue is a queue mirror: its source decides about its messages, and no client publishes or
    consumes here."""
    return queue.replicate.startswith(PREFIX)


def origin_of(queue: QueueContents) -> Origin | None:
    """The origin of a queue mirror; None for an ordinary queue. Raises ValueError if the stamp is
    malformed."""
    if not follows(queue):
        return None
    addresses, name, uuid, first, epochs, *peering = json.loads(queue.replicate[len(PREFIX) :])
    return Origin(tuple(addresses), name, bytes.fromhex(uuid), first, tuple(epochs), *peering)
