"""The property `reply-to`: read, and written anew. Pure functions."""

from __future__ import annotations

from broker.amqp091.codec.fields import read_octets, write_shortstr
from broker.amqp091.codec.frames import HEADER, OVERHEAD, frame
from broker.amqp091.codec.properties import DELIVERY_MODE, PRIORITY, PROPERTIES_AT, table_span
from broker.model.octets import as_text

_CORRELATION_ID, _REPLY_TO = 1 << 10, 1 << 9
_LEAST_FRAME_MAX = 4096
"""Octets of a frame that every peer takes."""


def reply_to_of(raw: bytes) -> str:
    """ "" if there is none."""
    if not raw[PROPERTIES_AT] & _REPLY_TO >> 8:
        return ""
    begin, _ = _span(raw)
    return as_text(read_octets(raw, begin)[0])


def with_reply_to(raw: bytes, text: str, most: int = _LEAST_FRAME_MAX) -> bytes:
    """The content frames with that `reply-to` in place of the one that they have. They stay unchanged if the
    header frame would be larger than before and than `most`."""
    begin, end = _span(raw)
    header_end = int.from_bytes(raw[3:7], "big") + OVERHEAD
    payload = raw[7:begin] + write_shortstr(text) + raw[end : header_end - 1]
    if len(payload) + OVERHEAD > max(header_end, most):
        return raw
    return frame(HEADER, int.from_bytes(raw[1:3], "big"), payload) + raw[header_end:]


def _span(raw: bytes) -> tuple[int, int]:
    flags = raw[PROPERTIES_AT] << 8 | raw[PROPERTIES_AT + 1]
    at = table_span(raw)[1] + bool(flags & DELIVERY_MODE) + bool(flags & PRIORITY)
    if flags & _CORRELATION_ID:
        at += 1 + raw[at]
    return at, at + 1 + raw[at]
