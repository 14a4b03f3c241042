"""Collects the pieces of an incoming message in about as much memory as the message has octets.

A `bytes` object costs 33 octets besides its contents, and its place in a list 8 more. So small pieces are
joined as they arrive, and large ones are kept. The assemblers of both protocols use this.
"""

from __future__ import annotations

MIB = 1 << 20
PER_MESSAGE = 288
"""Approximate octets of an incomplete message besides its pieces."""
_SMALL = 4096
"""Pieces smaller than this are joined."""
_RUN = 65536
"""Approximate octets of a run of joined pieces."""

Parts = list[bytes | bytearray]


def assembling_max(message_max: int) -> int:
    """Maximum octets of incomplete messages on one connection. Enough for one message of maximum size in
    small frames."""
    return max(64 * MIB, message_max + message_max // 16 + MIB)


def gather(parts: Parts, piece: bytes | bytearray) -> None:
    """Append a piece. Only the last run may still grow and have unused room."""
    if len(piece) >= _SMALL:
        parts.append(piece)
        return
    last = parts[-1] if parts else None
    if not isinstance(last, bytearray):
        parts.append(bytearray(piece))
        return
    last += piece
    if len(last) >= _RUN:
        parts[-1] = bytes(last)
