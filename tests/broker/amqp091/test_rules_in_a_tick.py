"""Removal by rules within one tick; and dead letters that are not cycles."""

from __future__ import annotations

from typing import Any

import pytest

from broker.amqp091.codec.fields import write_table
from broker.amqp091.codec.properties import HEADERS, headers_of
from broker.model.queue.removals import AT_ONCE, ROUNDS
from tests.broker.amqp091.wire import Raw, World, encode_frame, message
from tests.simulation.harness.machines.virtual_overflow import VirtualOverflow


def opened(**arguments: Any) -> tuple[World, Raw]:
    """A client with the queues `dead` and `q`; dead letters of `q` go to `dead`."""
    world = World()
    client = world.open()
    client.call(1, "queue.declare", queue="dead")
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    named = {"x-" + name.replace("_", "-"): value for name, value in arguments.items()}
    client.call(1, "queue.declare", queue="q", arguments=letters | named)
    return world, client


def five() -> bytes:
    return b"".join(message(1, b"%d" % n, "", "q") for n in range(5))


def test_get_sees_no_more_than_the_limit() -> None:
    _, client = opened(max_length=3)
    client.raw(five() + encode_frame(1, "basic.get", queue="q", no_ack=True))
    (got,) = client.read()
    assert (got.body, got["message_count"]) == (b"2", 2)


@pytest.mark.parametrize("passive", [True, False])
def test_declare_ok_reports_no_more_than_the_limit(passive: bool) -> None:
    _, client = opened(max_length=3)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-max-length": 3}
    client.raw(five() + encode_frame(1, "queue.declare", queue="q", passive=passive, arguments=arguments))
    assert client.read()[0]["message_count"] == 3


@pytest.mark.parametrize("how", ["queue.purge", "queue.delete"])
def test_excess_messages_are_dead_lettered_not_purged_or_deleted(how: str) -> None:
    world, client = opened(max_length=3)
    client.raw(five() + encode_frame(1, how, queue="q"))
    assert client.read()[0]["message_count"] == 3
    assert world.vhost.queues["dead"].message_count == 2


def test_an_exclusive_queue_ends_after_its_rules_are_applied() -> None:
    world, other = opened()
    client = world.open()
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-max-length": 2}
    client.call(1, "queue.declare", queue="own", exclusive=True, arguments=letters)
    many = b"".join(message(1, b"%d" % n, "", "own") for n in range(5))
    client.connection.receive(many, world.now)
    client.connection.lost(world.now)
    world.tick()
    assert "own" not in world.vhost.queues and other.names() == []
    assert [raw[-2:-1] for _, _, raw in world.vhost.queues["dead"].ready] == [b"0", b"1", b"2"]


def test_a_queue_with_only_expired_messages_is_empty() -> None:
    world, client = opened(message_ttl=0)
    client.raw(five() + encode_frame(1, "queue.delete", queue="q", if_empty=True))
    assert client.names() == ["queue.delete-ok"]
    assert world.vhost.queues["dead"].message_count == 5


def test_get_takes_no_message_whose_time_is_nothing() -> None:
    world, client = opened(message_ttl=0)
    client.raw(five() + encode_frame(1, "basic.get", queue="q"))
    assert client.names() == ["basic.get-empty"]
    assert world.vhost.queues["dead"].message_count == 5


def test_messages_that_a_consumer_can_take_are_not_excess() -> None:
    world, client = opened(max_length=0)
    client.send(1, "basic.qos", prefetch_count=2)
    client.send(1, "basic.consume", queue="q", consumer_tag="c")
    client.read()
    client.raw(five() + encode_frame(1, "queue.declare", queue="q", passive=True))
    seen = client.read()
    assert [one.body for one in seen if one.name == "basic.deliver"] == [b"0", b"1"]
    assert world.vhost.queues["dead"].message_count == 3


@pytest.mark.parametrize("warm", [False, True])
def test_a_long_tick_expires_nothing_that_arrived_in_it(warm: bool) -> None:
    """With a TTL of 0, a message that arrives while a consumer waits is delivered, however slow the machine
    is."""
    world, client = opened(message_ttl=0)
    if warm:
        client.raw(five())
        assert world.vhost.queues["dead"].message_count == 5
    client.send(1, "basic.consume", queue="q", consumer_tag="c")
    client.read()
    world.now += 5
    client.connection.receive(five(), world.now)
    world.now += 0.25
    world.tick()
    assert [one.body for one in client.read()] == [b"0", b"1", b"2", b"3", b"4"]


def test_messages_expired_before_a_tick_are_not_delivered_in_it() -> None:
    world, client = opened(message_ttl=100)
    client.raw(five())
    world.now += 0.2
    client.connection.receive(encode_frame(1, "basic.consume", queue="q", consumer_tag="c"), world.now)
    world.now += 0.2
    world.tick()
    assert client.names() == ["basic.consume-ok"]
    assert world.vhost.queues["dead"].message_count == 5


def test_a_first_death_with_many_headers_is_no_cycle() -> None:
    world, client = opened(max_length=0)
    table = write_table({"long": "x" * 20_000})
    client.raw(message(1, b"m", "", "q", properties=HEADERS.to_bytes(2, "big") + table))
    (entry,) = world.vhost.queues["dead"].ready
    assert headers_of(entry[2])["x-death"][0]["reason"] == "maxlen"


def test_a_queue_that_is_its_own_dead_letter_queue_gets_nothing_back() -> None:
    world, client = opened()
    own = {"x-dead-letter-exchange": "", "x-max-length": 1}
    client.call(1, "queue.declare", queue="self", arguments=own)
    client.raw(message(1, b"1", "", "self") + message(1, b"2", "", "self"))
    (entry,) = world.vhost.queues["self"].ready
    assert headers_of(entry[2]) == {}
    client.call(1, "basic.get", queue="self")
    client.send(1, "basic.reject", delivery_tag=1, requeue=False)
    (entry,) = world.vhost.queues["self"].ready
    assert headers_of(entry[2])["x-death"][0]["reason"] == "rejected"


@pytest.mark.parametrize("consumers", ["one", "two", "two on a channel", "one, of a paged queue"])
def test_many_expired_messages_neither_block_others_nor_hide_fresh_ones(
    consumers: str,
) -> None:
    world, client = opened(message_ttl=1000)
    rounds = 2 * ROUNDS + 3
    for _ in range(rounds):
        client.raw(message(1, b"old", "", "q") * AT_ONCE)
    queue = world.vhost.queues["q"]
    if "paged" in consumers:
        queue.page_out(VirtualOverflow(), 10**9)
    waiting = [world.open() for _ in range(2 if consumers == "two" else 1)]
    world.now += 2
    for one in waiting * (2 if "channel" in consumers else 1):
        one.connection.receive(encode_frame(1, "basic.consume", queue="q", no_ack=True), world.now)
    client.connection.receive(message(1, b"new", "", "q"), world.now)
    world.broker.end_tick(world.now, int(world.now * 1000))
    assert 1 < queue.message_count < rounds * AT_ONCE
    world.tick()
    seen = [frame.body for one in waiting for frame in one.read() if frame.name == "basic.deliver"]
    assert seen == [b"new"] and queue.message_count == 0
    assert world.vhost.queues["dead"].message_count == rounds * AT_ONCE


def test_a_queue_whose_consumer_takes_all_is_never_full() -> None:
    """Two runs in one tick, from a publisher that alternates persistent and transient messages."""
    _, client = opened(max_length=1, overflow="reject-publish")
    client.send(1, "confirm.select")
    client.send(1, "basic.consume", queue="q", no_ack=True)
    client.read()
    kinds = (b"\0\0", b"\x10\0\2") * 3
    client.raw(b"".join(message(1, b"m", "", "q", properties=kind) for kind in kinds))
    assert set(client.names()) == {"basic.deliver", "basic.ack"}
