"""Bad inputs 8-18: frames, channels, tuning, content out of place. Numbers: docs/reference/bad-inputs.md."""

from __future__ import annotations

import struct

import pytest

from broker.amqp091.codec.frames import PROTOCOL_HEADER, frame
from broker.amqp091.codec.grammar import encode, encode_frame
from broker.pieces import MIB, assembling_max
from tests.bad_inputs.neighbour import neighbour_unharmed
from tests.broker.amqp091.wire import Raw, Seen, World, content, message

PUBLISH = encode_frame(1, "basic.publish", routing_key="q")


def _close_of(client: Raw, code: int) -> Seen:
    """The connection.close that came last, its code, and that the broker says who and what in its log."""
    close = client.read()[-1]
    assert (close.name, close["reply_code"]) == ("connection.close", code)
    assert any("127.0.0.1:40000" in line and str(code) in line for line in client.world.logged)
    client.world.pass_time(3.1)
    assert client.closed
    return close


def _refused(data: bytes, code: int, *, channel: int = 1) -> Seen:
    """Send `data` on an open connection; it is closed with `code`, and nobody else notices."""
    world = World()
    with neighbour_unharmed(world):
        client = world.open(channel=channel)
        client.call(channel or 1, "queue.declare", queue="q") if channel else None
        client.raw(data)
        return _close_of(client, code)


def test_8_frame_size_ffffffff() -> None:
    _refused(struct.pack(">BHI", 1, 1, 0xFFFFFFFF), 501)


def test_9_one_octet_over_the_negotiated_maximum() -> None:
    _refused(struct.pack(">BHI", 3, 1, 131072 - 8 + 1), 501)
    world = World()
    client = world.open(frame_max=4096)
    client.raw(struct.pack(">BHI", 1, 1, 4096 - 8 + 1))
    _close_of(client, 501)


def test_9_8_kib_before_login() -> None:
    world = World()
    with neighbour_unharmed(world):
        client = world.connect()
        client.raw(PROTOCOL_HEADER + struct.pack(">BHI", 1, 0, 8192 - 8 + 1))
        _close_of(client, 501)


def test_10_a_wrong_frame_end() -> None:
    _refused(frame(1, 1, encode("queue.declare", queue="q"))[:-1] + b"\xcd", 501)


def test_10_a_wrong_frame_end_among_good_publishes() -> None:
    """The fast path looks at every end octet too; what came before counts."""
    world = World()
    with neighbour_unharmed(world):
        client = world.open()
        client.call(1, "queue.declare", queue="q")
        good = message(1, b"body", "", "q")
        client.raw(good * 5 + good[:-1] + b"\0" + good * 5)
        _close_of(client, 501)
        assert world.vhost.queues["q"].message_count == 5


@pytest.mark.parametrize("kind", [0, 4, 7, 9, 255])
def test_11_an_unknown_frame_type(kind: int) -> None:
    _refused(frame(kind, 1, b""), 501)


def test_12_heartbeat_on_a_channel_or_with_a_payload() -> None:
    _refused(frame(8, 1, b""), 501)
    _refused(frame(8, 0, b"x"), 501)


def test_13_connection_method_on_a_channel_and_channel_method_on_0() -> None:
    close = _refused(encode_frame(1, "connection.close"), 503)
    assert (close["failed_class"], close["failed_method"]) == (10, 50)
    close = _refused(encode_frame(0, "queue.declare", queue="q"), 504)
    assert (close["failed_class"], close["failed_method"]) == (50, 10)
    _refused(encode_frame(0, "channel.open"), 504)


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_14_methods_before_the_connection_is_open(steps: int) -> None:
    for name in ("queue.declare", "basic.publish", "connection.open" if steps < 2 else "connection.tune-ok"):
        world = World()
        with neighbour_unharmed(world):
            client = world.connect()
            client.raw(PROTOCOL_HEADER)
            if steps > 0:
                client.send(0, "connection.start-ok", mechanism="PLAIN", response=b"\0guest\0guest")
            if steps > 1:
                client.send(0, "connection.tune-ok", channel_max=9, frame_max=4096)
            client.send(0 if name.startswith("connection") else 1, name)
            _close_of(client, 503)
            assert "q" not in world.vhost.queues


def test_14_methods_before_channel_open_and_methods_of_servers() -> None:
    _refused(encode_frame(2, "queue.declare", queue="r"), 504)
    _refused(encode_frame(2, "basic.publish"), 504)
    _refused(encode_frame(1, "queue.declare-ok", queue="r"), 503)
    _refused(frame(1, 1, b"\0\x32\0\x63"), 540)


@pytest.mark.parametrize("frame_max", [0, 1, 4095, 131073, 2**32 - 1])
def test_15_tune_ok_with_a_frame_max_out_of_bounds(frame_max: int) -> None:
    world = World()
    with neighbour_unharmed(world):
        client = world.connect()
        client.raw(PROTOCOL_HEADER)
        client.send(0, "connection.start-ok", mechanism="PLAIN", response=b"\0guest\0guest")
        client.send(0, "connection.tune-ok", channel_max=2047, frame_max=frame_max)
        _close_of(client, 530)


def test_16_channel_numbers() -> None:
    _refused(encode_frame(1, "channel.open"), 504)


def test_16_more_channels_than_agreed_whatever_their_numbers() -> None:
    world = World()
    with neighbour_unharmed(world):
        client = world.open(channel=0, channel_max=2)
        for number in (65535, 2048):
            assert client.call(number, "channel.open").name == "channel.open-ok"
        client.call(2048, "queue.declare", queue="gone", passive=True)
        assert client.call(7, "channel.open").name == "channel.open-ok", "a closing channel is not open"
        client.send(8, "channel.open")
        assert "channels opened (2)" in _close_of(client, 530)["reply_text"]


def test_16_closes_of_both_ends_that_cross() -> None:
    """The client answers the broker's close as well, after its own was answered: that is no channel error."""
    world = World()
    with neighbour_unharmed(world):
        client = world.open()
        client.call(2, "channel.open")
        client.raw(
            message(1, b"lost", "no such exchange")
            + encode_frame(1, "channel.close", reply_code=200)
            + message(1, b"late", "")
            + encode_frame(1, "channel.open")
        )
        assert client.names() == ["channel.close", "channel.close-ok", "channel.open-ok"]
        client = world.open()
        client.raw(message(1, b"lost", "no such exchange") + encode_frame(1, "channel.close", reply_code=200))
        assert client.names() == ["channel.close", "channel.close-ok"]
        client.raw(message(1, b"late", "") + encode_frame(1, "channel.close-ok"))
        assert client.read() == []
        assert client.call(1, "channel.open").name == "channel.open-ok"


def test_17_content_out_of_place() -> None:
    header = content(1, b"")
    _refused(header, 505)
    _refused(frame(3, 1, b"body"), 505)
    _refused(PUBLISH + frame(3, 1, b"body"), 505)
    _refused(PUBLISH + PUBLISH, 505)
    _refused(PUBLISH + encode_frame(1, "basic.qos"), 505)
    _refused(PUBLISH + content(1, b"abc")[:-11] + encode_frame(1, "basic.qos"), 505)
    _refused(content(2, b"x"), 504)
    _refused(PUBLISH + frame(2, 1, b"\0\x32\0\0" + bytes(10)), 501)
    _refused(PUBLISH + frame(2, 1, b"\0\x3c\0\x01" + bytes(10)), 501)
    _refused(PUBLISH + frame(2, 1, b"\0\x3c\0\0"), 501)


def test_18_body_longer_than_announced() -> None:
    head = frame(2, 1, b"\0\x3c\0\0" + (3).to_bytes(8, "big") + b"\0\0")
    _refused(PUBLISH + head + frame(3, 1, b"four"), 501)
    _refused(PUBLISH + head + frame(3, 1, b"ab") + frame(3, 1, b"cd"), 501)


def test_18_endless_empty_body_frames() -> None:
    head = frame(2, 1, b"\0\x3c\0\0" + (3).to_bytes(8, "big") + b"\0\0")
    _refused(PUBLISH + head + frame(3, 1, b""), 501)


@pytest.mark.parametrize("size", [128 * 2**20 + 1, 2**63, 2**64 - 1])
def test_18_too_large_a_message_closes_its_channel_only(size: int) -> None:
    world = World()
    with neighbour_unharmed(world):
        client = world.open()
        client.call(1, "queue.declare", queue="q")
        client.call(2, "channel.open")
        client.raw(PUBLISH + frame(2, 1, b"\0\x3c\0\0" + size.to_bytes(8, "big") + b"\0\0"))
        (close,) = client.read()
        assert (close.name, close["reply_code"]) == ("channel.close", 311)
        assert (close["failed_class"], close["failed_method"]) == (60, 40)
        client.raw(frame(3, 1, b"ignored") * 100)
        assert client.read() == []
        assert client.call(2, "queue.declare", queue="q", passive=True)["message_count"] == 0
        client.send(1, "channel.close-ok")
        assert client.call(1, "channel.open").name == "channel.open-ok"


def test_18_one_message_of_the_largest_size_in_the_smallest_frames_has_room() -> None:
    for size in (1, 16 * MIB, 128 * MIB):
        frames = size // (4096 - 8) + 2
        assert size + 8 * frames + 4096 <= assembling_max(size)


def test_18_unfinished_messages_on_many_channels_are_bounded() -> None:
    world = World(assembling_max=100_000)
    with neighbour_unharmed(world):
        client = world.open(channel=0)
        for number in range(1, 20):
            client.send(number, "channel.open")
            client.send(number, "basic.publish", routing_key="q")
            head = frame(2, number, b"\0\x3c\0\0" + (50_000).to_bytes(8, "big") + b"\0\0")
            client.raw(head + frame(3, number, bytes(20_000)))
            if not client.connection.running:
                break
        assert number == 5
        _close_of(client, 506)
