"""The interfaces by which an agent for a plain AMQP 0-9-1 broker uses what is around it. The adapter
implements them; synchronous, without I/O waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from broker.model.history.records import Bind, MessageId
from ha.core.federation.ports import Wish


class Server(NamedTuple):
    """The broker at the other end. `cluster`: what it calls itself; `node`: as which it is on paths; `name`:
    for people."""

    cluster: str
    node: str
    name: str
    confirms: bool
    """It has publisher confirms."""
    joins: bool
    """It has bindings of exchanges to exchanges."""


class Delivery(NamedTuple):
    """A message as it came. `raw`: its content frames, empty if it is too large to be kept; `channel`: the
    one in these frames; `largest`: octets of the largest one."""

    tag: int
    redelivered: bool
    routing_key: str
    raw: bytes
    channel: int
    largest: int


class Given(NamedTuple):
    """A message for the other end. `raw`: its content frames; empty if nothing can be made of it."""

    id: MessageId
    routing_key: str
    raw: bytes


class PlainWire(Protocol):
    """Connections by the number of the peer. On each, a stream has one channel at a time. What is sent to a
    peer that is gone is dropped."""

    def server(self, peer: int) -> Server: ...

    def open(self, peer: int, stream: int) -> bool:
        """Open a channel. False: the connection has none left."""

    def call(self, peer: int, stream: int, name: str, **arguments: object) -> None:
        """Send a method."""

    def publish(self, peer: int, stream: int, exchange: str, message: Given) -> None: ...

    def release(self, peer: int, stream: int) -> None:
        """Close its channel. Nothing of it is told from now on."""


class PlainTakerModel(Protocol):
    """The exchange here that asks for messages."""

    def type(self) -> str:
        """Of the exchange; "" if there is none."""

    def wanted(self, upstream: str) -> Iterator[tuple[Wish, Bind | None]]:
        """What may be wanted of that node, as bindings there; None: it is not. Changes from now on are told
        by `next_change`."""

    @property
    def changed(self) -> bool:
        """There is a change."""

    @property
    def overrun(self) -> bool:
        """So much has changed that all has to be looked at."""

    def next_change(self, upstream: str) -> tuple[Wish, Bind | None]:
        """What may be wanted otherwise. None: it is not wanted any more."""

    def noted(self) -> None:
        """As history: it has a queue there."""

    def forget(self) -> None:
        """As history: it has none any more."""

    @property
    def resting(self) -> bool:
        """All that came is taken for good."""

    def begin(self, server: Server, address: str) -> None:
        """Delivery tags start again, on a channel of that broker."""

    def take(self, deliveries: list[Delivery]) -> None:
        """Publish them here. None of them can stop the link."""

    def settled(self) -> int:
        """The delivery tag up to which all is taken for good, on every disk that counts; 0: none is."""


class PlainGiverModel(Protocol):
    """The link queue of an exchange that gives its messages to an upstream."""

    def type(self) -> str:
        """Of the exchange; "" if there is none."""

    def attach(self, node: str) -> None:
        """That node takes from now on."""

    def detach(self) -> None:
        """What was not taken waits again."""

    def ended(self) -> str:
        """Why there is nothing to give from any more, as a sentence; "" while there is."""

    def took(self, upto: MessageId) -> None: ...

    def next(self) -> list[Given]:
        """Messages that are due, by ascending id."""
