"""The newest message ids that a queue with `x-dedup-window` took. Pure values.

Each id is known by a hash of 16 octets. Of N ids, a new one looks like a known one with odds of N in 2^128.
Ids have places, in the order in which the queue took them. Only the primary decides which of them are too
old: its records say below which place all are forgotten. So all nodes know the same ids.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

HEADER: Final = "x-dedup-id"
"""Has the id of a message; without it, the property `message-id` does."""
LONGEST_ID: Final = 1024
"""Octets of an id."""
KEY: Final = 16
"""Octets of a hash."""
VALUE: Final = 16
"""Octets of the place and time of one id, in records."""
MOST: Final = 100_000
"""The longest window: each base of the store, and each join, has all ids of a queue."""
LONGEST: Final = 315_360_000_000
"""The longest time of a window in milliseconds: ten years."""
PER_RECORD: Final = 4096

_FORM = re.compile(r"([0-9]{1,9})(?:/([0-9]{1,12})(ms|s|m|h|d))?", re.ASCII)
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_WALL = (1 << 63) - 1


class Window(NamedTuple):
    """The newest `most` ids, and of these the ones of the last `ms` milliseconds. None: of any age."""

    most: int
    ms: int | None

    def since(self, wall_ms: int) -> int:
        """Ids from before this time are not known any more."""
        return 0 if self.ms is None else max(0, wall_ms - self.ms + 1)


def window_of(value: object) -> Window | None:
    """The window that an argument such as `10000/10m` means, or None if it means none."""
    if type(value) is int:
        return Window(value, None) if 1 <= value <= MOST else None
    found = _FORM.fullmatch(value) if isinstance(value, str) else None
    if found is None or not 1 <= int(found[1]) <= MOST:
        return None
    if found[2] is None:
        return Window(int(found[1]), None)
    ms = int(found[2]) * _UNITS[found[3]]
    return Window(int(found[1]), ms) if 1 <= ms <= LONGEST else None


def key_of(octets: bytes) -> bytes:
    """The hash of an id."""
    return blake2b(octets, digest_size=KEY).digest()


class RecentIds:
    """`next`: the place of the next id. `floor`: all ids of lower places are forgotten."""

    __slots__ = ("_ids", "floor", "next")

    def __init__(self, following: int = 1, floor: int = 1) -> None:
        self.next = following
        self.floor = floor
        self._ids: OrderedDict[bytes, int] = OrderedDict()
        """By hash: place << 64 | time of the enqueue in milliseconds << 1 | whether the store has it. The
        lowest place is the first."""

    def __len__(self) -> int:
        return len(self._ids)

    def __bool__(self) -> bool:
        return True

    # -- on the primary

    def known_in(self, keys: Sequence[bytes | None], window: Window, wall_ms: int) -> set[int]:
        """Which messages of a run are not new: their places in `keys`. None: a message without an id."""
        most, since = window.most, window.since(wall_ms)
        known: set[int] = set()
        fresh: dict[bytes, int] = {}
        following = self.next
        for at, key in enumerate(keys):
            if key is None:
                continue
            place = fresh.get(key)
            if place is None:
                value = self._ids.get(key)
                place = value >> 64 if value is not None and value >> 1 & _WALL >= since else 0
            if place >= self.floor and place >= following - most:
                known.add(at)
            else:
                fresh[key] = following
                following += 1
        return known

    def floor_after(self, count: int, window: Window, wall_ms: int) -> int:
        """The floor once it has taken `count` more ids."""
        floor = max(self.floor, self.next + count - window.most)
        since = window.since(wall_ms)
        for value in self._ids.values():
            if value >> 64 >= floor and value >> 1 & _WALL >= since:
                break
            floor = max(floor, (value >> 64) + 1)
        return floor

    # -- on every node

    def note(self, first: int, floor: int, wall_ms: int, keys: Sequence[bytes], *, stored: bool) -> None:
        """The queue took these ids, from place `first` on."""
        value = first << 64 | wall_ms << 1 | stored
        for key in keys:
            self._put(key, value)
            value += 1 << 64
        self.next = max(self.next, first + len(keys))
        self._rise(floor)

    def add(self, ids: Sequence[tuple[bytes, int]]) -> None:
        """Ids with their values, as `parts` gives them."""
        for key, value in ids:
            self._put(key, value)

    def _put(self, key: bytes, value: int) -> None:
        self._ids.pop(key, None)
        self._ids[key] = value

    def _rise(self, floor: int) -> None:
        self.floor = max(self.floor, floor)
        while self._ids:
            key = next(iter(self._ids))
            if self._ids[key] >> 64 >= self.floor:
                return
            del self._ids[key]

    def copy(self) -> RecentIds:
        found = RecentIds(self.next, self.floor)
        found._ids = self._ids.copy()
        return found

    def after_restart(self) -> RecentIds:
        """What the store knows of it."""
        found = RecentIds(self.next, self.floor)
        found._ids = OrderedDict([(key, value) for key, value in self._ids.items() if value & 1])
        return found

    def with_newer(self, newer: RecentIds | None) -> RecentIds:
        """What the queue took, by both."""
        found = self.copy()
        if newer is not None:
            for key, value in newer._ids.items():
                found._put(key, value)
            found.next = max(found.next, newer.next)
            found._rise(newer.floor)
        return found

    def parts(self) -> Iterator[list[tuple[bytes, int]]]:
        """All ids with their values, in order, in pieces. One empty piece if there are none."""
        ids = list(self._ids.items())
        for at in range(0, max(1, len(ids)), PER_RECORD):
            yield ids[at : at + PER_RECORD]

    def state(self) -> tuple[int, int, list[tuple[bytes, int]]]:
        """For comparisons."""
        return self.next, self.floor, list(self._ids.items())
