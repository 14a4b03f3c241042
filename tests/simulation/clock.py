"""The virtual clock: a queue of events in time order, and the trace of what happened.

Everything in a run happens inside an event of this queue; nothing else moves the time. The order of two
events at one instant is the order in which they were scheduled, so a run depends on its seed only.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from hashlib import blake2b

WALL_START_MS = 1_700_000_000_000
"""What the wall clock shows, in milliseconds, when a run begins."""

TRANSCRIPT_LINES = 120
STUCK = 5000
"""Events at one instant after which a run is given up."""


class Timer:
    """One scheduled call; `cancel` makes it a no-op."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class Clock:
    """Virtual time in seconds from 0. `note` writes a line of the trace: hashed always, kept if recent."""

    def __init__(self, keep: int = TRANSCRIPT_LINES) -> None:
        self.now = 0.0
        self.events = 0
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = 0
        self._still = 0
        self._digest = blake2b(digest_size=16)
        self.recent: deque[str] = deque(maxlen=keep)
        self.echo: Callable[[str], None] | None = None

    @property
    def wall_ms(self) -> int:
        return WALL_START_MS + int(self.now * 1000)

    def after(self, delay: float, action: Callable[[], None]) -> Timer:
        """Run `action` in `delay` seconds (at once, but not now, for 0)."""
        timer = Timer(action)
        self._order += 1
        heapq.heappush(self._heap, (self.now + max(delay, 0.0), self._order, timer))
        return timer

    def at(self, when: float, action: Callable[[], None]) -> Timer:
        return self.after(when - self.now, action)

    def step(self) -> bool:
        """Run the next event; False when there is none."""
        while self._heap:
            when, _, timer = heapq.heappop(self._heap)
            action = timer.action
            if action is None:
                continue
            self._still = self._still + 1 if when <= self.now else 0
            if self._still > STUCK:
                raise RuntimeError(
                    f"{STUCK} events at one instant, {when:.6f} s: somebody's deadline never passes"
                )
            self.now = when
            self.events += 1
            timer.action = None
            action()
            return True
        return False

    def run(self, until: float) -> None:
        """Run all events up to time `until`; it is then that time."""
        while self._heap and self._heap[0][0] <= until:
            self.step()
        self.now = max(self.now, until)

    def note(self, line: str) -> None:
        """Add a line to the trace. A line must hold nothing that differs between two runs of one seed."""
        text = f"{self.now:10.6f}  {line}"
        self._digest.update(text.encode())
        self.recent.append(text)
        if self.echo is not None:
            self.echo(text)

    def detail(self, line: str) -> None:
        """A line for `--verbose` only: not part of the trace, not kept."""
        if self.echo is not None:
            self.echo(f"{self.now:10.6f}      {line}")

    def trace_hash(self) -> str:
        """Digest of all lines so far."""
        return self._digest.hexdigest()
