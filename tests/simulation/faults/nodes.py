"""Faults of whole nodes: killed, stopped, demoted, configured otherwise, with a wall clock that jumps."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from ha.adapter.settings import HaSettings
from tests.simulation.faults.plan import FaultPlan
from tests.simulation.harness.inspection import identity, record_on_disk
from tests.simulation.harness.machines.machine import Death, Machine
from tests.simulation.harness.network import break_stream

if TYPE_CHECKING:
    from tests.simulation.faults.injector import Saboteur

GLANCE = 0.002
"""Seconds between two looks for a joiner that catches up."""

Pair = tuple[Machine, Machine]


def kill_primary(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    pair = s.targets(rng)
    if pair is not None:
        s.kill_and_restart(pair[0], draw_death(rng), plan.length)


def kill_backup(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    backup = _a_backup(s, rng)
    if backup is not None:
        s.kill_and_restart(backup, draw_death(rng), plan.length)


def kill_backup_twice(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    backup = _a_backup(s, rng)
    if backup is None or not s.kill(backup, draw_death(rng)):
        return
    soon = rng.random() * rng.choice((0.02, 0.3))

    def again() -> None:
        s.restart(backup)
        s.later(soon, partial(s.kill_and_restart, backup, draw_death(rng), draw_length(rng)))

    s.later(plan.length, again)


def kill_expected(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """A member of the record that the new primary waits for. With two nodes there is none."""
    kill_primary(s, plan, rng)

    def strike(new_primary: Machine) -> None:
        others = [m for m in s.world.machines if m is not new_primary and m.node is not None]
        if not others:
            return
        machine = rng.choice(others)
        soon = rng.random() * rng.choice((0.02, 0.3))
        if rng.random() < 0.3:
            s.later(soon, partial(break_links, machine, new_primary, rng))
        else:
            s.later(soon, partial(s.kill_and_restart, machine, draw_death(rng), draw_length(rng)))

    s.when_promoting(strike)


def kill_new_primary(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """Who has a part of what the new primary tells may be promoted, and must not pass for one who has all. It
    stays away for long enough, mostly, that another one is."""
    kill_primary(s, plan, rng)
    s.when_promoting(partial(_when_followed, s, plan, rng, 4.0))


def _when_followed(s: Saboteur, plan: FaultPlan, rng: Random, limit: float, new_primary: Machine) -> None:
    """Somebody catches up with it, and is expected: not one that has been started again."""
    record = record_on_disk(new_primary)
    expected = record.in_sync if record is not None else frozenset()
    followed = any(m.role() == "catch-up" and identity(m) in expected for m in s.world.machines)
    if not followed and limit > 0 and new_primary.node is not None:
        s.later(GLANCE, partial(_when_followed, s, plan, rng, limit - GLANCE, new_primary))
        return
    soon = rng.random() * rng.choice((0.0, 0.003, 0.03))
    s.later(soon, partial(s.kill_and_restart, new_primary, draw_death(rng), 1.0 + 2 * plan.length))


def kill_all(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    pair = s.world.pair()
    if pair is None:
        return
    primary = pair[0]
    backups = [m for m in s.world.machines if m is not primary]
    for backup in backups:
        s.later(rng.choice((0.0, 0.3)) * rng.random(), partial(s.kill, backup, draw_death(rng)))
    s.later(0.31, partial(_when_alone, s, plan, rng, primary, rng.choice((0.01, 0.5, 5.0))))


def _when_alone(s: Saboteur, plan: FaultPlan, rng: Random, primary: Machine, waits: float) -> None:
    """Once the exclusion of the backups is recorded, or earlier: some traffic, and the primary goes too."""
    if s.world.copies.others(primary) and waits > 0:
        s.later(0.02, partial(_when_alone, s, plan, rng, primary, waits - 0.02))
        return
    s.world.grant()
    if rng.random() < 0.4:
        joiner = rng.choice([m for m in s.world.machines if m is not primary])
        s.restart(joiner)
        _when_catching(s, plan, rng, primary, joiner, 1.0)
        return
    s.later(rng.random() * rng.choice((0.05, 0.5)), partial(_kill_alone, s, plan, rng, primary))


def _when_catching(
    s: Saboteur, plan: FaultPlan, rng: Random, primary: Machine, joiner: Machine, limit: float
) -> None:
    """A half copy is left alone with itself: it must not pass for a whole one."""
    if joiner.role() != "catch-up" and limit > 0:
        s.later(GLANCE, partial(_when_catching, s, plan, rng, primary, joiner, limit - GLANCE))
        return
    if rng.random() < 0.5:
        s.later(rng.random() * 0.01, partial(s.kill_and_restart, joiner, draw_death(rng), draw_length(rng)))
    s.later(rng.random() * rng.choice((0.0, 0.01)), partial(_kill_alone, s, plan, rng, primary))


def _kill_alone(s: Saboteur, plan: FaultPlan, rng: Random, primary: Machine) -> None:
    s.clock.note("FAULT: and now the primary")
    s.kill(primary, draw_death(rng))
    for machine in s.world.machines:
        s.later(plan.length if machine is primary else draw_length(rng), partial(s.restart, machine))


def stop_process(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """A backup or the primary, for some milliseconds or for longer than any timeout."""
    pair = s.targets(rng)
    if pair is None:
        return
    machine = rng.choice(pair)
    machine.pause(in_tick=rng.random() < 0.5)
    s.later(plan.length * rng.choice((0.1, 1.0, 2.0)), machine.resume)


def stop_target(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """For longer than `ack_timeout`, and the primary ends before that is over, mostly before it can have
    excluded the backup: whether it has, the backup cannot know when it goes on."""
    pair = s.targets(rng)
    if pair is None:
        return
    primary, backup = pair
    ack_timeout = s.world.plan.timing.ack_timeout
    silence = plan.length * ack_timeout
    backup.pause(in_tick=rng.random() < 0.5)
    s.later(silence, backup.resume)
    down = silence + rng.choice((0.5, 2.0, 4.0)) * rng.random()
    s.later(
        ack_timeout * rng.choice((0.5, 1.0, 1.2)) * rng.random(),
        partial(s.kill_and_restart, primary, draw_death(rng), down),
    )


def misconfigure(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """A backup comes back with a shorter lease than all others have, or a stricter policy, until somebody
    puts it right.

    Should it be promoted at a cold start, that is the safe side: it falls silent too early, or confirms
    nothing alone.
    """
    backup = _a_backup(s, rng)
    if backup is None or not s.kill(backup, draw_death(rng)):
        return
    own = backup.settings
    other, told = _other_settings(own, rng)
    backup.settings = other
    s.clock.note(f"FAULT: {backup.name} is configured to {told}")
    s.later(0.2 * rng.random(), partial(s.restart, backup))
    s.later(0.2 + plan.length, partial(_put_right, s, backup, own, draw_death(rng)))


def _other_settings(own: HaSettings, rng: Random) -> tuple[HaSettings, str]:
    """And what is told of them."""
    what = rng.choice(("lease", "policy", "backups"))
    if what == "lease":
        return replace(own, lease=own.lease * 0.75), f"a lease of {own.lease * 0.75:g} s"
    if what == "policy" and own.on_backup_loss != "block":
        return replace(own, on_backup_loss="block"), "block without backups"
    least = own.min_backups + 1
    return replace(own, min_backups=least), f"at least {least} backups"


def _put_right(s: Saboteur, machine: Machine, own: HaSettings, death: Death) -> None:
    if machine.node is not None and not s.kill(machine, death, fault=False):
        s.later(GLANCE, partial(_put_right, s, machine, own, death))
        return
    machine.settings = own
    s.clock.note(f"{machine.name} has its own configuration again")
    s.later(0.01, partial(s.restart, machine))


def cut_link(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """The connections between two nodes break; both live."""
    pair = s.targets(rng)
    if pair is not None:
        break_links(*pair, rng)


def break_links(one: Machine, other: Machine, rng: Random) -> None:
    for machine in (one, other):
        for dial in list(machine.dials.values()):
            if {machine.name, dial.end.peer.host} == {one.name, other.name}:
                clean = rng.random() < 0.5
                if dial.end.open and dial.end.peer.open:
                    end = "FIN" if clean else "RST"
                    machine.clock.note(
                        f"FAULT: the connection of {machine.name} to {dial.end.peer.host} breaks ({end})"
                    )
                break_stream(dial.end, clean)


def step_clock(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    machine = rng.choice(s.world.machines)
    step = rng.choice((-86_400_000, -3_000, -50, 50, 3_000, 86_400_000))
    machine.host.wall_error += step
    s.clock.note(f"FAULT: the wall clock of {machine.name} is put on by {step} ms")


def draw_death(rng: Random) -> Death:
    return rng.choice((Death.KILLED, Death.CRASHED, Death.CRASHED, Death.POWER, Death.STOPPED))


def draw_length(rng: Random) -> float:
    """Seconds that a killed node is down."""
    return rng.choice((0.01, 0.2, 0.2, 1.0, 4.0)) * (0.5 + rng.random())


def _a_backup(s: Saboteur, rng: Random) -> Machine | None:
    """One that is up: the ready one, or with many nodes perhaps another, which lags."""
    pair = s.targets(rng)
    if pair is None:
        return None
    others = [m for m in s.world.machines if m is not pair[0] and m.node is not None]
    return rng.choice([pair[1], *others])
