"""Faults of the network and of the register: what only an authority outside of the nodes lets them
survive."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.faults.nodes import cut_link, kill_backup, kill_primary
from tests.simulation.faults.plan import Fault, FaultPlan
from tests.simulation.harness.machines.machine import Death
from tests.simulation.harness.network import KEEPALIVE, Cut, break_stream
from tests.simulation.harness.register import HOST, Register
from tests.simulation.harness.witness import Witness
from tests.simulation.pacemaker.cluster import QNETD
from tests.simulation.pacemaker.manager import SWITCH

if TYPE_CHECKING:
    from tests.simulation.faults.injector import Saboteur


Sides = tuple[frozenset[str], frozenset[str]]


def partition(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """Cuts some hosts off from others, both ways or one way, and mends it later."""
    primary, backup = s.targets(rng) or rng.sample(s.world.machines, 2)
    one, other = _sides(s, rng, primary.name, backup.name)
    cuts = [Cut(one, other), Cut(other, one)]
    if rng.random() < 0.25:
        cuts = [rng.choice(cuts)]
    lease = s.world.plan.timing.lease
    length = rng.choice((plan.length, (0.3 + rng.random()) * lease, (1.0 + 2 * rng.random()) * lease))
    length = _longer(s, rng, length)
    if s.world.plan.networks > 1 and len(cuts) == 2 and rng.random() < 0.5:
        cuts = _refusing(s, one, other, rng.randrange(2))
    cut_off(s, rng, cuts, length)
    for _ in range(rng.choice((0, 1, 2))):
        s.later(rng.random() * length, partial(scatter, s, rng))


def usurp(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """Its clients stay for a while, and some go and find the other that is made: two may serve, if they do
    not heed the lease. It may still reach the register."""
    primary, _ = s.targets(rng) or rng.sample(s.world.machines, 2)
    one = frozenset({primary.name})
    others = frozenset(m.name for m in s.world.machines) - one
    others |= frozenset(c.name for c in s.world.controllers)
    if rng.random() < 0.5:
        others |= outside(s)
    length = _longer(s, rng, s.world.plan.timing.lease * (0.5 + rng.random()))
    cuts = [Cut(one, others), Cut(others, one)]
    if s.world.plan.networks > 1 and rng.random() < 0.5:
        cuts = _refusing(s, one, others, rng.randrange(2))
    cut_off(s, rng, cuts, length)
    for share in (0.15, 0.35, 0.55, 0.75):
        s.later(share * length, partial(scatter, s, rng))


def _refusing(s: Saboteur, one: frozenset[str], other: frozenset[str], way: int) -> list[Cut]:
    """The same, but between nodes network `way` refuses: by its word alone, a node that lives is dead."""
    nodes = frozenset(m.name for m in s.world.machines)
    cuts = []
    for sources, targets in ((one, other), (other, one)):
        cuts += [Cut(sources, targets - nodes), Cut(sources - nodes, targets)]
        cuts += [
            Cut(sources & nodes, targets & nodes, 1 - way),
            Cut(sources & nodes, targets & nodes, way, True),
        ]
    return [cut for cut in cuts if cut.sources and cut.targets]


RECOVERY = 3.0
"""Seconds from the mending of a network until all nodes have found each other on it again."""


def cut_network(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """Cuts one of two networks between nodes, by silence or by refusals, both ways or one way. Perhaps the
    primary dies meanwhile. The other network is whole, so that nobody may be promoted for it."""
    world = s.world
    busy = {cut.way for cut in world.network.cuts if cut.way is not None}
    way = rng.randrange(2)
    hasty = any(fault.kind is Fault.ASK_PROMOTION for fault in world.plan.faults)
    if world.plan.networks < 2 or (busy and not world.arbitrated):
        return
    nodes = frozenset(m.name for m in world.machines)
    cuts = [Cut(nodes, nodes, way)]
    kind = rng.random()
    if kind < 0.3 and (world.arbitrated or not hasty):
        cuts = [Cut(nodes, nodes, way, refuses=True)]
    elif kind < 0.5:
        one = frozenset({rng.choice(world.machines).name})
        cuts = [rng.choice((Cut(one, nodes - one, way), Cut(nodes - one, one, way)))]
    silence = world.machines[0].settings.tuning().silence
    length = rng.choice((plan.length, (0.3 + rng.random()) * silence, (1.0 + rng.random()) * silence))
    cut_off(s, rng, cuts, length)
    s.later(length + RECOVERY, lambda: None)
    beat = world.machines[0].settings.heartbeat
    for _ in range(4):  # clients come to the backup while its link is silent
        s.later((0.8 + 1.4 * rng.random()) * beat, partial(scatter, s, rng))
    if rng.random() < 0.25:
        act = rng.choice((kill_backup, kill_primary))
        s.later(rng.random() * length, partial(act, s, plan, rng))


def outside(s: Saboteur) -> frozenset[str]:
    """Hosts that are no brokers and that an authority depends on."""
    return frozenset({HOST}) if s.world.cluster is None else frozenset({QNETD, SWITCH})


def _longer(s: Saboteur, rng: Random, length: float) -> float:
    """Under a cluster: also as long as its members wait for each other, and for a fencing."""
    cluster = s.world.cluster
    if cluster is None:
        return length
    return max(length, rng.choice((0.0, 2.0, 5.0)) * (cluster.plan.token + cluster.plan.fence_takes))


def cut_off(s: Saboteur, rng: Random, cuts: list[Cut], length: float) -> None:
    """For about so long; perhaps one way longer than the other."""
    for cut in cuts:
        s.world.journal.hampered()
        what = "no connection" if cut.refuses else "no packet"
        s.clock.note(f"FAULT: {what} from {names(cut.sources)} reaches {names(cut.targets)}{_on(cut)}")
        s.world.network.apply(cut)
        if cut.refuses and cut.way is not None:
            _reset(s, cut, cut.way)
        s.later(length * rng.choice((0.3, 1.0, 1.0, 1.0)), partial(_mend, s, cut))


def _sides(s: Saboteur, rng: Random, primary: str, backup: str) -> Sides:
    """Mostly the primary alone, for its rivals and the controllers, so that another is promoted beside it."""
    nodes = frozenset(m.name for m in s.world.machines)
    controllers = frozenset(c.name for c in s.world.controllers)
    actors = frozenset(a.name for a in s.world.actors)
    one = frozenset({rng.choice((primary, primary, backup))})
    some = frozenset(name for name in sorted(controllers) if rng.random() < 0.8)
    half = frozenset(name for name in sorted(actors) if rng.random() < 0.5)
    match rng.choice(("pair", "alone", "alone", "alone", "register", "clients", "controllers", "halves")):
        case "pair":
            return frozenset({primary}), frozenset({backup})
        case "alone":
            others = (nodes - one) | some
            others |= rng.choice((frozenset(), outside(s)))
            return one, others | rng.choice((frozenset(), frozenset(), half, actors))
        case "register":
            return one, outside(s) | rng.choice((frozenset(), controllers))
        case "clients":
            return one, rng.choice((half, actors)) or actors
        case "controllers":
            return one, controllers
        case _:
            part = frozenset(m.name for m in s.world.machines if rng.random() < 0.5) or one
            return part, (nodes - part) | outside(s) | some


def scatter(s: Saboteur, rng: Random) -> None:
    """Some clients lose their connections now, and may find another node: so that all have some."""
    s.world.grant()
    for actor in s.world.actors:
        if rng.random() < 0.5 and actor.cut(rng.random() < 0.5):
            s.clock.note(f"FAULT: the connection of {actor.name} breaks")


def _mend(s: Saboteur, cut: Cut) -> None:
    s.clock.note(f"packets from {names(cut.sources)} reach {names(cut.targets)} again{_on(cut)}")
    s.world.network.mend(cut)
    s.world.journal.eased(s.world.plan.network.retransmit + 2 * KEEPALIVE)


def _on(cut: Cut) -> str:
    return "" if cut.way is None else f" on network {cut.way + 1}"


def _reset(s: Saboteur, cut: Cut, way: int) -> None:
    """What is open breaks."""
    for machine in s.world.machines:
        for host in sorted(cut.targets):
            if machine.name in cut.sources and host != machine.name:
                for end in machine.links(host, way):
                    break_stream(end)


def names(hosts: frozenset[str]) -> str:
    return ", ".join(sorted(hosts))


def _register(s: Saboteur) -> Register:
    if not isinstance(s.world.register, Register):
        raise RuntimeError("a fault of the register where there is none")
    return s.world.register


def slow_register(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    register = _register(s)
    if isinstance(register, Witness):
        register.freeze(plan.length)
        s.later(plan.length, lambda: None)
        return
    register.slow_time = rng.choice((0.1, 0.5, 2.0))
    register.slow_until = s.clock.now + plan.length
    s.clock.note(f"FAULT: the register takes up to {register.slow_time} s more")
    s.later(plan.length, lambda: None)


def lose_answers(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    register = _register(s)
    if isinstance(register, Witness):
        register.fail(plan.length, rng.choice((Death.KILLED, Death.CRASHED, Death.POWER, Death.STOPPED)))
        s.later(plan.length, lambda: None)
        return
    chances = rng.choice(((0.5, 0.0), (0.0, 0.5), (0.0, 1.0), (0.3, 0.3)))
    register.lost_questions, register.lost_answers = chances
    register.lossy_until = s.clock.now + plan.length
    s.clock.note(
        f"FAULT: of the questions to the register {register.lost_questions:.0%} are lost, of its answers "
        f"{register.lost_answers:.0%}"
    )
    s.later(plan.length, lambda: None)
    if rng.random() < 0.6:  # something to ask it just then
        act = rng.choice((kill_backup, cut_link, kill_primary))
        s.later(rng.random() * rng.choice((0.02, 0.2)), partial(act, s, plan, rng))
