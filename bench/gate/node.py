"""A node alone with its store and its ledger, driven in this process without sockets.

What a row costs then depends on neither the scheduler nor the sockets: the node gets whole windows, each of
which is confirmed and acked before the next. Its own threads run as they do otherwise, and count.
"""

from __future__ import annotations

import argparse
import select
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from bench import generator
from bench.compare.rows import Row
from bench.loads import LoadError
from bench.messages import Ring
from bench.wire import client_properties, longstr, method, shortstr
from broker.connection import Connection
from broker.peer import Peer
from broker.server.clock import now, wall_ms
from broker.server.garbage import GarbageSchedule
from broker.server.sockets import READ_SIZE
from broker.store.sync import LoopSync
from ha.adapter.node import Node
from understudy.config.load import load
from understudy.server.daemon import _build
from understudy.server.notify import Notifier

_PATIENCE = 60.0
_DELIVER = struct.pack(">HH", 60, 60)
_ACK = struct.pack(">HH", 60, 80)
_PORTS = count(40_000)


class Driver:
    """Turns of a node: what a shell does after input has come."""

    def __init__(self, node: Node, sync: LoopSync | None, moved: threading.Event) -> None:
        """`sync`: drives the store; None: its thread does, and sets `moved`."""
        self.node = node
        self._sync = sync
        self._moved = moved
        self.garbage = GarbageSchedule()
        self.spent_ns = 0
        """CPU time of this thread in the node."""
        self._clients: dict[Connection, Client] = {}

    def client(self) -> Client:
        conn = self.node.accept(Peer("127.0.0.1", next(_PORTS), loopback=True), now())
        client = self._clients[conn] = Client(self, conn)
        client.log_in()
        return client

    def receive(self, conn: Connection, octets: bytes) -> Connection:
        """One read, and a tick. Returns the machine that takes over."""
        begun = time.thread_time_ns()
        conn.receive(octets, now())
        taken = conn.successor or conn
        if taken is not conn:
            self._clients[taken] = self._clients.pop(conn)
        self._run_tick()
        self.spent_ns += time.thread_time_ns() - begun
        return taken

    def tick(self) -> None:
        begun = time.thread_time_ns()
        self._run_tick()
        self.spent_ns += time.thread_time_ns() - begun

    def _run_tick(self) -> None:
        at = now()
        deadline = self.node.next_deadline()
        if deadline is not None and deadline <= at:
            self.node.timers(at)
        self.node.end_tick(at, wall_ms())
        self.node.before_output(now())
        for conn in self.node.take_dirty():
            parts = conn.take_output()
            conn.written(0)
            if conn in self._clients:
                self._clients[conn].output += parts
        self.garbage.end_tick()

    def wait(self) -> None:
        """Until the store has synced more, or the node's next deadline; then tick."""
        deadline = self.node.next_deadline()
        limit = _PATIENCE if deadline is None else max(0.0, deadline - now())
        if self._sync is None:
            self._moved.wait(limit)
            self._moved.clear()
        elif select.select([self._sync], [], [], limit)[0]:
            begun = time.thread_time_ns()
            self._sync.ready()
            self.spent_ns += time.thread_time_ns() - begun
        self.tick()


class Client:
    """One connection with one channel."""

    def __init__(self, driver: Driver, conn: Connection) -> None:
        self._driver = driver
        self._conn = conn
        self.output: list[bytes] = []
        """What came back since the last look."""

    def log_in(self) -> None:
        """And open the channel."""
        response = longstr(b"\0guest\0guest")
        start_ok = client_properties(None) + shortstr("PLAIN") + response + shortstr("en_US")
        self.send(b"AMQP\0\0\x09\x01")
        self.send(method(0, 10, 11, start_ok))
        self.send(method(0, 10, 31, struct.pack(">HIH", 16, 131_072, 0)))
        self.send(method(0, 10, 40, shortstr("/") + b"\0\0"))
        self.call(20, 10, shortstr(""))

    def call(self, class_id: int, method_id: int, arguments: bytes) -> None:
        """A method on the channel, and its -ok, whose id is one higher. Raises LoadError."""
        self.send(method(1, class_id, method_id, arguments))
        answer = struct.pack(">HH", class_id, method_id + 1)
        until = time.monotonic() + _PATIENCE
        while not any(answer in part for part in self.output):
            if time.monotonic() > until:
                raise LoadError(f"no answer to method {class_id}.{method_id}")
            self._driver.wait()
        self.output.clear()

    def send(self, octets: bytes | memoryview) -> None:
        """As much as one read takes, a tick, and so on."""
        view = memoryview(octets)
        for at in range(0, len(view), READ_SIZE):
            self._conn = self._driver.receive(self._conn, bytes(view[at : at + READ_SIZE]))


class Lane:
    """A publisher and a consumer of one queue."""

    def __init__(self, driver: Driver, queue: str, ring: Ring, options: argparse.Namespace) -> None:
        """`options`: of the generator."""
        self._driver, self._ring = driver, ring
        self._window, self._ack_every = options.window, options.ack_every
        self._publisher, self._consumer = driver.client(), driver.client()
        durable = bytes([2 if options.durable else 0])
        self._publisher.call(50, 10, b"\0\0" + shortstr(queue) + durable + longstr(b""))
        self._publisher.call(85, 10, b"\0")
        self._consumer.call(60, 10, struct.pack(">IHB", 0, options.prefetch, 0))
        consume = b"\0\0" + shortstr(queue) + shortstr("0") + b"\0" + longstr(b"")
        self._consumer.call(60, 20, consume)
        self._at = 0
        self._confirmed = self._delivered = self._acked = 0
        self.sent = 0

    def publish(self) -> None:
        """One window."""
        begin = self._ring.ends[self._at - 1] if self._at else 0
        upto = min(self._at + self._window, len(self._ring.ends))
        self.sent += upto - self._at
        self._publisher.send(memoryview(self._ring.octets)[begin : self._ring.ends[upto - 1]])
        self._at = upto % len(self._ring.ends)

    def answer(self) -> bool:
        """Take what came, and ack what is due. Returns whether anything came."""
        confirmed = _last_tag(self._publisher.output, _ACK)
        delivered = _last_tag(self._consumer.output, _DELIVER)
        self._publisher.output.clear()
        self._consumer.output.clear()
        self._confirmed, self._delivered = confirmed or self._confirmed, delivered or self._delivered
        while self._delivered - self._acked >= self._ack_every or self._acked < self._delivered == self.sent:
            self._acked = min(self._acked + self._ack_every, self._delivered)
            self._consumer.send(method(1, 60, 80, struct.pack(">QB", self._acked, 1)))
        return bool(confirmed or delivered)

    @property
    def finished(self) -> bool:
        return self._confirmed == self._acked == self.sent


class Lanes:
    """One row's connections."""

    def __init__(self, driver: Driver, row: Row) -> None:
        options = generator.arguments(row.options.split())
        self._driver = driver
        self._lanes = []
        for seed in range(options.connections):
            queue = f"{row.name}-{seed}"
            ring = generator.prebuilt(options, [queue], seed)
            self._lanes.append(Lane(driver, queue, ring, options))
        self._tasks = Path("/proc/self/task")

    def slice_us(self, messages: int) -> float:
        """CPU microseconds a message of whole windows, at least so many messages. Raises LoadError."""
        before, spent = self._sent(), self._spent_ns()
        while (sent := self._sent() - before) < messages:
            for lane in self._lanes:
                lane.publish()
            self._finish()
        return (self._spent_ns() - spent) / 1e3 / sent

    def _finish(self) -> None:
        until = time.monotonic() + _PATIENCE
        while not all(lane.finished for lane in self._lanes):
            if not sum(lane.answer() for lane in self._lanes):
                if time.monotonic() > until:
                    raise LoadError("the node confirms or delivers no more")
                self._driver.wait()

    def _sent(self) -> int:
        return sum(lane.sent for lane in self._lanes)

    def _spent_ns(self) -> int:
        """Of this thread in the node, and of all others."""
        own = str(threading.get_native_id())
        others = (task / "schedstat" for task in self._tasks.iterdir() if task.name != own)
        return self._driver.spent_ns + sum(int(one.read_text().split()[0]) for one in others)


def _last_tag(parts: list[bytes], wanted: bytes) -> int:
    """The delivery tag of the last such method, by its frames; 0 without any. Raises LoadError."""
    octets, at, tag = b"".join(parts), 0, 0
    while at < len(octets):
        size = int.from_bytes(octets[at + 3 : at + 7], "big")
        if octets[at] == 1:
            if octets[at + 7 : at + 11] != wanted:
                raise LoadError("something else than a confirm or a delivery")
            place = at + 11 + (1 + octets[at + 11] if wanted == _DELIVER else 0)
            tag = int.from_bytes(octets[place : place + 8], "big")
        at += size + 8
    return tag


@contextmanager
def running(folder: Path) -> Iterator[Driver]:
    """A node alone with its files in `folder`."""
    settings = load(None, [f"broker.data_dir={folder}", "broker.name=alone"])
    parts = _build(settings, Notifier())
    moved = threading.Event()
    setattr(parts.store, "wake", moved.set)  # noqa: B010 - as the shell does
    try:
        parts.node.start(now(), wall_ms())
        driver = Driver(parts.node, parts.sync, moved)
        with driver.garbage.governing():
            yield driver
    finally:
        parts.node.stop(now())
        parts.spill.close()
        parts.files.close()
