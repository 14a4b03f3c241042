"""The shell over real sockets: listeners, slow readers, limits, a failing machine, and a clean stop."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest

from broker.amqp091.codec.frames import PROTOCOL_HEADER
from broker.amqp091.codec.grammar import encode_frame
from broker.amqp091.codec.message_format import MESSAGE_FORMAT
from broker.engine import Broker
from broker.hooks import Hooks
from broker.model.history.batch import Batch
from broker.model.history.history import History
from broker.model.history.records import Dequeue
from broker.model.vhost.vhosts import VirtualHosts
from broker.security.access import Door
from broker.server import shell, sockets
from broker.server.driven import Dialing
from broker.server.resolving import connect
from broker.server.shell import Shell
from broker.server.sockets import peer_of
from broker.settings import BrokerSettings
from tests.broker.amqp091.wire import message
from tests.broker.server.live import live_broker
from tests.builds import PURE_ONLY
from tests.ports import free_ports

LOGIN = (
    PROTOCOL_HEADER
    + encode_frame(0, "connection.start-ok", mechanism="PLAIN", response=b"\0guest\0guest")
    + encode_frame(0, "connection.tune-ok", channel_max=9, frame_max=131072)
    + encode_frame(0, "connection.open", virtual_host="/")
    + encode_frame(1, "channel.open")
)


def _read_until(sock: socket.socket, wanted: bytes) -> bytes:
    data = b""
    while wanted not in data:
        more = sock.recv(65536)
        assert more, data[-200:]
        data += more
    return data


def test_a_slow_reader_gets_everything_once_it_reads() -> None:
    """32 MB for a client that does not read at first. All of it arrives once the client reads."""
    count, body = 2000, b"b" * 16_000
    with live_broker() as live, socket.create_connection((live.host, live.port)) as sock:
        sock.sendall(LOGIN + encode_frame(1, "queue.declare", queue="q"))
        sock.sendall(encode_frame(1, "confirm.select") + message(1, body, "", "q") * count)
        _read_until(sock, b"\0\x3c\0\x50" + count.to_bytes(8, "big"))
        sock.sendall(encode_frame(1, "basic.consume", queue="q", consumer_tag="c", no_ack=True))
        got = 0
        while got < count * len(body):
            data = sock.recv(1 << 20)
            assert data
            got += data.count(b"b")


def test_an_ack_alone_reaches_the_history_in_time() -> None:
    """It makes no tick at once; a timer makes one, and no other input comes."""
    heard = threading.Event()

    class Sink:
        def batch(self, batch: Batch) -> None:
            if any(isinstance(record, Dequeue) for record in batch.records):
                heard.set()

    with live_broker() as live, socket.create_connection((live.host, live.port)) as sock:
        live.broker.history.ledger_wanted = True
        live.broker.sinks.append(Sink())
        sock.sendall(LOGIN + encode_frame(1, "queue.declare", queue="q", durable=True))
        sock.sendall(encode_frame(1, "basic.consume", queue="q", consumer_tag="c"))
        sock.sendall(message(1, b"the only one", "", "q"))
        _read_until(sock, b"the only one")
        assert not heard.is_set()
        sock.sendall(encode_frame(1, "basic.ack", delivery_tag=1))
        assert heard.wait(5), "the next deadline of others is some 10 s away"


def test_a_dialled_connection_sends_small_frames_at_once() -> None:
    """Two small frames in a row: the second one is not held until the peer has acknowledged the first."""

    async def dialled() -> bool:
        made: list[asyncio.Transport] = []

        class Noted(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                made.append(cast(asyncio.Transport, transport))

        with socket.create_server(("127.0.0.1", 0)) as there:
            await connect(Noted, *there.getsockname()[:2], 20.0)
            sock = made[0].get_extra_info("socket")
            delays = not sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            made[0].abort()
        return delays

    assert not asyncio.run(dialled())


def test_a_killed_client_gives_its_messages_back() -> None:
    with live_broker() as live:
        with socket.create_connection((live.host, live.port)) as sock:
            sock.sendall(LOGIN + encode_frame(1, "queue.declare", queue="q") + message(1, b"m", "", "q"))
            sock.sendall(encode_frame(1, "basic.consume", queue="q", consumer_tag="c"))
            _read_until(sock, b"m\xce")
        with socket.create_connection((live.host, live.port)) as sock:
            sock.sendall(LOGIN)
            _read_until(sock, b"\0\x14\0\x0b")
            data = b""
            while b"\0\x3c\0\x47" not in data:  # get-ok; get-empty until the broker has seen the loss
                sock.sendall(encode_frame(1, "basic.get", queue="q"))
                data = _read_until(sock, b"\xce")


def test_stopping_tells_clients_and_closes_their_sockets() -> None:
    with live_broker() as live:
        sock = socket.create_connection((live.host, live.port))
        sock.sendall(LOGIN)
        _read_until(sock, b"\0\x14\0\x0b")
    data = b""
    while more := sock.recv(65536):
        data += more
    sock.close()
    assert b"CONNECTION_FORCED - broker is stopping" in data


MUCH = 4 << 20
REFUSED = PROTOCOL_HEADER + encode_frame(
    0, "connection.start-ok", mechanism="PLAIN", response=b"\0guest\0wrong",
    client_properties={"capabilities": {"authentication_failure_close": True}},
)  # fmt: skip


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (LOGIN + encode_frame(0, "connection.close", reply_code=200), encode_frame(0, "connection.close-ok")),
        (b"GET / HTTP/1.1\r\n", PROTOCOL_HEADER),
        (REFUSED, b"ACCESS_REFUSED"),
    ],
    ids=["a close", "a stranger", "a refused login"],
)
def test_last_words_arrive_while_the_client_still_sends(said: bytes, answer: bytes) -> None:
    """A close with unread input resets the connection. Then node's amqplib, which goes on writing, fails to
    close."""
    with live_broker() as live, socket.create_connection((live.host, live.port)) as sock:
        sock.sendall(said)
        for _ in range(MUCH // 65536):
            sock.sendall(bytes(65536))
        sock.shutdown(socket.SHUT_WR)
        data = b""
        while more := sock.recv(65536):
            data += more
        assert answer in data


@pytest.mark.parametrize("limit", ["LINGER", "DRAINED_MAX", "LINGERING_MAX"])
def test_a_client_that_never_ends_is_reset(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bounds: dict[str, float] = {"LINGER": 1e6, "DRAINED_MAX": 1 << 60, "LINGERING_MAX": 1000}
    bounds[limit] = 0.1 if limit == "LINGER" else 0
    for name, value in bounds.items():
        if name != "LINGERING_MAX":
            monkeypatch.setattr(sockets, name, value)
    monkeypatch.setattr(shell.Shell, "may_linger", lambda self: len(self.lingering) < bounds["LINGERING_MAX"])
    with live_broker() as live, socket.create_connection((live.host, live.port)) as sock:
        sock.sendall(LOGIN + encode_frame(0, "connection.close", reply_code=200))
        with pytest.raises(OSError):
            while True:
                sock.sendall(bytes(65536))


def test_a_client_that_stays_does_not_hold_up_a_stop() -> None:
    with live_broker() as live:
        sock = socket.create_connection((live.host, live.port))
        sock.sendall(LOGIN + encode_frame(0, "connection.close", reply_code=200))
        _read_until(sock, encode_frame(0, "connection.close-ok"))
    sock.close()


class Crowd:
    """Named sockets at a shell with few places."""

    def __init__(self, clients: int, reserve: int) -> None:
        self.broker = _broker()
        self.broker.clients_max = clients
        self.clients, self.reserve = clients, reserve

    async def __aenter__(self) -> Crowd:
        self.shell = Shell(self.broker, clients=self.clients, reserve=self.reserve)
        self.address = await self.shell.listen("127.0.0.1", 0)
        self.peers = await self.shell.listen("127.0.0.1", 0, door=Door.PEERS)
        self.sockets: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        return self

    async def __aexit__(self, *_: object) -> None:
        for _, writer in self.sockets:
            writer.close()
        await self.shell.close(grace=1)

    async def come(self, said: bytes, *, at: tuple[str, int] | None = None) -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection(*(at or self.address))
        writer.write(said)
        self.sockets.append((reader, writer))
        return reader


OPERATOR = (
    PROTOCOL_HEADER
    + encode_frame(
        0, "connection.start-ok", mechanism="PLAIN", response=b"\0guest\0guest",
        client_properties={"capabilities": {"understudy.management": True}},
    )
    + encode_frame(0, "connection.tune-ok", channel_max=9, frame_max=131072)
    + encode_frame(0, "connection.open", virtual_host="/")
)  # fmt: skip
OPEN_OK = encode_frame(0, "connection.open-ok")


def test_clients_lock_out_no_operator() -> None:
    """A client above the limit is refused; operators and peers are accepted."""

    async def scene() -> None:
        async with Crowd(clients=3, reserve=2) as crowd:
            for _ in range(3):
                await (await crowd.come(LOGIN)).readuntil(OPEN_OK)
            refused = await crowd.come(LOGIN)
            assert b"the limit of 3 clients is reached" in await refused.readuntil(b"max_connections)")
            await (await crowd.come(OPERATOR)).readuntil(OPEN_OK)
            crowd.sockets[0][1].close()
            await crowd.sockets[0][1].wait_closed()
            while crowd.broker.clients == 3:
                await asyncio.sleep(0)
            await (await crowd.come(LOGIN)).readuntil(OPEN_OK)

    asyncio.run(scene())


def test_connections_without_a_login_make_room(caplog: pytest.LogCaptureFixture) -> None:
    """One log line a second with a count, and not one for each."""

    async def scene() -> None:
        async with Crowd(clients=2, reserve=2) as crowd:
            client = await crowd.come(LOGIN)
            await client.readuntil(OPEN_OK)
            silent = [await crowd.come(b"") for _ in range(40)]
            await (await crowd.come(OPERATOR)).readuntil(OPEN_OK)
            for reader in silent[:38]:
                with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                    await reader.readexactly(1)
            peer = await crowd.come(PROTOCOL_HEADER, at=crowd.peers)
            await peer.readuntil(b"PLAIN")
            assert not client.at_eof()

    asyncio.run(scene())
    lines = [line for line in caplog.messages if line.endswith("(connection-limit)")]
    assert 1 <= len(lines) < 4


def test_where_all_have_logged_in_the_next_one_is_refused() -> None:
    async def scene() -> None:
        async with Crowd(clients=1, reserve=1) as crowd:
            for said in (LOGIN, OPERATOR):
                await (await crowd.come(said)).readuntil(OPEN_OK)
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await (await crowd.come(OPERATOR)).readexactly(1)

    asyncio.run(scene())


def _broker() -> Broker:
    vhost = VirtualHosts(Hooks(), History(), lambda: bytes(16), MESSAGE_FORMAT).root
    vhost.shared.activate(1)
    return Broker(BrokerSettings(), Hooks(), vhost.shared)


def test_a_failing_machine_stops_the_shell_with_a_reason() -> None:
    class Failing:
        """A broker whose tick fails."""

        def __init__(self, broker: Broker) -> None:
            self.accept = broker.accept
            self.timers = broker.timers
            self.next_deadline = broker.next_deadline

        def end_tick(self, now: float, wall_ms: int) -> None:
            raise RuntimeError("broken")

        def take_dirty(self) -> Sequence[object]:
            return []

    async def scene() -> str | None:
        shell = Shell(Failing(_broker()))  # type: ignore[arg-type]
        reason = await shell.run()
        await shell.close()
        return reason

    assert asyncio.run(scene()) == "internal error: RuntimeError('broken')"


@PURE_ONLY
def test_wake_from_another_thread_makes_a_tick() -> None:
    async def scene() -> None:
        broker = _broker()
        shell = Shell(broker)
        ticked = asyncio.Event()
        end_tick = broker.end_tick

        def noting(now: float, wall_ms: int) -> None:
            end_tick(now, wall_ms)
            ticked.set()

        broker.end_tick = noting  # type: ignore[method-assign]
        thread = threading.Thread(target=shell.wake)
        thread.start()
        await asyncio.wait_for(ticked.wait(), 10)
        thread.join()
        await shell.close()

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("::ffff:127.0.0.1", True), ("10.0.0.1", False),
     ("::ffff:10.0.0.1", False), ("fe80::1%eth0", False)],
)  # fmt: skip
def test_loopback_is_decided_by_the_address(host: str, loopback: bool) -> None:
    assert peer_of((host, 1)).loopback is loopback


class _Dialler:
    """A node with one pending dial."""

    dial_id, port, timeout, tls, peering = 7, 5672, 2.0, False, ""

    def __init__(self, host: str) -> None:
        self.host = host
        self.failed: list[tuple[int, str, bool, bool]] = []
        self.told = threading.Event()

    def dial_failed(
        self, dial_id: int, error: str, at: float, *, refused: bool = False, unresolved: bool = False
    ) -> None:
        self.failed.append((dial_id, error, refused, unresolved))
        self.told.set()

    def dialled(self) -> tuple[int, str, bool, bool]:
        """Dial once. Returns how it failed."""

        async def scene() -> None:
            shell = Shell(_broker())
            await shell._dial(cast(Dialing, self), self)
            await shell.close()

        asyncio.run(scene())
        (failed,) = self.failed
        return failed


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".example", "a\0b"])
def test_a_dial_to_an_invalid_host_fails(host: str) -> None:
    number, said, refused, unresolved = _Dialler(host).dialled()
    assert (number, refused, unresolved) == (7, False, True)
    assert said.startswith(f"cannot resolve {host!r} (") and said.isprintable()


def test_a_dial_to_an_unknown_name_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def lookup(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    said = "cannot resolve 'b.example' (Name or service not known)"
    assert _Dialler("b.example").dialled() == (7, said, False, True)


def test_a_name_server_that_is_silent_is_not_taken_for_a_silent_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dialler = _Dialler("b.example")
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: dialler.told.wait(60))
    monkeypatch.setattr(_Dialler, "timeout", 0.05)
    said = "cannot resolve 'b.example' (no answer within 0.05 s)"
    assert dialler.dialled() == (7, said, False, True)


def test_a_dial_is_refused_only_if_every_address_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    monkeypatch.setattr(_Dialler, "port", port)
    there: list[str] = []

    def lookup(*_: object, **__: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in there]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    there[:] = ["127.0.0.1", "127.0.0.2"]
    assert _Dialler("b.example").dialled()[2:] == (True, False)
    there[:] = ["127.0.0.1", "255.255.255.255"]  # where there is no way to
    assert _Dialler("b.example").dialled()[2:] == (False, False)


def test_an_address_that_is_silent_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a host with two networks, one of them cut."""
    (port,) = free_ports(1)
    there = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    silent = ["127.0.0.1"]
    connects = asyncio.selector_events.BaseSelectorEventLoop.sock_connect

    def lookup(*_: object, **__: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in there]

    async def sock_connect(self: Any, sock: socket.socket, address: tuple[str, int]) -> None:
        if address[0] in silent:
            await asyncio.sleep(60)
        await connects(self, sock, address)

    async def scene() -> str:
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.2", port)
        made: list[asyncio.Protocol] = []

        def make() -> asyncio.Protocol:
            made.append(asyncio.Protocol())
            return made[-1]

        async with server:
            found = await connect(make, "b.example", port, 20.0)
        assert len(made) == 1
        silent[:] = there
        with pytest.raises(TimeoutError):
            await connect(make, "b.example", port, 0.6)
        return found

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    monkeypatch.setattr(asyncio.selector_events.BaseSelectorEventLoop, "sock_connect", sock_connect)
    assert asyncio.run(scene()) == "127.0.0.2"


def test_a_refusal_at_another_address_than_before_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that leads to a new machine says nothing of the process at the old one."""
    (port,) = free_ports(1)
    there: list[str] = []

    def lookup(*_: object, **__: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in there]

    async def scene() -> list[type[BaseException]]:
        found = []
        for there[:], met in (
            (["127.0.0.1"], "127.0.0.1"),
            (["127.0.0.2"], "127.0.0.1"),
            (["127.0.0.2"], ""),
        ):
            try:
                await connect(asyncio.Protocol, "b.example", port, 5.0, met)
            except OSError as error:
                found.append(type(error))
        return found

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    assert asyncio.run(scene()) == [ConnectionRefusedError, OSError, ConnectionRefusedError]
