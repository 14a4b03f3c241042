"""A publish whose frames are still arriving, and its destination."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.amqp091.codec.grammar import encode_frame
from broker.amqp091.codec.properties import TRANSIENT
from broker.pieces import Parts

if TYPE_CHECKING:
    from broker.hooks import LargeMessage


class Target(NamedTuple):
    """The fields of a basic.publish method frame."""

    exchange: str
    routing_key: str
    mandatory: bool


class Assembly:
    """The message that one channel assembles. `size`: octets counted for it, from its header on."""

    __slots__ = ("kind", "largest", "parts", "remaining", "shown", "size", "target")

    def __init__(self, target: Target) -> None:
        self.target = target
        self.parts: Parts = []
        self.kind = TRANSIENT
        self.remaining = -1
        """Octets of the body still missing; -1 before the header."""
        self.largest = 0
        self.shown: LargeMessage | None = None
        """The observer that gets its parts while they arrive."""
        self.size = 0


def return_frame(channel: int, exchange: str, routing_key: str) -> bytes:
    """basic.return with 312; the message follows."""
    return encode_frame(
        channel, "basic.return", reply_code=312, reply_text="NO_ROUTE", exchange=exchange,
        routing_key=routing_key,
    )  # fmt: skip
