"""The virtual clock: a queue of events in time order, and the trace of what happened.

Everything in a run happens inside an event of this queue; nothing else moves the time. The order of two
events at one instant is the order in which they were scheduled, so a run depends on its seed only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Any

WALL_START_MS = 1_700_000_000_000
"""What the wall clock shows, in milliseconds, when a run begins."""

TRANSCRIPT_LINES = 120
STUCK = 5000
"""Events at one instant after which a run is given up."""
BATCH = 64
"""Lines of the trace that are hashed at once."""

Action = Callable[[], object]


class Timer(list[Any]):
    """One scheduled call, as it stands in the heap: when, order, action. `cancel` makes it a no-op.

    A list because the heap compares lists in C, and the order makes each comparison end before the action.
    """

    __slots__ = ()

    def cancel(self) -> None:
        self[2] = None


class Clock:
    """Virtual time in seconds from 0. `note` writes a line of the trace: hashed always, kept if recent."""

    def __init__(self, keep: int = TRANSCRIPT_LINES) -> None:
        self.now = 0.0
        self.events = 0
        self._heap: list[Timer] = []
        self._order = 0
        self._still = 0
        self._digest = blake2b(digest_size=16)
        self._unhashed: list[str] = []
        self.recent: deque[str] = deque(maxlen=keep)
        self.echo: Callable[[str], None] | None = None

    @property
    def wall_ms(self) -> int:
        return WALL_START_MS + int(self.now * 1000)

    def after(self, delay: float, action: Action) -> Timer:
        """Run `action` in `delay` seconds (at once, but not now, for 0)."""
        self._order = order = self._order + 1
        timer = Timer((self.now + delay if delay > 0.0 else self.now, order, action))
        heappush(self._heap, timer)
        return timer

    def at(self, when: float, action: Action) -> Timer:
        return self.after(when - self.now, action)

    def run(self, until: float) -> None:
        """Run all events up to time `until`; it is then that time."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            when, _, action = heappop(heap)
            if action is None:
                continue
            if when > self.now:
                self.now = when
                self._still = 0
            else:
                self._still += 1
                if self._still > STUCK:
                    raise RuntimeError(
                        f"{STUCK} events at one instant, {when:.6f} s: somebody's deadline never passes"
                    )
            self.events += 1
            action()
        if until > self.now:
            self.now = until

    def note(self, line: str) -> None:
        """Add a line to the trace. A line must hold nothing that differs between two runs of one seed."""
        text = f"{self.now:10.6f}  {line}"
        self.recent.append(text)
        unhashed = self._unhashed
        unhashed.append(text)
        if len(unhashed) >= BATCH:
            self._hash()
        if self.echo is not None:
            self.echo(text)

    def detail(self, line: str) -> None:
        """A line for `--verbose` only: not part of the trace, not kept."""
        if self.echo is not None:
            self.echo(f"{self.now:10.6f}      {line}")

    def trace_hash(self) -> str:
        """Digest of all lines so far."""
        self._hash()
        return self._digest.hexdigest()

    def _hash(self) -> None:
        self._digest.update("".join(self._unhashed).encode())
        self._unhashed.clear()
