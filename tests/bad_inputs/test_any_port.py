"""Bad inputs 1-6: what any port must stand. Numbers as in docs/reference/bad-inputs.md."""

from __future__ import annotations

import pytest

from broker.amqp091.codec.frames import PROTOCOL_HEADER
from broker.amqp091.codec.grammar import encode_frame
from tests.bad_inputs.neighbour import neighbour_unharmed
from tests.broker.amqp091.wire import World, message

TLS = bytes.fromhex("16030100c8010000c40303")


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", TLS, b"\0" * 8, b"AMQ!", b"x" * 70_000]
)
def test_1_other_protocols_get_our_header_and_are_closed(data: bytes) -> None:
    world = World()
    with neighbour_unharmed(world):
        client = world.connect()
        client.raw(data)
        assert client.names() == ["header"]
        assert client.closed
        assert any("protocol header" in line and "127.0.0.1:40000" in line for line in world.logged)


@pytest.mark.parametrize("data", [b"", b"A", b"AMQP\0\0"])
def test_1_a_part_of_the_header_then_eof(data: bytes) -> None:
    world = World()
    with neighbour_unharmed(world):
        client = world.connect()
        client.raw(data)
        assert not client.closed
        client.connection.eof(world.now)
        assert client.closed
        client.connection.lost(world.now)
        assert client.connection not in world.broker.connections


@pytest.mark.parametrize("version", [b"\0\0\x09\0", b"\0\x01\0\0", b"\x03\x01\0\0", b"\x01\x01\0\x0a"])
def test_2_another_version_is_answered_with_ours(version: bytes) -> None:
    world = World()
    with neighbour_unharmed(world):
        client = world.connect()
        client.raw(b"AMQP" + version)
        assert client.inbox == PROTOCOL_HEADER
        assert client.closed


def test_3_one_byte_a_second_ends_after_ten_seconds() -> None:
    world = World()
    with neighbour_unharmed(world):
        client = world.connect()
        start_ok = encode_frame(0, "connection.start-ok", mechanism="PLAIN", response=b"\0guest\0guest")
        seconds = 0
        for octet in PROTOCOL_HEADER + start_ok:
            if client.closed:
                break
            client.raw(bytes((octet,)))
            world.pass_time(1)
            seconds += 1
        assert seconds == 10
        assert any("handshake" in line for line in world.logged)


@pytest.mark.parametrize("said", [b"", PROTOCOL_HEADER])
def test_4_silence_ends_after_ten_seconds(said: bytes) -> None:
    world = World()
    with neighbour_unharmed(world):
        client = world.connect()
        client.raw(said)
        world.pass_time(9.9)
        assert not client.closed
        world.pass_time(0.2)
        assert client.closed


def test_5_a_client_that_stops_reading_holds_a_bounded_amount() -> None:
    world = World(unsent_max=20_000)
    with neighbour_unharmed(world):
        deaf = world.open(heartbeat=10)
        deaf.call(1, "queue.declare", queue="q")
        deaf.call(1, "basic.consume", queue="q")
        deaf.reading = False
        deaf.connection.writable(False)
        publisher = world.open()
        for _ in range(50):
            publisher.raw(message(1, b"m" * 1000, "", "q") * 10)
        assert deaf.connection.unsent < 40_000
        assert world.vhost.queues["q"].total_count == 500
        world.pass_time(21)
        assert deaf.closed
        deaf.connection.lost(world.now)
        world.tick()
        assert world.vhost.queues["q"].message_count == 500


def test_6_half_close_in_mid_frame() -> None:
    world = World()
    with neighbour_unharmed(world):
        client = world.open()
        client.call(1, "queue.declare", queue="q")
        client.raw(message(1, b"whole", "", "q") + message(1, b"cut", "", "q")[:-2])
        client.connection.eof(world.now)
        world.tick()
        assert client.closed
        client.connection.lost(world.now)
        assert world.vhost.queues["q"].message_count == 1
