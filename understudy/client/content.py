"""What arrives with messages, as py-amqp reads it, but for one thing that it does not read.

A timestamp in the headers that no `datetime` holds (after the year 9999) is its number of seconds since 1970,
an int; py-amqp raises, and the message would stop its consumer each time it comes.

Role: gathers the frames of the kit's connection into methods with their content. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from struct import pack, unpack_from
from typing import Any

import amqp
from amqp import serialization, spec
from amqp.exceptions import UnexpectedFrame

_Message: Any = amqp.Message
_read_item: Any = getattr(serialization, "_read_item")  # noqa: B009 (it has no public name)
_WITH_CONTENT = frozenset({spec.Basic.Deliver, spec.Basic.Return, spec.Basic.GetOk})
_METHOD, _HEADER, _BODY, _HEARTBEAT = 1, 2, 3, 8
_CONTENT_TYPE, _CONTENT_ENCODING, _HEADERS = 0x8000, 0x4000, 0x2000
_PROPERTIES_AT = 12
"""Of a content header: behind class, weight and size of the body."""


class _Content(_Message):  # type: ignore[misc]
    """A message that comes."""

    def inbound_header(self, buf: bytes, offset: int = 0) -> Any:
        try:
            super().inbound_header(buf, offset)
        except (ValueError, OverflowError, OSError):  # by `datetime`, for a year it has not
            headers, without = _headers_apart(buf)
            super().inbound_header(without)
            self.properties["application_headers"] = headers


def frame_handler(_connection: Any, callback: Callable[..., Any]) -> Callable[[Any], bool]:
    """What py-amqp asks to have made for each connection: takes frames, calls back with each whole method;
    the answer to whether one was whole."""
    expected: dict[int, int] = {}
    parts: dict[int, Any] = {}

    def on_frame(frame: tuple[int, int, bytes]) -> bool:
        kind, channel, payload = frame
        if kind == _HEARTBEAT:
            return False
        wanted = expected.get(channel, _METHOD)
        if kind != wanted:
            raise UnexpectedFrame(f"a frame of type {kind} on channel {channel} instead of {wanted}")
        if kind == _METHOD:
            method = unpack_from(">HH", payload)
            if method not in _WITH_CONTENT:
                callback(channel, method, payload, None)
                return True
            parts[channel] = _Content(frame_method=method, frame_args=payload)
            expected[channel] = _HEADER
            return False
        content = parts[channel]
        if kind == _HEADER:
            content.inbound_header(payload)
        else:
            content.inbound_body(payload)
        if not content.ready:
            expected[channel] = _BODY
            return False
        del parts[channel]
        expected[channel] = _METHOD
        callback(channel, content.frame_method, content.frame_args, content)
        return True

    return on_frame


def _headers_apart(buf: bytes) -> tuple[dict[Any, Any], bytes]:
    """The headers of a content header frame that has some, and the frame with none in their place."""
    (flags,) = unpack_from(">H", buf, _PROPERTIES_AT)
    start = _PROPERTIES_AT + 2
    for flag in (_CONTENT_TYPE, _CONTENT_ENCODING):
        if flags & flag:
            start += 1 + buf[start]
    if not flags & _HEADERS:
        raise ValueError("not to be read: properties without headers")
    headers, end = _read_table(buf, start)
    return headers, buf[:start] + pack(">I", 0) + buf[end:]


def _read_table(buf: bytes, offset: int) -> tuple[dict[Any, Any], int]:
    (size,) = unpack_from(">I", buf, offset)
    offset += 4
    end = offset + size
    table: dict[Any, Any] = {}
    while offset < end:
        key_at = offset + 1
        offset = key_at + buf[offset]
        key: str | bytes = buf[key_at:offset]
        try:
            key = key.decode()  # type: ignore[union-attr]
        except UnicodeDecodeError:
            pass  # octets, as py-amqp has it
        table[key], offset = _read_value(buf, offset)
    return table, end


def _read_value(buf: bytes, offset: int) -> tuple[Any, int]:
    kind = buf[offset : offset + 1]
    if kind == b"F":
        return _read_table(buf, offset + 1)
    if kind == b"A":
        (size,) = unpack_from(">I", buf, offset + 1)
        offset += 5
        end = offset + size
        values = []
        while offset < end:
            value, offset = _read_value(buf, offset)
            values.append(value)
        return values, end
    if kind == b"T":
        (seconds,) = unpack_from(">Q", buf, offset + 1)
        return _moment(seconds), offset + 9
    value, offset = _read_item(buf, offset)
    return value, offset


def _moment(seconds: int) -> datetime | int:
    try:
        return datetime.fromtimestamp(seconds, tz=UTC).replace(tzinfo=None)
    except (ValueError, OverflowError, OSError):
        return seconds
