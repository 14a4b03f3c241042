"""The ledgers balance: every id that was ever given ends up in one column (29).

Some runs give each node a ledger in memory. At the end all of them are added up, by arithmetic of this
module's own: what was enqueued was dequeued for a reason, is in quarantine, is present, or had no confirm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from broker.model.history.batch import Batch
from broker.model.history.records import Dequeue, EnqueueRun
from ha.adapter.ledger_port import PRIMARY
from tests.simulation.checkers.clients.confirms import Confirms2and3and5
from tests.simulation.checkers.primary.promotions import LOSSY
from tests.simulation.harness.inspection import queues_of
from tests.simulation.harness.journal import Journal, Message, Violation
from tests.simulation.harness.machines.machine import Machine

Id = tuple[bytes, int, int]
"""Queue, epoch, sequence."""


class MemoryLedger:
    """One life's ledger: implements `ha.adapter.ledger_port.LedgerPort`. Survives its process."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.view = 0
        self.enqueued: list[Id] = []
        self.dequeued: dict[int, list[Id]] = {}
        """By term, that is, the epoch served in. What only a primary that is cut off has dequeued, the next
        one brings back, and this node may be the one after that.
        """
        self.quarantined: list[Id] = []
        self.promoted: dict[int, str] = {}
        """By the epoch served in, how that came to be."""

    def batch(self, batch: Batch, role: str) -> None:
        if role != PRIMARY:
            return
        for record in batch.records:
            if isinstance(record, EnqueueRun):
                epoch, count = record.envelope.epoch, record.count
                for queue, first in zip(record.queues, record.firsts, strict=True):
                    self.enqueued += [(queue, epoch, seq) for seq in range(first, first + count)]
            elif isinstance(record, Dequeue):
                dequeued = self.dequeued.setdefault(self.view, [])
                for first, last in record.ranges:
                    dequeued += [(record.queue, record.epoch, seq) for seq in range(first, last + 1)]

    def record(
        self, kind: str, *, queue: str | None = None, epoch: int | None = None, first: int | None = None,
        last: int | None = None, **more: Any,
    ) -> None:  # fmt: skip
        if kind == "promote":
            self.promoted[self.view] = more["reason"]
        if kind == "quarantine" and queue is not None and epoch is not None:
            assert first is not None and last is not None
            self.quarantined += [(bytes.fromhex(queue), epoch, seq) for seq in range(first, last + 1)]

    def flush(self) -> None:
        """Written as it is noted."""

    def health(self) -> dict[str, Any]:
        """It has no file."""
        return {}

    def close(self, *, seal: bool = True) -> None:
        """Nothing is held back."""


class Ledgers29:
    """29: enqueued = dequeued for a reason + quarantined + present + what was never confirmed; nothing is in
    the ledgers twice that can be there once, and nothing leaves or stays that never came."""

    def __init__(self, machines: Sequence[Machine], journal: Journal, confirms: Confirms2and3and5) -> None:
        self.journal = journal
        self.confirms = confirms
        self.every: list[MemoryLedger] = []
        self.ids = 0
        self._confirmed: dict[Id, tuple[str, bool, float]] = {}
        """Key, whether a disk alone keeps it, and when it was confirmed."""
        for machine in machines:
            machine.new_ledger = partial(self.open, machine.name)
        confirms.on_confirm.append(self._confirm)

    def open(self, owner: str) -> MemoryLedger:
        ledger = MemoryLedger(owner)
        self.every.append(ledger)
        return ledger

    def _confirm(self, machine: Machine, message: Message) -> None:
        epoch = machine.running.core.epoch
        for queue in self.journal.must_hold_in(message):
            uuid = queues_of(machine)[queue].uuid
            for of_epoch, sequence in self.confirms.holdings[machine.name].ids_of(queue, message.key):
                if of_epoch == epoch:
                    lasting = self.journal.lasting(message, queue)
                    self._confirmed[uuid, epoch, sequence] = message.key, lasting, self.journal.clock.now

    def check_lossy_11(self, epochs: Collection[int]) -> None:
        """11: of those epochs, which began by force, the ledgers say so."""
        for ledger in self.every:
            for epoch, how in ledger.promoted.items():
                if epoch in epochs and how != LOSSY:
                    raise Violation(
                        11, f"{ledger.owner} began epoch {epoch} by force, and records it as {how}"
                    )

    def balance(self, primary: Machine) -> None:
        """At the end: `primary` holds what is present."""
        present = {
            (queue.uuid, epoch, sequence)
            for queue in queues_of(primary).values()
            for epoch, held in queue.snapshot().items()
            for first, last in held.ranges()
            for sequence in range(first, last + 1)
        }
        enqueued = _once("enqueued", [one for ledger in self.every for one in ledger.enqueued])
        dequeued: set[Id] = set()
        for ledger in self.every:
            for view, ids in ledger.dequeued.items():
                dequeued |= _once(f"dequeued by {ledger.owner} in epoch {view}", ids)
        quarantined = {one for ledger in self.every for one in ledger.quarantined}
        for what, some in (("dequeued", dequeued), ("present", present), ("in quarantine", quarantined)):
            if some - enqueued:
                raise Violation(29, f"{_text(min(some - enqueued))} is {what}, and was never enqueued")
        latest = next(ledger for ledger in reversed(self.every) if ledger.owner == primary.name)
        twice = present.intersection(latest.dequeued.get(latest.view, ()))
        if twice:
            raise Violation(29, f"{_text(min(twice))} is present on {primary.name}, which has dequeued it")
        for one in sorted(enqueued - dequeued - present - quarantined):
            key, lasting, at = self._confirmed.get(one, ("", False, -1.0))
            if key and at > self.journal.forced_until and self._survives(lasting, at):
                raise Violation(29, f"{_text(one)}, confirmed as {key}, is in no column of the ledgers")
        self.ids += len(enqueued)

    def _survives(self, lasting: bool, at: float) -> bool:
        """What was confirmed at that time."""
        return at > (self.journal.disk_lost if lasting else self.journal.memory_lost)


def _once(what: str, ids: list[Id]) -> set[Id]:
    found = set(ids)
    if len(found) != len(ids):
        more = min(one for one, count in Counter(ids).items() if count > 1)
        raise Violation(29, f"{_text(more)} is {what} twice")
    return found


def _text(one: Id) -> str:
    queue, epoch, sequence = one
    return f"{epoch}-{sequence} of queue {queue.hex()}"
