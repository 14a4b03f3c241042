"""SlowDisk: how slow the disk of one machine was, and until when. Owner: Machine."""

from __future__ import annotations


class SlowDisk:
    """The slow times of one disk, the last of which may last. Times are of the virtual clock, in seconds."""

    def __init__(self) -> None:
        self._times: list[tuple[float, float]] = []
        """Until when, and what each sync took that began before that."""

    def begin(self, seconds: float, now: float, until: float) -> None:
        """Each sync takes so long that begins before `until`; what was said before ends."""
        if self._times:
            before, took = self._times.pop()
            self._times.append((min(before, now), took))
        self._times.append((until, seconds))

    def takes(self, now: float) -> float:
        """What a sync takes that begins now."""
        until, seconds = self._times[-1] if self._times else (0.0, 0.0)
        return seconds if now < until else 0.0

    def longest(self, since: float) -> float:
        """Of the syncs that may not have ended by `since`, or began later."""
        return max((seconds for until, seconds in self._times if until + seconds >= since), default=0.0)
