"""Reads the content of messages as py-amqp does, and also two kinds of values that py-amqp rejects.

A header timestamp after the year 9999, which does not fit a `datetime`, becomes an int, in seconds since
1970. A routing key or property that is not UTF-8 becomes bytes. py-amqp raises an exception for either, so
that such a message would stop its consumer at each delivery.

Role: assembles the frames of the kit's connection into methods with their content. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from struct import unpack_from
from typing import Any

import amqp
from amqp import serialization, spec
from amqp.exceptions import UnexpectedFrame

_Message: Any = amqp.Message
_read_item: Any = getattr(serialization, "_read_item")  # noqa: B009 (it has no public name)
_WITH_CONTENT = frozenset({spec.Basic.Deliver, spec.Basic.Return, spec.Basic.GetOk})
_METHOD, _HEADER, _BODY, _HEARTBEAT = 1, 2, 3, 8


class _Content(_Message):  # type: ignore[misc]
    """A message from the broker."""

    octets_of_key: bytes | None = None
    """The routing key if py-amqp cannot decode it; the method then carries an empty key."""

    def _load_properties(self, class_id: int, buf: bytes, offset: int) -> None:
        try:
            super()._load_properties(class_id, buf, offset)
        except (ValueError, OverflowError, OSError):  # not UTF-8; or `datetime` rejects the year
            self.properties = _read_properties(buf, offset)


def frame_handler(_connection: Any, callback: Callable[..., Any]) -> Callable[[Any], bool]:
    """Make a frame handler for one connection, as py-amqp requires.

    The handler takes frames, and calls `callback` with each complete method. It returns whether the frame
    completed one."""
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
            payload, octets = _key_apart(method, payload)
            parts[channel] = content = _Content(frame_method=method, frame_args=payload)
            content.octets_of_key = octets
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


def _key_apart(method: tuple[int, int], payload: bytes) -> tuple[bytes, bytes | None]:
    """The method's payload and None; or, if py-amqp cannot decode the routing key, a payload without it and
    the key."""
    at = 4
    if method == spec.Basic.Deliver:
        at += 1 + payload[at] + 9  # the consumer tag, the delivery tag, redelivered
    elif method == spec.Basic.Return:
        at += 2
        at += 1 + payload[at]  # the reply's code and text
    else:
        at += 9
    at += 1 + payload[at]  # the exchange
    end = at + 1 + payload[at]
    key = payload[at + 1 : end]
    return (payload, None) if isinstance(_text(key), str) else (payload[:at] + b"\0" + payload[end:], key)


def _text(octets: bytes) -> str | bytes:
    """Decode as py-amqp does; bytes that it cannot decode stay bytes."""
    try:
        return octets.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return octets


def _read_properties(buf: bytes, offset: int) -> dict[str, Any]:
    (flags,) = unpack_from(">H", buf, offset)
    offset += 2
    found: dict[str, Any] = {}
    for place, (name, kind) in enumerate(_Message.PROPERTIES):
        if not flags & 0x8000 >> place:
            continue
        if kind == "F":
            found[name], offset = _read_table(buf, offset)
        elif kind == "s":
            end = offset + 1 + buf[offset]
            found[name], offset = _text(buf[offset + 1 : end]), end
        else:
            (found[name],) = unpack_from(">B" if kind == "o" else ">Q", buf, offset)
            offset += 1 if kind == "o" else 8
    return found


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
            pass  # stays bytes, as in py-amqp
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
