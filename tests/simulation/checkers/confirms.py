"""A confirm waits for the copies and for the record (2, 3, 5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.simulation import wire
from tests.simulation.clients import Publisher
from tests.simulation.inspection import held, key_of, medium, record_on_disk
from tests.simulation.journal import Journal, Message, Violation
from tests.simulation.machine import Machine


class Confirms2and3:
    """2, 5: when a confirm leaves the primary, every in-sync backup has the message, on disk if it must be.
    3: no confirm of anything published after an in-sync backup died, until its exclusion is on disk."""

    def __init__(
        self, machines: list[Machine], journal: Journal, publishers: Mapping[str, Publisher]
    ) -> None:
        self.machines = machines
        self.journal = journal
        self.publishers = publishers
        self.checked = 0
        self._done: dict[str, int] = {}
        self._died: dict[tuple[str, int], float] = {}
        self._identities: dict[tuple[str, int], Machine] = {}

    def output(self, machine: Machine, connection: str, methods: list[wire.Method]) -> None:
        messages: list[Message] = []
        for item in methods:
            if item.name == "basic.ack":
                messages += self._confirmed(
                    connection, int(item.arguments["tag"]), bool(item.arguments["multiple"])
                )
        if messages:
            self._check(machine, messages)

    def started(self, machine: Machine) -> None:
        status = machine.status()
        self._identities[str(status["node_id"]), int(str(status["incarnation"]))] = machine

    def died(self, machine: Machine) -> None:
        now = self.journal.clock.now
        for identity, owner in self._identities.items():
            if owner is machine:
                self._died.setdefault(identity, now)

    def _confirmed(self, connection: str, tag: int, multiple: bool) -> list[Message]:
        publisher = self.publishers.get(connection.split("#")[0])
        if publisher is None or publisher.session is None or publisher.session.end is None:
            return []
        if publisher.session.end.name != connection:
            return []
        if not multiple:
            return [m for t, m in publisher.outstanding.items() if t == tag]
        since = self._done.get(connection, 0)
        self._done[connection] = max(since, tag)
        return [m for t, m in publisher.outstanding.items() if since < t <= tag]

    def _check(self, primary: Machine, messages: list[Message]) -> None:
        record = record_on_disk(primary)
        copies = [primary]
        for identity in sorted(record.in_sync) if record is not None else []:
            died = self._died.get(identity)
            if died is None:
                copies.append(self._identities[identity])
                continue
            late = next((m for m in messages if m.last_sent > died and self._queues(m)), None)
            if late is not None:
                raise Violation(3, f"{late.key} is confirmed, and a dead backup is not excluded yet")
        for copy in copies:
            _check_copy(copy, primary, messages, self._queues, self.journal)
        self.checked += len(messages)

    def _queues(self, message: Message) -> list[str]:
        """Where the message must still be: where no consumer, purge or delete may have ended it."""
        return [q for q in sorted(message.certain) if self.journal.must_hold(q, message)]


def _check_copy(
    copy: Machine,
    primary: Machine,
    messages: list[Message],
    queues: Callable[[Message], list[str]],
    journal: Journal,
) -> None:
    disk: list[bytes] | None = None
    memory: dict[str, set[str]] = {}
    for message in messages:
        for queue in queues(message):
            if queue not in memory:
                memory[queue] = {key_of(raw) for _, _, raw in held(copy, queue)}
            if message.key not in memory[queue]:
                raise Violation(
                    2, f"{primary.name} confirms {message.key}, and {copy.name} lacks it in {queue}"
                )
            if message.persistent and journal.topology.durable(queue):
                if disk is None:
                    disk = [data for path, data in medium(copy.disk).items() if "/store/" in path]
                if not any(b"<%b>" % message.key.encode() in data for data in disk):
                    raise Violation(
                        2, f"{primary.name} confirms {message.key}, not yet on the disk of {copy.name}"
                    )
