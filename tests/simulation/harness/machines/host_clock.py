"""HostClock: what the clocks of one computer show, while the world's runs on. Owner: Machine.

The monotonic clock begins anew with its host: after that it shows as many seconds more than the world's as
the plan has next. Whole seconds, so that a time can be taken back to the world's without rounding, and a
timer rings when it is due.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.harness.clock import Clock, Timer
from tests.simulation.harness.plan import MachinePlan


class HostClock:
    """`wall_error`: milliseconds by which its wall clock is wrong."""

    def __init__(self, world: Clock, plan: MachinePlan) -> None:
        self.world = world
        self.wall_error = plan.wall_error
        self._uptimes: tuple[int, ...] = plan.uptimes or (0,)
        self._starts = 0

    @property
    def ahead(self) -> int:
        return self._uptimes[self._starts % len(self._uptimes)]

    @property
    def now(self) -> float:
        """The monotonic clock, which each process of the host goes by."""
        return self.world.now + self.ahead

    @property
    def wall_ms(self) -> int:
        return self.world.wall_ms + self.wall_error

    def at(self, when: float, action: Callable[[], object]) -> Timer:
        return self.world.at(when - self.ahead, action)

    def begin_anew(self) -> None:
        """With its host. No timer of it may be under way."""
        self._starts += 1
