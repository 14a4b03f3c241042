"""Frames of AMQP 1.0 (part 2, 2.3), looked through before the engine gets them.

Role: what arrives is checked here for form: sizes, types, and that each body is one well-formed performative
in bounded depth and number of elements. So a fault is told in one line of ours, and the engine, which is C,
sees nothing that is not whole.
"""

from __future__ import annotations

import struct
from typing import cast

from understudy.shared.amqp10.conditions import DECODE, FRAMING, HANDLE_IN_USE, LIMIT, NOT_ALLOWED, Fault
from understudy.shared.amqp10.performatives import ATTACH, BEGIN, CLOSE, DETACH, END, VERIFIED, verify
from understudy.shared.amqp10.types import DecodeError, Described, Symbol, read, skip, write
from understudy.shared.amqp10.values import ULong

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
EMPTY_FRAME = b"\x00\x00\x00\x08\x02\x00\x00\x00"
"""A sign of life."""
AMQP, SASL = 0, 1
CHANNEL_MAX = 255
HANDLES_MAX = 8192
"""Handles that a client may have attached and not detached, of links that were refused too."""
LARGEST_PERFORMATIVE = 16 * 1024
"""Octets; the payload of a transfer is besides. The engine keeps those of open, begin and attach, with their
properties, for as long as there is what they made."""
_HEAD = 8
_TRANSFER, DISPOSITION = 0x14, 0x15
_ERROR = ULong(0x1D)
_PERFORMATIVES = frozenset(range(0x10, 0x19))
_SMALL_ULONG = 0x53
_NAMES = {
    b"amqp:open:list": 0x10, b"amqp:begin:list": 0x11, b"amqp:attach:list": 0x12, b"amqp:flow:list": 0x13,
    b"amqp:transfer:list": 0x14, b"amqp:disposition:list": 0x15, b"amqp:detach:list": 0x16,
    b"amqp:end:list": 0x17, b"amqp:close:list": 0x18,
}  # fmt: skip
_WORDS = {code: name.decode().split(":")[1] for name, code in _NAMES.items()}

head = struct.Struct(">IBB").unpack_from
"""(size, data offset in words, type) of the frame at an offset; needs 8 octets."""


def whole(buf: bytes, at: int, kind: int, largest: int) -> int:
    """Where the frame at `at` ends; 0 while it is not whole. Raises Fault for what is no frame of `kind`."""
    if len(buf) - at < _HEAD:
        return 0
    size, offset, found = head(buf, at)
    if size < _HEAD or size > largest:
        raise Fault(FRAMING, f"frame of {size} octets: at least {_HEAD}, at most {largest}")
    if offset < 2 or offset * 4 > size:
        raise Fault(FRAMING, f"frame of {size} octets with its body at octet {offset * 4}")
    if found != kind:
        wanted = "SASL" if kind == SASL else "AMQP"
        raise Fault(FRAMING, f"frame of type {found} where one of {wanted} was expected")
    return at + size if at + size <= len(buf) else 0


def check(buf: bytes, at: int, end: int) -> tuple[int, int]:
    """The whole AMQP frame from `at` to `end` is empty, or has one performative, and a payload only where
    that is a transfer. Its code, and where its list of fields begins; (0, 0): it is empty. Raises Fault."""
    start = at + buf[at + 4] * 4
    if start == end:
        return 0, 0
    try:
        code, body = _descriptor(buf, start, end)
        if buf[body : body + 1] not in (b"\x45", b"\xc0", b"\xd0"):
            raise DecodeError(f"a performative is a list (offset {body - at})")
        if code != _TRANSFER and end - start > LARGEST_PERFORMATIVE:
            told = f"{_WORDS[code]} of {end - start} octets is above the maximum of {LARGEST_PERFORMATIVE}"
            raise Fault(LIMIT, told)
        stop = skip(buf, body, end)
    except DecodeError as error:
        raise Fault(DECODE, f"frame that is not well-formed: {error}") from None
    if stop != end and code != _TRANSFER:
        raise Fault(FRAMING, f"{end - stop} octets behind a performative that has no payload")
    return code, body


def _descriptor(buf: bytes, at: int, end: int) -> tuple[int, int]:
    """Its code, and where what it describes begins."""
    if end - at >= 3 and buf[at] == 0 and buf[at + 1] == _SMALL_ULONG:
        code, body = buf[at + 2], at + 3
    elif end - at >= 10 and buf[at] == 0 and buf[at + 1] == 0x80:
        code, body = int.from_bytes(buf[at + 2 : at + 10], "big"), at + 10
    elif end - at >= 3 and buf[at] == 0 and buf[at + 1] == 0xA3:
        body = at + 3 + buf[at + 2]
        code = _NAMES.get(buf[at + 3 : body], -1)
    else:
        raise DecodeError("it begins with no descriptor")
    if code not in _PERFORMATIVES:
        raise DecodeError("its descriptor is that of no performative")
    return code, body


def close(fault: Fault) -> bytes:
    """A frame with close, and why."""
    error = Described(_ERROR, [Symbol(fault.condition), fault.text])
    body = write(Described(ULong(CLOSE), [error]))
    return (8 + len(body)).to_bytes(4, "big") + bytes((2, AMQP, 0, 0)) + body


def deliveries(buf: bytes, disposition: int) -> int:
    """Of how many deliveries one speaks at most, whose list of fields begins there; it has been checked."""
    at = disposition + (3 if buf[disposition] == 0xC0 else 9)
    first, at = _uint(buf, at + (2 if buf[at : at + 1] == b"\x56" else 1))
    last, _ = _uint(buf, at)
    return 1 if first is None or last is None else (last - first) % (1 << 32) + 1


def _uint(buf: bytes, at: int) -> tuple[int | None, int]:
    """The uint there, and where the next field begins; None: there is none."""
    kind = buf[at : at + 1]
    if kind == b"\x52":
        return buf[at + 1], at + 2
    if kind == b"\x70":
        return int.from_bytes(buf[at + 1 : at + 5], "big"), at + 5
    return (0 if kind == b"\x43" else None), at + 1


class Numbers:
    """Which channels have a session, and which handles a link, as the client has them: the engine would take
    a second one for the same, and forget the first."""

    __slots__ = ("_count", "_handles")

    def __init__(self) -> None:
        self._handles: dict[int, set[int]] = {}
        self._count = 0

    def follow(self, buf: bytes, at: int, end: int, performative: int, body: int) -> None:
        """The frame from `at` to `end` has been checked. Raises Fault."""
        if performative not in VERIFIED:
            return
        fields, _ = read(buf, body, end)
        verify(performative, fields)
        channel = int.from_bytes(buf[at + 6 : at + 8], "big")
        if performative == BEGIN:
            if channel > CHANNEL_MAX:
                raise Fault(FRAMING, f"channel {channel} is above the maximum of {CHANNEL_MAX}")
            if channel in self._handles:
                raise Fault(NOT_ALLOWED, f"begin on channel {channel}, which has a session")
            self._handles[channel] = set()
        elif performative == END:
            self._count -= len(self._handles.pop(channel, ()))
        elif performative in (ATTACH, DETACH):
            self._handle(channel, performative, fields)

    def _handle(self, channel: int, performative: int, fields: list[object]) -> None:
        handle = cast(int, fields[1 if performative == ATTACH else 0])
        handles = self._handles.get(channel, set())
        before = len(handles)
        if performative == DETACH:
            handles.discard(handle)
        elif handle in handles:
            raise Fault(HANDLE_IN_USE, f"attach with handle {handle} of channel {channel}, which has a link")
        elif self._count >= HANDLES_MAX:
            raise Fault(LIMIT, f"more than {HANDLES_MAX} handles attached on one connection")
        else:
            handles.add(handle)
        if channel in self._handles:
            self._count += len(handles) - before
