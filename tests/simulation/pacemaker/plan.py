"""The cluster of a `pacemaker` plan, as plain values, and how a seed's is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class PacemakerPlan:
    """In seconds, about: corosync's `token`, the `election` of a DC, the `join` that ends with one CIB for
    all, `write_out` of a CIB to the disk (at most), what a command `takes`, and the `limit` for it;
    `patience` for a whole request; the resource manager looks about `every` so many; a fencing takes
    `fence_takes`, and fails with the chance `fence_fails`. `vouches`: whoever is promoted is told who is
    fenced. `qdevice`: two nodes have a quorum device."""

    token: float = 0.3
    election: float = 0.2
    join: float = 0.2
    write_out: float = 0.05
    takes: float = 0.005
    limit: float = 0.5
    patience: float = 1.5
    every: float = 0.1
    fence_takes: float = 0.5
    fence_fails: float = 0.0
    vouches: bool = False
    qdevice: bool = False


def draw_pacemaker(rng: Random, *, nodes: int) -> PacemakerPlan:
    """The times of a real one, a third as long."""
    return PacemakerPlan(
        token=rng.choice((0.1, 0.3, 0.3, 1.0)),
        election=rng.choice((0.05, 0.3)),
        join=rng.choice((0.05, 0.3)),
        write_out=rng.choice((0.0, 0.02, 0.1)),
        takes=rng.choice((0.004, 0.013)),
        limit=rng.choice((0.2, 0.5)),
        patience=rng.choice((0.6, 1.5)),
        every=rng.choice((0.05, 0.1, 0.3)),
        fence_takes=rng.choice((0.05, 0.3, 1.0, 3.0)),
        fence_fails=rng.choice((0.0, 0.0, 0.3)),
        vouches=rng.random() < 0.5,
        qdevice=nodes == 2 and rng.random() < 0.3,
    )
