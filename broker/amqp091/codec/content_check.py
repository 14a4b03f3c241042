"""Whether content frames that no publisher has sent to this broker are a message. Called for those of a
source elsewhere: whoever delivers, or dead-letters, takes for granted that a message can be read.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.amqp091.codec.frames import BODY, FRAME_END, HEADER, OVERHEAD
from broker.amqp091.codec.properties import PROPERTIES_AT, check
from broker.errors import PreconditionFailed, SyntaxError_

_CLASS = b"\0\x3c"
_LEAST = PROPERTIES_AT + 3
"""Octets of a header frame: two of flags, and the frame's end."""


def unreadable(raws: Iterable[bytes]) -> str:
    """What is wrong with the first that is no message; "" if all are. The same properties in a row are looked
    at once."""
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
                pass  # it can be read; to take such a one was the source's own affair
            seen = properties
    return ""


def _whole(raw: bytes, at: int) -> bool:
    """Whether the body frames from `at` on hold as much as announced, and end with the message."""
    size, missing = len(raw), int.from_bytes(raw[11:19], "big")
    while at < size:
        length = int.from_bytes(raw[at + 3 : at + 7], "big")
        at += OVERHEAD + length
        if at > size or raw[at - OVERHEAD - length] != BODY or raw[at - 1] != FRAME_END:
            return False
        missing -= length
    return missing == 0
