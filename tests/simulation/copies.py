"""Who holds everything that was confirmed: the last record's incarnations, and which of them still live.

Owner: World. Reads the nodes' disks and the register from outside. Serves the faults (nobody may take the
last copy of what is not durable) and the checkers (when what was not on a disk was lost).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from tests.simulation.clock import Clock
from tests.simulation.inspection import medium
from tests.simulation.machine import Machine

Identity = tuple[str, int]
"""Node id and incarnation."""


class Copies:
    """`memory_lost` has the instants at which the last incarnation of the record died."""

    def __init__(
        self, clock: Clock, machines: Sequence[Machine], held: Callable[[], dict[str, Any] | None]
    ) -> None:
        self.clock = clock
        self.machines = machines
        self.held = held
        """What the register holds."""
        self.memory_lost: list[float] = []
        self._lives: dict[str, Identity] = {}

    def started(self, machine: Machine) -> None:
        me = machine.running.me
        self._lives[machine.name] = (me.node_id, me.incarnation)

    def killed(self, machine: Machine) -> None:
        """Just before the process goes."""
        if self._only(machine, doomed=True):
            self.memory_lost.append(self.clock.now)
            self.clock.note(f"with {machine.name} the last copy in memory goes")

    def last(self, machine: Machine) -> bool:
        """Is this the only incarnation of the newest record that lives, and will?"""
        return self._only(machine, doomed=False)

    def _only(self, machine: Machine, *, doomed: bool) -> bool:
        """`doomed`: others that are about to end count as living."""
        mine = self._lives.get(machine.name)
        members = self._members()
        if machine.node is None or mine not in members:
            return False
        return not any(
            self._lives[m.name] in members
            for m in self.machines
            if m is not machine and m.node is not None and (doomed or not m.doomed)
        )

    def others(self, machine: Machine) -> bool:
        """Does the newest record name anybody else, alive or not?"""
        return bool(self._members() - {self._lives.get(machine.name, ("", 0))})

    def _members(self) -> set[Identity]:
        records = [r for r in (self.held(), *map(_on_disk, self.machines)) if r is not None]
        if not records:
            return set()
        newest = max(records, key=lambda r: (r["epoch"], r["revision"]))
        return {(str(node), int(life)) for node, life in (newest["owner"], *newest["in_sync"])}


def _on_disk(machine: Machine) -> dict[str, Any] | None:
    if machine.rotten:
        return None
    raw = medium(machine.disk).get(f"/{machine.name}/insync.json")
    if not raw:
        return None
    body: dict[str, Any] = json.loads(raw)["body"]
    return body
