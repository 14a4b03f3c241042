"""Memory of incomplete and uncommitted messages counts for the alarm, and keeps it raised only for a while.

Also definitions. Over AMQP 1.0: `amqp10/test_half_received.py`.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from broker.amqp091.codec.fields import write_table
from broker.amqp091.codec.grammar import encode_frame
from broker.amqp091.codec.properties import HEADERS
from broker.memory_alarm import INTERVAL, PATIENCE
from tests.broker.amqp091.transacting import transacting
from tests.broker.amqp091.wire import Raw, World, content, frame, message

PUBLISH = encode_frame(1, "basic.publish", routing_key="q")


def begin(client: Raw, size: int, channel: int = 1) -> None:
    """A publish and its content header."""
    client.raw(encode_frame(channel, "basic.publish", routing_key="q"))
    client.raw(frame(2, channel, b"\0\x3c\0\0" + size.to_bytes(8, "big") + b"\0\0"))


def taken(world: World, what: Callable[[], None]) -> tuple[int, int]:
    """The growth in octets that Python has allocated, and the growth that the alarm counts."""
    world.pass_time(INTERVAL)
    counted = world.broker.memory.used
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        what()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    world.pass_time(INTERVAL)
    return after - before, world.broker.memory.used - counted


@pytest.mark.parametrize("octets", [1, 100, 3000, 5000])
def test_body_frames_count_by_their_memory(octets: int) -> None:
    world = World(memory_limit=1 << 30)
    client = world.open()
    client.call(1, "queue.declare", queue="q")
    begin(client, 1 << 24)
    frames = frame(3, 1, bytes(octets)) * (30_000 // (octets + 8))
    takes, counts = taken(world, lambda: [client.raw(frames) for _ in range(3)] and None)
    assert takes > 70_000
    assert abs(takes - counts) < takes / 5


def test_started_messages_count_by_their_memory() -> None:
    world = World(memory_limit=1 << 30)
    client = world.open()
    for channel in range(2, 1000):
        client.raw(encode_frame(channel, "channel.open"))
    takes, counts = taken(
        world, lambda: [begin(client, 1000, channel) for channel in range(2, 1000)] and None
    )
    assert abs(takes - counts) < takes / 5


def test_incomplete_frames_count_by_their_memory() -> None:
    world = World(memory_limit=1 << 30)
    clients = [world.open() for _ in range(20)]
    cut = (PUBLISH + content(1, bytes(100_000)))[:-1]
    takes, counts = taken(world, lambda: [client.raw(cut) for client in clients] and None)
    assert takes > 2_000_000
    assert abs(takes - counts) < takes / 5


@pytest.mark.parametrize("octets", [1, 1000])
@pytest.mark.parametrize("keys", ["q", "qr"])
def test_transactions_count_by_their_memory(octets: int, keys: str) -> None:
    world = World(memory_limit=1 << 30)
    client = transacting(world, *keys)
    messages = b"".join(message(1, bytes(octets), routing_key=key) for key in keys)
    takes, counts = taken(world, lambda: client.raw(messages * 1000))
    assert abs(takes - counts) < takes / 5


def test_transactions_routed_by_headers_count_by_their_memory() -> None:
    world = World(memory_limit=1 << 30)
    client = transacting(world, "q", "r")
    for queue in "qr":
        client.call(1, "queue.bind", queue=queue, exchange="amq.headers", arguments={"to": queue})
    headers = [HEADERS.to_bytes(2, "big") + write_table({"to": queue}) for queue in "qr"]
    messages = b"".join(message(1, b"x", "amq.headers", properties=each) for each in headers)
    takes, counts = taken(world, lambda: client.raw(messages * 1000))
    assert abs(takes - counts) < takes / 5


@pytest.mark.parametrize("ends", ["whole", "connection.close", "lost", "fault"])
def test_nothing_counts_once_its_message_has_ended(ends: str) -> None:
    world = World()
    client = world.open()
    client.call(1, "queue.declare", queue="q")
    begin(client, 2)
    client.raw(frame(3, 1, b"x"))
    assert world.broker.memory.unfinished == client.connection.half_received > 300
    match ends:
        case "whole":
            client.raw(frame(3, 1, b"y"))
            assert world.vhost.queues["q"].message_count == 1
        case "connection.close":
            client.send(0, "connection.close")
        case "lost":
            client.connection.lost(world.now)
        case "fault":
            client.raw(frame(3, 1, b"yz"))
            assert client.read()[-1].name == "connection.close"
    assert world.broker.memory.unfinished == client.connection.half_received == 0


def test_nothing_counts_once_its_channel_is_closed() -> None:
    world = World(message_max=1000)
    client = world.open()
    begin(client, 1001)
    assert client.read()[-1].name == "channel.close"
    assert world.broker.memory.unfinished == client.connection.half_received == 0


def test_a_sender_of_half_a_message_is_paused_during_an_alarm() -> None:
    world = World(memory_limit=100_000)
    attacker, publisher = world.open(), world.open()
    attacker.call(1, "queue.declare", queue="q")
    publisher.publish(1, b"one", routing_key="q")
    begin(attacker, 1_000_000)
    attacker.raw(frame(3, 1, bytes(110_000)))
    assert world.broker.memory.raised
    assert attacker.connection.paused_reading
    assert publisher.connection.paused_reading


def test_unfinished_messages_keep_an_alarm_on_for_a_while_only() -> None:
    world = World(memory_limit=140_000)
    attackers = [world.open() for _ in range(4)]
    attackers[0].call(1, "queue.declare", queue="q")
    publisher = world.open()
    publisher.publish(1, b"one", routing_key="q")
    for at, attacker in enumerate(attackers):
        begin(attacker, 1_000_000)
        attacker.raw(frame(3, 1, bytes(20_000 + 5000 * at)))
    world.pass_time(INTERVAL)
    assert world.broker.alarms == ["memory"]
    world.pass_time(PATIENCE - 2 * INTERVAL)
    assert all(attacker.connection.running for attacker in attackers)
    world.pass_time(2 * INTERVAL)
    assert [attacker.connection.running for attacker in attackers] == [True, True, True, False]
    (close,) = attackers[3].read()
    assert (close["reply_code"], close.name) == (506, "connection.close")
    assert any("closed with 506 RESOURCE_ERROR - unfinished messages" in line for line in world.logged)
    world.pass_time(INTERVAL)
    assert world.broker.alarms == []
    assert not publisher.connection.paused_reading
    publisher.publish(1, b"two", routing_key="q")
    assert world.vhost.queues["q"].message_count == 2


def test_an_open_transaction_keeps_an_alarm_raised_only_for_a_while() -> None:
    world = World(memory_limit=100_000)
    client = transacting(world, "q")
    client.publish(1, bytes(110_000), routing_key="q")
    world.pass_time(INTERVAL)
    assert world.broker.alarms == ["memory"]
    world.pass_time(PATIENCE + 2 * INTERVAL)
    assert world.broker.alarms == []
    assert client.read()[-1]["reply_code"] == 506


def test_no_connection_is_closed_for_an_alarm_that_queued_messages_keep_on() -> None:
    world = World(memory_limit=100_000)
    publisher, half = world.open(), world.open()
    publisher.call(1, "queue.declare", queue="q")
    publisher.raw(message(1, bytes(1000), routing_key="q") * 120)
    begin(half, 1_000_000)
    half.raw(frame(3, 1, bytes(50_000)))
    world.pass_time(5 * PATIENCE)
    assert world.broker.alarms == ["memory"]
    assert half.connection.running
    reader = world.open()
    reader.send(1, "basic.consume", queue="q", consumer_tag="c", no_ack=True)
    world.pass_time(2 * INTERVAL)
    assert world.broker.alarms == []
    assert half.connection.running
    assert not half.connection.paused_reading


def test_connections_and_channels_count() -> None:
    world = World(memory_limit=1 << 30)
    few = [world.open() for _ in range(3)]
    world.pass_time(INTERVAL)
    before = world.broker.memory.parts["connections"]
    for channel in range(2, 1002):
        few[0].send(channel, "channel.open")
    world.pass_time(INTERVAL)
    with_channels = world.broker.memory.parts["connections"]
    assert with_channels - before > 2_000_000
    few[0].connection.lost(world.now)
    world.pass_time(INTERVAL)
    assert world.broker.memory.parts["connections"] == before * 2 // 3


@pytest.mark.parametrize("acknowledged", [0, 20])
def test_unacknowledged_messages_count_by_their_memory(acknowledged: int) -> None:
    world = World(memory_limit=1 << 30)
    client = world.open()
    client.call(1, "queue.declare", queue="q")
    client.call(1, "basic.consume", queue="q", consumer_tag="c")

    def hold() -> None:
        for _ in range(30):
            client.publish(1, bytes(50_000), routing_key="q")
            client.inbox = b""
        for tag in range(1, acknowledged + 1):
            client.send(1, "basic.ack", delivery_tag=tag)

    takes, counts = taken(world, hold)
    assert takes > 50_000 * (30 - acknowledged)
    assert abs(takes - counts) < takes / 5


TABLES: dict[str, dict[str, Any]] = {
    "none": {},
    "usual": {"x-max-length": 5, "x-dead-letter-exchange": "dead", "x-dead-letter-routing-key": "letters"},
    "many keys": {f"{n:03}": None for n in range(800)},
    "long text": {"k": "x" * 10_000},
    "nulls": {"k": [None] * 10_000},
    "empty tables": {"k": [{} for _ in range(2000)]},
    "numbers": {"k": [n * 1000.5 for n in range(1000)]},
    "text that is no ASCII": {f"{n}": "\u00e4" * 30 for n in range(100)},
}


@pytest.mark.parametrize(
    ("what", "table"),
    [("queue", table) for table in TABLES]
    + [
        (what, table)
        for what in ("exchange", "binding", "binding of topic", "binding of headers")
        for table in ("none", "usual")
    ],
)
def test_definitions_count_until_they_are_deleted(what: str, table: str) -> None:
    world = World(memory_limit=1 << 30)
    client = world.open()
    client.call(1, "queue.declare", queue="q")
    kind = {"exchange": "exchange.declare", "queue": "queue.declare"}.get(what, "queue.bind")
    exchange = {"binding of topic": "amq.topic", "binding of headers": "amq.headers"}.get(what, "amq.direct")

    def said(n: int) -> dict[str, Any]:
        name = f"a-name-of-usual-length-{n}"
        if kind == "queue.bind":
            return {"queue": "q", "exchange": exchange, "routing_key": f"{n}.orders.europe"}
        return {kind.split(".")[0]: name} | ({"type": "topic"} if kind == "exchange.declare" else {})

    def declare(first: int, last: int) -> None:
        for n in range(first, last):
            client.raw(encode_frame(1, kind, **said(n), nowait=True, arguments=TABLES[table]))

    declare(0, 1)  # what is made once
    takes, counts = taken(world, lambda: declare(1, 30))
    assert world.broker.memory.parts["definitions"] >= counts > 0
    assert abs(takes - counts) < takes / 4
    for n in range(30):
        gone = {"queue.declare": "queue.delete", "exchange.declare": "exchange.delete"}.get(
            kind, "queue.unbind"
        )
        say = {key: value for key, value in said(n).items() if key != "type"}
        client.raw(
            encode_frame(1, gone, **say, **({"arguments": TABLES[table]} if kind == "queue.bind" else {}))
        )
    client.send(1, "queue.delete", queue="q")
    assert world.vhost.octets == World().vhost.octets


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("together", [1, 100])
def test_small_messages_count_by_their_memory(together: int, held: bool) -> None:
    """A message published alone takes more than one of many."""
    world = World(memory_limit=1 << 30)
    client = world.open()
    client.call(1, "queue.declare", queue="q")
    if held:
        client.call(1, "basic.consume", queue="q", consumer_tag="c")

    def fill() -> None:
        for _ in range(4000 // together):
            client.raw(message(1, b"x" * 20, "", "q") * together)
            client.inbox = b""

    takes, counts = taken(world, fill)
    assert takes > 600_000
    assert abs(takes - counts) < takes / 5
