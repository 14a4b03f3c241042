"""Mutants of the clock by which a promoted node dates messages."""

from __future__ import annotations

from typing import Any

from ha.core.clocks import Clocks
from tests.simulation.mutants.mutant import Mutant, Patch


def _its_own(take_over: Any) -> Any:
    return lambda self, now, least_ms: None


def _the_other_way(take_over: Any) -> Any:
    def broken(self: Clocks, now: float, least_ms: float) -> float | None:
        wall_ms = take_over(self, now, least_ms)
        return None if wall_ms is None else 2 * self.machine_at(now) - wall_ms

    return broken


def _again_and_again(take_over: Any) -> Any:
    def broken(self: Clocks, now: float, least_ms: float) -> float | None:
        comparison = self.primary
        wall_ms: float | None = take_over(self, now, least_ms)
        self.primary = comparison
        return wall_ms

    return broken


def _from_the_second_on(heard: Any) -> Any:
    def broken(self: Clocks, epoch: int, wall_ms: float, now: float) -> None:
        new = epoch != self._epoch
        heard(self, epoch, wall_ms, now)
        if new:
            self.primary._found.clear()

    return broken


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a new primary dates messages by its own clock",
        "A new primary whose clock is hours ahead drops all messages with a time to live at once.",
        (18,),
        (Patch(Clocks, "take_over", _its_own),),
    ),
    Mutant(
        "a new primary takes the difference of clocks the other way round",
        "A sign: the clock that was ahead is behind, by as much again.",
        (18,),
        (Patch(Clocks, "take_over", _the_other_way),),
    ),
    Mutant(
        "a new primary that is promoted again adds the difference of clocks again",
        "A comparison that is kept after it was made good: this broker had it.",
        (18,),
        (Patch(Clocks, "take_over", _again_and_again),),
    ),
    Mutant(
        "a joiner learns its primary's clock late",
        "A node that is ready, and promoted, before the first comparison: this broker had it.",
        (18,),
        (Patch(Clocks, "heard", _from_the_second_on),),
    ),
)
