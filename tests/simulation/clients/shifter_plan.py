"""What a client does in a run whose messages an operator moves, drawn from the seed. Part of a `Plan`."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

SHIFTED = 1 / 4
"""Part of the seeds with such a client."""


@dataclass(frozen=True, slots=True)
class ShifterPlan:
    """`interval`: seconds between two steps, about; `batch`: most messages of a publish; `moved`: most of one
    move."""

    name: str
    interval: float
    batch: int
    moved: int
    messages: int
    cut_every: float = 0.0


def draw_shifters(rng: Random, *, cut_every: float) -> tuple[ShifterPlan, ...]:
    """One in some runs."""
    if rng.random() >= SHIFTED:
        return ()
    return (
        ShifterPlan(
            "shifter", interval=rng.choice((0.01, 0.05, 0.2)), batch=rng.choice((1, 5, 40)),
            moved=rng.choice((1, 10, 1000)), messages=rng.choice((50, 300)), cut_every=cut_every,
        ),
    )  # fmt: skip
