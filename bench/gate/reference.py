"""The fixed work that a broker's CPU time is divided by. A change of it makes every baseline worthless.

It is plain Python on purpose: never compiled, and nothing of Understudy has a part in it. Steps do what a
broker does most: they unpack frame heads, slice bytes, make small objects, and keep them in dicts and deques.
"""

from __future__ import annotations

import struct
import time
from collections import deque

_OCTETS = bytes(range(256)) * 8
_HEAD = struct.Struct(">BHI")
STEPS = 400
"""Of one unit. A step is what figures are in: some 0.8 us on a core of 2024."""
_KEPT, _LEAVE = 50, 25


class _Item:
    __slots__ = ("number", "octets")

    def __init__(self, number: int, octets: bytes) -> None:
        self.number = number
        self.octets = octets


def unit() -> int:
    """About 0.3 ms of work. Returns a number that depends on all of it."""
    table: dict[int, _Item] = {}
    order: deque[_Item] = deque()
    total = 0
    for number in range(STEPS):
        at = number * 7 & 1023
        kind, channel, size = _HEAD.unpack_from(_OCTETS, at)
        octets = _OCTETS[at : at + 256]
        item = _Item(number, octets)
        order.append(item)
        table[number] = item
        total += kind + channel + (size & 0xFF) + len(octets)
        if len(order) > _KEPT:
            for done in [order.popleft() for _ in range(_LEAVE)]:
                del table[done.number]
    return total + len(table)


def slice_us(units: int) -> float:
    """CPU microseconds a unit of this thread, over so many units."""
    begun = time.thread_time_ns()
    for _ in range(units):
        unit()
    return (time.thread_time_ns() - begun) / 1e3 / units
