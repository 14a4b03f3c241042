"""SASL in AMQP 1.0 (part 5, 5.3): mechanisms out, init in, outcome out. Only PLAIN, and EXTERNAL by a
certificate.

The engine's own SASL supports PLAIN for servers only with a system library.
"""

from __future__ import annotations

from collections.abc import Sequence

from understudy.shared.amqp10.conditions import DECODE, NOT_IMPLEMENTED, Fault
from understudy.shared.amqp10.framing import SASL
from understudy.shared.amqp10.types import DecodeError, Described, Symbol, read

LARGEST_FRAME = 4096
"""Octets. The 512 of the standard would exclude long passwords."""
OK, AUTH, TEMPORARY = 0, 1, 4
PLAIN, EXTERNAL = "PLAIN", "EXTERNAL"
_INIT = 0x41


def frame(body: bytes) -> bytes:
    """A SASL frame."""
    return (8 + len(body)).to_bytes(4, "big") + bytes((2, SASL, 0, 0)) + body


def mechanisms(names: Sequence[str]) -> bytes:
    """A sasl-mechanisms frame, of at most 200 octets."""
    symbols = b"".join([bytes((len(name),)) + name.encode() for name in names])
    array = b"\xe0" + bytes((len(symbols) + 2, len(names))) + b"\xa3" + symbols
    return frame(b"\x00\x53\x40\xc0" + bytes((len(array) + 1, 1)) + array)


def outcome(code: int) -> bytes:
    """A sasl-outcome frame."""
    return frame(b"\x00\x53\x44\xc0\x03\x01\x50" + bytes((code,)))


def initial_response(buf: bytes, at: int, end: int, offered: Sequence[str]) -> tuple[str, bytes]:
    """The mechanism and response in the complete sasl-init frame from `at` to `end`. Raises Fault."""
    start = at + buf[at + 4] * 4
    try:
        value, stop = read(buf, start, end)
    except DecodeError as error:
        raise Fault(DECODE, f"SASL frame that is not well-formed: {error}") from None
    fields = value.value if isinstance(value, Described) and stop == end else None
    if (
        fields is None
        or value.descriptor not in (_INIT, "amqp:sasl-init:list")
        or not isinstance(fields, list)
    ):
        raise Fault(DECODE, "SASL frame other than sasl-init")
    mechanism, response = [*fields, None, None][:2]
    if not isinstance(mechanism, Symbol):
        raise Fault(DECODE, "sasl-init without a mechanism")
    if mechanism not in offered:
        raise Fault(
            NOT_IMPLEMENTED, f"mechanism {mechanism[:40]!r} is not supported, only {' '.join(offered)}"
        )
    if mechanism == EXTERNAL:
        return EXTERNAL, b""
    if not isinstance(response, bytes):
        raise Fault(DECODE, "sasl-init without an initial response")
    return PLAIN, response
