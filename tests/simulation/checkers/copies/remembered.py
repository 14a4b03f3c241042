"""What a disk knows of history is known again after a start (15): which ids each queue ever had."""

from __future__ import annotations

from broker.model.values import Scope
from tests.simulation.checkers.facts import SERVING
from tests.simulation.harness.inspection import queues_of
from tests.simulation.harness.journal import Violation
from tests.simulation.harness.machines.machine import Machine

OFTEN = 8
"""Ticks of a machine between two looks."""
SETTLED = SERVING | {"ready"}
"""Roles in which history only goes on: whoever catches up takes that of its primary for its own."""

Ends = dict[tuple[bytes, int], int]
"""By queue and epoch: a sequence."""


class Remembered15:
    """15: of each stored queue and epoch, the ids of history reach as far after a start as the newest message
    that the disk ever had for good, dequeued since or not; until history itself forgets the epoch, or the
    queue. What returns of it is dropped in silence for that alone.

    Looked at while all that was handed to the store is on disk. An epoch of which transient messages are held
    is forgotten earlier by the disk, which does not see them.
    """

    def __init__(self) -> None:
        self.checked = 0
        self._ticks = 0
        self._known: dict[str, tuple[object, Ends]] = {}
        """Of each node, its disk and what that certainly knows."""
        self._transient: dict[str, tuple[object, set[tuple[bytes, int]]]] = {}
        """Of each node, of what it held transient messages when its role or epoch changed: of an epoch that
        is over come no more."""

    def tick(self, machine: Machine) -> None:
        """After each one."""
        if machine.role() not in SETTLED:
            self._known.pop(machine.name, None)
            self._transient.pop(machine.name, None)
            return
        self._look_for_transient(machine)
        self._ticks += 1
        store = machine.store
        if self._ticks % OFTEN or store is None or store.synced != store._serial:
            return
        _, known = self._of(machine)
        for uuid, epoch, _, last, _ in store.index.ranges():
            known[uuid, epoch] = max(last, known.get((uuid, epoch), 0))
        self._forget(machine)

    def dies(self, machine: Machine) -> None:
        """Its memory is there still."""
        if machine.role() in SETTLED:
            self._forget(machine)

    def started(self, machine: Machine) -> None:
        """It has read its disk."""
        disk, known = self._of(machine)
        ends = _ends(machine)
        if (
            disk is not machine.disk or machine.disk.damaged
        ):  # what rots at the end looks torn, and is cut off
            del self._known[machine.name]
            return
        for (uuid, epoch), last in sorted(known.items()):
            self.checked += 1
            found = ends.get((uuid, epoch), 0)
            if found < last:
                raise Violation(
                    15, f"{machine.name}, just started, knows of ids up to {found} of epoch {epoch} in "
                    f"{uuid.hex()}, and its disk has had {last}",
                )  # fmt: skip

    # -- inside

    def _of(self, machine: Machine) -> tuple[object, Ends]:
        return self._known.setdefault(machine.name, (machine.disk, {}))

    def _look_for_transient(self, machine: Machine) -> None:
        now = machine.life, machine.role(), machine.running.core.epoch
        before, found = self._transient.get(machine.name, (None, set()))
        if now == before:
            return
        for queue in queues_of(machine).values():
            found |= {(queue.uuid, env.epoch) for _, env, _ in queue.held_entries() if not env.persistent}
        self._transient[machine.name] = now, found

    def _forget(self, machine: Machine) -> None:
        """What history does not know any more."""
        disk, known = self._of(machine)
        ends = _ends(machine)
        for of in self._transient[machine.name][1] if machine.name in self._transient else ():
            ends.pop(of, None)
        left = {of: min(last, ends[of]) for of, last in known.items() if of in ends}
        self._known[machine.name] = disk, left


def _ends(machine: Machine) -> Ends:
    """How far history goes in the model."""
    return {
        (queue.uuid, epoch): end.last
        for queue in queues_of(machine).values()
        if queue.scope & Scope.STORE
        for epoch, end in queue.ends().items()
    }
