"""BindWaits: binds whose answer waits until other nodes know the binding (`x-federation-wait`).

Owner: Broker. A wait ends when its condition holds, or at its deadline. `Held` asks for it in channel order.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from broker.errors import PreconditionFailed

WAIT = "x-federation-wait"
"""Argument of queue.bind and exchange.bind: milliseconds. It is no part of the binding."""
LONGEST = 60_000
MOST = 10_000
"""Waits of all connections at a time."""
Arguments = dict[str, object]


def wait_of(arguments: Arguments) -> tuple[Arguments, int]:
    """The arguments of a binding, without the wait; and the wait, 0 for none. Raises PreconditionFailed."""
    if WAIT not in arguments:
        return arguments, 0
    wait = arguments[WAIT]
    if isinstance(wait, bool) or not isinstance(wait, int) or not 0 <= wait <= LONGEST:
        raise PreconditionFailed(f"invalid arg '{WAIT}': a whole number of milliseconds from 0 to {LONGEST}")
    return {name: value for name, value in arguments.items() if name != WAIT}, wait


class BindWait:
    """`over`: nothing is waited for any more."""

    __slots__ = ("_known", "over")

    def __init__(self, known: Callable[[], bool]) -> None:
        self._known = known
        self.over = False

    def ended(self) -> bool:
        self.over = self.over or self._known()
        return self.over


class BindWaits:
    """See the module. Times are those of the broker's clock, in seconds."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, BindWait]] = []
        self._order = count()

    def begin(self, deadline: float, known: Callable[[], bool]) -> BindWait | None:
        """None: it is known already. Raises PreconditionFailed if too many wait."""
        wait = BindWait(known)
        if wait.ended():
            return None
        if len(self._due) >= MOST:
            self._due = [each for each in self._due if not each[2].over]
            heapq.heapify(self._due)
        if len(self._due) >= MOST:
            raise PreconditionFailed(f"{MOST} bindings wait with '{WAIT}': no more may")
        heapq.heappush(self._due, (deadline, next(self._order), wait))
        return wait

    def end_tick(self, now: float) -> None:
        """Before outputs are released."""
        while self._due and (self._due[0][0] <= now or self._due[0][2].over):
            heapq.heappop(self._due)[2].over = True

    def next_deadline(self) -> float | None:
        return self._due[0][0] if self._due else None
