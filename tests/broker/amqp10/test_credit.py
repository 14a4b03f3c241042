"""Credit that a client withdraws, frame by frame, because Proton's own clients never do that."""

from __future__ import annotations

import struct

import pytest

pytest.importorskip("proton")

from tests.bad_inputs.test_amqp10 import BEGIN, LOGIN, OPEN, ZERO, attach, frame, ulong
from tests.broker.amqp091.wire import World
from tests.broker.amqp10.wire import Octets, world10
from understudy.shared.amqp10.framing import AMQP_HEADER, SASL_HEADER

TRANSFER = b"\0\x53\x14"


def flow(credit: int) -> bytes:
    """A flow for the link with handle 0, counted from its first delivery."""
    window = b"\x70\0\0\x08\0"
    fields = (ZERO, window, ZERO, window, ZERO, ZERO, b"\x70" + struct.pack(">I", credit))
    return frame(ulong(0x13, struct.pack(">I", len(fields)) + b"".join(fields)))


def _receiving(world: World) -> Octets:
    client = Octets(world)
    for each in (SASL_HEADER, LOGIN, AMQP_HEADER, OPEN, BEGIN, attach(receiver=True)):
        client.raw(each)
    client.take()
    return client


def test_nothing_is_sent_for_credit_that_was_withdrawn() -> None:
    """The message waited for room meanwhile. Other consumers may have it."""
    world = world10(unsent_max=20_000)
    publisher = world.open()
    publisher.call(1, "queue.declare", queue="q")
    for _ in range(100):
        publisher.publish(1, b"x" * 1000, routing_key="q")
    client = _receiving(world)
    client.reading = False
    client.raw(flow(100))
    sent = b"".join(client.connection.take_output()).count(TRANSFER)
    assert 0 < sent < 30
    client.connection.writable(False)
    client.raw(flow(0))
    client.reading = True
    client.connection.writable(True)
    world.tick()
    assert TRANSFER not in client.take()
    queue = world.vhost.queues["q"]
    assert (queue.message_count, queue.unacked_count) == (100 - sent, sent)
    client.raw(flow(100))
    world.tick()
    assert client.take().count(TRANSFER) == 100 - sent
