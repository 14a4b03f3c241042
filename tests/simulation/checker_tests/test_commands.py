"""The checker of the command table: what it must object to, and what it must not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from broker.model.history.batch import Batch
from broker.model.history.records import ConsumerSeen, QueueDeclare, Record
from broker.model.values import Position, Scope
from tests.simulation.checker_tests.checked import quiet_plan, violates
from tests.simulation.checkers.clients.commands import Commands6
from tests.simulation.clients import wire
from tests.simulation.harness.clock import Clock

QUEUE = QueueDeclare(b"q" * 16, "q", True, False, False, scope=Scope.STORE | Scope.LINK)


class Node:
    """A, of which B is the backup, which has nothing yet."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.sinks: list[Any] = []
        self.has = Position(1, 0)
        self.a, self.b = self._machine("A"), self._machine("B")
        self.checker = Commands6(
            quiet_plan(), lambda: self.clock.now, lambda machine: [self.a, self.b], federated=False
        )
        self.checker.started(self.a)

    def _machine(self, name: str) -> Any:
        replica = SimpleNamespace(position=self.has)
        running = SimpleNamespace(broker=SimpleNamespace(sinks=self.sinks), replica=replica)
        return SimpleNamespace(name=name, life=1, running=running)

    def asks(self, client: str, command: str) -> None:
        preamble = wire.PREAMBLE if client not in self.checker._heard["A"].parsers else b""
        self.checker.heard(self.a, client, preamble + wire.method(1, command))

    def batch(self, n: int, *records: Record) -> None:
        self.sinks[0].batch(Batch(Position(1, n), 0, list(records)))

    def answers(self, client: str, answer: str) -> None:
        self.checker.answered(self.a, client, answer)


def test_6_a_record_that_no_row_names() -> None:
    node = Node()
    node.asks("c#1", "queue.declare")
    node.batch(1, QUEUE)
    with violates(6, "ConsumerSeen"):
        node.batch(2, ConsumerSeen(QUEUE.uuid, Scope.LINK))


def test_6_a_record_of_a_command_of_long_ago() -> None:
    node = Node()
    node.asks("c#1", "queue.declare")
    node.clock.now = 2.0
    with violates(6, "QueueDeclare"):
        node.batch(1, QUEUE)


def test_6_an_answer_before_its_batch() -> None:
    node = Node()
    node.asks("c#1", "queue.declare")
    node.batch(1, QUEUE)
    with violates(6, "B has"):
        node.answers("c#1", "queue.declare-ok")


def test_an_answer_after_its_batch_and_one_that_is_of_nobody_in_particular() -> None:
    node = Node()
    node.asks("c#1", "queue.declare")
    node.batch(1, QUEUE)
    node.b.running.replica.position = Position(1, 1)
    node.answers("c#1", "queue.declare-ok")
    for client in ("c#1", "d#1"):
        node.asks(client, "queue.declare")
    node.batch(2, QUEUE)
    node.answers("c#1", "queue.declare-ok")
    assert node.checker.answers == 1
