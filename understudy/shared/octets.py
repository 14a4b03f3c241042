"""Octets in pieces, joined or cut with as few copies as possible."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def blocks(parts: Iterable[bytes], size: int) -> Iterator[bytes]:
    """`parts` in order: small ones joined up to `size` octets, larger ones as they are, without a copy."""
    gathered: list[bytes] = []
    octets = 0
    for part in parts:
        if octets and octets + len(part) > size:
            yield b"".join(gathered)
            gathered, octets = [], 0
        if len(part) >= size:
            yield part
        else:
            gathered.append(part)
            octets += len(part)
    if octets:
        yield b"".join(gathered)


def cut(parts: Iterable[bytes], size: int) -> Iterator[bytes]:
    """`parts`, as if joined, in pieces of `size` octets; the last piece has the rest. The pieces are the only
    copies."""
    gathered: list[bytes] = []
    room = size
    for part in parts:
        at = 0
        while len(part) - at > room:
            gathered.append(part[at : at + room])
            yield b"".join(gathered)
            at += room
            gathered, room = [], size
        gathered.append(part[at:])
        room -= len(part) - at
    if gathered:
        yield b"".join(gathered)
