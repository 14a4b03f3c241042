"""Memory of an AMQP 1.0 connection for incomplete deliveries. For 0-9-1:
`tests/broker/test_memory_alarm.py`."""

from __future__ import annotations

import pytest

pytest.importorskip("proton")

from broker.memory_alarm import INTERVAL, PATIENCE
from tests.bad_inputs.test_amqp10 import BEGIN, attach, detach, opened, transfer
from tests.broker.amqp091.wire import World, frame
from tests.broker.amqp10.wire import Octets, world10
from tests.broker.test_memory_alarm import begin, taken


def _attached(memory_limit: int) -> tuple[World, Octets]:
    world = world10(memory_limit=memory_limit)
    world.open().call(1, "queue.declare", queue="q")
    return world, opened(world, BEGIN, attach())


@pytest.mark.parametrize("octets", [20, 100, 3000, 5000])
def test_transfers_count_by_their_memory(octets: int) -> None:
    world, client = _attached(1 << 30)
    part = transfer(bytes(octets), more=True)
    client.raw(part)
    takes, counts = taken(world, lambda: [client.raw(part) for _ in range(30_000 // octets + 50)] and None)
    assert abs(takes - counts) < takes / 5


def test_engine_buffers_count_until_the_connection_ends() -> None:
    """The engine's buffer has room for the largest transfer, in powers of two, and is reused."""
    world, client = _attached(1 << 30)
    world.pass_time(INTERVAL)
    before = client.connection.octets
    for n in range(2):
        client.raw(transfer(bytes(100_000), delivery=n, more=True))
        client.raw(transfer(bytes(100), delivery=n, more=True))
        assert client.connection.half_received == 100_100 + 131072 + 1300
        assert client.connection.octets == before
        client.raw(transfer(b"", delivery=n, aborted=True))
        assert client.connection.half_received == 0
        assert client.connection.octets == before + 131072


@pytest.mark.parametrize("ends", ["whole", "aborted", "detached", "closed", "lost"])
def test_nothing_counts_once_its_delivery_has_ended(ends: str) -> None:
    world, client = _attached(1 << 30)
    client.raw(transfer(b"\0Su\xa0\x02", more=True))
    assert world.broker.memory.unfinished == client.connection.half_received > 200
    match ends:
        case "whole":
            client.raw(transfer(b"ab"))
            assert world.vhost.queues["q"].message_count == 1
        case "aborted":
            client.raw(transfer(b"", aborted=True))
        case "detached":
            client.raw(detach())
        case "closed":
            client.connection.close(530, "NOT_ALLOWED - enough")
        case "lost":
            client.connection.lost(world.now)
    assert world.broker.memory.unfinished == client.connection.half_received == 0


def test_a_sender_of_half_a_message_is_paused_and_finally_closed() -> None:
    world, client = _attached(250_000)
    half = world.open()
    begin(half, 1_000_000)
    half.raw(frame(3, 1, bytes(30_000)))
    client.raw(transfer(bytes(80_000), more=True))
    world.pass_time(INTERVAL)
    assert world.broker.alarms == ["memory"]
    assert client.connection.paused_reading
    world.pass_time(PATIENCE + INTERVAL)
    assert not client.connection.running
    assert b"amqp:resource-limit-exceeded" in client.take()
    assert half.connection.running
    world.pass_time(INTERVAL)
    assert world.broker.alarms == []
    assert not half.connection.paused_reading
