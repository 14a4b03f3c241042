"""Queues whose clients have left are deleted a few at a time, but disappear for clients at once."""

from __future__ import annotations

import pytest

from broker.errors import NotFound
from broker.model.queue.leaving import AT_ONCE
from tests.broker.amqp091.wire import Raw, World

MANY = 3 * AT_ONCE + 5


@pytest.fixture
def world() -> World:
    return World()


def left(world: World, **declared: bool) -> Raw:
    """A client that has lost its connection, with its queues; `q0` to `q9` are bound to amq.fanout."""
    client = world.open()
    for number in range(MANY):
        client.send(1, "queue.declare", queue=f"q{number}", **declared)
        if number < 10:
            client.send(1, "queue.bind", queue=f"q{number}", exchange="amq.fanout", routing_key="")
        if "auto_delete" in declared:
            client.send(1, "basic.consume", queue=f"q{number}", consumer_tag=f"{number}")
    client.connection.lost(world.now)
    return client


def turns(world: World) -> list[int]:
    """The number of remaining queues after each tick, until all are deleted."""
    counts = [len(world.vhost.queues)]
    while world.vhost.shared.leaving:
        assert world.broker.next_deadline() == world.broker.now
        world.broker.end_tick(world.now, int(world.now * 1000))
        counts.append(len(world.vhost.queues))
    return counts


@pytest.mark.parametrize("declared", ["exclusive", "auto_delete"])
def test_many_queues_end_in_turns(world: World, declared: str) -> None:
    left(world, **{declared: True})
    counts = turns(world)
    assert counts == [2 * AT_ONCE + 5, AT_ONCE + 5, 5, 0]
    assert world.vhost.bindings == 0
    assert not world.vhost.shared.queues_by_uuid


def test_few_queues_end_at_once(world: World) -> None:
    client = world.open()
    client.call(1, "queue.declare", queue="q", exclusive=True)
    client.connection.lost(world.now)
    assert not world.vhost.queues


@pytest.mark.parametrize("how", ["declare", "passive", "delete", "bind", "unbind", "get"])
def test_a_client_that_names_a_leaving_queue_finds_it_deleted(world: World, how: str) -> None:
    left(world, exclusive=True)
    name = f"q{MANY - 1}"
    assert name in world.vhost.queues
    other = world.open()
    match how:
        case "declare":
            assert other.call(1, "queue.declare", queue=name, exclusive=True).name == "queue.declare-ok"
            assert world.vhost.queues[name].owner is other.connection
        case "passive":
            assert other.call(1, "queue.declare", queue=name, passive=True)["reply_code"] == 404
        case "delete":
            assert other.call(1, "queue.delete", queue=name).name == "queue.delete-ok"
        case "bind":
            bound = other.call(1, "queue.bind", queue=name, exchange="amq.fanout", routing_key="")
            assert bound["reply_code"] == 404
        case "unbind":
            unbound = other.call(1, "queue.unbind", queue=name, exchange="amq.fanout", routing_key="")
            assert unbound.name == "queue.unbind-ok"
        case "get":
            assert other.call(1, "basic.get", queue=name)["reply_code"] == 404
    world.tick()
    assert set(world.vhost.queues) == ({name} if how == "declare" else set())


def test_no_message_is_routed_to_one(world: World) -> None:
    keeper = world.open()
    keeper.call(1, "confirm.select")
    keeper.publish(1, b"before", exchange="amq.fanout", routing_key="")
    client = world.open()
    names = [f"q{number}" for number in range(MANY)]
    for name in reversed(names):
        client.send(1, "queue.declare", queue=name, exclusive=True)
    client.send(1, "queue.bind", queue="q0", exchange="amq.fanout", routing_key="")
    for exchange, key in (("amq.fanout", ""), ("", "q0")):
        assert world.vhost.route(exchange, key).queues
    client.connection.lost(world.now)
    assert "q0" in world.vhost.queues
    for exchange, key in (("amq.fanout", ""), ("", "q0")):
        assert not world.vhost.route(exchange, key).queues


def test_nothing_ends_while_another_node_may_serve(world: World) -> None:
    left(world, exclusive=True)
    world.broker.fence_output()
    before = len(world.vhost.queues)
    world.broker.end_tick(world.now, int(world.now * 1000))
    assert len(world.vhost.queues) == before
    assert world.broker.next_deadline() != world.broker.now
    world.broker.resume_output()
    world.tick()
    assert not world.vhost.queues


def test_a_demoted_node_keeps_the_waiting_queues(world: World) -> None:
    left(world, exclusive=True)
    whole = world.vhost.shared
    world.vhost.history.flush(world.now, 0)
    before = len(world.vhost.queues)
    whole.deactivate()
    assert not whole.leaving and len(world.vhost.queues) == before
    whole.activate(2)
    assert len(whole.abandoned_queues()) == before
    with pytest.raises(NotFound):
        world.vhost.queue("q0", owner=None)
