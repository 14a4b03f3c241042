"""What only an old primary had is kept for people, and never served (15)."""

from __future__ import annotations

import json

from broker.model.values import Scope
from tests.simulation.checkers.facts import SERVING
from tests.simulation.checkers.records import Promotion, Records
from tests.simulation.inspection import medium, vhost_of
from tests.simulation.journal import Violation
from tests.simulation.machine import Machine

Id = tuple[bytes, int, int]
"""Queue, epoch, sequence."""


def held_ids(machine: Machine) -> set[Id]:
    """All messages of replicated queues that a node's model holds."""
    return {
        (queue.uuid, epoch, sequence)
        for queue in vhost_of(machine).queues.values()
        if queue.scope & Scope.LINK
        for epoch, ids in queue.snapshot().items()
        for first, last in ids.ranges()
        for sequence in range(first, last + 1)
    }


class Promoted:
    """What a node held, and had ever held, when it was promoted."""

    def __init__(self, machine: Machine, epoch: int) -> None:
        self.life = machine.life
        self.epoch = epoch
        self.held = held_ids(machine)
        self.queues = {queue.uuid for queue in vhost_of(machine).queues.values()}
        self.last = {
            (queue.uuid, of_epoch): last
            for queue in vhost_of(machine).queues.values()
            for of_epoch, last in queue.last_sequences().items()
        }

    def had(self, one: Id) -> bool:
        queue, epoch, sequence = one
        return epoch < self.epoch and sequence <= self.last.get((queue, epoch), 0)


class Divergent15:
    """15: what a node held when it began to look for a primary, and has dropped when it is ready, was either
    in the history of that primary, or is in its quarantine, on disk. What the primary held itself is not
    exported; what was exported as divergent is not served by anyone promoted later."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.exported = 0
        self._before: dict[str, tuple[int, set[Id]]] = {}
        self._promoted: dict[str, Promoted] = {}
        self._history: list[Promoted] = []
        """Each goes on where the one before was: what one of them had is in the history of all later ones."""
        self._divergent: set[Id] = set()
        self._states: dict[str, tuple[int, str]] = {}

    def promoted(self, promotion: Promotion) -> None:
        found = self._promoted[promotion.machine.name] = Promoted(promotion.machine, promotion.record.epoch)
        self._history.append(found)
        back = found.held & self._divergent
        if back:
            queue, epoch, sequence = min(back)
            raise Violation(
                15, f"{promotion.machine.name} serves {epoch}-{sequence} of {queue.hex()}, which was "
                f"exported as divergent",
            )  # fmt: skip

    def dropped(self, machine: Machine) -> bool:
        """Is it catching up, and has it let go of anything that it held before?"""
        if self._states.get(machine.name) != (machine.life, "catching"):
            return False
        life, before = self._before.get(machine.name, (0, set[Id]()))
        return life == machine.life and machine.node is not None and not before <= held_ids(machine)

    def started(self, machine: Machine) -> None:
        self._before[machine.name] = (machine.life, held_ids(machine))
        self._states[machine.name] = (machine.life, "away")

    def tick(self, machine: Machine) -> None:
        """`away` from any primary, `catching` up with one, `ready`, or `serving`."""
        role = machine.role()
        if role in SERVING:
            state = "serving"
        else:
            backup = machine.running.core.backup
            linked = backup is not None and backup.linked
            state = ("ready" if role == "ready" else "catching") if linked else "away"
        life, was = self._states.get(machine.name, (0, ""))
        if was == state and life == machine.life:
            return
        self._states[machine.name] = (machine.life, state)
        if state == "away":
            held = held_ids(machine)
            if was == "catching":
                held |= self._before.get(machine.name, (0, held))[1]
            self._before[machine.name] = (machine.life, held)
        elif state == "ready":
            self._rejoined(machine)
        elif state == "serving":
            self._before.pop(machine.name, None)

    def _rejoined(self, machine: Machine) -> None:
        life, before = self._before.pop(machine.name, (0, set[Id]()))
        record = self.records.truth()
        if life != machine.life or record is None:
            return
        primary = self.records.lives[record.owner].machine
        promoted = self._promoted.get(primary.name)
        if promoted is None or promoted.life != primary.life or primary.node is None:
            return
        exported = _quarantine(machine)
        queues_now = vhost_of(primary).queues_by_uuid
        for queue, epoch, sequence in before - held_ids(machine):
            known = queue in promoted.queues
            if epoch >= promoted.epoch or (known and queue not in queues_now):
                continue
            if any(earlier.had((queue, epoch, sequence)) for earlier in self._history):
                continue
            if (queue, epoch, sequence) not in exported:
                raise Violation(
                    15, f"{machine.name} has dropped {epoch}-{sequence} of {queue.hex()}, which "
                    f"{primary.name} never had, and not exported it",
                )  # fmt: skip
            self._divergent.add((queue, epoch, sequence))
        needless = exported & before & promoted.held
        if needless:
            queue, epoch, sequence = min(needless)
            if queue in queues_now:
                raise Violation(
                    15, f"{machine.name} has exported {epoch}-{sequence} of {queue.hex()}, which "
                    f"{primary.name} had",
                )  # fmt: skip
        self.exported += len(exported & before)


def _quarantine(machine: Machine) -> set[Id]:
    """What its disk has in quarantine for good, each message whole."""
    found: set[Id] = set()
    for path, data in medium(machine.disk).items():
        if "/quarantine/" in path:
            for line in data.splitlines():
                try:
                    entry = json.loads(line)
                    queue, epoch, sequence = entry["queue"], int(entry["epoch"]), int(entry["sequence"])
                    one = (bytes.fromhex(queue), epoch, sequence)
                except (ValueError, KeyError):
                    continue  # torn, so that its node ended before it dropped anything; or rotten since
                if not entry["body"].startswith("<"):
                    raise Violation(15, f"{path} has a message without its body")
                found.add(one)
    return found
