"""Does what a plan says goes wrong: one failure at a time, the next only when the pair is whole again.

That is what the `manual` authority promises to survive: crashes and broken connections of one node, no
partition.
Broken client connections and slow disks come at any time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Protocol

from tests.simulation.actors import Actor
from tests.simulation.clock import Clock
from tests.simulation.fault_plan import Fault, FaultPlan
from tests.simulation.inspection import record_on_disk
from tests.simulation.machine import Machine
from tests.simulation.network import break_stream

TRAFFIC_LIMIT = 2.0
"""Seconds that a fault waits for the traffic it is to fall into."""


Pair = tuple[Machine, Machine]
"""Primary and backup."""


class Traffic(Protocol):
    """The publishers, as the plan sees them."""

    def grant(self) -> None:
        """Let them publish some more."""

    def progress(self) -> float:
        """Which part of what was granted last is sent, from 0 to 1; 0 until all of them were connected."""


class Saboteur:
    """Does the planned faults in turn. `whole` gives (primary, backup) while the pair is whole, else None."""

    def __init__(
        self, clock: Clock, random: Callable[[str], Random], plans: Sequence[FaultPlan],
        machines: list[Machine], whole: Callable[[], Pair | None], traffic: Traffic,
        demote: Callable[[Machine, Callable[[], None]], None],
    ) -> None:  # fmt: skip
        self.clock = clock
        self.random = random
        self.machines = machines
        self.whole = whole
        self.traffic = traffic
        self.demote = demote
        self.left = deque(plans)
        self.injected: list[Fault] = []
        self.rng = random("fault")
        """Of the fault that is being done."""
        self._until = 0.0
        self.pending = 0
        """Restarts and answers that are still to come."""
        self.memory_lost: list[float] = []
        """When both nodes were down: what was not on disk is gone."""

    @property
    def done(self) -> bool:
        return not self.left and not self.pending

    def start(self) -> None:
        self._wait()

    def _wait(self) -> None:
        if not self.left:
            return
        if self.pending or self.whole() is None:
            self.clock.after(0.02, self._wait)
            return
        self.traffic.grant()
        self._until = self.clock.now + TRAFFIC_LIMIT
        self._inject_in_traffic()

    def _inject_in_traffic(self) -> None:
        if self.traffic.progress() < self.left[0].share and self.clock.now < self._until:
            self.clock.after(0.002, self._inject_in_traffic)
        else:
            self.clock.after(self.left[0].pause, self._inject)

    def _inject(self) -> None:
        pair = self.whole()
        if pair is None:
            self._wait()
            return
        primary, backup = pair
        plan = self.left.popleft()
        self.rng = self.random(f"fault/{plan.name}")
        self.injected.append(plan.kind)
        self.clock.note(f"FAULT: {plan.kind.value}")
        match plan.kind:
            case Fault.KILL_PRIMARY:
                self._kill(primary, plan.length)
            case Fault.KILL_BACKUP:
                self._kill(backup, plan.length)
            case Fault.KILL_BACKUP_TWICE:
                self._kill(backup, plan.length, again=True)
            case Fault.CUT_LINK:
                self._cut_link(primary, backup)
            case Fault.SLOW_DISK:
                self._slow(self.rng.choice(pair))
            case Fault.SWITCH_OVER:
                self.pending += 1
                self.demote(primary, self._demoted)
            case Fault.KILL_BOTH:
                self.pending += 1
                backup.kill()
                self._when_alone(primary, backup, self.rng.choice((0.01, 0.5, 5.0)))
        self.clock.after(0.02, self._wait)

    def _when_alone(self, primary: Machine, backup: Machine, waits: float) -> None:
        """Once the exclusion of the backup is on disk, or earlier: some traffic, and the primary goes too."""
        record = record_on_disk(primary)
        if record is not None and record.in_sync and waits > 0:
            self.clock.after(0.01, partial(self._when_alone, primary, backup, waits - 0.01))
            return
        self.traffic.grant()
        delay = self.rng.random() * self.rng.choice((0.05, 0.5))
        self.clock.after(delay, partial(self._kill_alone, primary, backup))

    def _kill_alone(self, primary: Machine, backup: Machine) -> None:
        self.clock.note("FAULT: and now the primary")
        self.memory_lost.append(self.clock.now)
        self.pending -= 1
        self._kill(primary, self._down())
        self.pending += 1
        self.clock.after(
            self.rng.choice((0.01, 1.0, 4.0)) * self.rng.random(), partial(self._restart, backup, False)
        )

    def _demoted(self) -> None:
        self.pending -= 1

    def _kill(self, machine: Machine, length: float, *, again: bool = False) -> None:
        machine.kill()
        self.pending += 1
        self.clock.after(length, partial(self._restart, machine, again))

    def _down(self) -> float:
        return self.rng.choice((0.01, 0.2, 1.0, 4.0)) * (0.5 + self.rng.random())

    def _restart(self, machine: Machine, again: bool) -> None:
        machine.start()
        self.pending -= 1
        if again:
            self.pending += 1
            self.clock.after(
                self.rng.random() * self.rng.choice((0.02, 0.3)), partial(self._kill_joiner, machine)
            )

    def _kill_joiner(self, machine: Machine) -> None:
        """Its failure goes on, unless it is whole again already: then this is the next single failure."""
        self.pending -= 1
        self._kill(machine, self._down())

    def _cut_link(self, primary: Machine, backup: Machine) -> None:
        for dial in [*backup.dials.values(), *primary.dials.values()]:
            break_stream(dial.end, clean=self.rng.random() < 0.5)

    def _slow(self, machine: Machine) -> None:
        machine.slow_time = self.rng.choice((0.05, 0.3))
        machine.slow_until = self.clock.now + 1.0
        self.clock.note(f"{machine.name} has a slow disk: {machine.slow_time} s a sync")


class ClientCuts:
    """Breaks the connection of one actor now and then, until `stop`."""

    def __init__(self, clock: Clock, rng: Random, actor: Actor) -> None:
        self.clock = clock
        self.rng = rng
        self.actor = actor
        self.running = actor.cut_every > 0
        if self.running:
            self._later()

    def stop(self) -> None:
        self.running = False

    def _later(self) -> None:
        self.clock.after(self.actor.cut_every * (0.2 + 2 * self.rng.random()), self._strike)

    def _strike(self) -> None:
        if self.running:
            clean = self.rng.random() < 0.5
            if self.actor.cut(clean):
                end = "FIN" if clean else "RST"
                self.clock.note(f"FAULT: the connection of {self.actor.name} breaks ({end})")
            self._later()
