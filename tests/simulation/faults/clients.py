"""Faults of those outside: clients that do not read, an operator without patience."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.faults.nodes import kill_primary
from tests.simulation.faults.plan import FaultPlan
from tests.simulation.harness.journal import STRAGGLE
from tests.simulation.harness.machines.machine import Machine
from tests.simulation.harness.network import End
from tests.simulation.harness.operator import SERVING

if TYPE_CHECKING:
    from tests.simulation.faults.injector import Saboteur

REGRETS = 5.0
"""Seconds without a primary after which an operator takes a demotion back."""


def stall_reader(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """A client takes nothing from its kernel for a while; what it says still arrives."""
    actors = [a for a in s.world.actors if a.session is not None and a.session.end is not None]
    if not actors:
        return
    actor = rng.choice(actors)
    session = actor.session
    if session is not None and session.end is not None:
        s.clock.note(f"FAULT: {actor.name} stops reading")
        session.end.read(False)
        s.world.journal.hampered()
        s.later(plan.length, partial(_read_again, s, session.end))


def _read_again(s: Saboteur, end: End) -> None:
    end.read(True)
    s.world.journal.eased(STRAGGLE)


def demote_new_primary(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """While it waits for its authority, for the old lease, or for its backups."""
    kill_primary(s, plan, rng)
    soon = rng.random() * rng.choice((0.02, 0.5))

    def strike(new_primary: Machine) -> None:
        s.later(soon, partial(demote, s, new_primary))

    s.when_promoting(strike)


def switch_over(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    pair = s.targets(rng)
    if pair is not None:
        demote(s, pair[0])


def demote(s: Saboteur, machine: Machine) -> None:
    """Ask for it, and wait for the answer. Where nodes promote themselves, one that was demoted does not: the
    operator promotes it again if nobody serves."""
    s.pending += 1

    def look_again() -> None:
        if not any(m.role() in SERVING for m in s.world.machines):
            for asked in s.world.machines:
                s.world.operator.ask(asked)
            s.later(REGRETS, look_again)

    def done() -> None:
        s.pending -= 1
        if s.world.plan.authority in ("etcd", "pair", "witness"):
            s.later(REGRETS, look_again)

    s.world.operator.demote(machine, done)


def ask_promotion(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """Unforced, of any node, whoever serves: it must be refused, or be harmless."""
    machine = rng.choice(s.world.machines)
    same = rng.random() < 0.5
    for _ in range(rng.choice((1, 2, 3))):
        if not same:
            machine = rng.choice(s.world.machines)
        s.later(rng.random() * rng.choice((0.01, 0.5, plan.length)), partial(s.world.operator.ask, machine))
