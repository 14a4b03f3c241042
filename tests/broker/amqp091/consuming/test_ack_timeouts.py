"""Timeouts for acks: who is closed, when, and that nobody else is."""

from __future__ import annotations

import random

import pytest

from broker.ack_timeouts import DeliveryTimes
from tests.broker.amqp091.test_policies import policy
from tests.broker.amqp091.wire import Raw, World, message


def consuming(world: World, *bodies: bytes, prefetch: int = 0, **arguments: object) -> Raw:
    client = world.open()
    client.call(1, "queue.declare", queue="q", arguments=arguments)
    client.raw(b"".join(message(1, body, "", "q") for body in bodies))
    client.call(1, "basic.qos", prefetch_count=prefetch)
    client.send(1, "basic.consume", queue="q")
    client.read()
    return client


def closed(client: Raw) -> int:
    """Seconds until the channel is closed with 406; at most 300."""
    for second in range(300):
        seen = client.read()
        if seen:
            assert [(s.name, s["reply_code"]) for s in seen] == [("channel.close", 406)]
            return second
        client.world.pass_time(1.0)
    return 300


@pytest.mark.parametrize(
    ("setting", "arguments", "seconds"),
    [
        (80_000, {}, 80),
        (0, {"x-consumer-timeout": 80_000}, 80),
        (80_000, {"x-consumer-timeout": 160_000}, 160),
        (40_000, {"x-consumer-timeout": 80_000}, 80),
        (80_000, {"x-consumer-timeout": 0}, 300),
    ],
)
def test_a_queue_says_how_long_else_the_setting(
    setting: int, arguments: dict[str, object], seconds: int
) -> None:
    world = World(consumer_timeout=setting)
    client = consuming(world, b"a", **arguments)
    took = closed(client)
    assert seconds <= took <= min(300, seconds * 1.25)
    if took < 300:
        assert world.vhost.queues["q"].message_count == 1  # ready again


def test_the_text_is_rabbitmqs_and_only_that_channel_is_closed() -> None:
    world = World(consumer_timeout=40_000)
    client = consuming(world, b"a")
    client.call(2, "channel.open")
    client.send(2, "basic.get", queue="q", no_ack=True)
    client.read()
    world.pass_time(60)
    (told,) = client.read()
    assert told["reply_text"] == (
        "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. "
        "Timeout value used: 40000 ms. This timeout value can be configured, "
        "see consumers doc guide to learn more"
    )
    client.send(1, "channel.close-ok")
    assert client.call(2, "basic.get", queue="q").name == "basic.get-ok"
    world.pass_time(60)
    assert client.names() == ["channel.close"]  # what basic.get has fetched counts, too


def test_a_policy_holds_for_messages_that_are_out_already() -> None:
    world = World()
    client = consuming(world, b"a")
    world.pass_time(100)
    policy(world, consumer_timeout=80_000)
    assert 80 <= closed(client) <= 100  # it was not known before how long the message was out


def test_a_client_that_acks_in_time_is_never_closed() -> None:
    """Its deliveries are one run that never ends: the oldest of them is always a young one."""
    world = World(consumer_timeout=8_000)
    client = consuming(world, *[b"m"] * 400, prefetch=10)
    for tag in range(1, 380):
        world.pass_time(0.7)  # each is outstanding for 7 s
        client.send(1, "basic.ack", delivery_tag=tag)
        assert {seen.name for seen in client.read()} <= {"basic.deliver"}
    assert world.vhost.queues["q"].total_count == 21


@pytest.mark.parametrize("seed", range(10))
def test_late_is_late_by_no_more_than_two_looks(seed: int) -> None:
    chance, times, sent = random.Random(seed), DeliveryTimes(), dict[int, float]()
    following, timeout, step = 1, 100.0, 5.0
    for now in range(2000):
        if chance.random() < 0.2:
            sent[following] = float(now)
            following += 1
        if sent and chance.random() < 0.18:
            del sent[chance.choice(list(sent))]
        if now % step:
            continue
        if not sent:
            times.clear()
            continue
        oldest = min(sent)
        times.note(now, oldest, following)
        late = times.upto(now - timeout)
        assert all(now - when >= timeout for tag, when in sent.items() if tag < late)
        assert all(now - when < timeout + 2 * step for tag, when in sent.items() if tag >= late)
        if oldest < late:
            sent.clear()  # the channel is closed


def test_memory_for_a_channel_is_bounded() -> None:
    times = DeliveryTimes()
    for now in range(100_000):
        times.note(float(now), 1, now + 2)
    assert len(times._marks) <= 64
    assert 0 < times.upto(60_000) <= 60_002
