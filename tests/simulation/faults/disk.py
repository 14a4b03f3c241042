"""Faults of disks: slow, failing, full, rotten, and machines that end in the middle of a write."""

from __future__ import annotations

import errno
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.checkers.holdings import KEY
from tests.simulation.faults.nodes import draw_death
from tests.simulation.faults.plan import FaultPlan
from tests.simulation.harness.machines.machine import Machine
from tests.simulation.harness.machines.virtual_disk import VirtualDisk

if TYPE_CHECKING:
    from tests.simulation.faults.injector import Saboteur

LOOK, LOOKS = 0.1, 10
"""Seconds between two looks whether a node has met the fault of its disk, and how many."""


def slow_disk(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    machine = rng.choice(s.world.machines)
    slow(s, machine, rng.choice((0.05, 0.3)), 1.0)


def hang_disk(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """For longer than its node may owe an answer, which goes on answering: a backup's mostly, in traffic."""
    pair = s.targets(rng)
    if pair is not None:
        ack_timeout = s.world.plan.timing.ack_timeout
        machine = pair[rng.random() < 0.8]
        slow(s, machine, rng.choice((1.5 * ack_timeout, 2.0 + 3.0 * ack_timeout)), 0.3)
        s.world.grant()


def slow(s: Saboteur, machine: Machine, seconds: float, until: float) -> None:
    """Each sync takes so long that begins within `until` seconds."""
    machine.slow.begin(seconds, s.clock.now, s.clock.now + until)
    s.clock.note(f"FAULT: {machine.name} has a slow disk: {seconds:g} s a sync")
    s.later(until + seconds, lambda: None)


def fail_disk(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """Writes or syncs fail, or the disk is full: the node must stop. Later it starts on a disk that works."""
    machine = _victim(s, rng)
    if machine is None:
        return
    kind = rng.choice(("sync", "write", "room"))
    machine.may_stop = machine.doomed = True
    if kind == "room":
        machine.disk.room = rng.choice((0, 10, 300))
        s.clock.note(f"FAULT: the disk of {machine.name} has room for {machine.disk.room} bytes more")
    else:
        machine.disk.failing[kind] = errno.EIO
        s.clock.note(f"FAULT: the disk of {machine.name} fails: {kind}")
    s.world.grant()
    s.later(LOOK, partial(_heal, s, plan, machine, LOOKS))


def _heal(s: Saboteur, plan: FaultPlan, machine: Machine, looks: int) -> None:
    if machine.node is not None and looks:
        s.later(LOOK, partial(_heal, s, plan, machine, looks - 1))
        return
    machine.disk.failing.clear()
    machine.disk.room = None
    s.clock.note(f"the disk of {machine.name} works again")
    s.later(plan.length, partial(_healed, s, machine))


def _healed(s: Saboteur, machine: Machine) -> None:
    """Who met the fault at the last moment has ended by now, if it is not asleep."""
    if machine.paused:
        s.later(LOOK, partial(_healed, s, machine))
        return
    s.later(LOOK, partial(_off, s, machine))


def _off(s: Saboteur, machine: Machine) -> None:
    machine.may_stop = machine.doomed = False
    s.restart(machine)


def crash_in_write(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """The machine ends at one of its next operations on files, which may be done in part."""
    machine = _victim(s, rng)
    if machine is None:
        return
    machine.doomed = True
    machine.disk.crash_at = machine.disk.operations + rng.randint(0, 30)
    machine.disk.crash_random = Random(rng.random())
    if not s.world.topology.all_durable:  # others may leave the record before it comes to that
        machine.disk.spared = lambda: s.world.copies.last(machine)
    s.world.grant()
    s.later(LOOK, partial(_after_crash, s, plan, machine, LOOKS))


def _after_crash(s: Saboteur, plan: FaultPlan, machine: Machine, looks: int) -> None:
    if machine.node is not None and looks:
        s.later(LOOK, partial(_after_crash, s, plan, machine, looks - 1))
        return
    machine.disk.crash_at = machine.disk.spared = None
    machine.doomed = False
    s.later(plan.length, partial(s.restart, machine))


def _victim(s: Saboteur, rng: Random) -> Machine | None:
    """Primary or backup, unless it is one that has to be spared."""
    machine = rng.choice(s.targets(rng) or (None,))
    if machine is None or machine.doomed:
        return None
    if s.world.copies.last(machine) and not s.world.topology.all_durable:
        return None
    return machine


def rot_disk(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """A byte is not what was written. The node must say so and not start, or come to no harm; if it does not
    start, it gets an empty disk."""
    pair = s.world.pair()
    if pair is None:
        return
    machine = rng.choice([m for m in s.world.machines if m is not pair[0]])
    if s.world.copies.last(machine):
        s.clock.note(f"{machine.name} is spared: it was promoted, and nobody else is in the record")
        return
    if not s.kill(machine, draw_death(rng)):
        return
    files = {path: data for path, data in machine.disk.contents().items() if data}
    path, offset = _somewhere(files, rng)
    machine.rotten = s.alone = True
    machine.disk.damage(path, offset, 1 << rng.randrange(8))
    s.clock.note(f"FAULT: byte {offset} of {path} rots")
    s.later(plan.length, partial(_start_rotten, s, plan, machine))


def _somewhere(files: dict[str, bytes], rng: Random) -> tuple[str, int]:
    """A file and a place in it; half of the time in a message of the store, if it has any."""
    bodies = [
        (path, found.start()) for path, data in sorted(files.items()) if "/store/" in path
        for found in KEY.finditer(data)
    ]  # fmt: skip
    if bodies and rng.random() < 0.5:
        return rng.choice(bodies)
    path = rng.choice(sorted(files))
    return path, rng.randrange(len(files[path]))


def _start_rotten(s: Saboteur, plan: FaultPlan, machine: Machine) -> None:
    if machine.node is not None or machine.start():
        s.alone = False
    else:
        s.counts["starts refused for a rotten disk"] += 1
        machine.disk = VirtualDisk()
        s.clock.note(f"{machine.name} gets an empty disk")
        machine.start()
        s.alone_until_whole()
