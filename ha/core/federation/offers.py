"""Offers: ids of messages instead of the messages, for a way that stands by.

Several ways bring the messages of a node. One of them carries the messages. By the others only offers come:
the id that a message has in the link queue, and that at the node at which it was published. So the broker
downstream knows what it has not got, and asks for it if the first way does not bring it in time. Pure codec.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from ha.core.errors import LinkError
from ha.core.federation.wire import FeederFrame, encode_serial, is_node
from ha.core.wire.link import frame, read_json, to_json

MOST_OFFERED = 1024
"""Ranges that are offered and not yet taken, above which messages go themselves."""
MOST_IN_RANGE = 1 << 18
"""Messages of one range."""
MOST_WITHHELD = 1000
"""Nodes whose messages one way withholds."""
_RANGE = struct.Struct(">QQIQQB")


class Offered(NamedTuple):
    """Some `messages` of `node`. `epoch`, `first`: the id of the first one in the link queue; `origin_epoch`,
    `origin_first`: that at the node."""

    epoch: int
    first: int
    messages: int
    node: str
    origin_epoch: int
    origin_first: int

    @property
    def last(self) -> int:
        return self.first + self.messages - 1

    def part(self, begin: int, end: int) -> Offered:
        """Of its messages those from place `begin` to before `end`."""
        return self._replace(
            first=self.first + begin, messages=end - begin, origin_first=self.origin_first + begin
        )


class Handed(NamedTuple):
    """What a link queue hands out in one tick: what is offered before the last message, encoded runs, and
    what is offered behind them; each by ascending id."""

    ahead: list[Offered]
    runs: list[bytes]
    behind: list[Offered]


NOTHING = Handed([], [], [])


def frames_of(handed: Handed, wall_ms: int) -> list[bytes]:
    """What goes to the other end; empty if there is nothing. `wall_ms`: the clock."""
    parts: list[bytes] = []
    if handed.ahead:
        parts += frame(FeederFrame.OFFERS, [encode_offers(handed.ahead, last=False)])
    if handed.runs:
        parts += frame(FeederFrame.RUNS, [encode_serial(wall_ms), *handed.runs])
    if handed.behind:
        parts += frame(FeederFrame.OFFERS, [encode_offers(handed.behind, last=True)])
    return parts


def encode_offers(offers: Iterable[Offered], *, last: bool) -> bytes:
    """`last`: no message with a lower id follows."""
    parts = [b"\x01" if last else b"\x00"]
    for offered in offers:
        name = offered.node.encode()
        numbers = (offered.epoch, offered.first, offered.messages, offered.origin_epoch, offered.origin_first)
        parts += (_RANGE.pack(*numbers, len(name)), name)
    return b"".join(parts)


def parse_offers(body: bytes) -> tuple[list[Offered], bool]:
    """The offers, and whether no message with a lower id follows. LinkError if they cannot be right."""
    if not body or body[0] > 1:
        raise LinkError("offers that do not say whether they are the last")
    found: list[Offered] = []
    at = 1
    while at < len(body):
        if len(body) < at + _RANGE.size:
            raise LinkError("an offer that is cut")
        epoch, first, count, origin_epoch, origin_first, size = _RANGE.unpack_from(body, at)
        at += _RANGE.size
        node = body[at : at + size].decode("utf-8", "replace")
        at += size
        if not 0 < count <= MOST_IN_RANGE or at > len(body) or not is_node(node):
            raise LinkError("an offer of no messages, of too many, or of no node")
        found.append(Offered(epoch, first, count, node, origin_epoch, origin_first))
    if len(found) > MOST_OFFERED:
        raise LinkError(f"{len(found)} offers; {MOST_OFFERED} are the most")
    return found, body[0] == 1


def encode_withheld(nodes: Iterable[str]) -> bytes:
    return to_json({"nodes": sorted(nodes)[:MOST_WITHHELD]})


def parse_withheld(body: bytes) -> frozenset[str]:
    """LinkError if they cannot be right."""
    return read_json(
        body, "the nodes of a way that stands by",
        lambda document: frozenset(str(name) for name in document["nodes"][:MOST_WITHHELD]),
    )  # fmt: skip
