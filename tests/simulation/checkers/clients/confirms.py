"""A confirm waits for the copies and for the record (2, 3, 5), and the record means that all is there (4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tests.simulation.checkers.holdings import Holdings
from tests.simulation.checkers.outputs import Confirm
from tests.simulation.checkers.records import Records
from tests.simulation.clients.workload import Publisher
from tests.simulation.harness.inspection import RecordOnDisk, keeps_transient
from tests.simulation.harness.journal import Journal, Message, Violation
from tests.simulation.harness.machines.machine import Machine


class Confirmed:
    """Which messages a confirm is for, at the instant at which it leaves the broker."""

    def __init__(self, publishers: Mapping[str, Publisher]) -> None:
        self.publishers = publishers
        self._done: dict[str, int] = {}

    def messages(self, connection: str, confirm: Confirm) -> list[Message]:
        """In the order of their tags; the confirm's own is the last."""
        publisher = self.publishers.get(connection.split("#")[0])
        if publisher is None or publisher.session is None or publisher.session.end is None:
            return []
        if publisher.session.end.name != connection:
            return []
        outstanding, tag = publisher.outstanding, confirm.tag
        if not confirm.multiple:
            return [outstanding[tag]] if tag in outstanding else []
        since = self._done.get(connection, 0)
        self._done[connection] = max(since, tag)
        return [outstanding[t] for t in range(since + 1, tag + 1) if t in outstanding]


class Confirms2and3and5:
    """2: when a confirm leaves the primary, every in-sync backup has the message, on disk if it must be.
    3: no confirm of anything published after an in-sync backup died, until its exclusion is recorded.
    5: nor does a `multiple` confirm cover an older message of which that is not so."""

    def __init__(
        self, machines: Sequence[Machine], journal: Journal, records: Records, confirmed: Confirmed
    ) -> None:
        self.journal = journal
        self.records = records
        self.confirmed = confirmed
        self.holdings = {machine.name: Holdings(machine) for machine in machines}
        self.checked = 0
        self.on_confirm: list[Callable[[Machine, Message], None]] = []

    def served(self, machine: Machine, connection: str, confirms: list[Confirm]) -> None:
        for confirm in confirms:
            messages = self.confirmed.messages(connection, confirm)
            if messages:
                self._check(machine, messages)
                for observer in self.on_confirm:
                    for message in messages:
                        observer(machine, message)

    def _check(self, primary: Machine, messages: list[Message]) -> None:
        copies, died = self.copies(primary)
        record = self.record(primary)
        last = messages[-1]
        for message in (last, *messages[:-1]):
            queues = self.journal.must_hold_in(message)
            for queue in queues:
                number = 2 if message is last else 5
                if died is not None and message.last_sent > died:
                    raise Violation(3, f"{message.key} is confirmed, and a dead backup is not excluded yet")
                for copy in copies:
                    why = self.lacks(copy, queue, message, disk=on_disk(record, primary=copy is primary))
                    if why:
                        raise Violation(
                            number, f"{primary.name} confirms {message.key} (tag of {last.key}), and "
                            f"{copy.name} {why} {queue}",
                        )  # fmt: skip
        self.checked += len(messages)

    def copies(self, primary: Machine) -> tuple[list[Machine], float | None]:
        """Who must hold what the primary confirms, and when the first of the recorded ones died."""
        record = self.record(primary)
        copies, died = [primary], None
        for who in sorted(record.everybody) if record is not None else ():
            life = self.records.lives[who]
            if life.died is not None:
                died = life.died if died is None else min(died, life.died)
            elif life.machine is not primary:
                copies.append(life.machine)
        return copies, died

    def record(self, primary: Machine) -> RecordOnDisk | None:
        if self.records.register is not None:
            return self.records.truth()
        return self.records.of(primary)

    def lacks(self, copy: Machine, queue: str, message: Message, *, disk: bool) -> str:
        """What is missing there, or nothing. `disk`: what is persistent must be on its disk."""
        holdings = self.holdings[copy.name]
        if not holdings.in_memory(queue, message.key):
            return "lacks it in"
        stored = (message.persistent or keeps_transient(copy)) and self.journal.topology.durable(queue)
        if disk and stored and not holdings.disk.has(message.key):
            return "has it not yet on disk, of"
        return ""


def on_disk(record: RecordOnDisk | None, *, primary: bool) -> bool:
    """Must the primary, or a backup, have on its disk what is confirmed? By the level in the record: it is
    there before the first confirm that goes by it. A primary alone has no other copy."""
    if record is None or record.confirm == "all-disks":
        return True
    return primary and (record.confirm == "primary-disk" or not record.in_sync)


class Record4:
    """4: who the record names holds every confirmed message, on disk where 2 says so. Looked into whenever
    a record changes. Once it says that confirms wait for all disks, what was confirmed before by a weaker
    level is on all disks, too."""

    def __init__(self, journal: Journal, records: Records, confirms: Confirms2and3and5) -> None:
        self.journal = journal
        self.records = records
        self.confirms = confirms
        self.checked = 0
        self._done = (0, 0)
        self._early: list[Message] = []
        """Confirmed by a weaker level, or on their way to be."""
        records.on_change.append(self.changed)
        confirms.on_confirm.append(self._confirmed)

    def _confirmed(self, primary: Machine, message: Message) -> None:
        record = self.records.truth()
        if message.persistent and record is not None and record.confirm != "all-disks":
            self._early.append(message)

    def _check_early(self, record: RecordOnDisk) -> None:
        early, self._early = self._early, []
        lives = [self.records.lives[who] for who in sorted(record.everybody)]
        copies = [life.machine for life in lives if life.died is None and life.machine.node is not None]
        for message in early:
            for queue in filter(self.journal.topology.durable, self.journal.must_hold_in(message)):
                for copy in copies:
                    if not self.confirms.holdings[copy.name].disk.has(message.key):
                        raise Violation(
                            4, f"the record of epoch {record.epoch} says that all disks count, and "
                            f"{copy.name} has the confirmed {message.key} of {queue} not yet on disk",
                        )  # fmt: skip

    def changed(self, machine: Machine) -> None:
        record = self.records.truth()
        if record is None or record.version <= self._done:
            return
        self._done = record.version
        if record.confirm == "all-disks":
            self._check_early(record)
        copies = [
            life.machine for life in (self.records.lives[who] for who in sorted(record.in_sync))
            if life.died is None and life.machine.node is not None
        ]  # fmt: skip
        if not copies:
            return
        for message in self.journal.unsettled():
            for queue in self.journal.must_hold_in(message):
                for copy in copies:
                    why = self.confirms.lacks(copy, queue, message, disk=on_disk(record, primary=False))
                    if why:
                        raise Violation(
                            4, f"{copy.name} is in the record of epoch {record.epoch}, and {why} {queue} the "
                            f"confirmed {message.key}",
                        )  # fmt: skip
        self.checked += len(copies)
