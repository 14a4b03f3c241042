"""Faults of those outside: clients that do not read, an operator without patience."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.fault_plan import FaultPlan

if TYPE_CHECKING:
    from tests.simulation.faults import Saboteur


def stall_reader(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """A client takes nothing from its kernel for a while; what it says still arrives."""
    actors = [a for a in s.world.actors if a.session is not None and a.session.end is not None]
    if not actors:
        return
    actor = rng.choice(actors)
    session = actor.session
    if session is not None and session.end is not None:
        s.clock.note(f"{actor.name} stops reading")
        session.end.read(False)
        s.later(plan.length, partial(session.end.read, True))


def ask_promotion(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """Unforced, of any node, whoever serves: it must be refused, or be harmless."""
    for _ in range(rng.choice((1, 2, 3))):
        machine = rng.choice(s.world.machines)
        s.later(rng.random() * rng.choice((0.01, plan.length)), partial(s.world.operator.ask, machine))
