"""Switchovers: asked for at any node, to anybody, and what may come in between."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.faults.disk import slow
from tests.simulation.faults.nodes import break_links, draw_death
from tests.simulation.faults.plan import FaultPlan
from tests.simulation.harness.machines.machine import Machine

if TYPE_CHECKING:
    from tests.simulation.faults.injector import Saboteur

SERENE = 4
"""Of so many and as many again, this many switchovers are left in peace."""
GLANCE = 0.001
"""Seconds between two looks for a target that has everything."""


def hand_over(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """Mostly the primary is asked, to hand over to a ready backup; sometimes another, or to another."""
    pair = s.targets(rng)
    if pair is None:
        return
    primary, backup = pair
    strays = [m for m in s.world.machines if m.node is not None]
    asked = primary if rng.random() < 0.85 else rng.choice(strays)
    to = rng.choice((None, backup.name, backup.name, rng.choice(s.world.machines).name))
    before = rng.random()
    if before < 0.1:
        slow(s, primary, rng.choice((0.1, 1.5)) * s.world.plan.timing.ack_timeout, 0.3)
    elif before < 0.25:
        _to_a_sleeper(s, rng)
        return
    _ask(s, asked, to)
    soon = rng.random() * rng.choice((0.002, 0.02, 0.2))
    s.later(soon, partial(_meanwhile, s, plan, rng, primary, backup, asked))


def _to_a_sleeper(s: Saboteur, rng: Random, limit: float = 2.0) -> None:
    """It stands still as soon as it has acknowledged everything, and the primary is asked in that instant."""
    pair = s.world.pair()
    if pair is None:
        return
    primary, backup = pair
    if limit > 0 and not _has_all(primary, backup):
        s.later(GLANCE, partial(_to_a_sleeper, s, rng, limit - GLANCE))
        return
    backup.pause()
    s.later(rng.choice((0.1, 0.7, 1.5)) * s.world.plan.timing.ack_timeout, backup.resume)
    args = {"to": backup.name}
    s.clock.note(f"{primary.name} is to switch over to {backup.name}")
    primary.hear(lambda: primary.running.manage("switchover", args, lambda answer: None, primary.host.now))


def _has_all(primary: Machine, backup: Machine) -> bool:
    """As far as the primary knows."""
    serving = primary.running.core.primary
    known = [b for b in serving.backups.values() if b.name == backup.name] if serving is not None else []
    return any(b.acked_durable == primary.running.vhosts.history.position for b in known)


def _ask(s: Saboteur, machine: Machine, to: str | None) -> None:
    s.pending += 1

    def done() -> None:
        s.pending -= 1

    s.world.operator.switch_over(machine, to, done)


def _meanwhile(
    s: Saboteur, plan: FaultPlan, rng: Random, primary: Machine, backup: Machine, asked: Machine
) -> None:
    """One thing, or nothing."""
    match rng.randrange(2 * SERENE + 2):
        case 0:
            s.kill_and_restart(primary, draw_death(rng), plan.length)
        case 1:
            others = [m for m in s.world.machines if m is not primary and m.node is not None]
            s.kill_and_restart(rng.choice([backup, *others]), draw_death(rng), plan.length)
        case 2:
            break_links(primary, backup, rng)
        case 3:
            machine = rng.choice((primary, backup))
            machine.pause(in_tick=rng.random() < 0.5)
            s.later(plan.length * rng.choice((1.0, 5.0)), machine.resume)
        case 4:
            _ask(s, asked, None)
        case 5 if s.world.arbitrated:
            s.world.operator.ask(rng.choice(s.world.machines))
        case _:
            pass
