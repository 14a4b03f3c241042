"""Clients with transactions for tests, and a world that exposes its history and gates."""

from __future__ import annotations

from broker.hooks import Hooks
from broker.model.history.batch import Batch
from broker.model.history.records import QueueDeclare
from broker.model.values import FOREVER, Scope
from tests.broker.amqp091.wire import ManualGate, Raw, Seen, World

PERSISTENT = b"\x10\0\x02"


class Replicated(Hooks):
    """Replicates every queue except those named `local...`; also stores the durable ones."""

    def queue_scope(self, declared: QueueDeclare) -> Scope:
        if declared.name.startswith("local"):
            return Scope.NONE
        return Scope.LINK | Scope.STORE if declared.durable else Scope.LINK


class Batches:
    """A sink that keeps all batches."""

    def __init__(self) -> None:
        self.taken: list[Batch] = []

    def batch(self, batch: Batch) -> None:
        self.taken.append(batch)


def transacting(world: World, *queues: str, durable: bool = False) -> Raw:
    """A channel in tx mode."""
    client = world.open()
    for name in queues:
        client.call(1, "queue.declare", queue=name, durable=durable)
    assert client.call(1, "tx.select").name == "tx.select-ok"
    return client


def fill(world: World, queue: str, *bodies: bytes, properties: bytes = b"\0\0") -> None:
    """Publish from another connection, without a transaction."""
    other = world.open()
    for body in bodies:
        other.publish(1, body, routing_key=queue, properties=properties)
    assert other.read() == []


def counts(world: World, name: str) -> tuple[int, int]:
    """The counts of ready and unacknowledged messages."""
    queue = world.vhost.queues[name]
    return queue.message_count, queue.unacked_count


def got(client: Raw, queue: str, count: int) -> list[int]:
    """basic.get: the tags of so many messages."""
    return [client.call(1, "basic.get", queue=queue)["delivery_tag"] for _ in range(count)]


def bodies(world: World, queue: str) -> list[bytes]:
    """The bodies of all ready messages, which are removed."""
    reader = world.open()
    bodies = []
    while (seen := reader.call(1, "basic.get", queue=queue, no_ack=True)).name == "basic.get-ok":
        bodies.append(seen.body)
    return bodies


def refused(client: Raw, code: int, text: str, *, name: str = "channel.close") -> Seen:
    """Assert that the only output is a close with this code."""
    (seen,) = client.read()
    assert (seen.name, seen["reply_code"]) == (name, code), seen
    assert text in seen["reply_text"]
    return seen


def gated() -> tuple[World, ManualGate, Batches]:
    """A world with a gate that lets everything pass until a test moves it, and a record of all batches."""
    world = World(Replicated())
    gate, batches = ManualGate(), Batches()
    gate.applied = gate.durable = FOREVER
    world.broker.gates.append(gate)
    world.broker.sinks.append(batches)
    return world, gate, batches
