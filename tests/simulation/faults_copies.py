"""Events that a backup's copy of a queue cannot take, and what may come upon that."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING

from broker.model.records import Dequeue, EnqueueRun
from tests.simulation.fault_plan import FaultPlan
from tests.simulation.faults_nodes import break_links, draw_death
from tests.simulation.machine import Machine
from tests.simulation.spoiling import spoil

if TYPE_CHECKING:
    from tests.simulation.faults import Saboteur

PEACE = 3
"""Of so many and three more, this many are left alone with it."""
GLANCE = 0.001
LOOKS = 300


def bad_event(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """The next messages, or the next dequeues, raise there; then, sometimes, the primary, the backup or the
    link goes while the queue is fetched again."""
    pair = s.targets(rng)
    if pair is None or not s.world.topology.all_durable:
        return  # the other copy may be gone by then, and with it what is not durable
    primary, backup = pair
    if backup.role() != "ready":
        return
    spoil(
        backup.running.vhosts, rng.choice((EnqueueRun, EnqueueRun, Dequeue)), told=partial(_spoilt, s, backup)
    )
    s.clock.note(f"FAULT: the next event of {backup.name} is spoilt")
    then = rng.randrange(PEACE + 3)
    if then < 3:
        s.later(GLANCE, partial(_when_fetching, s, plan, rng, primary, backup, backup.life, then, LOOKS))


def _spoilt(s: Saboteur, backup: Machine) -> None:
    backup.spoil()
    s.world.copies.spoilt(backup)


def _when_fetching(
    s: Saboteur, plan: FaultPlan, rng: Random, primary: Machine, backup: Machine, life: int, then: int,
    looks: int,
) -> None:  # fmt: skip
    if backup.life != life or backup.node is None or primary.node is None or not looks:
        return
    if not backup.running.core._c.resetting:
        s.later(
            GLANCE, partial(_when_fetching, s, plan, rng, primary, backup, life, then, looks - 1)
        )  # fmt: skip
        return
    match then:
        case 0:
            s.later(plan.length, partial(s.kill_and_restart, primary, draw_death(rng), 0.2))
        case 1:
            s.later(plan.length, partial(s.kill_and_restart, backup, draw_death(rng), 0.2))
        case _:
            s.later(plan.length, partial(break_links, primary, backup, rng))
