"""A message that comes in pieces takes about as much memory as it has octets, however small they are.

A `bytes` object costs 33 octets besides what it holds, and its place in a list 8 more: small pieces are
joined as they come, large ones kept as they are. Used by what assembles messages of either protocol.
"""

from __future__ import annotations

MIB = 1 << 20
PER_MESSAGE = 288
"""Octets that a message which is not whole yet takes besides its pieces, about."""
_SMALL = 4096
"""Pieces below this are joined."""
_RUN = 65536
"""Joined pieces make runs of about so many octets."""

Parts = list[bytes | bytearray]


def assembling_max(message_max: int) -> int:
    """Most octets of unfinished messages on one connection: one of the largest, in small frames, has room."""
    return max(64 * MIB, message_max + message_max // 16 + MIB)


def gather(parts: Parts, piece: bytes | bytearray) -> None:
    """Append a piece. Only the last run may still grow, and have room that it does not use."""
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
