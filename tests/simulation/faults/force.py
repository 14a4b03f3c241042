"""Forced promotions: an operator who believes that nothing better is left, rightly or not."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.checkers.clients.definitions import is_there
from tests.simulation.checkers.facts import SERVING
from tests.simulation.faults.network import cut_off, outside, scatter
from tests.simulation.faults.nodes import draw_death, draw_length
from tests.simulation.faults.plan import FaultPlan
from tests.simulation.harness.machines.machine import Machine
from tests.simulation.harness.network import Cut

if TYPE_CHECKING:
    from tests.simulation.faults.injector import Saboteur

LOOK = 0.05
TRIES = 20
PATIENCE = 20.0
"""Seconds without any primary after which the operator forces once more: what a force may leave behind, such
as a record that the cluster has lost, nobody gets over unforced."""


def force(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """Of a node that does not serve, beside the primary; while that is cut off, or dead; or of one that was
    started alone after all have died. What was promised until all nodes are whole again may come to nothing.
    """
    pair = s.targets(rng)
    if pair is None:
        return
    s.world.journal.forcing()
    primary, soon = pair[0], rng.random() * rng.choice((0.0, 0.02, 0.5, 2.0))
    match rng.choice(("beside", "cut off", "cut off", "dead", "alone")):
        case "cut off":
            one = frozenset({primary.name})
            others = frozenset(m.name for m in s.world.machines) - one
            others |= frozenset(c.name for c in s.world.controllers)
            if s.world.arbitrated and rng.random() < 0.5:
                others |= outside(s)
            length = soon + s.world.plan.timing.lease * (0.5 + rng.random())
            cut_off(s, rng, [Cut(one, others), Cut(others, one)], length)
            for share in (0.3, 0.5, 0.7, 0.9):
                s.later(share * length, partial(scatter, s, rng))
        case "dead":
            _end(s, rng, primary, plan.length)
        case "alone" if s.world.topology.all_durable:
            last = rng.choice(s.world.machines)
            for machine in s.world.machines:
                _end(s, rng, machine, 0.1 if machine is last else soon + draw_length(rng))
        case _:
            pass
    s.later(soon, partial(_force, s, rng, TRIES))


def _end(s: Saboteur, rng: Random, machine: Machine, down: float) -> None:
    """Whatever is lost with it."""
    if machine.node is not None:
        machine.kill(draw_death(rng))
        s.later(down, partial(s.restart, machine))


def _force(s: Saboteur, rng: Random, tries: int) -> None:
    """Of one that has at least all objects: nobody would take an empty one."""
    able = [
        m for m in s.world.machines
        if m.node is not None and not m.paused and m.role() not in SERVING and _has_objects(s, m)
    ]  # fmt: skip
    if able:
        machine = rng.choice(able)
        s.pending += 1
        s.world.checkers.forced(machine)
        s.world.operator.force(machine, partial(_forced, s, rng, machine))
    elif tries:
        s.later(LOOK, partial(_force, s, rng, tries - 1))
    else:
        s.clock.note("nobody is there to be forced")
        _until_whole(s, rng, s.clock.now)


def _has_objects(s: Saboteur, machine: Machine) -> bool:
    return all(is_there(machine, thing) for thing in sorted(s.world.journal.base))


def _forced(s: Saboteur, rng: Random, machine: Machine, done: bool) -> None:
    """Answered, or not."""
    s.pending -= 1
    if not done:
        s.world.checkers.forced(machine, over=True)
    _until_whole(s, rng, s.clock.now)


def _until_whole(s: Saboteur, rng: Random, served: float, *, were: bool = False) -> None:
    """From then on all promises hold again; not before what was still on its way has arrived. `served`: when
    somebody was last seen to.
    """
    whole = s.world.whole() is not None
    if any(machine.role() in SERVING for machine in s.world.machines):
        served = s.clock.now
    if s.clock.now - served > PATIENCE:
        _force(s, rng, TRIES)
        return
    if not (whole and were):
        wait = s.world.settle if whole else LOOK
        s.later(wait, partial(_until_whole, s, rng, served, were=whole))
        return
    s.clock.note("the nodes are whole after a forced promotion")
    s.world.journal.whole_again()
