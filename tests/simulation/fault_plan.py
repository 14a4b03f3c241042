"""What may go wrong in a run, as plain values: which faults there are, and how a seed's are drawn.

`faults` does them. What a fault decides only when it happens it draws from a source of its own name.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from random import Random


class Fault(enum.Enum):
    KILL_PRIMARY = "kill the primary"
    KILL_BACKUP = "kill the backup"
    KILL_BACKUP_TWICE = "kill the backup, and again while it joins"
    CUT_LINK = "cut the link"
    SLOW_DISK = "slow down a disk"
    SWITCH_OVER = "demote the primary"
    KILL_BOTH = "kill the backup, then the primary"
    """The second failure comes when the pair is not whole: only what is on disk must survive."""


WEIGHTS = {
    Fault.KILL_PRIMARY: 5,
    Fault.KILL_BACKUP: 2,
    Fault.KILL_BACKUP_TWICE: 2,
    Fault.CUT_LINK: 2,
    Fault.SLOW_DISK: 1,
    Fault.SWITCH_OVER: 1,
}


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """One fault. It falls into traffic: after `share` of what the publishers were last granted was sent, and
    `pause` seconds later. `length`: seconds that it lasts (how long a killed node is down)."""

    name: str
    kind: Fault
    share: float
    pause: float
    length: float


def draw_faults(rng: Random, *, all_durable: bool) -> tuple[FaultPlan, ...]:
    """One to five faults, one of them at a time."""
    kinds = rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=rng.randint(1, 4))
    if all_durable and rng.random() < 0.5:
        kinds.insert(rng.randint(0, len(kinds)), Fault.KILL_BOTH)
    return tuple(
        FaultPlan(
            f"f{n + 1}",
            kind,
            share=rng.choice((0.0, 0.2, 0.5, 0.9, 1.0)),
            pause=rng.choice((0.0, 0.001, 0.02)) * rng.random(),
            length=rng.choice((0.01, 0.2, 1.0, 4.0)) * (0.5 + rng.random()),
        )
        for n, kind in enumerate(kinds)
    )
