"""No number of a producer is twice in a queue, and none that was confirmed is missing (1, 2, 24).

Looked into on a node that was just promoted, at quiet points, and at each message that the producer gets.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import partial

from tests.simulation.checkers.clients.confirms import Confirms2and3and5
from tests.simulation.checkers.outputs import Confirm
from tests.simulation.clients.numberer import Attempt, Numberer, Shelf, number_of
from tests.simulation.harness.inspection import content_of, held, queue_of
from tests.simulation.harness.journal import Journal, Violation
from tests.simulation.harness.machines.machine import Machine

SERVING = ("active", "recovering")


class Numbers1and2and24:
    """24: of each number, a queue has had one attempt only, and none of a session whose place was taken. Two
    may be there if the first one was lost with all memory, or by a forced promotion, or if the producer was
    forgotten; a node that forgets one says so. 1: what was confirmed is there, until it is got, or the queue
    is emptied. 2: the backups in the record have what is confirmed."""

    def __init__(
        self, numberers: Sequence[Numberer], machines: Sequence[Machine], journal: Journal,
        confirms: Confirms2and3and5,
    ) -> None:  # fmt: skip
        self.numberers = numberers
        self._confirms = confirms
        self.journal = journal
        self.checked = self.left_out = 0
        self._by_port = {machine.address[1]: machine for machine in machines}
        self._seen: dict[tuple[bytes, int], int] = {}
        """By queue and number: the attempt."""
        self._told: set[tuple[str, int]] = set()
        """Lives that have logged that they forget a producer."""
        self._forgotten: dict[tuple[str, int], tuple[int, int]] = {}
        """Of each life: how many producers it forgot, and how many it knew."""
        self._duplicates: dict[tuple[str, int], int] = {}
        for numberer in numberers:
            numberer.on_got = partial(self._got, numberer)

    def look(self, machine: Machine) -> None:
        """It serves, and nobody has used it since it began to; or nothing is on its way."""
        for numberer in self.numberers:
            for shelf in numberer.shelves.values():
                queue = queue_of(machine, shelf.name)
                there: dict[int, int] = {}
                for _, _, raw in held(machine, shelf.name):
                    number, attempt = number_of(content_of(raw)[2])
                    if there.get(number) == attempt:
                        raise Violation(24, f"{machine.name} holds attempt {attempt} twice in {shelf.name}")
                    there[number] = attempt
                    self._note(numberer, shelf, queue.uuid if queue is not None else b"", number, attempt)
                self.checked += len(there)
                self._lacks(machine, numberer, shelf, there)

    def served(self, machine: Machine, connection: str, confirms: Sequence[Confirm]) -> None:
        """These leave. What they confirm is on the backups in the record, also if it was left out here."""
        for numberer in self.numberers:
            if numberer.session is None or numberer.session.connection != connection:
                continue
            copies, _ = self._confirms.copies(machine)
            for attempt in numberer.confirmed_by(confirms):
                for copy in copies[1:] if attempt.at > self.journal.forced_until else ():
                    self._has(machine, copy, numberer, attempt)

    def _has(self, machine: Machine, copy: Machine, numberer: Numberer, attempt: Attempt) -> None:
        holdings = self._confirms.holdings[copy.name]
        for shelf in map(numberer.shelves.__getitem__, numberer.messages[attempt.number].queues):
            if attempt.at < shelf.since or attempt.number in shelf.gone:
                continue
            if not holdings.in_memory(shelf.name, f"{numberer.name}:{attempt.number}"):
                raise Violation(
                    2, f"{machine.name} confirms number {attempt.number}, and {copy.name} lacks it in "
                    f"{shelf.name}",
                )  # fmt: skip

    def tick(self, machine: Machine) -> None:
        """After each one."""
        if not self.numberers or machine.role() not in SERVING:
            return
        producers, life = machine.running.vhosts.producers, (machine.name, machine.life)
        self.left_out += producers.duplicates - self._duplicates.get(life, 0)
        self._duplicates[life] = producers.duplicates
        known = len(machine.running.vhosts.directory.producers)
        before, knew = self._forgotten.get(life, (0, 0))
        now = self._forgotten[life] = producers.forgotten, known
        if now[0] > before:
            for numberer in self.numberers:
                numberer.forgotten_at = self.journal.clock.now
            if life not in self._told:
                raise Violation(24, f"{machine.name} has forgotten a producer, and has not told anybody")
        elif known < knew and machine.role() == "active":
            raise Violation(24, f"{machine.name} knows {known} producers, {knew} before, and forgot none")

    def heard(self, machine: Machine, sentence: str) -> None:
        if self.numberers and "is forgotten" in sentence:
            self._told.add((machine.name, machine.life))

    # -- inside

    def _got(self, numberer: Numberer, port: int, name: str, body: bytes) -> None:
        machine = self._by_port[port]
        queue = queue_of(machine, name) if machine.node is not None else None
        if queue is not None:
            self._note(numberer, numberer.shelves[name], queue.uuid, *number_of(body))

    def _note(self, numberer: Numberer, shelf: Shelf, queue: bytes, number: int, attempt: int) -> None:
        sent = numberer.attempts[attempt]
        if sent.fenced is not None and sent.fenced > numberer.unsure_until:
            raise Violation(24, f"{shelf.name} has number {number} of a session whose place was taken")
        known = self._seen.setdefault((queue, number), attempt)
        first, last = min(known, attempt), max(known, attempt)
        if first != last and not self._lost(numberer, shelf, numberer.attempts[first]):
            raise Violation(24, f"{shelf.name} has had number {number} twice: attempts {first}, {last}")
        self._seen[queue, number] = last

    def _lost(self, numberer: Numberer, shelf: Shelf, first: Attempt) -> bool:
        """May a node rightly not know of it?"""
        if first.at <= max(self.journal.forced_until, numberer.forgotten_at):
            return True
        if not self._lasting(numberer, shelf, first.number, first.at):
            return first.at <= self.journal.memory_lost
        confirmed = numberer.messages[first.number].confirmed_at
        return first.at <= self.journal.memory_lost and (
            confirmed is None or confirmed > self.journal.memory_lost
        )

    def _lasting(self, numberer: Numberer, shelf: Shelf, number: int, sent: float) -> bool:
        """Does it survive on a disk alone?"""
        return numberer.messages[number].persistent and shelf.durable and sent > self.journal.disk_lost

    def _lacks(self, machine: Machine, numberer: Numberer, shelf: Shelf, there: Container[int]) -> None:
        lost = self.journal.unkept_lost if shelf.durable else self.journal.memory_lost
        for number, sent in sorted(shelf.must.items()):
            if number in there or sent <= self.journal.forced_until:
                continue
            if sent > lost or self._lasting(numberer, shelf, number, sent):
                raise Violation(1, f"{machine.name} lacks the confirmed number {number} in {shelf.name}")
