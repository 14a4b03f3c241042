"""Who holds everything that was confirmed: the last record's incarnations, and which of them still live.

Owner: World. Reads the nodes' disks and the register from outside. Serves the faults (nobody may take the
last copy of what is not durable) and the checkers (when what was not on a disk was lost).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.simulation.harness.clock import Clock
from tests.simulation.harness.inspection import keeps_transient, medium
from tests.simulation.harness.machines.machine import Machine
from tests.simulation.harness.register import Register
from tests.simulation.pacemaker.authority import PacemakerAuthority

Identity = tuple[str, int]
"""Node id and incarnation."""


class Copies:
    """`memory_lost` has the instants at which the last incarnation of the record died, or was all that a swap
    left in it."""

    def __init__(
        self, clock: Clock, machines: Sequence[Machine], register: Register | PacemakerAuthority
    ) -> None:
        self.clock = clock
        self.machines = machines
        self.register = register
        register.on_swap = self.swapped
        self.memory_lost: list[float] = []
        self.kept: set[float] = set()
        """Those instants at which the last one had transient messages on its disk."""
        self._lives: dict[str, Identity] = {}

    def started(self, machine: Machine) -> None:
        me = machine.running.me
        self._lives[machine.name] = (me.node_id, me.incarnation)

    def killed(self, machine: Machine) -> None:
        """Just before the process goes."""
        if self._only(machine, self._newest(), doomed=True):
            self.memory_lost.append(self.clock.now)
            if keeps_transient(machine):
                self.kept.add(self.clock.now)
            self.clock.note(f"with {machine.name} the last copy in memory goes")

    def spoilt(self, machine: Machine) -> None:
        """Its copy is not to be trusted any more: was it the last?"""
        members = _members(self._newest())
        others = [m for m in self.machines if m is not machine and m.node is not None and not m.spoilt]
        if not any(self._lives[m.name] in members for m in others):
            self.memory_lost.append(self.clock.now)
            self.clock.note(f"with {machine.name} the last copy in memory is spoilt")

    def swapped(self) -> None:
        """A swap may take effect after the death of who asked for it, and leave nobody but who is spoilt."""
        members = _members(self.register.record)
        living = [m for m in self.machines if m.node is not None and not m.spoilt]
        if not any(self._lives[m.name] in members for m in living):
            self.memory_lost.append(self.clock.now)
            self.clock.note("the register names nobody who lives and is not spoilt")

    def last(self, machine: Machine) -> bool:
        """Is this the only incarnation of the newest record that lives, and will? Or of one that the register
        has been asked to hold, and may yet."""
        return any(
            self._only(machine, record, doomed=False)
            for record in (self._newest(), *self.register.underway.values())
        )

    def others(self, machine: Machine) -> bool:
        """Does the newest record name anybody else, alive or not?"""
        return bool(_members(self._newest()) - {self._lives.get(machine.name, ("", 0))})

    def _only(self, machine: Machine, record: dict[str, Any] | None, *, doomed: bool) -> bool:
        """`doomed`: others that are about to end count as living."""
        members = _members(record)
        if machine.node is None or self._lives.get(machine.name) not in members:
            return False
        return not any(
            self._lives[m.name] in members
            for m in self.machines
            if m is not machine and m.node is not None and not m.spoilt and (doomed or not m.doomed)
        )

    def _newest(self) -> dict[str, Any] | None:
        if self.register.record is not None:
            return self.register.record
        records = [record for record in map(_on_disk, self.machines) if record is not None]
        return max(records, key=lambda r: (r["epoch"], r["revision"]), default=None)


def _members(record: dict[str, Any] | None) -> set[Identity]:
    if record is None:
        return set()
    return {(str(node), int(life)) for node, life in (record["owner"], *record["in_sync"])}


def _on_disk(machine: Machine) -> dict[str, Any] | None:
    if machine.rotten:
        return None
    raw = medium(machine.disk).get(f"/{machine.name}/insync.json")
    if not raw:
        return None
    body: dict[str, Any] = json.loads(raw)["body"]
    return body
