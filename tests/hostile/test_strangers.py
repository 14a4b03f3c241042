"""Sockets that have not logged in are heard in turns; no connection leaves work for the garbage collector.

Real sockets on one loop; all have spoken before the loop first turns, so that its steps can be counted.
"""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

import pytest

from broker.amqp091.codec.frames import PROTOCOL_HEADER
from broker.amqp091.codec.grammar import encode_frame
from broker.peer import Peer
from broker.server import garbage, shell
from broker.server.driven import DrivenConnection
from broker.server.garbage import GarbageSchedule
from broker.server.shell import CROWD, Shell
from broker.server.sockets import LOGIN_READ_SIZE
from tests.broker.amqp091.wire import World

_INIT = b"\0\x53\x41\xc0\x16\2\xa3\5PLAIN\xa0\x0c\0guest\0wrong"
AMQP10 = b"AMQP\3\1\0\0" + (8 + len(_INIT)).to_bytes(4, "big") + b"\2\1\0\0" + _INIT
"""SASL PLAIN with a wrong password."""


class Guest:
    """Logged in once it has said `in`."""

    successor = None
    unsent = 0
    wants_close = paused_reading = sends_much = only_acked = False

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.let_in = False
        self.heard = b""
        self.over = False

    def receive(self, data: bytes, now: float) -> None:
        self.heard += data
        self.let_in = self.let_in or data == b"in"
        self.machine.steps.append("known" if self.let_in else "stranger")

    def eof(self, now: float) -> None:
        self.over = self.wants_close = True
        self.machine.dirty.append(self)

    def lost(self, now: float) -> None:
        self.machine.gone += 1

    def take_output(self) -> list[bytes]:
        return []

    def written(self, buffered: int) -> None: ...
    def writable(self, writable: bool) -> None: ...


class Machine:
    """`steps`: who was heard, and ticks, in order."""

    def __init__(self) -> None:
        self.guests: list[Guest] = []
        self.steps: list[str] = []
        self.dirty: list[Guest] = []
        self.gone = 0

    def accept(self, peer: Peer, now: float) -> Guest:
        self.guests.append(Guest(self))
        return self.guests[-1]

    def end_tick(self, now: float, wall_ms: int) -> None:
        self.steps.append("tick")

    def timers(self, now: float) -> None: ...

    def next_deadline(self) -> float | None:
        return None

    def take_dirty(self) -> Sequence[DrivenConnection]:
        dirty, self.dirty = self.dirty, []
        return dirty


@contextmanager
def spoken(
    address: tuple[str, int], words: Sequence[bytes], *, over: bool = False
) -> Iterator[list[socket.socket]]:
    """As many sockets, each of which has said its words, and perhaps that it says no more."""
    sockets = [socket.create_connection(address) for _ in words]
    for each, word in zip(sockets, words, strict=True):
        each.sendall(word)
        if over:
            each.shutdown(socket.SHUT_WR)
    yield sockets
    for each in sockets:
        each.close()


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not done():
            await asyncio.sleep(0)


def test_strangers_are_heard_one_after_another_with_a_tick_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "LOGIN_SHARE", 0.0)
    machine = Machine()

    async def run() -> None:
        served = Shell(machine)
        address = await served.listen("127.0.0.1", 0)
        words = [b"%d" % n for n in range(3 * CROWD)]
        with spoken(address, [b"in"]) as [known]:
            await until(lambda: machine.steps.count("known") == 1)
            with spoken(address, words):
                await until(lambda: len(machine.guests) > 1)
                known.sendall(b"first")
                await until(lambda: machine.steps.count("stranger") == len(words))
                await until(lambda: machine.guests[0].heard == b"infirst")
        assert sorted(guest.heard for guest in machine.guests[1:]) == sorted(words)
        await served.close(0.0)

    asyncio.run(run())
    assert ("stranger", "stranger") not in set(zip(machine.steps, machine.steps[1:], strict=False))
    last = len(machine.steps) - machine.steps[::-1].index("stranger")
    assert machine.steps[:last].count("known") == 2


def test_all_that_a_stranger_said_is_heard_before_its_end() -> None:
    machine = Machine()
    long = bytes(3 * LOGIN_READ_SIZE + 1)

    async def run() -> None:
        served = Shell(machine)
        address = await served.listen("127.0.0.1", 0)
        with spoken(address, [long, b"", b"word"], over=True):
            await until(lambda: len(machine.guests) == 3 and all(guest.over for guest in machine.guests))
            assert sorted(guest.heard for guest in machine.guests) == [b"", long, b"word"]
            await until(lambda: machine.gone == 3)
        await served.close(0.0)

    asyncio.run(run())


def test_one_that_is_gone_before_its_turn_is_forgotten() -> None:
    machine = Machine()

    async def run() -> None:
        served = Shell(machine)
        address = await served.listen("127.0.0.1", 0)
        with spoken(address, [b"word"] * (2 * CROWD)) as sockets:
            for each in sockets:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        await until(lambda: machine.gone == len(machine.guests) == 2 * CROWD)
        with spoken(address, [b"later"]):
            await until(lambda: machine.guests[-1].heard == b"later")
        await served.close(0.0)

    asyncio.run(run())


def test_strangers_leave_no_cycles() -> None:
    world = World()
    with suppress(ImportError):
        from broker.amqp10.connection import PROTOCOLS

        world.broker.protocols.update(PROTOCOLS)
    refused = PROTOCOL_HEADER + encode_frame(
        0, "connection.start-ok", mechanism="PLAIN", response=b"\0guest\0no"
    )

    async def run() -> list[str]:
        served = Shell(world.broker)
        address = await served.listen("127.0.0.1", 0)
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            for words in (refused, AMQP10, b"GET / HTTP/1.0\r\n\r\n", b""):
                with spoken(address, [words] * 3, over=True) as sockets:
                    loop = asyncio.get_running_loop()
                    for each in sockets:
                        each.setblocking(False)
                        while await loop.sock_recv(each, 65536):
                            pass
                await until(lambda: not world.broker.connections and not served.lingering)
            gc.collect()
            return [type(found).__name__ for found in gc.garbage]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
            await served.close(0.0)

    left = asyncio.run(run())
    assert not set(left) & {"ServerConnection", "Amqp10Connection", "_SelectorSocketTransport"}


def lose(world: World) -> str:
    """The newest client's connection is lost, and the client knows it no more; its kind."""
    gone = world.clients.pop()
    connection = gone.connection
    connection.lost(world.now)
    del gone.connection
    return type(connection).__name__


def client(world: World) -> str:
    """Consumes, publishes, has a transaction, and has begun a message when it is lost."""
    raw = world.open()
    raw.call(1, "confirm.select")
    raw.publish(1, b"x", routing_key="q")
    raw.publish(1, b"x", routing_key="q")
    raw.send(1, "queue.declare", queue="own", exclusive=True)
    raw.send(1, "basic.consume", queue="q")
    raw.send(2, "channel.open")
    raw.send(2, "tx.select")
    raw.publish(2, b"x", routing_key="q")
    raw.raw(encode_frame(1, "basic.publish", routing_key="q"))
    return lose(world)


def client10(world: World) -> str:
    """Receives, sends, and is lost with deliveries that are not settled."""
    wire = pytest.importorskip("tests.broker.amqp10.wire")
    talker = wire.Talker(world)
    talker.receiver("/queues/q", 10)
    talker.receiver(None, 10, "own")
    talker.send(talker.sender("/queues/q"), b"\0Su\xa0\1x")
    assert talker.connection.running
    return lose(world)


def closer10(world: World) -> str:
    """Detaches two links, has one refused and one closed with its queue, and ends a session."""
    wire = pytest.importorskip("tests.broker.amqp10.wire")
    talker = wire.Talker(world)
    talker.receiver("/queues/q", 10, "first").close()
    talker.sender("/queues/q", "other").close()
    talker.turn()
    assert talker.receiver("/queues/none", 10, "none").remote_condition.name == "amqp:not-found"
    world.open().call(1, "queue.declare", queue="short")
    doomed = talker.receiver("/queues/short", 10, "doomed")
    world.clients[-1].call(1, "queue.delete", queue="short")
    talker.turn()
    assert doomed.remote_condition.name == "amqp:resource-deleted"
    lose(world)
    talker.receiver("/queues/q", 10)
    talker.session.close()
    talker.turn()
    return lose(world)


@pytest.mark.parametrize("came", [client, client10, closer10])
def test_clients_leave_no_cycles(came: Callable[[World], str]) -> None:
    world = World()
    with suppress(ImportError):
        from broker.amqp10.connection import PROTOCOLS

        world.broker.protocols.update(PROTOCOLS)
    world.open().call(1, "queue.declare", queue="q")
    gc.collect()
    gc.disable()
    try:
        before = {id(found) for found in gc.get_objects()}  # other tests have brokers, too
        kind = came(world)
        world.tick()
        assert len(world.broker.connections) == 1
        kinds = (kind, "Outgoing", "Incoming")
        left = [found for found in gc.get_objects() if type(found).__name__ in kinds]
        assert [found for found in left if id(found) not in before] == []
    finally:
        gc.enable()


def test_connections_do_not_have_everything_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    collected: list[int] = []
    monkeypatch.setattr(garbage.gc, "collect", lambda generation=2: collected.append(generation))
    monkeypatch.setattr(garbage.gc, "get_count", lambda: (0, 0, 0))
    schedule = GarbageSchedule()
    for _ in range(garbage.CONNECTIONS - 1):
        schedule.closed()
    schedule.step()
    assert collected == []
    schedule.closed()
    schedule.step()
    schedule.step()
    assert collected == [2]


@pytest.mark.parametrize(("exempt", "calls"), [(0, ["freeze", "unfreeze"]), (5, [])])
def test_a_process_that_has_exempted_objects_keeps_its_choice(
    exempt: int, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    monkeypatch.setattr(garbage.gc, "get_freeze_count", lambda: exempt)
    for name in ("freeze", "unfreeze"):
        monkeypatch.setattr(garbage.gc, name, partial(called.append, name))
    with GarbageSchedule().governing():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert called == calls
