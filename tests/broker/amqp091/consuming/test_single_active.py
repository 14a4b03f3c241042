"""A single active consumer: which one is active, and that the next one first gets its messages, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.amqp091.codec.grammar import encode_frame
from broker.peer import Peer
from ha.adapter.management.status_view import query_of
from tests.broker.amqp091.test_attributes import properties
from tests.broker.amqp091.wire import Raw, World, message
from tests.simulation.harness.machines.virtual_overflow import VirtualOverflow

SINGLE = {"x-single-active-consumer": True}
PREFETCH = 5


def deliveries(client: Raw) -> list[tuple[bytes, bool]]:
    """Bodies and redelivered flags."""
    return [(seen.body, seen["redelivered"]) for seen in client.read() if seen.name == "basic.deliver"]


def single(**arguments: Any) -> tuple[World, Raw, Raw, Raw]:
    """A publisher; the active consumer, which takes five messages at once; and a waiting consumer."""
    world = World()
    publisher, first, second = world.open(), world.open(), world.open()
    publisher.call(1, "queue.declare", queue="q", arguments=SINGLE | arguments)
    for client in (first, second):
        client.call(1, "basic.qos", prefetch_count=PREFETCH)
        client.call(1, "basic.consume", queue="q")
    return world, publisher, first, second


def publish(client: Raw, *bodies: bytes, priority: int = 0) -> None:
    """Publish in the same tick in which another client disconnects."""
    data = [message(1, body, "", "q", properties=properties(priority=priority)) for body in bodies]
    client.connection.receive(b"".join(data), client.world.now)


def closes_its_channel(client: Raw) -> None:
    client.send(1, "channel.close")


def closes_its_connection(client: Raw) -> None:
    client.send(0, "connection.close")


def breaks(client: Raw) -> None:
    client.connection.lost(client.world.now)
    client.world.tick()


def gives_back_and_cancels(client: Raw) -> None:
    tag = next(iter(client.connection.channels[1].consumers.by_tag))
    back = encode_frame(1, "basic.nack", delivery_tag=0, multiple=True, requeue=True)
    client.raw(encode_frame(1, "basic.cancel", consumer_tag=tag) + back)


GOING = [closes_its_channel, closes_its_connection, breaks, gives_back_and_cancels]
KINDS: list[dict[str, Any]] = [
    {},
    {"x-max-priority": 3},
    {"x-delivery-limit": 3},
    {"x-max-length-bytes": 1000},
]


@pytest.mark.parametrize("window", [0, 1, 3], ids="window-{}".format)
@pytest.mark.parametrize("arguments", KINDS, ids=lambda arguments: next(iter(arguments), "plain"))
@pytest.mark.parametrize("goes", GOING)
def test_the_next_one_first_gets_its_messages_in_order(
    goes: Callable[[Raw], None], arguments: dict[str, Any], window: int
) -> None:
    """Whichever it had acknowledged, out of order. They come before waiting messages, in memory or (beyond
    `window`) on disk, and before messages of the same tick."""
    world, publisher, first, second = single(**arguments)
    publisher.raw(b"".join(message(1, b"%d" % n, "", "q") for n in range(20)))
    if window:
        world.vhost.queues["q"].window = window
        assert world.vhost.shared.page_out(VirtualOverflow(), 1 << 20) or "x-max-priority" in arguments
    assert [body for body, _ in deliveries(first)] == [b"%d" % n for n in range(PREFETCH)]
    for tag in (4, 2):
        first.send(1, "basic.ack", delivery_tag=tag)
    assert [body for body, _ in deliveries(first)] == [b"5", b"6"]
    publish(publisher, b"new")
    goes(first)
    assert deliveries(second) == [(b"%d" % n, True) for n in (0, 2, 4, 5, 6)]
    later: list[tuple[bytes, bool]] = []
    while len(later) < 14:
        second.send(1, "basic.ack", delivery_tag=0, multiple=True)
        later += deliveries(second)
    assert later == [*((b"%d" % n, False) for n in range(7, 20)), (b"new", False)]


@pytest.mark.parametrize("goes", GOING)
def test_waiting_consumers_become_active_in_order_of_arrival(
    goes: Callable[[Raw], None],
) -> None:
    world, publisher, first, second = single()
    clients = [first, second, *(world.open() for _ in range(3))]
    for client in clients[2:]:
        client.call(1, "basic.consume", queue="q")
    publisher.raw(b"".join(message(1, b"%d" % n, "", "q") for n in range(PREFETCH)))
    had = [b"%d" % n for n in range(PREFETCH)]
    for at, client in enumerate(clients):
        assert [body for body, _ in deliveries(client)] == had
        assert not any(deliveries(other) for other in clients[at + 1 :])
        goes(client)


@pytest.mark.parametrize("goes", GOING)
def test_operators_see_which_one_it_is(goes: Callable[[Raw], None]) -> None:
    world = World()
    one, other = (world.open(peer=Peer("127.0.0.7", port, loopback=True)) for port in (40001, 40002))
    one.call(1, "queue.declare", queue="q", arguments=SINGLE)
    one.call(1, "queue.declare", queue="plain")

    def shown() -> tuple[str | None, str | None]:
        plain, line = sorted(query_of(world.vhost.shared)["queue_list"], key=lambda line: str(line["name"]))
        assert not [key for key in plain if key.startswith("single")]
        return line["single_active_consumer_tag"], line["single_active_consumer_client"]

    assert shown() == (None, None)
    for client in (one, other):
        client.call(1, "basic.consume", queue="q", consumer_tag="worker")
        client.call(1, "basic.consume", queue="plain", consumer_tag="another")
    assert shown() == ("worker", "127.0.0.7:40001")
    goes(one)
    assert shown() == ("worker", "127.0.0.7:40002")
    goes(other)
    assert shown() == (None, None)
