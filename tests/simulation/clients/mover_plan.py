"""What a client with transactions does in a run, drawn from the seed. Part of a `Plan`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random


@dataclass(frozen=True, slots=True)
class MoverPlan:
    """Moves messages from a queue to another of its own, in transactions (`mover.Mover`).

    `batch`: most messages that a transaction publishes, and takes. `prefetch`: 0 when it gets messages one by
    one. `interval`: seconds between two transactions, about; `pause`: within one, between its two parts.
    The others are chances: that a message is persistent, that a transaction is rolled back, that the
    connection breaks just before tx.commit or soon after it, that a message is given back, or thrown away.
    """

    name: str
    durable: bool
    persistent: float
    batch: int
    prefetch: int
    interval: float
    pause: float
    rollbacks: float
    cuts: float
    requeues: float
    rejects: float
    fanout: bool
    """New messages go through an exchange into both queues."""
    grants: tuple[int, ...]
    """How many transactions it may begin at a fault: one of these."""
    dead_letters: bool = False
    """What it throws away goes on to the second queue. Not with `fanout`, which has it there already."""
    limit: int = 0
    """Of messages in the first queue: a commit that is too much for it is refused. 0 for none."""
    cut_every: float = 0.0
    """Seconds between two other breaks of its connection, about; 0 for never."""


def draw_movers(rng: Random, *, cut_every: float) -> tuple[MoverPlan, ...]:
    """None in some runs, one in most."""
    return tuple(draw_mover(rng, f"m{n + 1}", cut_every=cut_every) for n in range(rng.choice((0, 1, 1, 2))))


def draw_mover(rng: Random, name: str, *, cut_every: float) -> MoverPlan:
    plan = MoverPlan(
        name,
        durable=rng.random() < 0.8,
        persistent=rng.choice((0.0, 0.5, 1.0, 1.0)),
        batch=rng.choice((1, 3, 8)),
        prefetch=rng.choice((0, 0, 1, 4, 20)),
        interval=rng.choice((0.002, 0.01, 0.05)),
        pause=rng.choice((0.0, 0.0, 0.003, 0.03)),
        rollbacks=rng.choice((0.0, 0.2, 0.5)),
        cuts=rng.choice((0.0, 0.05, 0.3)),
        requeues=rng.choice((0.0, 0.1)),
        rejects=rng.choice((0.0, 0.1)),
        fanout=rng.random() < 0.3,
        grants=rng.choice(((1, 4, 10), (3, 8, 30))),
        cut_every=cut_every,
    )
    plan = replace(plan, limit=rng.choice((0, 0, 3, 10)))
    dead_letters = rng.random() < 0.5 and not plan.fanout
    return replace(plan, dead_letters=dead_letters, rejects=0.2) if dead_letters else plan
