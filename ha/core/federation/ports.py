"""The interfaces by which a federation link uses the broker around it, at either end. The adapter implements
them; synchronous, without I/O waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from broker.model.history.records import Bind, EnqueueRun, MessageId, Unbind
from ha.core.federation.holes import Hole
from ha.core.federation.offers import Handed
from ha.core.federation.ways import Ways
from ha.core.federation.wire import InterestFlag, Offer, Open, Refusal

Wish = tuple[str, bytes]
"""Routing key and canonical arguments of a binding that is wanted upstream."""


class LinkWire(Protocol):
    """The connections, by the number of the peer. What is sent to a peer that is gone is dropped."""

    def send(self, peer: int, stream: int, method: int, payload: bytes) -> None:
        """Send one method that fits the smallest frame."""

    def send_pieces(self, peer: int, stream: int, method: int, parts: list[bytes]) -> None:
        """Send as many methods as it takes: the other end joins them."""

    def close(self, peer: int, code: int, text: str) -> None: ...


class IntakeModel(Protocol):
    """The exchange here to which messages come."""

    def type(self) -> str:
        """Of the exchange; "" if there is none."""

    def runs(self, payload: bytes) -> list[EnqueueRun]:
        """LinkError if they cannot be read."""

    def check(self, run: EnqueueRun) -> None:
        """Raises RunRefused if the other end may not publish these messages."""

    def begun(self, upstream: str) -> None:
        """A link is open by which messages of that node come."""

    @property
    def ways(self) -> Ways:
        """Of all ways to that exchange."""

    @property
    def way(self) -> str:
        """This one."""

    @property
    def arrivals(self) -> int:
        """Grows as messages come to the exchange, by whichever way."""

    def taken(self, uuid: bytes) -> tuple[MessageId, tuple[Hole, ...]]:
        """Up to where messages of that link queue are taken, but for those in holes; the lowest id if none
        is."""

    def take(
        self, path: tuple[str, ...], run: EnqueueRun, skip: int, origin: MessageId | None, wall_ms: int
    ) -> None:
        """Publish its messages here, but for the first `skip`, and for those that have come by another way.
        `path`: the nodes that they came through; `origin`: the id of the first one, after `skip`, at the
        first of these; `wall_ms`: the clock of the last one, now."""

    def missing(self, node: str, origin: MessageId, count: int) -> list[tuple[int, int]]:
        """`count` messages of `node`, from id `origin` there, are offered by this way. Returns those that
        have not come by any way, as ranges of places: begin, end."""

    def leave_out(self, uuid: bytes, id_: MessageId, count: int) -> None:
        """Messages of that link queue were offered, and have come by another way."""

    def noted(self, uuid: bytes) -> None:
        """A link to that queue is open: it is remembered, so that the queue can be ended some day."""

    def took(self, uuid: bytes, upto: MessageId, holes: tuple[Hole, ...]) -> None:
        """In the batch of those messages: they are taken, but for those in holes."""

    def settled(self, uuid: bytes) -> MessageId:
        """Up to where all messages of that link queue are taken for good, on every disk that counts; the
        lowest id if none is."""

    def forget(self) -> None:
        """The link is gone for good."""

    def close(self) -> None:
        """Nobody asks it any more."""


class TakerModel(IntakeModel, Protocol):
    """The same, of an exchange that asks for messages."""

    def source_queue(self) -> bytes:
        """The uuid of the link queue that was taken from last; empty if there was none."""

    def wanted(self, upstream: str) -> Iterator[tuple[Wish, list[Bind]]]:
        """All that may be wanted from the node `upstream`, as of now; `next_change` begins after it. No Bind:
        it is not wanted. The arguments of a Bind also name a path of the wish: there may be several."""

    @property
    def changed(self) -> bool:
        """Something may be wanted otherwise."""

    @property
    def overrun(self) -> bool:
        """Too much has changed to say what: `wanted` has to be asked anew."""

    def next_change(self, upstream: str) -> tuple[Wish, list[Bind]]:
        """What may be wanted otherwise, the earliest change first. No Bind: it is not wanted any more."""

    def mark(self, wish: Wish, bind: Bind) -> int:
        """A number for it: the sum of all, as `digest_of` writes it, is the digest of a set."""

    def encode(self, record: Bind | Unbind) -> bytes: ...


class GiverModel(Protocol):
    """The link queue of an exchange that gives its messages to an upstream."""

    def type(self) -> str:
        """Of the exchange; "" if there is none."""

    def uuid(self) -> bytes:
        """Of the link queue, as the other node hears it; empty if there is no exchange."""

    def digest(self) -> str:
        """Of the interest that the link queue has; "" if it gets all, whatever the other end wants."""

    @property
    def asked(self) -> bool:
        """The other end says what it wants, and nothing else goes there."""

    def apply(self, flags: InterestFlag, payload: bytes) -> Iterator[None]:
        """Change what is wanted, one change at each step: see `ha.core.federation.heeding.Heeding`."""

    def attach(self, node: str) -> None:
        """That node takes from now on."""

    def withhold(self, nodes: frozenset[str]) -> None:
        """Messages of these nodes, and of no others, are only offered from now on."""

    def detach(self) -> None:
        """What was not taken waits again."""

    def ended(self) -> str:
        """Why there is nothing to give from any more, as a sentence; "" while there is."""

    def took(self, upto: MessageId) -> None:
        """LinkError if it was never sent."""

    def read(self) -> Handed:
        """The messages that are due, as EnqueueRun records."""

    def wall_ms(self) -> int: ...


class ReceiverModel(Protocol):
    """The virtual hosts that serve, to which others give messages."""

    def standing(self) -> FeederStanding: ...

    def vhost(self, peer: int) -> str:
        """The virtual host that the peer has opened."""

    def receive(self, peer: int, offered: Offer) -> TakerModel | Refusal:
        """The exchange, in the virtual host that the peer has opened."""


class FeederStanding(NamedTuple):
    """`refusal`: why this broker serves no exchange now, as a sentence; "" while it does."""

    node: str
    name: str
    epoch: int
    owner: str
    refusal: str
    wall_ms: int


class Found(NamedTuple):
    """A link queue, its uuid as the other node hears it, and the digest of the interest that it has.
    `looked`: how many bindings had to be looked at."""

    uuid: bytes
    told: bytes
    digest: str
    looked: int


class FeederModel(Protocol):
    """The virtual hosts that serve. A link is known by the uuid of its queue."""

    def standing(self) -> FeederStanding: ...

    def find(self, peer: int, asked: Open, most: int) -> Found | Refusal | int:
        """The link queue, made if it does not exist yet, in the virtual host that the peer has opened. A
        number: so many of its bindings were looked at, `most`, and there are more: ask again."""

    def attach(self, uuid: bytes, taken: MessageId, limits: Mapping[str, int]) -> None:
        """Give the queue those limits, and begin to take messages from it; up to `taken` they have arrived.
        LinkError if none of these was ever sent."""

    def detach(self, uuid: bytes, *, delete: bool = False, drop: bool = False) -> None:
        """What was not taken waits again, but with `delete` or `drop`: then the link queue ends."""

    def drained(self, uuid: bytes) -> bool:
        """Nothing is in the queue, and nothing will come: nothing is wanted."""

    def ended(self, uuid: bytes) -> str:
        """Why there is nothing to feed from any more, as a sentence; "" while there is."""

    def apply(self, uuid: bytes, flags: InterestFlag, payload: bytes) -> Iterator[None]:
        """Change what is wanted, one change at each step: see `ha.core.federation.heeding.Heeding`."""

    def took(self, uuid: bytes, upto: MessageId) -> None:
        """LinkError if it was never sent."""

    def withhold(self, uuid: bytes, nodes: frozenset[str]) -> None:
        """Messages of these nodes, and of no others, are only offered from now on."""

    def read(self, uuid: bytes) -> Handed:
        """The messages that are due, as EnqueueRun records."""
