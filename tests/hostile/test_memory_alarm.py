"""A sample of the memory alarm, of very many queues and connections, is taken in steps."""

from __future__ import annotations

from itertools import pairwise

import pytest

from broker import memory_alarm
from broker.memory_alarm import INTERVAL
from tests.broker.amqp091.wire import World, message

MANY = 200


def filled(limit: int = 1 << 30) -> World:
    """Each queue has a message, and some a consumer."""
    world = World(memory_limit=limit)
    client = world.open()
    for number in range(MANY):
        client.call(1, "queue.declare", queue=f"q{number}")
        client.publish(1, bytes(100 + number), routing_key=f"q{number}")
    for number in range(0, MANY, 10):
        world.open().send(1, "basic.consume", queue=f"q{number}", consumer_tag="c")
    client.read()
    return world


def turn(world: World) -> None:
    world.broker.end_tick(world.now, int(world.now * 1000))


def test_it_takes_bounded_steps_in_each_tick_and_comes_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    world = filled()
    memory = world.broker.memory
    world.pass_time(INTERVAL)
    whole = dict(memory.parts)
    assert whole["messages"] > MANY * 250 and whole["connections"] > 0
    memory.parts = dict.fromkeys(memory.parts, 0)
    monkeypatch.setattr(memory_alarm, "STEPS", 64)
    world.now += INTERVAL
    turn(world)
    left = [MANY + 21]
    while (walk := memory._walk) is not None:
        left.append(len(walk._queues) + len(walk._connections))
        assert world.broker.next_deadline() == 0 and not any(memory.parts.values())
        turn(world)
    assert memory.parts == whole
    assert len(left) > 50 and max(before - after for before, after in pairwise(left)) <= 64


def test_what_has_gone_meanwhile_does_not_count_and_what_has_come_makes_the_next_one_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory_alarm, "STEPS", 64)
    world = filled(1_000_000)
    memory, publisher = world.broker.memory, world.open()
    publisher.call(1, "queue.declare", queue="late")
    world.pass_time(INTERVAL)
    world.now += INTERVAL
    turn(world)
    assert memory._walk is not None and not memory.raised
    for client in world.clients[1:-1]:
        client.connection.lost(world.now)
    publisher.connection.receive(message(1, bytes(2_000_000), "", "late"), world.now)
    while memory._walk is not None and not memory.raised:
        turn(world)
    world.tick()
    assert memory.raised and memory.parts["messages"] > 2_000_000
    assert memory.parts["connections"] == sum(one.octets for one in world.broker.connections)
