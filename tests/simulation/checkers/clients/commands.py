"""The command table says what serving nodes do: what is in their batches, and when clients are answered.

Reads the table (`broker.commands`), what clients send, and each batch of a node. A batch has the work of
many clients; so a record is of any command that came lately, or of what leaves records without one. An answer
is traced to its batch where one client only can have made it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain

from broker import commands as table
from broker.commands import Answer, Row
from broker.model.history.batch import Batch
from broker.model.values import Position, Scope
from tests.simulation.clients import wire
from tests.simulation.harness.journal import Violation
from tests.simulation.harness.machines.machine import Machine
from tests.simulation.harness.plan import Plan

LATELY = 1.0
"""Seconds. A client's input may wait for its turn, and dequeues for each other."""

AFTER = {
    f"{name}-ok": name for row in chain(*table.AMQP_0_9_1.values()) if row.answer is Answer.AFTER_BATCH
    for name in row.commands if name.partition(".")[0] != "basic"
}  # fmt: skip
"""Answers that wait for a batch, and their commands."""
ANY_TIME = "checkpoint join failover-event connection-lost"
TRACED = frozenset({"QueueDeclare", "ExchangeDeclare", "ExchangeDelete", "Bind", "Unbind", "Commit"})
"""Kinds that only a client leaves which waits for an answer."""
RULES = "message-expires length-limit last-value queue-expires delayed-message-comes-due"


@dataclass(slots=True)
class Asked:
    """A command whose answer waits. `batch`: of its records, where that is known."""

    command: str
    batch: Position | None = None


@dataclass(slots=True)
class Heard:
    """What one life of a node heard: when each command last came, and what each client waits for."""

    life: int
    last: dict[str, float] = field(default_factory=dict)
    parsers: dict[str, wire.Parser] = field(default_factory=dict)
    asked: dict[str, deque[Asked]] = field(default_factory=dict)


class Commands6:
    """A record of a kind that no row of a command names which came lately; and an answer before the backups
    in sync have its batch."""

    def __init__(
        self, plan: Plan, now: Callable[[], float], copies: Callable[[Machine], list[Machine]], *,
        federated: bool,
    ) -> None:  # fmt: skip
        self.checked = self.answers = 0
        self._now, self._copies = now, copies
        self._heard: dict[str, Heard] = {}
        rows = list(chain(*table.AMQP_0_9_1.values()))
        names = {name for row in rows for name in row.commands}
        self._records = {name: _records_of(row for row in rows if name in row.commands) for name in names}
        """By command, in all of its uses."""
        present = ANY_TIME.split()
        if plan.rules or plan.temporaries:
            present += [*RULES.split(), "directory-change"]
        if plan.shifters:
            present.append("move-by-an-operator")
        if federated:
            present.append("federation")
        self._others = _records_of(row for row in table.OTHERS if row.commands[0] in present)
        self._managed = _records_of(row for row in table.OTHERS if row.commands[0] == "directory-change")

    def started(self, machine: Machine) -> None:
        self._heard[machine.name] = Heard(machine.life)
        machine.running.broker.sinks.append(_Sink(self, machine))

    def heard(self, machine: Machine, connection: str, data: bytes) -> None:
        """A client sends that."""
        if connection.startswith("link-"):
            return
        heard = self._heard[machine.name]
        parser = heard.parsers.get(connection)
        if parser is None:
            parser = heard.parsers[connection] = wire.Parser(preamble=True)
        now = self._now()
        for item in parser.feed(data):
            if isinstance(item, wire.Method):
                heard.last[item.name] = now
                if f"{item.name}-ok" in AFTER:
                    heard.asked.setdefault(connection, deque()).append(Asked(item.name))

    def batch(self, machine: Machine, batch: Batch) -> None:
        """Its batch of this tick."""
        heard, since = self._heard[machine.name], self._now() - LATELY
        kinds = {type(record).__name__ for record in batch.records}
        self.checked += 1
        left = kinds - self._others
        for name, last in heard.last.items():
            if not left:
                break
            if last >= since:
                left -= self._records.get(name, self._managed)
        if left:
            raise Violation(
                6, f"{machine.name} has {', '.join(sorted(left))} in its history, and no row of the command "
                "table names it for what it heard",
            )  # fmt: skip
        told = {type(record).__name__ for record in batch.records if record.scope & Scope.LINK}
        self._trace(heard, told & TRACED, batch.position)

    def _trace(self, heard: Heard, kinds: set[str], position: Position) -> None:
        """To the one client that waits for an answer to what may have left these records for backups."""
        for kind in kinds:
            waiting = [
                one for all_of in heard.asked.values() for one in all_of if kind in self._records[one.command]
            ]
            if len(waiting) == 1 and waiting[0].batch is None:
                waiting[0].batch = position

    def answered(self, machine: Machine, connection: str, answer: str) -> None:
        """That leaves for a client."""
        asked = self._heard[machine.name].asked.get(connection)
        if not asked:
            return
        one = asked.popleft()
        if one.command != AFTER[answer] or one.batch is None:
            return
        self.answers += 1
        for copy in self._copies(machine)[1:]:
            has = copy.running.replica.position
            if has < one.batch:
                raise Violation(
                    6, f"{machine.name} answers {one.command} with {answer}, and {copy.name} has {has} of "
                    f"{one.batch}",
                )  # fmt: skip


class _Sink:
    """Of one life of a node."""

    def __init__(self, commands: Commands6, machine: Machine) -> None:
        self._commands, self._machine = commands, machine

    def batch(self, batch: Batch) -> None:
        self._commands.batch(self._machine, batch)


def _records_of(rows: Iterable[Row]) -> frozenset[str]:
    return frozenset(kind for row in rows for kind in row.records)
