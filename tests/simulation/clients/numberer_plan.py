"""What a producer with numbers does in a run, drawn from the seed. Part of a `Plan`."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

NUMBERED = 1 / 3
"""Part of the seeds with such a client."""


@dataclass(frozen=True, slots=True)
class NumbererPlan:
    """A client that numbers its messages (`numberer.Numberer`).

    `window`: most messages in doubt; `burst`: most of one publish; `interval`: seconds between two steps,
    about; `sends`: most publishes of a run. `limit`: of messages in the second queue, which refuses more; 0
    for none. The others are chances: that a message is persistent, that it goes to both queues, that a
    session is transactional, and, at each step, that a message is got, that the second queue is emptied or
    made again, and that the session ends of itself. `strangers`: chance, then, that other producers come, so
    that those that are not connected are forgotten.
    """

    name: str
    durable: bool
    persistent: float
    both: float
    window: int
    burst: int
    interval: float
    sends: int
    limit: int
    transactions: float
    gets: float
    voids: float
    leaves: float
    strangers: float
    cut_every: float = 0.0


def draw_numberers(rng: Random, *, cut_every: float) -> tuple[NumbererPlan, ...]:
    """One in some runs."""
    if rng.random() >= NUMBERED:
        return ()
    limit = rng.choice((0, 0, 5, 20))
    return (
        NumbererPlan(
            "numberer",
            durable=rng.random() < 0.7,
            persistent=rng.choice((0.5, 1.0)),
            both=rng.choice((0.0, 0.5)),
            window=rng.choice((1, 10, 50)),
            burst=rng.choice((1, 5, 20)),
            interval=rng.choice((0.005, 0.02, 0.1)),
            sends=rng.choice((60, 200)),
            limit=limit,
            transactions=0.0 if limit else rng.choice((0.0, 0.5)),
            gets=rng.choice((0.0, 0.3)),
            voids=rng.choice((0.0, 0.02)),
            leaves=rng.choice((0.02, 0.1)),
            strangers=rng.choice((0.0, 0.0, 0.3)),
            cut_every=cut_every,
        ),
    )
