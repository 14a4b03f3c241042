"""Faults of a Pacemaker cluster: splits in the middle of a write, daemons that hang, hosts that freeze, a
power switch that is out of order, a resource manager that is gone, people who change the configuration."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.faults.network import cut_off
from tests.simulation.faults.nodes import cut_link, kill_backup, kill_primary
from tests.simulation.faults.plan import FaultPlan
from tests.simulation.harness.machines.machine import Death, Machine
from tests.simulation.harness.network import Cut
from tests.simulation.pacemaker.authority import PacemakerAuthority
from tests.simulation.pacemaker.cluster import Cluster
from tests.simulation.pacemaker.manager import SWITCH, ResourceManager

if TYPE_CHECKING:
    from tests.simulation.faults.injector import Saboteur


def _cluster(s: Saboteur) -> Cluster:
    if s.world.cluster is None:
        raise RuntimeError("a fault of a cluster where there is none")
    return s.world.cluster


def _manager(s: Saboteur) -> ResourceManager:
    if s.world.manager is None:
        raise RuntimeError("a fault of a resource manager where there is none")
    return s.world.manager


def _authority(s: Saboteur) -> PacemakerAuthority:
    assert isinstance(s.world.register, PacemakerAuthority)
    return s.world.register


def _someone(s: Saboteur, rng: Random) -> Machine:
    """Mostly the primary or a backup."""
    return rng.choice(s.targets(rng) or s.world.machines)


def _something_to_write(s: Saboteur, plan: FaultPlan, rng: Random, within: float) -> None:
    """So that the record is changed before long."""
    act = rng.choice((kill_backup, cut_link, cut_link, kill_primary))
    s.later(rng.random() * within, partial(act, s, plan, rng))


def power_off(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """Of the primary, of a backup, or of both one after the other."""
    pair = s.targets(rng)
    if pair is None:
        return
    victims = rng.choice(([pair[0]], [pair[0]], [pair[1]], list(pair), list(pair)[::-1]))
    for victim in victims:
        later = rng.random() * rng.choice((0.0, 0.05, 1.0))
        s.later(later, partial(s.kill_and_restart, victim, Death.POWER, plan.length + rng.choice((0.0, 2.0))))


def split_in_write(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """Whoever next writes the record is alone from the instant at which its own copy has it. The ways are
    mended before anybody notices, before fencing has succeeded, or later; in half of the cases the power
    switch is out of its reach, too, and it is fenced before."""
    cluster = _cluster(s)
    token, fencing = cluster.plan.token, cluster.plan.fence_takes
    length = rng.choice((0.5 * token, (1.5 + rng.random()) * token, 4 * token, plan.length))
    doomed = frozenset({SWITCH}) if rng.random() < 0.5 else frozenset()
    if doomed:
        length = max(length, 2.0 * token + 2.0 * fencing + 1.0)
    s.pending += 1

    def split(writer: str) -> None:
        s.pending -= 1
        others = frozenset(cluster.names) - {writer} | doomed
        s.clock.note(f"the record is in the CIB of {writer} alone")
        one = frozenset({writer})
        cut_off(s, rng, [Cut(one, others), Cut(others, one)], length)

    cluster.armed.append(split)
    _something_to_write(s, plan, rng, 0.02)
    s.later(4.0, partial(_disarm, s, split))


def _disarm(s: Saboteur, split: Callable[[str], None]) -> None:
    armed = _cluster(s).armed
    if split in armed:
        armed.remove(split)
        s.pending -= 1


def hang_cib(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    machine = _someone(s, rng)
    _cluster(s).hang(machine.name, s.clock.now + plan.length)
    s.clock.note(f"FAULT: the CIB daemon of {machine.name} hangs")
    s.later(plan.length, lambda: None)
    if rng.random() < 0.6:
        _something_to_write(s, plan, rng, 0.2)


def fail_cibadmin(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """Commands fail or are late, on one host or on all."""
    fails, late = rng.choice(((0.5, 0.0), (1.0, 0.0), (0.0, 1.0), (0.2, 0.3)))
    hosts = rng.choice(([_someone(s, rng).name], list(_cluster(s).names)))
    for host in hosts:
        shell = _authority(s).shells[host]
        shell.failing_until, shell.fails, shell.late = s.clock.now + plan.length, fails, late
    _authority(s).lossy_until = s.clock.now + plan.length
    s.clock.note(f"FAULT: commands of {', '.join(hosts)} fail ({fails:.0%}), or are late by up to {late} s")
    s.later(plan.length, lambda: None)
    if rng.random() < 0.6:
        _something_to_write(s, plan, rng, 0.2)


def kill_helper(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """Now, or in the middle of a change."""
    machine = _someone(s, rng)
    if rng.random() < 0.7:
        _something_to_write(s, plan, rng, 0.0)
    s.later(rng.random() * rng.choice((0.02, 0.6)), partial(_kill_helper, s, machine))


def _kill_helper(s: Saboteur, machine: Machine) -> None:
    s.clock.note(f"FAULT: the helper of {machine.name} is killed")
    _authority(s).kill_helper(machine.name)


def freeze_host(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """All of it: the broker, and the cluster's processes; for less or more than the others wait."""
    machine = _someone(s, rng)
    cluster = _cluster(s)
    machine.pause(in_tick=rng.random() < 0.5)
    cluster.freeze(machine.name, True)
    s.clock.note(f"FAULT: the host of {machine.name} stands still")
    length = rng.choice((0.5, 1.5, 4.0)) * cluster.plan.token + rng.choice((0.0, plan.length))
    s.later(length, partial(_thaw, s, machine))


def _thaw(s: Saboteur, machine: Machine) -> None:
    """Also if the cluster's processes were gone when it froze, or went meanwhile: its broker may be there."""
    s.clock.note(f"the host of {machine.name} goes on")
    _cluster(s).freeze(machine.name, False)
    machine.resume()


def kill_cluster(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """corosync and Pacemaker end on a host, and its broker goes on."""
    machine = _someone(s, rng)
    s.clock.note(f"FAULT: the cluster's processes of {machine.name} are killed")
    _cluster(s).end(machine.name)
    if rng.random() < 0.3:
        _something_to_write(s, plan, rng, 0.5)
    s.later(plan.length, partial(_cluster(s).start, machine.name))


def break_switch(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """Nobody can be fenced, and somebody has to be."""
    manager = _manager(s)
    length = plan.length + rng.choice((0.0, 2.0))
    manager.broken_until = s.clock.now + length
    s.clock.note("FAULT: the power switch is out of order")
    s.later(length, lambda: None)
    pair = s.targets(rng)
    if pair is None:
        return
    if rng.random() < 0.5:
        s.kill_and_restart(rng.choice(pair), Death.POWER, plan.length)
    else:
        one, others = frozenset({pair[0].name}), frozenset(_cluster(s).names) - {pair[0].name}
        cut_off(s, rng, [Cut(one, others), Cut(others, one)], length)


def maintain(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """Maintenance mode, and something happens meanwhile."""
    _manager(s).maintenance_until = s.clock.now + plan.length
    s.clock.note("FAULT: maintenance mode: nothing is promoted, started or stopped")
    s.later(plan.length, lambda: None)
    if rng.random() < 0.8:
        act = rng.choice((kill_backup, cut_link, kill_primary))
        s.later(rng.random() * plan.length, partial(act, s, plan, rng))


def stop_controller(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """A DC does nothing for a while; corosync and its CIB go on."""
    machine = _someone(s, rng)
    _manager(s).gone_until[machine.name] = s.clock.now + plan.length
    s.clock.note(f"FAULT: the controller of {machine.name} does nothing")
    s.later(plan.length, lambda: None)
    s.later(rng.random() * plan.length, partial(kill_primary, s, plan, rng))


def edit_cib(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """People change other parts of the configuration, each where they happen to be logged in; now, and a few
    times more."""
    for _ in range(rng.choice((1, 2, 4))):
        machine = rng.choice(s.world.machines)
        s.later(rng.random() * rng.choice((0.02, 2.0)), partial(_edit, s, machine))


def _edit(s: Saboteur, machine: Machine) -> None:
    """Left out: on a node that has lost the record's last change with its power, and that is still by itself:
    its copy would win over what was in force."""
    if _cluster(s).listens(machine.name) and not _cluster(s).nodes[machine.name].behind:
        s.clock.note(f"FAULT: somebody changes the configuration of the cluster on {machine.name}")
        _cluster(s).write(machine.name, lambda copy: (0, copy.edited()))
