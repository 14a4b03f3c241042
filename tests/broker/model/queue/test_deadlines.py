"""Deadlines of queues, and that changed ones do not fill the heap forever."""

from __future__ import annotations

from typing import Any

from broker.model.queue.deadlines import Deadlines
from tests.broker.amqp091.wire import World

DAY = 86_400_000


def test_one_time_for_each_and_the_earliest_first() -> None:
    due: Any = Deadlines()
    for name, at in (("a", 5.0), ("b", 3.0), ("c", 3.0), ("a", 2.0), ("d", 1.0), ("d", None)):
        due.set(name, at)
    assert due.next() == 2.0
    assert due.take(2.9) == ["a"] and due.take(5.0) == ["b", "c"]
    assert due.next() is None and len(due) == 0
    due.set("a", 1.0)
    due.clear()
    assert due.next() is None and due.take(9.0) == []


def test_times_that_change_all_day_take_no_room() -> None:
    """One idle queue has the earliest time, and the replaced times of the others lie behind it in the
    heap."""
    world = World()
    client = world.open()
    for name, arguments in (("still", {"x-message-ttl": DAY}), ("busy", {"x-message-ttl": DAY}),
                            ("unused", {"x-expires": DAY}), ("used", {"x-expires": DAY})):  # fmt: skip
        client.call(1, "queue.declare", queue=name, arguments=arguments)
    client.publish(1, b"m", routing_key="still")
    for _ in range(400):
        world.now += 0.01
        client.publish(1, b"m", routing_key="busy")
        client.send(1, "basic.get", queue="busy", no_ack=True)
        client.publish(1, b"m", routing_key="busy")
        client.send(1, "basic.get", queue="used", no_ack=True)
    assert len(world.vhost.removals._over) < 80
    assert len(world.vhost.expiries._ends) < 80


def test_a_deleted_queue_is_not_kept_until_its_time() -> None:
    world = World()
    client = world.open()
    for n in range(100):
        arguments = {"x-message-ttl": DAY, "x-expires": DAY}
        client.call(1, "queue.declare", queue=f"q{n}", arguments=arguments)
        client.publish(1, b"m", routing_key=f"q{n}")
        client.call(1, "queue.delete", queue=f"q{n}")
    assert len(world.vhost.removals._over) < 80
    assert len(world.vhost.expiries._ends) < 80
