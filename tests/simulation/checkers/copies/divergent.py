"""What only an old primary had is kept for people, and never served (15)."""

from __future__ import annotations

from collections.abc import Iterator

from broker.model.values import Scope
from tests.simulation.checkers.copies.quarantine import Contents15and25, Id, quarantined
from tests.simulation.checkers.facts import SERVING
from tests.simulation.checkers.records import Promotion, Records
from tests.simulation.harness.inspection import vhost_of
from tests.simulation.harness.journal import Journal, Violation
from tests.simulation.harness.machines.machine import Machine


def held_ids(machine: Machine) -> set[Id]:
    """All messages of replicated queues that a node's model holds."""
    return {
        (queue.uuid, epoch, sequence)
        for queue in machine.running.vhosts.queues_by_uuid.values()
        if queue.scope & Scope.LINK
        for epoch, ids in queue.snapshot().items()
        for first, last in ids.ranges()
        for sequence in range(first, last + 1)
    }


class Promoted:
    """What a node held, and had ever held, when it was promoted. `parent`: whose history it goes on with."""

    def __init__(self, machine: Machine, epoch: int, parent: Promoted | None, at: float) -> None:
        self.at = at
        self.life = machine.life
        self.epoch = epoch
        self.parent = parent
        self.held = held_ids(machine)
        vhost = vhost_of(machine)
        ends = [(queue.uuid, queue.ends()) for queue in vhost.shared.queues_by_uuid.values()]
        ends += list(vhost.shared.deleted_queues)
        self.ends = {
            (uuid, of): (end.last, tuple(end.lacking)) for uuid, its in ends for of, end in its.items()
        }

    def line(self) -> Iterator[Promoted]:
        """This one, and all before it whose history is in its own."""
        one: Promoted | None = self
        while one is not None:
            yield one
            one = one.parent

    def had(self, one: Id, since: float = -1.0) -> bool:
        """Was it ever in the history that this one goes on with? `since`: not counting what only those
        promoted earlier remembered."""
        queue, epoch, sequence = one
        return any(
            p.epoch > epoch and _within(sequence, *p.ends[queue, epoch])
            for p in self.line()
            if (queue, epoch) in p.ends and (p is self or p.at > since)
        )


def _within(sequence: int, last: int, lacking: tuple[tuple[int, int], ...]) -> bool:
    """Is it one of 1..`last`, and not in a stretch that history lost?"""
    return 1 <= sequence <= last and not any(first <= sequence <= end for first, end in lacking)


class Divergent15:
    """15: what a node held when it began to look for a primary, and has dropped when it is ready, was either
    in the history of that primary, or is in its quarantine, on disk. What that history had, dequeued since or
    not, is not exported, unless all memory of it was lost meanwhile; what was exported as divergent is not
    served by anyone promoted later who goes on with the history that it diverged from. (A member of the
    record who never joined that primary goes on with an older one; one whose link was lost while they
    compared, with what was left to compare of an older one too.)"""

    def __init__(self, records: Records, journal: Journal) -> None:
        self.records = records
        self.journal = journal
        self.exported = 0
        self.contents = Contents15and25()
        self._before: dict[str, tuple[int, set[Id]]] = {}
        self._promoted: dict[str, Promoted] = {}
        self._by_epoch: dict[int, Promoted] = {}
        self._divergent: dict[Id, Promoted] = {}
        """From whose history."""
        self._followed: dict[str, int] = {}
        """The epoch of the primary that a node was last linked to."""
        self._exported: dict[str, set[Id]] = {}
        """What a node had in quarantine when it was linked."""
        self._halfway: dict[str, set[Id]] = {}
        """What a node held before it caught up with a primary whose copy it has not become."""
        self._states: dict[str, tuple[int, str]] = {}
        self._whole: dict[str, tuple[int, int]] = {}
        """The last life of a node in which it was ready, or served, and the last epoch in which it did."""

    def promoted(self, promotion: Promotion, *, forced: bool) -> None:
        node, epoch, own = promotion.machine.node, promotion.record.epoch, promotion.own
        parent = self._by_epoch.get(node.replica.position.epoch) if node is not None else None
        life, last = self._whole.get(promotion.machine.name, (0, 0))
        whole = life == promotion.machine.life
        if forced and (not whole or (own is not None and own.incomplete)):
            parent = None  # it has of that history what it had come to, or what a disk keeps
        elif whole and not forced:
            parent = self._by_epoch.get(last)  # back to that from one to whose end it had not come
        found = self._promoted[promotion.machine.name] = Promoted(
            promotion.machine, epoch, parent, promotion.at
        )
        self._by_epoch[epoch] = found
        line = set(found.line())
        for one in found.held & self._halfway.get(promotion.machine.name, set()):
            self._divergent.pop(one, None)  # from now on it is in history
        back = {one for one in found.held & self._divergent.keys() if self._divergent[one] in line}
        if back:
            queue, epoch, sequence = min(back)
            raise Violation(
                15, f"{promotion.machine.name} serves {epoch}-{sequence} of {queue.hex()}, which was "
                f"exported as divergent",
            )  # fmt: skip

    def line(self, machine: Machine) -> list[int]:
        """The epochs in whose history is that of who serves, the newest first."""
        promoted = self._promoted.get(machine.name)
        if promoted is None or promoted.life != machine.life:
            return []
        return [one.epoch for one in promoted.line()]

    def dropped(self, machine: Machine) -> bool:
        """Is it catching up, and has it let go of anything that it held before?"""
        if self._states.get(machine.name) != (machine.life, "catching"):
            return False
        life, before = self._before.get(machine.name, (0, set[Id]()))
        return life == machine.life and machine.node is not None and not before <= held_ids(machine)

    def started(self, machine: Machine) -> None:
        if self._states.get(machine.name, (0, ""))[1] == "catching":
            self._cut_off(machine)
        self._before[machine.name] = (machine.life, held_ids(machine))
        self.contents.note(machine)
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
        if state in ("ready", "serving"):
            self._whole[machine.name] = machine.life, machine.running.core.epoch
        if state == "away":
            held = held_ids(machine)
            if was == "catching":
                # What it held of the epoch of the primary it followed came from there, and went as history
                # had it, even if that history came to nothing later; so did what that history had before.
                followed = self._followed[machine.name]
                history = self._by_epoch.get(followed)
                before = self._before.get(machine.name, (0, held))[1]
                self._cut_off(machine)
                held |= {
                    one for one in before
                    if one[1] != followed and (history is None or not history.had(one))
                }  # fmt: skip
            self._before[machine.name] = (machine.life, held)
            self.contents.note(machine)
        elif state == "ready":
            self._halfway.pop(machine.name, None)
            self._rejoined(machine)
        elif state == "serving":
            self._halfway.pop(machine.name, None)
            self._before.pop(machine.name, None)

    def heard(self, machine: Machine, sentence: str) -> None:
        """A node logs that it begins to catch up; it may have let go of things, and its link be gone again,
        before the end of that tick."""
        if sentence.startswith("catching up with "):
            self._states[machine.name] = (machine.life, "catching")
            self._followed[machine.name] = int(sentence.rpartition(" ")[2])
            self._exported[machine.name] = quarantined(machine)

    def _cut_off(self, machine: Machine) -> None:
        _, before = self._before.get(machine.name, (0, set[Id]()))
        self._halfway.setdefault(machine.name, set()).update(before)

    def _rejoined(self, machine: Machine) -> None:
        self.contents.look(machine)
        life, before = self._before.pop(machine.name, (0, set[Id]()))
        record = self.records.truth()
        if life != machine.life or record is None:
            return
        primary = self.records.lives[record.owner].machine
        promoted = self._promoted.get(primary.name)
        if promoted is None or promoted.life != primary.life or primary.node is None:
            return
        exported = quarantined(machine)
        for queue, epoch, sequence in before - held_ids(machine):
            if epoch >= promoted.epoch:
                continue
            if promoted.had((queue, epoch, sequence)):
                continue
            if (queue, epoch, sequence) not in exported:
                raise Violation(
                    15, f"{machine.name} has dropped {epoch}-{sequence} of {queue.hex()}, which "
                    f"{primary.name} never had, and not exported it",
                )  # fmt: skip
            self._divergent[queue, epoch, sequence] = promoted
        new = (exported - self._exported.get(machine.name, set())) & before
        needless = {one for one in new if promoted.had(one, since=self.journal.memory_lost)}
        if needless:
            queue, epoch, sequence = min(needless)
            raise Violation(
                15, f"{machine.name} has exported {epoch}-{sequence} of {queue.hex()}, which was in the "
                f"history of {primary.name}",
            )  # fmt: skip
        self.exported += len(exported & before)
