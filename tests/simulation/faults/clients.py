"""Faults of those outside: clients that do not read, an operator without patience."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from tests.simulation.faults.network import cut_off
from tests.simulation.faults.nodes import draw_death, kill_primary
from tests.simulation.faults.plan import FaultPlan
from tests.simulation.harness.journal import STRAGGLE
from tests.simulation.harness.machines.machine import Machine
from tests.simulation.harness.network import Cut, End
from tests.simulation.harness.operator import SERVING

if TYPE_CHECKING:
    from tests.simulation.faults.injector import Saboteur

ORDERS = 50
GLANCE = 0.001
"""Seconds between two orders."""
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

    def done() -> None:
        s.pending -= 1
        if s.world.plan.authority in ("etcd", "pair", "witness"):
            s.later(REGRETS, partial(_look_again, s))

    s.world.operator.demote(machine, done)


def _look_again(s: Saboteur) -> None:
    if not any(m.role() in SERVING for m in s.world.machines):
        for asked in s.world.machines:
            s.world.operator.ask(asked)
        s.later(REGRETS, partial(_look_again, s))


def order_passive(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """The node that is left when the primary has died, and perhaps that one too, once it runs again."""
    pair = kill_unseen(s, plan, rng)
    if pair is None:
        return
    primary, backup = pair
    _order(s, backup, ORDERS)
    if rng.random() < 0.5:
        s.later(plan.length + GLANCE, partial(_order, s, primary, ORDERS))
    s.later(REGRETS, partial(_look_again, s))


def kill_unseen(s: Saboteur, plan: FaultPlan, rng: Random) -> tuple[Machine, Machine] | None:
    """The primary, while no client gets through to any node, as at night: nobody is to take over meanwhile.
    The pair, primary first; None if nothing was done."""
    pair = s.targets(rng)
    if pair is None or not s.kill(pair[0], draw_death(rng)):
        return None
    clients = frozenset(actor.name for actor in s.world.actors)
    nodes = frozenset(machine.name for machine in s.world.machines)
    cut_off(s, rng, [Cut(clients, nodes), Cut(nodes, clients)], plan.length + rng.choice((0.1, 2.0, 4.0)))
    s.later(plan.length, partial(s.restart, pair[0]))
    return pair


def _order(s: Saboteur, machine: Machine, tries: int) -> None:
    """To stand by. It is asked again while it follows somebody: then there is nothing to order."""

    def answered(reply: dict[str, Any]) -> None:
        s.clock.note(f"{machine.name} is to stand by, and answers: {reply.get('reason')}")
        if tries and "already" in str(reply.get("reason")):
            s.later(GLANCE, partial(_order, s, machine, tries - 1))

    if machine.node is not None and not machine.paused and machine.role() not in SERVING:
        args = {"do": "passive"}
        machine.hear(lambda: machine.running.manage("controller", args, answered, machine.host.now))


def ask_promotion(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """Unforced, of any node, whoever serves: it must be refused, or be harmless."""
    machine = rng.choice(s.world.machines)
    same = rng.random() < 0.5
    for _ in range(rng.choice((1, 2, 3))):
        if not same:
            machine = rng.choice(s.world.machines)
        s.later(rng.random() * rng.choice((0.01, 0.5, plan.length)), partial(s.world.operator.ask, machine))
