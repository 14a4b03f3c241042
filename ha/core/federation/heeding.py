"""Heeding: what the node at the other end of a link wants, as it is told, and applied in slices.

Owner: LinkFeeders. Makes calls on its `apply`. A set of 40,000 bindings is far more than a tick may take. So
what was told waits here, in order, and each tick applies a share of it. What waits is bounded: `Telling`
stays below that by itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from ha.core.errors import LinkError
from ha.core.federation.wire import LARGEST_INTEREST, InterestFlag, parse_interest

SLICE = 500
"""Bindings that one tick applies, of all links together."""
MOST_WAITING = 4 * LARGEST_INTEREST
"""Octets of one link that may wait."""
FRAME = 64
"""What a frame counts for, besides its octets."""
Apply = Callable[[InterestFlag, bytes], Iterator[None]]


class InterestRefused(Exception):
    """What the other node wants is too much, or wrong: `str` says why. The link ends."""


class Heeding:
    """`apply`: changes what is wanted by the records of one frame, one change at each step. It raises
    InterestRefused, or LinkError for records that cannot be read."""

    def __init__(self, apply: Apply) -> None:
        self._apply = apply
        self._frames: deque[tuple[int, int, Iterator[None]]] = deque()
        """Of each frame that waits: its serial, its octets, and what is left to apply."""
        self._octets = 0

    @property
    def waits(self) -> bool:
        return bool(self._frames)

    def told(self, body: bytes) -> None:
        """A frame came. LinkError if it cannot be right, or if too much waits already."""
        serial, flags, records = parse_interest(body)
        size = len(records) + FRAME
        self._octets += size
        if self._octets > MOST_WAITING:
            raise LinkError(f"more than {MOST_WAITING:,} octets of interest that are not applied yet")
        self._frames.append((serial, size, self._apply(flags, records)))

    def go_on(self, most: int) -> tuple[int, int]:
        """Apply up to `most` changes. Returns how many were applied, and the serial of the newest frame that
        is whole now; 0 if none is."""
        applied = whole = 0
        while self._frames:
            serial, size, steps = self._frames[0]
            for _ in steps:
                applied += 1
                if applied >= most:
                    return applied, whole
            self._frames.popleft()
            self._octets -= size
            whole = serial
        return applied, whole
