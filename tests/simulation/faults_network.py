"""Faults of the network and of the register: what only an authority outside of the nodes lets them
survive."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.fault_plan import FaultPlan
from tests.simulation.network import Cut
from tests.simulation.register import HOST

if TYPE_CHECKING:
    from tests.simulation.faults import Saboteur


def partition(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """Cuts some hosts off from others, both ways or one way, and mends it later."""
    nodes = frozenset(m.name for m in s.world.machines)
    clients = frozenset(s.world.client_hosts())
    primary, backup = s.targets(rng) or rng.sample(s.world.machines, 2)
    one = frozenset({rng.choice((primary, primary, backup)).name})
    match rng.choice(("pair", "node", "island", "register", "clients", "halves")):
        case "pair":
            sides = frozenset({primary.name}), frozenset({backup.name})
        case "node":
            sides = one, nodes - one
        case "island":
            sides = one, (nodes - one) | {HOST} | (clients if rng.random() < 0.5 else frozenset())
        case "register":
            sides = one, frozenset({HOST})
        case "clients":
            sides = one, clients
        case _:
            half = frozenset(m.name for m in s.world.machines if rng.random() < 0.5) or one
            sides = half, (nodes - half) | {HOST}
    cuts = [Cut(*sides), Cut(*sides[::-1])]
    if rng.random() < 0.3:
        cuts = [rng.choice(cuts)]
    for cut in cuts:
        s.clock.note(f"no packet from {names(cut.sources)} reaches {names(cut.targets)}")
        s.world.network.apply(cut)
        length = plan.length * rng.choice((0.3, 1.0, 1.0))
        s.later(length, partial(_mend, s, cut))


def _mend(s: Saboteur, cut: Cut) -> None:
    s.clock.note(f"packets from {names(cut.sources)} reach {names(cut.targets)} again")
    s.world.network.mend(cut)


def names(hosts: frozenset[str]) -> str:
    return ", ".join(sorted(hosts))


def slow_register(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    register = s.world.register
    register.slow_time = rng.choice((0.1, 0.5, 2.0))
    register.slow_until = s.clock.now + plan.length
    s.clock.note(f"the register takes up to {register.slow_time} s more")
    s.later(plan.length, lambda: None)


def lose_answers(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    register = s.world.register
    chances = rng.choice(((0.5, 0.0), (0.0, 0.5), (0.0, 1.0), (0.3, 0.3)))
    register.lost_questions, register.lost_answers = chances
    register.lossy_until = s.clock.now + plan.length
    s.clock.note(
        f"of the questions to the register {register.lost_questions:.0%} are lost, of its answers "
        f"{register.lost_answers:.0%}"
    )
    s.later(plan.length, lambda: None)
