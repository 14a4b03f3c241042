"""The wire format of federation: how a broker takes messages from an exchange of another cluster.

Methods 60-66 of extension class 250, on a connection that has logged in as a user with the tag `federation`.
Several links share it: each payload begins with the number of its stream, which the taker chose. The taker
has opened the connection, and asks with OPEN; a broker that serves the exchange answers OPENED. From then on
both send DATA, one ordered stream of frames (`link.frame`) each way, until STOP.

Who has opened the connection may also be the feeder. It has no interest to be told: it asks with OFFER, and
the other one answers ACCEPTED. All else is the same. Pure codec.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import asdict, dataclass, field
from typing import Any

from broker.model.history.records import MessageId
from broker.model.values import LINK_LIMITS
from ha.core.errors import LinkError
from ha.core.mirror.wire import one_line
from ha.core.record.in_sync_record import count, label
from ha.core.wire.link import UUID, parse_json, read_json, to_json

VERSION = 1
"""Of the hop's wire."""
LARGEST_INTEREST = 1 << 20
"""Octets of one frame from the taker."""
LONGEST_REASON = 300
MOST_STREAMS = 1000
"""Links over one connection."""

MOST_MEMBERS = 16

Document = dict[str, Any]
_STREAM = struct.Struct(">H")
_ID = struct.Struct(">QQ")
_INTEREST = struct.Struct(">QB")
_SERIAL = struct.Struct(">Q")


class LinkMethod(enum.IntEnum):
    """From the taker, unless its comment says otherwise."""

    OPEN = 60
    OPENED = 61
    """From the feeder: it serves the exchange, and feeds from now on."""
    REFUSED = 62
    """From the feeder: it does not, and why."""
    DATA = 63
    """From either end."""
    STOP = 64
    """From either end: nothing more comes, and why."""
    OFFER = 65
    """From the feeder, where that has opened the connection."""
    ACCEPTED = 66
    """From the taker: it takes what is offered, from an id on."""


class TakerFrame(enum.IntEnum):
    """Types of stream frames, taker to feeder."""

    INTEREST = 1
    """Serial, flags, then encoded Bind and Unbind records: what changes in what the taker wants."""
    TOOK = 2
    """An id: the taker holds everything up to it for good."""
    WITHHOLD = 3
    """Nodes: messages of theirs come by another way, and only offers are wanted here (`offers`)."""


class FeederFrame(enum.IntEnum):
    """Types of stream frames, feeder to taker."""

    RUNS = 1
    """The clock of the feeder, then encoded EnqueueRun records of the link queue, by ascending id."""
    INTEREST_OK = 2
    """Serial: messages are routed by it from now on."""
    OFFERS = 3
    """Ids of messages that were not sent, because they come by another way (`offers`)."""


class InterestFlag(enum.IntFlag):
    FIRST = 1
    """A whole set begins: what it does not name is not wanted any more."""
    LAST = 2
    """It ends."""


@dataclass(slots=True, frozen=True)
class Open:
    """`node`, `owner`: the federation node that asks, and the id of its cluster (of its broker, if that is in
    none). `epoch`: its own, so that an older primary of the same node gives way. `agent`: by
    its name there. `members`: ids of the brokers of the node. `limits`: arguments of the link
    queue; `drops`: nothing is kept while it is not connected; `ends`: it wants nothing any more but what
    waits there already. `uuid`: of the link queue that was taken from last, in hex; `taken_epoch`, `taken`:
    up to which id. `addresses`: where operators find the node; none are told where it does not know."""

    node: str
    owner: str
    name: str
    epoch: int
    exchange: str
    type: str
    agent: str
    members: tuple[str, ...] = ()
    limits: dict[str, int] = field(default_factory=dict)
    drops: bool = False
    ends: bool = False
    uuid: str = ""
    taken_epoch: int = 0
    taken: int = 0
    addresses: tuple[str, ...] = ()
    version: int = VERSION

    def encode(self) -> bytes:
        return to_json(asdict(self))


def parse_open(payload: bytes) -> Open:
    return read_json(payload, "a request for a link", _open_of)


def _open_of(document: Document) -> Open:
    limits = {key: count(document["limits"][key]) for key in LINK_LIMITS if key in document["limits"]}
    return Open(
        _name(document["node"]), label(document["owner"]), one_line(label(document["name"])),
        count(document["epoch"]), _text(document["exchange"]), _text(document["type"]),
        one_line(label(document["agent"])), tuple(map(label, document["members"][:MOST_MEMBERS])), limits,
        bool(document["drops"]), bool(document.get("ends")), label(document["uuid"]),
        count(document["taken_epoch"]), count(document["taken"]), _addresses(document),
        count(document["version"]),
    )  # fmt: skip


@dataclass(slots=True, frozen=True)
class Opened:
    """`node`, `owner`: those of the feeder. `uuid`: of the link queue, in hex. `digest`: of its interest.
    `offers`: it can withhold messages, and offer them instead."""

    node: str
    owner: str
    name: str
    epoch: int
    uuid: str
    digest: str
    offers: bool = True

    def encode(self) -> bytes:
        return to_json(asdict(self))


def parse_opened(payload: bytes) -> Opened:
    return read_json(payload, "an answer about a link", _opened_of)


def _opened_of(document: Document) -> Opened:
    return Opened(
        _name(document["node"]), label(document["owner"]), one_line(label(document["name"])),
        count(document["epoch"]),
        _uuid(document["uuid"]), label(document["digest"]), bool(document.get("offers")),
    )  # fmt: skip


@dataclass(slots=True, frozen=True)
class Refusal:
    """`reason`: a sentence. `patient`: only an administrator can change it, so that it is asked again
    later."""

    reason: str
    patient: bool = False
    delete: bool = False
    """Of a STOP by the end that opened the link: it is gone for good, with what waits in its queue. By the
    other end: the link queue is empty, and gone, as was asked for (`Open.ends`)."""

    def encode(self) -> bytes:
        return to_json({**asdict(self), "reason": self.reason[:LONGEST_REASON]})


def parse_refusal(payload: bytes) -> Refusal:
    document = parse_json(payload, "the end of a link")
    reason = one_line(str(document.get("reason", "")))
    return Refusal(reason, bool(document.get("patient")), bool(document.get("delete")))


@dataclass(slots=True, frozen=True)
class Offer:
    """As `Open`. `uuid`: of the link queue, in hex. `echo`: the messages are to come back to that node.
    `digest`: of the interest that the link queue has, where the other end says what it wants; "" where it
    gets all. `offers`: see `Opened`."""

    node: str
    owner: str
    name: str
    epoch: int
    exchange: str
    type: str
    agent: str
    uuid: str
    echo: bool
    digest: str = ""
    addresses: tuple[str, ...] = ()
    offers: bool = True
    version: int = VERSION

    def encode(self) -> bytes:
        return to_json(asdict(self))


def parse_offer(payload: bytes) -> Offer:
    return read_json(payload, "an offer of a link", _offer_of)


def _offer_of(document: Document) -> Offer:
    return Offer(
        _name(document["node"]), label(document["owner"]), one_line(label(document["name"])),
        count(document["epoch"]), _text(document["exchange"]), _text(document["type"]),
        one_line(label(document["agent"])), _uuid(document["uuid"]), bool(document["echo"]),
        label(document.get("digest", "")), _addresses(document),
        bool(document.get("offers")), count(document["version"]),
    )  # fmt: skip


@dataclass(slots=True, frozen=True)
class Accepted:
    """`node`: that of the taker, which has everything up to the id (`taken_epoch`, `taken`)."""

    node: str
    name: str
    taken_epoch: int
    taken: int

    def encode(self) -> bytes:
        return to_json(asdict(self))


def parse_accepted(payload: bytes) -> Accepted:
    return read_json(payload, "an answer to an offer", _accepted_of)


def _accepted_of(document: Document) -> Accepted:
    return Accepted(
        _name(document["node"]), one_line(label(document["name"])), count(document["taken_epoch"]),
        count(document["taken"]),
    )  # fmt: skip


def _addresses(document: Document) -> tuple[str, ...]:
    return tuple(one_line(label(each)) for each in document.get("addresses", [])[:MOST_MEMBERS])


# -- streams and their frames


def on_stream(stream: int) -> bytes:
    """What each payload begins with."""
    return _STREAM.pack(stream)


def stream_of(payload: bytes) -> tuple[int, bytes]:
    """The stream of a payload, and the rest."""
    if len(payload) < _STREAM.size:
        raise LinkError("a method of no stream")
    return int(_STREAM.unpack_from(payload)[0]), payload[_STREAM.size :]


def encode_id(id_: MessageId) -> bytes:
    return _ID.pack(*id_)


def parse_id(body: bytes) -> MessageId:
    if len(body) != _ID.size:
        raise LinkError(f"an id of {len(body)} octets")
    epoch, sequence = _ID.unpack(body)
    return epoch, sequence


def digest_of(marks: int) -> str:
    """Of a set with that sum of marks."""
    return f"{marks % 2**256:064x}"


def interest_head(serial: int, flags: InterestFlag) -> bytes:
    return _INTEREST.pack(serial, flags)


def parse_interest(body: bytes) -> tuple[int, InterestFlag, bytes]:
    """Serial, flags, encoded records."""
    if len(body) < _INTEREST.size:
        raise LinkError("an interest without a serial")
    serial, flags = _INTEREST.unpack_from(body)
    if flags > InterestFlag.FIRST | InterestFlag.LAST:
        raise LinkError(f"an interest with flags {flags}")
    return serial, InterestFlag(flags), body[_INTEREST.size :]


def encode_serial(serial: int) -> bytes:
    """Also of a clock in milliseconds."""
    return _SERIAL.pack(serial)


def parse_serial(body: bytes) -> tuple[int, bytes]:
    """The number, and the rest."""
    if len(body) < _SERIAL.size:
        raise LinkError(f"a number of {len(body)} octets")
    return int(_SERIAL.unpack_from(body)[0]), body[_SERIAL.size :]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text")
    return value


def _uuid(value: Any) -> str:
    """Of a queue, in hex."""
    text = label(value)
    if len(bytes.fromhex(text)) != UUID:
        raise ValueError(text)
    return text


def is_node(text: str) -> bool:
    """May a node have this name?"""
    return 0 < len(text) <= 100 and "@" not in text and text.isprintable()


def _name(value: Any) -> str:
    text = _text(value)
    if not is_node(text):
        raise ValueError(f"{text!r} is not a node")
    return text
