"""What a client of a queue with a window of ids does in a run, drawn from the seed. Part of a `Plan`."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

REPEATING = 1 / 4
"""Part of the seeds with such a client."""


@dataclass(frozen=True, slots=True)
class RepeaterPlan:
    """`window`: the argument of its queue; `reach`: how many ids back it sends again, fewer than the window
    has. `forgetful`: the time of the window is short, so that an id may rightly come twice. Chances:
    `repeats`, that it sends an id again; `gets`, that it gets a message instead; `persistent`."""

    name: str
    window: str
    reach: int
    forgetful: bool
    interval: float
    batch: int
    messages: int
    persistent: float
    repeats: float
    gets: float
    cut_every: float = 0.0


def draw_repeaters(rng: Random, *, cut_every: float) -> tuple[RepeaterPlan, ...]:
    """One in some runs."""
    if rng.random() >= REPEATING:
        return ()
    most, time = rng.choice((60, 60, 4000)), rng.choice(("", "/1h", "/200ms"))
    return (
        RepeaterPlan(
            "repeater", window=f"{most}{time}", reach=min(most // 3, 100), forgetful=time == "/200ms",
            interval=rng.choice((0.01, 0.05, 0.2)), batch=rng.choice((1, 5, 15)),
            messages=rng.choice((60, 300)), persistent=rng.choice((0.5, 1.0)), repeats=rng.choice((0.1, 0.5)),
            gets=rng.choice((0.0, 0.2)), cut_every=cut_every,
        ),
    )  # fmt: skip
