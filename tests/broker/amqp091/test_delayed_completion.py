"""Confirms and replies wait for the gates, in channel order (invariants 2, 5, 6)."""

from __future__ import annotations

from broker.model.history.batch import Batch
from broker.model.values import FOREVER, Position
from tests.broker.amqp091.transacting import PERSISTENT, Replicated
from tests.broker.amqp091.wire import ManualGate, Raw, World, message


def _world() -> tuple[World, ManualGate]:
    world = World(Replicated())
    gate = ManualGate()
    gate.applied = gate.durable = FOREVER
    world.broker.gates.append(gate)
    return world, gate


def _publisher(world: World) -> Raw:
    client = world.open()
    client.call(1, "queue.declare", queue="q", durable=True)
    client.call(1, "queue.declare", queue="local")
    client.call(1, "confirm.select")
    return client


def _hold(world: World, gate: ManualGate) -> None:
    gate.applied = gate.durable = world.vhost.history.position


def test_a_confirm_waits_for_applied_or_durable_as_the_message_asks() -> None:
    world, gate = _world()
    client = _publisher(world)
    _hold(world, gate)
    client.publish(1, b"t", routing_key="q")
    client.publish(1, b"p", routing_key="q", properties=PERSISTENT)
    assert client.read() == []
    gate.applied = world.vhost.history.position
    world.tick()
    (transient,) = client.read()
    assert (transient["delivery_tag"], transient["multiple"]) == (1, False)
    gate.durable = gate.applied
    world.tick()
    (persistent,) = client.read()
    assert (persistent["delivery_tag"], persistent["multiple"]) == (2, False)


def test_delete_ok_precedes_basic_cancel_on_the_same_channel() -> None:
    """Otherwise py-amqp and kombu raise ConsumerCancelled from queue_delete."""
    world, gate = _world()
    client = _publisher(world)
    client.call(2, "channel.open")
    for channel in (1, 2):
        client.call(channel, "basic.consume", queue="q")
    _hold(world, gate)
    client.send(1, "queue.delete", queue="q")
    assert [(seen.channel, seen.name) for seen in client.read()] == [(2, "basic.cancel")]
    gate.applied = gate.durable = FOREVER
    world.tick()
    assert [(seen.channel, seen.name) for seen in client.read()] == [
        (1, "queue.delete-ok"), (1, "basic.cancel"),
    ]  # fmt: skip


def test_multiple_never_covers_a_tag_that_is_not_safe() -> None:
    world, gate = _world()
    client = _publisher(world)
    _hold(world, gate)
    for _ in range(3):
        client.publish(1, b"m" * 100, routing_key="q")
    gate.applied = Position(1, world.vhost.history.position.n - 1)
    world.tick()
    (ack,) = client.read()
    assert (ack["delivery_tag"], ack["multiple"]) == (2, True)


def test_a_reply_without_a_need_waits_for_its_predecessors() -> None:
    world, gate = _world()
    client = _publisher(world)
    _hold(world, gate)
    client.publish(1, b"waits", routing_key="q")
    client.publish(1, b"local", routing_key="local")
    client.publish(1, b"nowhere", routing_key="no such queue")
    assert client.read() == []
    gate.applied = FOREVER
    world.tick()
    (ack,) = client.read()
    assert (ack["delivery_tag"], ack["multiple"]) == (3, True)


def test_replies_and_confirms_keep_channel_order() -> None:
    world, gate = _world()
    client = _publisher(world)
    _hold(world, gate)
    client.publish(1, b"1", routing_key="q")
    client.send(1, "queue.declare", queue="r")
    client.publish(1, b"2", routing_key="local")
    client.send(1, "basic.get", queue="local", no_ack=True)
    assert client.read() == []
    gate.applied = gate.durable = FOREVER
    world.tick()
    assert client.names() == ["basic.ack", "queue.declare-ok", "basic.ack", "basic.get-ok"]


def test_deliveries_never_precede_a_held_consume_ok() -> None:
    world, gate = _world()
    client = _publisher(world)
    client.publish(1, b"m", routing_key="local")
    client.read()
    _hold(world, gate)
    client.send(1, "queue.declare", queue="r")
    client.send(1, "basic.consume", queue="local", consumer_tag="c")
    assert client.read() == []
    gate.applied = gate.durable = FOREVER
    world.tick()
    assert client.names() == ["queue.declare-ok", "basic.consume-ok", "basic.deliver"]


def test_close_ok_waits_in_its_place_and_frees_the_number() -> None:
    world, gate = _world()
    client = _publisher(world)
    _hold(world, gate)
    client.publish(1, b"m", routing_key="q")
    client.send(1, "channel.close", reply_code=200)
    assert client.read() == []
    gate.applied = FOREVER
    world.tick()
    assert client.names() == ["basic.ack", "channel.close-ok"]
    assert client.call(1, "channel.open").name == "channel.open-ok"


def test_sinks_have_the_batch_before_its_confirm_goes_out() -> None:
    world, _ = _world()
    client = _publisher(world)
    order: list[str] = []

    class Sink:
        def batch(self, batch: Batch) -> None:
            order.append("sink" if not client.connection.out else "too late")

    world.broker.sinks.append(Sink())
    client.raw(message(1, b"1", "", "q") * 5)
    assert order == ["sink"]
    (ack,) = client.read()
    assert (ack["delivery_tag"], ack["multiple"]) == (5, True)


def test_a_lost_connection_leaves_nothing_held() -> None:
    world, gate = _world()
    client = _publisher(world)
    _hold(world, gate)
    client.publish(1, b"m", routing_key="q")
    client.connection.lost(world.now)
    assert not world.broker.holding
    assert not world.broker.connections
    gate.applied = FOREVER
    world.tick()


def test_a_multiple_ack_does_not_cover_a_held_get() -> None:
    """The client has not received the message of its get, so a multiple ack of a later delivery must not
    cover it."""
    world, gate = _world()
    client = _publisher(world)
    for body in (b"got", b"delivered"):
        client.publish(1, body, routing_key="local")
    assert client.names() == ["basic.ack"] * 2
    client.call(1, "basic.consume", queue="q", consumer_tag="c")
    _hold(world, gate)
    client.publish(1, b"m", routing_key="q", properties=PERSISTENT)
    (delivery,) = client.read()
    client.send(1, "basic.get", queue="local")
    client.publish(1, b"n", routing_key="q")
    assert client.read() == [], "deliveries wait, so that tags go out in order"
    client.send(1, "basic.ack", delivery_tag=delivery["delivery_tag"], multiple=True)
    assert world.vhost.queues["local"].unacked_count == 1
    gate.applied = gate.durable = FOREVER
    world.tick()
    ack, got, more, rest = client.read()
    assert (ack.name, got.name, got.body, more.name) == ("basic.ack", "basic.get-ok", b"got", "basic.ack")
    assert (rest.name, rest.body) == ("basic.deliver", b"n")
    assert got["delivery_tag"] < rest["delivery_tag"]
    client.send(1, "basic.ack", delivery_tag=rest["delivery_tag"], multiple=True)
    assert world.vhost.queues["local"].unacked_count == 0 and client.read() == []


def test_deleting_a_just_deleted_queue_waits_for_that_deletion() -> None:
    world, gate = _world()
    client, other = _publisher(world), world.open()
    client.call(1, "exchange.declare", exchange="x", type="fanout", durable=True)
    _hold(world, gate)
    for name in ("queue", "exchange"):
        what = {name: {"queue": "q", "exchange": "x"}[name]}
        client.send(1, f"{name}.delete", **what)
        other.send(1, f"{name}.delete", **what)
        assert client.read() == other.read() == []
    gate.applied = gate.durable = FOREVER
    world.tick()
    assert client.names() == other.names() == ["queue.delete-ok", "exchange.delete-ok"]
