"""Conversations of AMQP 0-9-1: methods with arguments of their types, most of which make sense."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from random import Random
from typing import Any

from broker.amqp091.codec.frames import BODY, HEADER, HEARTBEAT_FRAME, PROTOCOL_HEADER, frame
from broker.amqp091.codec.grammar import BY_NAME, METHODS, Method, encode_frame

NAMES = ("", "q", "own", "x", "amq.topic", "amq.fanout", "amq.headers", "amq.rabbitmq.trace", "a.b", "ö" * 9)
KEYS = (
    "x-max-length", "x-message-ttl", "x-expires", "x-dead-letter-exchange", "x-overflow", "x-match", "CC",
    "x-max-priority", "x-queue-type", "alternate-exchange", "x-single-active-consumer", "x-priority", "k",
)  # fmt: skip
CLIENTS = [method for method in METHODS if method.from_client and method.class_id != 10]
RIGHT: dict[str, dict[str, Any]] = {
    "queue.declare": {
        "queue": "q", "passive": False, "durable": False, "exclusive": False, "auto_delete": False,
        "arguments": {},
    },
    "basic.publish": {"exchange": "", "routing_key": "q", "immediate": False},
    "basic.consume": {"queue": "q", "exclusive": False, "consumer_tag": ""},
    "queue.bind": {"queue": "q", "exchange": "amq.topic"}, "basic.get": {"queue": "q"},
    "basic.qos": {"prefetch_size": 0}, "basic.ack": {"delivery_tag": 0, "multiple": True},
    "basic.nack": {"delivery_tag": 0, "multiple": True},
}  # fmt: skip
"""What is most often said instead of anything."""
OFTEN = ("basic.publish", "basic.publish", "basic.consume", "basic.get", "basic.ack", "basic.nack",
         "queue.declare", "queue.bind", "tx.select", "tx.commit", "confirm.select", "basic.qos")  # fmt: skip


def conversation(rng: Random) -> list[bytes]:
    """Frames of one connection, login first."""
    frames = [
        PROTOCOL_HEADER,
        encode_frame(
            0, "connection.start-ok", client_properties=_table(rng) if rng.random() < 0.3 else {},
            mechanism="PLAIN", response=b"\0guest\0guest", locale="en_US",
        ),
        encode_frame(
            0, "connection.tune-ok", channel_max=rng.choice((3, 2047, 2047)),
            frame_max=rng.choice((4096, 131072)), heartbeat=0,
        ),
        encode_frame(0, "connection.open", virtual_host="/"),
        encode_frame(1, "channel.open"), encode_frame(2, "channel.open"),
        encode_frame(1, "queue.declare", queue="q"),
    ]  # fmt: skip
    for _ in range(rng.choice((1, 3, 10, 30))):
        frames += _step(rng)
    return frames


def _step(rng: Random) -> list[bytes]:
    channel = 1 if rng.random() < 0.8 else 2 if rng.random() < 0.9 else rng.choice((0, 3, 2047, 65535))
    if rng.random() < 0.03:
        return [HEARTBEAT_FRAME]
    if rng.random() < 0.02:
        return [frame(rng.choice((1, 2, 3, 4, 8)), channel, rng.randbytes(rng.randrange(40)))]
    method = BY_NAME[rng.choice(OFTEN)] if rng.random() < 0.85 else rng.choice(CLIENTS)
    arguments = {name: _value(rng, kind) for name, kind in method.fields if name != "-"}
    if rng.random() < 0.9:
        arguments |= RIGHT.get(method.name, {})
    said = [_encoded(channel, method, arguments)]
    if method.name == "basic.publish" and rng.random() < 0.95:
        said += _content(rng, channel)
    return said


def _encoded(channel: int, method: Method, arguments: dict[str, Any]) -> bytes:
    try:
        return encode_frame(channel, method.name, **arguments)
    except (ValueError, TypeError, KeyError):
        return frame(1, channel, method.class_id.to_bytes(2, "big") + method.method_id.to_bytes(2, "big"))


def _content(rng: Random, channel: int) -> list[bytes]:
    body = bytes(rng.choice((0, 0, 1, 10, 5000)))
    flags = rng.choice((0, 0, 0, 0x1000, 0x1000, 0x2000, 0x3000, rng.getrandbits(16)))
    properties = flags.to_bytes(2, "big")
    properties += _table_octets(rng) if flags & 0x2000 else b""
    properties += bytes([rng.choice((1, 2, 9))]) if flags & 0x1000 else b""
    size = len(body) if rng.random() < 0.97 else rng.choice((0, 1, 2**31, 2**63))
    head = frame(HEADER, channel, b"\0\x3c\0\0" + size.to_bytes(8, "big") + properties)
    room = rng.choice((1, 4088, 131064)) if len(body) < 20 else 4088
    return [head, *(frame(BODY, channel, body[at : at + room]) for at in range(0, len(body), room))]


def _table_octets(rng: Random) -> bytes:
    payload = encode_frame(1, "queue.declare", queue="", arguments=_table(rng))
    return payload[7 + 4 + 2 + 1 + 1 : -1]


def _table(rng: Random, depth: int = 0) -> dict[str, Any]:
    return {rng.choice(KEYS): _field(rng, depth) for _ in range(rng.choice((0, 1, 2, 5)))}


def _field(rng: Random, depth: int) -> Any:
    kind = rng.randrange(10 if depth < 4 else 8)
    return (
        lambda: rng.choice((True, False, None)),
        lambda: rng.choice((0, 1, -1, 255, 2**31 - 1, 2**31, -(2**63), 2**63 - 1)),
        lambda: rng.choice((0.0, 1.5, float("inf"), float("nan"))),
        lambda: rng.choice(NAMES),
        lambda: rng.randbytes(rng.randrange(9)),
        lambda: Decimal(rng.choice(("0", "1.5", "-0.01"))),
        lambda: datetime.fromtimestamp(rng.choice((0, 2**31)), UTC),
        lambda: rng.choice(
            ("drop-head", "reject-publish", "quorum", "classic", "all", "any", "amq.topic", "q")
        ),
        lambda: [_field(rng, depth + 1) for _ in range(rng.randrange(3))],
        lambda: _table(rng, depth + 1),
    )[kind]()


def _value(rng: Random, kind: str) -> Any:
    match kind:
        case "bit":
            return rng.random() < 0.2
        case "octet" | "short" | "long" | "longlong":
            most = {"octet": 8, "short": 16, "long": 32, "longlong": 64}[kind]
            return rng.choice((0, 0, 1, 1, 2, 2**most - 1, rng.getrandbits(most)))
        case "shortstr" | "octets":
            return rng.choice(NAMES)
        case "longstr":
            return rng.randbytes(rng.choice((0, 3, 100)))
        case _:
            return _table(rng)
