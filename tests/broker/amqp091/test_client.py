"""The sans-I/O client against the real server machine: handshake, extension, refusal, heartbeats."""

from __future__ import annotations

import pytest

from broker.amqp091.client import ClientConnection, Closed, ExtensionReceived, Opened
from broker.amqp091.codec.frames import PROTOCOL_HEADER
from broker.hooks import ExtensionPeer, Hooks, Refusal
from tests.broker.amqp091.wire import Raw, World


class Echo(Hooks):
    """Accepts link and management, refuses the rest, and answers each extension method with the next id."""

    def connection_opening(self, connection: ExtensionPeer, *, management: bool) -> Refusal | None:
        return None if management else Refusal(320, "CONNECTION_FORCED - this is a backup")

    def extension(self, connection: ExtensionPeer, channel: int, method_id: int, payload: bytes) -> None:
        connection.send_extension(channel, method_id + 1, payload)


def _exchange(world: World, raw: Raw, client: ClientConnection) -> None:
    """Carry bytes in both directions until both sides are silent."""
    while True:
        out = b"".join(client.take_output())
        if out:
            raw.raw(out)
        else:
            world.tick()
        answer, raw.inbox = raw.inbox, b""
        if answer:
            client.receive(answer, world.now)
        elif not out:
            return


def _peer(world: World, **login: str) -> tuple[Raw, ClientConnection]:
    client = ClientConnection(
        login.get("user", "ha"), login.get("password", "ha"), world.now,
        capabilities={login.get("claim", "understudy.ha-peer"): True}, heartbeat=10,
    )  # fmt: skip
    raw = world.connect()
    _exchange(world, raw, client)
    return raw, client


def test_a_peer_gets_in_and_is_answered() -> None:
    world = World(Echo())
    raw, client = _peer(world)
    (opened,) = client.events()
    assert isinstance(opened, Opened)
    assert client.opened
    largest = b"x" * client.extension_room
    client.send_extension(10, b"hello")
    client.send_extension(20, largest)
    _exchange(world, raw, client)
    assert client.events() == [ExtensionReceived(1, 11, b"hello"), ExtensionReceived(1, 21, largest)]
    with pytest.raises(ValueError, match="too large"):
        client.send_extension(20, largest + b"x")


@pytest.mark.parametrize(
    ("login", "code"),
    [
        ({"password": "wrong"}, 403),
        ({"user": "guest", "password": "guest"}, 403),
        ({"claim": "nothing"}, 403),
        ({"claim": "nothing", "user": "guest", "password": "guest"}, 320),
    ],
)
def test_a_refusal_carries_its_code(login: dict[str, str], code: int) -> None:
    world = World(Echo())
    _, client = _peer(world, **login)
    (closed,) = client.events()
    assert isinstance(closed, Closed)
    assert (closed.code, closed.by_peer) == (code, True)
    assert client.wants_close
    assert not client.opened


def test_heartbeats_and_silence() -> None:
    world = World(Echo())
    raw, client = _peer(world)
    client.events()
    for _ in range(6):
        world.pass_time(5)
        client.timers(world.now)
        _exchange(world, raw, client)
        assert client.events() == []
    world.now += 20
    client.timers(world.now)
    (closed,) = client.events()
    assert closed == Closed(0, "no sign of life from the server for 20 s", False)


def test_a_close_of_ours_and_a_lost_socket() -> None:
    world = World(Echo())
    raw, client = _peer(world)
    client.events()
    client.close()
    _exchange(world, raw, client)
    assert client.events() == [Closed(200, "Goodbye", False)]
    _, other = _peer(world)
    other.events()
    other.lost(world.now)
    other.lost(world.now)
    assert other.events() == [Closed(0, "the server closed the socket", False)]


def test_a_server_that_says_nothing_or_nonsense() -> None:
    silent = ClientConnection("ha", "ha", 0.0)
    assert silent.take_output() == [PROTOCOL_HEADER]
    assert silent.next_deadline() == 10.0
    silent.timers(10.0)
    assert isinstance(silent.events()[0], Closed)
    for answer in (b"AMQP\0\0\x09\0", b"HTTP/1.1 400 Bad Request\r\n", b"\1\0\0\xff\xff\xff\xff"):
        client = ClientConnection("ha", "ha", 0.0)
        client.receive(answer, 0.0)
        (closed,) = client.events()
        assert isinstance(closed, Closed)
        assert closed.code == 501
        assert client.wants_close
