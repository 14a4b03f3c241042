"""Checks that content frames from another broker are a valid message.

Used for a source's messages, which no publisher sent to this broker: delivery and dead-lettering rely on
readable messages.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.amqp091.codec.frames import BODY, FRAME_END, HEADER, OVERHEAD
from broker.amqp091.codec.properties import PROPERTIES_AT, check
from broker.errors import PreconditionFailed, SyntaxError_

_CLASS = b"\0\x3c"
_LEAST = PROPERTIES_AT + 3
"""Minimum octets of a header frame: up to the properties, two of flags, and the frame end."""


def unreadable(raws: Iterable[bytes]) -> str:
    """The fault of the first invalid message; "" if all are valid. Equal consecutive properties are checked
    once."""
    seen = b""
    for raw in raws:
        end = int.from_bytes(raw[3:7], "big") + OVERHEAD
        if not (len(raw) >= end >= _LEAST and raw[0] == HEADER and raw[end - 1] == FRAME_END):
            return "no content header"
        if raw[7:9] != _CLASS or not _whole(raw, end):
            return "a body that is not as its header says"
        properties = raw[PROPERTIES_AT : end - 1]
        if properties != seen:
            try:
                check(properties)
            except SyntaxError_ as error:
                return error.text
            except PreconditionFailed:
                pass  # readable; the source has decided to accept it
            seen = properties
    return ""


def _whole(raw: bytes, at: int) -> bool:
    """Whether the body frames from `at` on have the announced size and end with the message."""
    size, missing = len(raw), int.from_bytes(raw[11:19], "big")
    while at < size:
        length = int.from_bytes(raw[at + 3 : at + 7], "big")
        at += OVERHEAD + length
        if at > size or raw[at - OVERHEAD - length] != BODY or raw[at - 1] != FRAME_END:
            return False
        missing -= length
    return missing == 0
