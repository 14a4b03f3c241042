"""What makes a frame, or a conversation, wrong. Pure, from a `Random`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random

Mutation = Callable[[Random, list[bytes]], None]
EDGES = (0, 1, 0x7F, 0x80, 0xCE, 0xFE, 0xFF)


def spoil(rng: Random, frames: list[bytes]) -> None:
    """A few of the frames, or their order, in place. A third of all conversations stay as they are."""
    for _ in range(rng.choice((0, 0, 1, 1, 1, 3, 8))):
        if frames:
            rng.choice(MUTATIONS)(rng, frames)


def _one(rng: Random, frames: list[bytes], change: Callable[[bytearray], None]) -> None:
    at = rng.randrange(len(frames))
    frame = bytearray(frames[at])
    if frame:
        change(frame)
    frames[at] = bytes(frame)


def _flip(rng: Random, frames: list[bytes]) -> None:
    def change(frame: bytearray) -> None:
        frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)

    _one(rng, frames, change)


def _edge(rng: Random, frames: list[bytes]) -> None:
    def change(frame: bytearray) -> None:
        frame[rng.randrange(len(frame))] = rng.choice(EDGES)

    _one(rng, frames, change)


def _wide_edge(rng: Random, frames: list[bytes]) -> None:
    """Four octets: a length, a count, a number of channel or handle."""

    def change(frame: bytearray) -> None:
        at = rng.randrange(len(frame))
        frame[at : at + 4] = rng.choice((0, 1, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)).to_bytes(4, "big")

    _one(rng, frames, change)


def _cut(rng: Random, frames: list[bytes]) -> None:
    def change(frame: bytearray) -> None:
        del frame[rng.randrange(len(frame)) :]

    _one(rng, frames, change)


def _insert(rng: Random, frames: list[bytes]) -> None:
    def change(frame: bytearray) -> None:
        at = rng.randrange(len(frame) + 1)
        frame[at:at] = rng.randbytes(rng.choice((1, 2, 4, 8, 300)))

    _one(rng, frames, change)


def _remove(rng: Random, frames: list[bytes]) -> None:
    def change(frame: bytearray) -> None:
        at = rng.randrange(len(frame))
        del frame[at : at + rng.choice((1, 2, 4, 8))]

    _one(rng, frames, change)


def _drop(rng: Random, frames: list[bytes]) -> None:
    del frames[rng.randrange(len(frames))]


def _twice(rng: Random, frames: list[bytes]) -> None:
    at = rng.randrange(len(frames))
    frames[at:at] = [frames[at]] * rng.choice((1, 1, 5, 50))


def _swap(rng: Random, frames: list[bytes]) -> None:
    one, other = rng.randrange(len(frames)), rng.randrange(len(frames))
    frames[one], frames[other] = frames[other], frames[one]


def _noise(rng: Random, frames: list[bytes]) -> None:
    frames.insert(rng.randrange(len(frames) + 1), rng.randbytes(rng.choice((1, 7, 8, 100, 5000))))


MUTATIONS: tuple[Mutation, ...] = (
    _flip, _edge, _edge, _wide_edge, _wide_edge, _cut, _insert, _remove, _drop, _twice, _swap, _noise,
)  # fmt: skip


def in_pieces(rng: Random, frames: list[bytes]) -> list[bytes]:
    """As the network may bring them: a frame at a time, all at once, or cut anywhere."""
    how = rng.randrange(4)
    data = b"".join(frames)
    if how == 0:
        return frames
    if how == 1 or len(data) < 2:
        return [data]
    cuts = sorted({0, len(data), *(rng.randrange(len(data)) for _ in range(rng.choice((1, 3, 20))))})
    return [data[begin:end] for begin, end in pairwise(cuts)]
