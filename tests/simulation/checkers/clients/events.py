"""What clients are told of changes of membership is so. No invariant has a number of its own for it: it goes
with 27, whole again.

A queue that nobody consumes is bound to `amq.failover` before the first fault. At quiet points it must tell
of the term of whoever serves: that it was promoted, whom it has excluded, in order, and who is in sync since.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from tests.simulation.checkers.records import Promotion, RecordOnDisk, Records
from tests.simulation.clients.topology import WATCH
from tests.simulation.harness.inspection import held
from tests.simulation.harness.journal import Violation
from tests.simulation.harness.machines.machine import Machine

_PRESENCE = ("joining", "in-sync", "lost", "excluded")
_BODY = re.compile(rb'\{"event".*\}', re.DOTALL)


class Events27:
    """Told of promotions and of each new record on a disk, by `records`."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.checked = 0
        self._first = 0
        """The last epoch of which the beginning may have been before anybody was bound."""
        self._bound = False
        self._known: dict[str, RecordOnDisk] = {}
        self._excluded: dict[int, list[str]] = {}
        self._missed: set[int] = set()
        """Epochs of which a record was overwritten before anybody looked."""
        records.on_change.append(self.changed)

    def promoted(self, promotion: Promotion) -> None:
        if not self._bound:
            self._first = promotion.record.epoch

    def declared(self) -> None:
        """The queue that hears of all is bound now."""
        self._bound = True

    def changed(self, machine: Machine) -> None:
        """Of its own term: who is in it no more."""
        record, before = self.records.of(machine), self._known.get(machine.name)
        if record is None or record.owner != self.records.who(machine):
            return
        self._known[machine.name] = record
        same = before is not None and before.epoch == record.epoch
        if record.revision != (before.revision + 1 if before is not None and same else 1):
            self._missed.add(record.epoch)
        if before is not None and same:
            gone = {node for node, _ in before.in_sync} - {node for node, _ in record.in_sync}
            self._excluded.setdefault(record.epoch, []).extend(sorted(gone))

    def quiet(self, primary: Machine, backups: Sequence[Machine]) -> None:
        epoch = primary.running.core.epoch
        if epoch <= self._first:
            return
        told = [(str(e["event"]), str(e["node_id"])) for e in self._events(primary) if e["epoch"] == epoch]
        self.checked += len(told)
        if told[:1] != [("promoted", primary.running.me.node_id)]:
            raise Violation(27, f"{primary.name} serves in epoch {epoch}, and its first event is {told[:1]}")
        excluded = [node for event, node in told if event == "excluded"]
        if epoch not in self._missed and excluded != self._excluded.get(epoch, []):
            raise Violation(
                27, f"{primary.name} has excluded {self._excluded.get(epoch, [])}, and tells of {excluded}"
            )
        for backup in backups:
            node_id = backup.running.me.node_id
            about = [event for event, node in told if node == node_id and event in _PRESENCE]
            last = about[-1:]
            if last != ["in-sync"]:
                raise Violation(27, f"{backup.name} is in sync, and the last event about it is {last}")

    def _events(self, primary: Machine) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        for _, _, raw in held(primary, WATCH):
            body = _BODY.search(raw)
            if body is not None:
                found.append(json.loads(body.group()))
        return found
