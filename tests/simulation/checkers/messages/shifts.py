"""Messages that operators move are in exactly one of two queues (1, 7).

Looked into on a node that was just promoted, and at quiet points.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.simulation.clients.shifter import Shifter
from tests.simulation.harness.inspection import held, key_of
from tests.simulation.harness.journal import Journal, Violation
from tests.simulation.harness.machines.machine import Machine


class Shifts1and7:
    """7: a move takes place whole, so no message is in both queues. 1: each confirmed message is in one, as
    nobody consumes any. All are persistent, and the queues durable."""

    def __init__(self, shifters: Sequence[Shifter], journal: Journal) -> None:
        self.shifters = shifters
        self.journal = journal
        self.checked = 0

    def look(self, machine: Machine) -> None:
        for shifter in self.shifters:
            found = Counter(key_of(raw) for queue in shifter.queues for _, _, raw in held(machine, queue))
            for key, many in sorted(found.items()):
                if key not in shifter.sent:
                    raise Violation(7, f"{machine.name} holds {key}, which {shifter.name} has not published")
                if many > 1:
                    raise Violation(7, f"{machine.name} holds {key}, which was moved, {many} times")
            for key in sorted(shifter.safe - set(found)):
                if shifter.sent[key] > self.journal.forced_until:
                    raise Violation(1, f"{machine.name} lacks {key}, confirmed and at most moved")
            self.checked += len(found)
