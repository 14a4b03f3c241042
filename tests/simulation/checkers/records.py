"""Who was in the record when: the register's history, or all that any disk was ever made to keep.

Shared by the checkers of confirms and of promotions; judges nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tests.simulation.harness.clock import Clock
from tests.simulation.harness.inspection import RecordFile, RecordOnDisk, Who, identity, record_of
from tests.simulation.harness.machines.machine import Machine


class Register(Protocol):
    """What of the register the checkers read, from outside the network."""

    @property
    def slow_until(self) -> float:
        """Until then it may take its time."""

    @property
    def lossy_until(self) -> float:
        """Until then it may not answer."""

    @property
    def history(self) -> Sequence[tuple[float, dict[str, Any]]]:
        """Each record that it ever held with the instant of its swap, oldest first."""

    def could_answer(self, host: str) -> bool:
        """Whether anything that it says could get there now, and be said."""


@dataclass(slots=True)
class Life:
    """One life of one node."""

    machine: Machine
    number: int
    died: float | None = None


@dataclass(slots=True, frozen=True)
class Promotion:
    """A node has made itself owner of a new record."""

    machine: Machine
    who: Who
    record: RecordOnDisk
    before: RecordOnDisk | None
    """The truth until then."""
    own: RecordOnDisk | None
    """What its own disk had until then."""
    at: float


class Records:
    """`looked` after each tick and life; `on_promotion` and `on_change` are called from there."""

    def __init__(self, clock: Clock, machines: Sequence[Machine], register: Register | None) -> None:
        self.clock = clock
        self.register = register
        self.lives: dict[Who, Life] = {}
        self.promotions: list[Promotion] = []
        self.on_promotion: list[Callable[[Promotion], None]] = []
        self.on_change: list[Callable[[Machine], None]] = []
        """Told of each machine whose own record is another now."""
        self._files = {machine.name: RecordFile(machine) for machine in machines}
        self._who: dict[str, Who] = {}
        self._newest: RecordOnDisk | None = None

    def started(self, machine: Machine) -> None:
        who = self._who[machine.name] = identity(machine)
        self.lives[who] = Life(machine, machine.life)
        self.look(machine)

    def died(self, machine: Machine) -> None:
        who = self._who.get(machine.name)
        if who is not None and self.lives[who].died is None:
            self.lives[who].died = self.clock.now

    def look(self, machine: Machine) -> None:
        """Has its disk another record than when it was last looked at?"""
        file = self._files[machine.name]
        own = file.record
        if not file.changed():
            return
        record = file.record
        if record is None:
            return
        before = self.truth(record)
        who = self._who.get(machine.name)
        if record.owner == who and (own is None or own.owner != who or own.epoch != record.epoch):
            promotion = Promotion(machine, record.owner, record, before, own, self.clock.now)
            self.promotions.append(promotion)
            for told in self.on_promotion:
                told(promotion)
        if self._newest is None or record.version > self._newest.version:
            self._newest = record
        for listener in self.on_change:
            listener(machine)

    def file(self, machine: Machine) -> object:
        """Another object when the record on its disk is another."""
        return machine.disk._kept.get(self._files[machine.name].path)

    def who(self, machine: Machine) -> Who:
        """Of its last life."""
        return self._who[machine.name]

    def of(self, machine: Machine) -> RecordOnDisk | None:
        """What its disk keeps."""
        return self._files[machine.name].record

    def truth(self, leave_out: RecordOnDisk | None = None) -> RecordOnDisk | None:
        """What the register holds, or the newest of all disks; as it was before `leave_out` got there."""
        if self.register is None:
            return self._newest
        for _, document in reversed(self.register.history):
            record = record_of(document)
            if leave_out is None or record.epoch < leave_out.epoch:
                return record
        return None
