"""Frames of AMQP 1.0 (part 2, 2.3), checked before the engine gets them.

Role: checks the form of all input: sizes, types, and that each body is one well-formed performative of
limited depth and number of elements. So an error is reported in a line of ours, and the engine, which is
written in C, gets only complete frames.
"""

from __future__ import annotations

import re
import struct
from functools import lru_cache
from typing import cast

from understudy.shared.amqp10.conditions import DECODE, FRAMING, HANDLE_IN_USE, LIMIT, NOT_ALLOWED, Fault
from understudy.shared.amqp10.performatives import ATTACH, BEGIN, CLOSE, DETACH, END, VERIFIED, verify
from understudy.shared.amqp10.types import DecodeError, Described, Symbol, read, skip, write
from understudy.shared.amqp10.values import ULong

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
EMPTY_FRAME = b"\x00\x00\x00\x08\x02\x00\x00\x00"
"""A heartbeat."""
AMQP, SASL = 0, 1
CHANNEL_MAX = 255
HANDLES_MAX = 8192
"""Maximum handles that a client has attached and not detached, including those of refused links."""
LARGEST_PERFORMATIVE = 16 * 1024
"""Octets, without the payload of a transfer. The engine keeps open, begin and attach with their properties as
long as the connection, session or link exists."""
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
_USUAL_TRANSFER = b"\x00\x53\x14\xc0"
_UINTS = {0x43: 1, 0x52: 2, 0x70: 5}
"""Octets of a uint by its format code, which is among them."""
_plain = re.compile(rb"[\x40-\x43]|\x52.|\x70.{4}|\x56[\0\1]", re.DOTALL)
_USUAL_ANSWERS = (b"\x00\x53\x13\xc0", b"\x00\x53\x15\xc0")
_answers = re.compile(_plain.pattern + rb"|\0\x53[\x24-\x26]\x45", re.DOTALL)
_WORDS = {code: name.decode().split(":")[1] for name, code in _NAMES.items()}

head = struct.Struct(">IBB").unpack_from
"""(size, data offset in words, type) of the frame at an offset; needs 8 octets."""


def whole(buf: bytes, at: int, kind: int, largest: int) -> int:
    """The end of the frame at `at`; 0 if the frame is incomplete. Raises Fault if it is no valid frame of
    `kind`."""
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
    """Check that the complete AMQP frame from `at` to `end` is empty, or holds one performative, with a
    payload only after a transfer. Returns the code of the performative, and where its list of fields begins;
    (0, 0) for an empty frame. Raises Fault."""
    start = at + buf[at + 4] * 4
    if start == end:
        return 0, 0
    if _is_usual_transfer(buf, start, end):
        return _TRANSFER, start + 3
    if _is_usual_answer(buf, start, end):
        return buf[start + 2], start + 3
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


def _is_usual_transfer(buf: bytes, at: int, end: int) -> bool:
    """Whether a valid transfer begins at `at`, as most clients write it: a short list of a handle, a delivery
    id, a tag, and plain values. False if it has to be looked at whole."""
    if not buf.startswith(_USUAL_TRANSFER, at) or at + 6 >= end:
        return False
    stop, count = at + 5 + buf[at + 4], buf[at + 5]
    if stop > end:
        return False
    at += 6
    for _ in (0, 1):
        width = _UINTS.get(buf[at], 0) if at < stop else 0
        if not width:
            return False
        at += width
    if at + 1 >= stop or buf[at] != 0xA0:
        return False
    at += 2 + buf[at + 1]
    return at <= stop and 3 + _plain_values(buf[at:stop]) == count


def _is_usual_answer(buf: bytes, at: int, end: int) -> bool:
    """Whether the frame's body is a valid flow or disposition, as most clients write it: a short list of
    plain values and outcomes without fields."""
    if not buf.startswith(_USUAL_ANSWERS, at) or at + 6 > end or at + 5 + buf[at + 4] != end:
        return False
    values = _answers.findall(buf, at + 6, end)
    return len(values) == buf[at + 5] and sum([len(value) for value in values]) == end - at - 6


@lru_cache(maxsize=256)
def _plain_values(octets: bytes) -> int:
    """The number of values in fields that are nothing but null, booleans and uints; else a number that no
    list has."""
    values = _plain.findall(octets)
    return len(values) if sum([len(value) for value in values]) == len(octets) else 1000


def _descriptor(buf: bytes, at: int, end: int) -> tuple[int, int]:
    """The code of the descriptor, and where the described value begins."""
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
    """A close frame with the fault as its error."""
    error = Described(_ERROR, [Symbol(fault.condition), fault.text])
    body = write(Described(ULong(CLOSE), [error]))
    return (8 + len(body)).to_bytes(4, "big") + bytes((2, AMQP, 0, 0)) + body


def deliveries(buf: bytes, disposition: int) -> int:
    """The maximum number of deliveries of a disposition. Its list of fields begins at `disposition`, and has
    been checked."""
    at = disposition + (3 if buf[disposition] == 0xC0 else 9)
    first, at = _uint(buf, at + (2 if buf[at : at + 1] == b"\x56" else 1))
    last, _ = _uint(buf, at)
    return 1 if first is None or last is None else (last - first) % (1 << 32) + 1


def _uint(buf: bytes, at: int) -> tuple[int | None, int]:
    """The uint at `at`, or None, and where the next field begins."""
    kind = buf[at : at + 1]
    if kind == b"\x52":
        return buf[at + 1], at + 2
    if kind == b"\x70":
        return int.from_bytes(buf[at + 1 : at + 5], "big"), at + 5
    return (0 if kind == b"\x43" else None), at + 1


class Numbers:
    """The channels that have a session and the handles that have a link, as the client numbers them. The
    engine would accept a number twice, and forget the first use."""

    __slots__ = ("_count", "_handles")

    def __init__(self) -> None:
        self._handles: dict[int, set[int]] = {}
        self._count = 0

    def follow(self, buf: bytes, at: int, end: int, performative: int, body: int) -> None:
        """Note the frame from `at` to `end`, which has been checked. Raises Fault."""
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
