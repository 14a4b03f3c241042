"""Commits: one batch, all or nothing even if queues refuse; when commit-ok is sent; limits (invariants 6,
7)."""

from __future__ import annotations

import pytest

from broker.model.history.records import Dequeue, EnqueueRun
from broker.model.values import FOREVER, Position, Reason
from tests.broker.amqp091.transacting import (
    PERSISTENT,
    bodies,
    counts,
    fill,
    gated,
    got,
    refused,
    transacting,
)
from tests.broker.amqp091.wire import Raw, World, message

# -- with what the broker does to messages


def _bounded(client: Raw, *, most: int, overflow: str = "reject-publish") -> None:
    arguments = {"x-max-length": most, "x-overflow": overflow}
    client.call(1, "queue.declare", queue="full", arguments=arguments)


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_a_full_queue_refuses_the_whole_transaction(overflow: str) -> None:
    world = World()
    client = world.open()
    _bounded(client, most=2, overflow=overflow)
    client = transacting(world, "q", "a")
    fill(world, "a", b"1")
    got(client, "a", 1)
    client.publish(1, b"x", routing_key="q")
    client.publish(1, b"1", routing_key="full")
    client.publish(1, b"y", routing_key="q")
    client.publish(1, b"2", routing_key="full")
    client.publish(1, b"3", routing_key="full")
    client.send(1, "basic.ack", delivery_tag=1)
    client.send(1, "tx.commit")
    refused(client, 406, "transaction not committed: queue 'full' is full")
    assert [bodies(world, name) for name in ("q", "full", "a")] == [[], [], [b"1"]]


def test_a_queue_that_has_room_takes_all_of_it() -> None:
    """Also if a consumer makes room, for the first run and for later ones."""
    world = World()
    client = world.open()
    _bounded(client, most=1)
    client.send(1, "basic.consume", queue="full", no_ack=True)
    client.read()
    writer = transacting(world, "q")
    for n, queue in enumerate(["full", "q", "full"]):
        writer.publish(1, b"%d" % n, routing_key=queue)
    assert writer.call(1, "tx.commit").name == "tx.commit-ok"
    assert [seen.body for seen in client.read()] == [b"0", b"2"]
    assert bodies(world, "q") == [b"1"]
    writer.publish(1, b"3", routing_key="full")
    assert writer.call(1, "tx.commit").name == "tx.commit-ok"


def test_a_full_queue_that_is_gone_by_the_commit_refuses_nothing() -> None:
    world = World()
    client = world.open()
    _bounded(client, most=0)
    writer = transacting(world, "q")
    writer.publish(1, b"1", routing_key="full")
    writer.publish(1, b"2", routing_key="q")
    client.call(1, "queue.delete", queue="full")
    assert writer.call(1, "tx.commit").name == "tx.commit-ok"
    assert bodies(world, "q") == [b"2"]


def test_rejected_messages_are_dead_lettered_in_the_commits_batch() -> None:
    world, _, batches = gated()
    client = transacting(world, "dead", durable=True)
    dying = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    client.call(1, "queue.declare", queue="a", durable=True, arguments=dying)
    fill(world, "a", b"1", b"2", properties=PERSISTENT)
    got(client, "a", 2)
    client.send(1, "basic.reject", delivery_tag=1)
    client.call(1, "tx.rollback")
    client.send(1, "basic.nack", delivery_tag=2)
    assert counts(world, "dead") == (0, 0)
    before = len(batches.taken)
    client.call(1, "tx.commit")
    (batch,) = batches.taken[before:]
    (dequeue,) = [r for r in batch.records if isinstance(r, Dequeue)]
    assert (dequeue.reason, dequeue.ranges) == (Reason.DEAD_LETTERED, [(2, 2)])
    assert bodies(world, "dead") == [b"2"]
    assert counts(world, "a") == (0, 1)


# -- one batch, and when commit-ok leaves


def _move(world: World, client: Raw, properties: bytes) -> None:
    """Move messages from one queue to two others in one transaction."""
    got(client, "a", 2)
    client.publish(1, b"x", routing_key="b", properties=properties)
    client.publish(1, b"y", routing_key="c", properties=properties)
    client.send(1, "basic.ack", delivery_tag=2)
    client.send(1, "basic.reject", delivery_tag=1)


def test_a_commit_is_one_batch_with_its_dequeues() -> None:
    world, _, batches = gated()
    client = transacting(world, "a", "b", "c", durable=True)
    fill(world, "a", b"1", b"2", properties=PERSISTENT)
    _move(world, client, PERSISTENT)
    before = len(batches.taken)
    client.send(1, "tx.commit")
    assert client.names() == ["tx.commit-ok"]
    (batch,) = batches.taken[before:]
    enqueued = [r for r in batch.records if isinstance(r, EnqueueRun)]
    dequeued = [r for r in batch.records if isinstance(r, Dequeue)]
    queues = world.vhost.queues
    assert [r.queues for r in enqueued] == [[queues["b"].uuid], [queues["c"].uuid]]
    assert {(r.queue, r.reason, tuple(r.ranges)) for r in dequeued} == {
        (queues["a"].uuid, Reason.ACKED, ((2, 2),)),
        (queues["a"].uuid, Reason.REJECTED, ((1, 1),)),
    }
    world.pass_time(1.0)
    assert len(batches.taken) == before + 1


def test_a_held_or_rolled_back_transaction_is_not_in_history() -> None:
    world, _, batches = gated()
    client = transacting(world, "a", "b", "c", durable=True)
    fill(world, "a", b"1", b"2", properties=PERSISTENT)
    before = len(batches.taken)
    _move(world, client, PERSISTENT)
    client.call(1, "tx.rollback")
    world.pass_time(1.0)
    assert len(batches.taken) == before


@pytest.mark.parametrize("acks", [False, True], ids=["publishes", "acks"])
@pytest.mark.parametrize("durable", [False, True], ids=["applied", "durable"])
def test_commit_ok_waits_for_its_strictest_need(acks: bool, durable: bool) -> None:
    world, gate, _ = gated()
    client = transacting(world, "a", "b", durable=durable)
    properties = PERSISTENT if durable else b"\0\0"
    fill(world, "a", b"1", properties=properties)
    got(client, "a", 1)
    gate.applied = gate.durable = world.vhost.history.position
    if acks:
        client.send(1, "basic.ack", delivery_tag=1)
    else:
        client.publish(1, b"t", routing_key="b")
        client.publish(1, b"p", routing_key="b", properties=properties)
        client.publish(1, b"t", routing_key="b")
    client.send(1, "tx.commit")
    assert client.read() == []
    gate.applied = world.vhost.history.position
    world.tick()
    if durable:
        assert client.read() == []
        gate.durable = gate.applied
        world.tick()
    assert client.names() == ["tx.commit-ok"]


def test_commit_ok_waits_for_where_a_dead_letter_goes() -> None:
    """From a queue that only this node has to one that is on disks."""
    world, gate, _ = gated()
    client = transacting(world, "dead", durable=True)
    dying = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    client.call(1, "queue.declare", queue="local", arguments=dying)
    fill(world, "local", b"1", properties=PERSISTENT)
    got(client, "local", 1)
    gate.applied = gate.durable = world.vhost.history.position
    client.send(1, "basic.reject", delivery_tag=1)
    client.send(1, "tx.commit")
    gate.applied = world.vhost.history.position
    world.tick()
    assert client.read() == []
    gate.durable = gate.applied
    world.tick()
    assert client.names() == ["tx.commit-ok"]


def test_unreplicated_commits_wait_for_nothing() -> None:
    world, gate, _ = gated()
    client = transacting(world, "local")
    fill(world, "local", b"1")
    got(client, "local", 1)
    gate.applied = gate.durable = Position(0, 0)
    client.send(1, "basic.ack", delivery_tag=1)
    client.publish(1, b"2", routing_key="local")
    assert client.call(1, "tx.commit").name == "tx.commit-ok"


def test_answers_keep_their_order_while_a_commit_waits() -> None:
    """The returns of the second transaction follow the commit-ok of the first."""
    world, gate, _ = gated()
    client = transacting(world, "q")
    gate.applied = gate.durable = world.vhost.history.position
    client.publish(1, b"1", routing_key="q")
    client.send(1, "tx.commit")
    client.publish(1, b"2", routing_key="none", mandatory=True)
    client.send(1, "tx.commit")
    client.publish(1, b"3", routing_key="q")
    client.send(1, "tx.rollback")
    assert client.read() == []
    gate.applied = gate.durable = FOREVER
    world.tick()
    assert client.names() == ["tx.commit-ok", "basic.return", "tx.commit-ok", "tx.rollback-ok"]
    assert bodies(world, "q") == [b"1"]


# -- memory


def test_too_much_held_closes_the_connection_and_publishes_nothing() -> None:
    world = World(assembling_max=100_000)
    client = transacting(world, "q")
    client.call(2, "channel.open")
    client.call(2, "tx.select")
    for channel in (1, 2):
        client.publish(channel, b"x" * 40_000, routing_key="q")
    assert client.read() == []
    client.publish(2, b"x" * 40_000, routing_key="q")
    refused(client, 506, "uncommitted", name="connection.close")
    assert counts(world, "q") == (0, 0)
    assert client.connection.uncommitted == 0


def test_small_messages_count_for_more_than_their_frames() -> None:
    world = World(assembling_max=100_000)
    client = transacting(world, "q")
    for _ in range(2000):
        client.raw(message(1, b"", "", "q"))
        if client.connection.state.value != "running":
            break
    refused(client, 506, "uncommitted", name="connection.close")


@pytest.mark.parametrize("end", ["tx.commit", "tx.rollback"])
def test_ended_transactions_no_longer_count(end: str) -> None:
    world = World(assembling_max=100_000)
    client = transacting(world, "q")
    for _ in range(10):
        client.publish(1, b"x" * 40_000, routing_key="q")
        client.call(1, end)
    assert client.connection.uncommitted == 0


def test_the_memory_alarm_counts_held_publishes() -> None:
    world = World(memory_limit=100_000)
    client = transacting(world, "q")
    client.publish(1, b"x" * 120_000, routing_key="q")
    world.pass_time(1.1)
    assert world.broker.memory.raised
    client.connection.lost(world.now)
    world.pass_time(1.1)
    assert not world.broker.memory.raised
