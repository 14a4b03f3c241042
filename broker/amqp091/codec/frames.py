"""Constants and small pure functions of AMQP 0-9-1 framing (section 4.2.3)."""

from __future__ import annotations

import struct
from collections.abc import Callable

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_END = 0xCE
OVERHEAD = 8
"""Octets of a frame around its payload: type, channel, size, end."""
FRAME_MIN = 4096
"""Smallest frame_max that either side may ask for (section 4.2.3, frame-min-size)."""

HEARTBEAT_FRAME = b"\x08\x00\x00\x00\x00\x00\x00\xce"

head: Callable[[bytes, int], tuple[int, int, int]] = struct.Struct(">BHI").unpack_from
"""(type, channel, payload size) of the frame at an offset; needs 7 octets."""

PUBLISH = b"\x00\x3c\x00\x28"
"""Class and method ids of basic.publish, at the start of its payload."""
ACK = b"\x00\x3c\x00\x50"
REJECT = b"\x00\x3c\x00\x5a"
NACK = b"\x00\x3c\x00\x78"

tag_bytes = struct.Struct(">Q").pack
"""A delivery tag as eight octets."""

_ack_frame = struct.Struct(">BHIHHQBB").pack


def ack_frame(channel: int, tag: int, *, multiple: bool) -> bytes:
    """basic.ack, here a publisher confirm."""
    return _ack_frame(METHOD, channel, 13, 60, 80, tag, multiple, FRAME_END)


def nack_frame(channel: int, tag: int, *, multiple: bool) -> bytes:
    """basic.nack to a publisher: refused."""
    return _ack_frame(METHOD, channel, 13, 60, 120, tag, multiple, FRAME_END)


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """One complete frame."""
    return b"%c%b%b%b\xce" % (kind, channel.to_bytes(2, "big"), len(payload).to_bytes(4, "big"), payload)


def extension_head(channel: int, method_id: int, length: int) -> bytes:
    """A frame of the extension class up to its payload of `length` octets. A frame end follows the
    payload."""
    return struct.pack(">BHIHHI", METHOD, channel, length + 8, 250, method_id, length)


EXTENSION_OVERHEAD = OVERHEAD + 8
"""Octets of an extension frame around its payload."""


def body_frames(channel: int, body: bytes, frame_max: int) -> list[bytes]:
    """`body` split into body frames of at most `frame_max` octets; none for an empty body."""
    room = frame_max - OVERHEAD
    return [frame(BODY, channel, body[at : at + room]) for at in range(0, len(body), room)]


def reframe(raw: bytes, channel: int, frame_max: int) -> bytes:
    """The content frames `raw` for another channel or a smaller `frame_max`.

    The header frame cannot be split: a larger one stays whole, as in RabbitMQ (its errata, 11). Most clients
    accept it. A client that does not closes its own connection, and others can consume the message.
    """
    number = channel.to_bytes(2, "big")
    at = int.from_bytes(raw[3:7], "big") + OVERHEAD
    parts = [raw[:1], number, raw[3:at]]
    size = len(raw)
    while at < size:
        length = int.from_bytes(raw[at + 3 : at + 7], "big")
        if length + OVERHEAD > frame_max:
            return b"".join(parts) + _recut(raw, at, channel, frame_max)
        end = at + OVERHEAD + length
        parts += (b"\x03", number, raw[at + 3 : end])
        at = end
    return b"".join(parts)


def _recut(raw: bytes, at: int, channel: int, frame_max: int) -> bytes:
    """The body frames from `at` on, joined and split again."""
    pieces = []
    while at < len(raw):
        end = at + OVERHEAD + int.from_bytes(raw[at + 3 : at + 7], "big")
        pieces.append(raw[at + 7 : end - 1])
        at = end
    return b"".join(body_frames(channel, b"".join(pieces), frame_max))


def body_of(raw: bytes) -> bytes:
    """The message body inside content frames."""
    at = int.from_bytes(raw[3:7], "big") + OVERHEAD
    pieces = []
    while at < len(raw):
        end = at + OVERHEAD + int.from_bytes(raw[at + 3 : at + 7], "big")
        pieces.append(raw[at + 7 : end - 1])
        at = end
    return b"".join(pieces)
