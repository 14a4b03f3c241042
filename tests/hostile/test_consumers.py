"""Very many consumers of one queue: to come, to go and to get a message costs each the same as ever."""

from __future__ import annotations

from typing import Any

import pytest

from broker.amqp091.codec.grammar import encode_frame
from broker.amqp091.server.consuming import ChannelConsumers
from broker.model.queue.consumer import Consumers
from broker.model.queue.removals import HAND, STEPS
from tests.broker.amqp091.wire import Raw, World, message

MANY = 500


def consume(client: Raw, count: int, queue: str = "q") -> None:
    client.raw(
        b"".join(
            encode_frame(1, "basic.consume", queue=queue, consumer_tag=f"{n}", no_ack=True, nowait=True)
            for n in range(count)
        )
    )


def test_they_come_get_one_message_each_and_go_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    looked_through: list[Any] = []
    credit, walk = ChannelConsumers.credit, Consumers.__iter__
    monkeypatch.setattr(ChannelConsumers, "credit", lambda self, one: asked.append(one) or credit(self, one))
    monkeypatch.setattr(Consumers, "__iter__", lambda self: looked_through.append(self) or walk(self))
    world = World()
    client, publisher = world.open(), world.open()
    client.call(1, "queue.declare", queue="q")
    consume(client, MANY)
    assert len(world.vhost.queues["q"].consumers) == MANY
    assert not looked_through
    asked.clear()
    for _ in range(3):
        publisher.publish(1, b"m", routing_key="q")
    assert len(asked) == 3
    assert [seen["consumer_tag"] for seen in client.read()] == ["0", "1", "2"]
    client.connection.lost(world.now)
    world.tick()
    assert not world.vhost.queues["q"].consumers
    assert not looked_through


def test_a_channel_and_a_queue_have_a_limit() -> None:
    world = World(consumer_max_per_channel=3, consumer_max_per_queue=5)
    first, second, third = world.open(), world.open(), world.open()
    first.call(1, "queue.declare", queue="q")
    first.call(1, "queue.declare", queue="other")
    consume(first, 3)
    consume(second, 3)
    [closed] = second.read()
    assert (closed.name, closed["reply_code"]) == ("channel.close", 406)
    assert closed["reply_text"].endswith("and may have no more (broker.consumer_max_per_queue)")
    assert len(world.vhost.queues["q"].consumers) == 3, "those of the closed channel are gone"
    first.send(1, "basic.consume", queue="other", consumer_tag="4")
    [closed] = first.read()
    assert (closed.name, closed["reply_code"]) == ("connection.close", 530)
    assert closed["reply_text"] == "NOT_ALLOWED - reached maximum (3) of consumers per channel"
    assert not world.vhost.queues["q"].consumers
    assert third.call(1, "basic.consume", queue="q", consumer_tag="1").name == "basic.consume-ok"


def fill(world: World, publisher: Raw, count: int) -> None:
    """So many messages at once, before anything is delivered."""
    publisher.connection.receive(b"".join(message(1, b"%d" % n, "", "q") for n in range(count)), world.now)


def turns(world: World) -> list[int]:
    """Messages delivered in each tick, until nothing is left to do."""
    queue, delivered = world.vhost.queues["q"], []
    left = queue.message_count
    while left:
        world.broker.end_tick(world.now, int(world.now * 1000))
        delivered.append(left - queue.message_count)
        left = queue.message_count
        for client in world.clients:
            client.inbox += b"".join(client.connection.take_output())
            client.connection.written(0)
        assert not left or world.broker.next_deadline() == world.now
    return delivered


@pytest.mark.parametrize("each", ["of one channel", "on a connection of its own"])
def test_very_many_consumers_are_served_in_turns_one_after_the_other(each: str) -> None:
    world = World(share=10**9)
    publisher = world.open()
    publisher.call(1, "queue.declare", queue="q")
    if each == "of one channel":
        clients = [world.open()]
        consume(clients[0], MANY)
    else:
        clients = [world.open() for _ in range(MANY)]
        for client in clients:
            consume(client, 1)
    fill(world, publisher, 3 * MANY)
    delivered = turns(world)
    assert sum(delivered) == 3 * MANY and max(delivered) <= STEPS // HAND + 1
    seen = [
        (int(frame.body), at, frame["consumer_tag"]) for at, one in enumerate(clients) for frame in one.read()
    ]
    order = [(at, tag) for _, at, tag in sorted(seen)]
    assert len(set(order[:MANY])) == MANY
    assert order == order[:MANY] * 3


def test_few_consumers_get_much_in_one_turn() -> None:
    world = World(share=10**9)
    publisher = world.open()
    publisher.call(1, "queue.declare", queue="q")
    for _ in range(8):
        consume(world.open(), 1)
    fill(world, publisher, 2 * STEPS)
    delivered = turns(world)
    assert delivered[0] == STEPS - 8 * HAND and len(delivered) == 3


def test_one_without_room_is_passed_over_and_keeps_nobody_from_a_turn() -> None:
    world = World(share=10**9)
    publisher = world.open()
    publisher.call(1, "queue.declare", queue="q")
    clients = [world.open() for _ in range(MANY)]
    for number, client in enumerate(clients):
        if number % 2:
            client.call(1, "basic.qos", prefetch_count=1)
        client.send(1, "basic.consume", queue="q", consumer_tag="c")
        client.read()
    fill(world, publisher, 4 * MANY)
    delivered = turns(world)
    assert sum(delivered) == 4 * MANY and max(delivered) <= STEPS
    counts = [len(client.read()) for client in clients]
    assert set(counts[1::2]) == {1}
    assert max(counts[::2]) - min(counts[::2]) <= 1


def test_of_very_many_queues_some_are_served_and_the_others_first_in_the_next_tick() -> None:
    world = World(share=10**9)
    publisher, client = world.open(), world.open()
    for number in range(MANY):
        publisher.call(1, "queue.declare", queue=f"q{number}")
        consume_one = encode_frame(
            1, "basic.consume", queue=f"q{number}", consumer_tag=f"{number}", no_ack=True
        )
        client.raw(consume_one)
    client.read()
    data = b"".join(message(1, b"x", "", f"q{number}") for number in range(MANY))
    publisher.connection.receive(data, world.now)
    seen: list[list[int]] = []
    for _ in range(4):
        world.broker.end_tick(world.now, int(world.now * 1000))
        client.inbox += b"".join(client.connection.take_output())
        seen.append([int(frame["consumer_tag"]) for frame in client.read()])
    assert [len(each) for each in seen[:2]] == [STEPS // (HAND + 1) + 1, MANY - STEPS // (HAND + 1) - 1]
    assert [number for each in seen for number in each] == list(range(MANY))


def test_now_or_never_waits_for_the_turn_of_its_queue() -> None:
    """With a time to live of 0 a message is delivered if somebody can take it, however many queues there are
    that have their turn before."""
    world = World()
    world.vhost.shared.steps = 2 * HAND
    client, publisher = world.open(), world.open()
    for number in range(9):
        name = f"q{number}"
        client.send(1, "queue.declare", queue=name, arguments={"x-message-ttl": 0})
        client.send(1, "queue.bind", queue=name, exchange="amq.fanout", routing_key="")
        if number != 3:
            client.send(1, "basic.consume", queue=name, consumer_tag=name, no_ack=True)
    client.read()
    world.now += 0.002
    publisher.connection.receive(message(1, b"m", "amq.fanout", ""), world.now)
    got: list[str] = []
    ticks = 0
    while len(got) < 8 and ticks < 20:
        ticks += 1
        world.now += 0.002
        world.broker.clock(world.now, 0)
        world.broker.end_tick(world.now, int(world.now * 1000))
        client.inbox += b"".join(client.connection.take_output())
        got += [seen["consumer_tag"] for seen in client.read()]
    assert sorted(got) == [f"q{number}" for number in range(9) if number != 3]
    assert ticks > 3
    world.pass_time(0.1)
    assert not any(queue.message_count for queue in world.vhost.queues.values())
