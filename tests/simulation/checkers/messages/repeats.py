"""No id is twice in a queue whose window knows it, and none that was confirmed is missing (1, 24).

Looked into on a node that was just promoted, at quiet points, and at each message that the client gets.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tests.simulation.clients.repeater import Known, Repeater, number_of
from tests.simulation.harness.inspection import content_of, held, queue_of
from tests.simulation.harness.journal import Journal, Violation
from tests.simulation.harness.machines.machine import Machine


class Repeats1and24:
    """24: of each id, a queue has had one attempt only, unless the first one was lost with all memory, or
    by a forced promotion. 1: what was confirmed is there, until it is got."""

    def __init__(self, repeaters: Sequence[Repeater], machines: Sequence[Machine], journal: Journal) -> None:
        self.repeaters = repeaters
        self.journal = journal
        self.checked = 0
        self._by_port = {machine.address[1]: machine for machine in machines}
        self._seen: dict[tuple[bytes, int], int] = {}
        """By queue and id: the attempt."""
        for repeater in repeaters:
            repeater.on_got = partial(self._got, repeater)

    def look(self, machine: Machine) -> None:
        """It serves, and nobody has used it since it began to; or nothing is on its way."""
        for repeater in self.repeaters:
            queue = queue_of(machine, repeater.queue)
            there: set[int] = set()
            for _, _, raw in held(machine, repeater.queue):
                number, attempt = number_of(content_of(raw)[2])
                self._note(repeater, queue.uuid if queue is not None else b"", number, attempt)
                there.add(number)
            self.checked += len(there)
            for number, message in enumerate(repeater.messages):
                if number not in there and self._must_be(message):
                    raise Violation(1, f"{machine.name} lacks the confirmed id {number} in {repeater.queue}")

    def compare(self, primary: Machine, backup: Machine) -> None:
        """At a quiet point, both know the same ids, and have forgotten the same."""
        for repeater in self.repeaters:
            one, other = (_known(machine, repeater.queue) for machine in (primary, backup))
            if one != other:
                raise Violation(24, f"{backup.name} knows other ids of {repeater.queue} than {primary.name}")

    # -- inside

    def _must_be(self, message: Known) -> bool:
        if message.safe is None or message.gone:
            return False
        lost = self.journal.disk_lost if message.persistent else self.journal.memory_lost
        return message.safe > max(self.journal.forced_until, lost)

    def _got(self, repeater: Repeater, port: int, body: bytes) -> None:
        machine = self._by_port[port]
        queue = queue_of(machine, repeater.queue) if machine.node is not None else None
        if queue is not None:
            self._note(repeater, queue.uuid, *number_of(body))

    def _note(self, repeater: Repeater, queue: bytes, number: int, attempt: int) -> None:
        known = self._seen.setdefault((queue, number), attempt)
        first, last = min(known, attempt), max(known, attempt)
        self._seen[queue, number] = last
        if first == last or repeater.plan.forgetful:
            return
        message = repeater.messages[number]
        sent = message.sent[message.attempts.index(first)]
        if sent > max(self.journal.forced_until, self.journal.disk_lost) and not self._forgot(message, sent):
            raise Violation(24, f"{repeater.queue} has had id {number} twice: attempts {first}, {last}")

    def _forgot(self, message: Known, sent: float) -> bool:
        """May all memory of it be lost?"""
        lost, confirmed = self.journal.memory_lost, message.confirmed_at
        return sent <= lost and (not message.persistent or confirmed is None or confirmed > lost)


def _known(machine: Machine, name: str) -> object:
    queue = queue_of(machine, name)
    return None if queue is None or queue.recent is None else queue.recent.state()
