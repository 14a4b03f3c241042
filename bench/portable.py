"""The load generator's loop in Python, for machines without a C compiler: same counts, more CPU.

Deliveries of one size are counted by dividing bytes by that size, and each one's end octet is checked with
one strided slice; confirms, few when a broker confirms many at once, are parsed one by one.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections import Counter, deque

from bench.loads import Load, LoadError, Outcome

READ_SIZE = 262144
BASIC_ACK, BASIC_NACK = (60, 80), (60, 120)


def run(load: Load) -> Outcome:
    """Run one load to its end. Raises LoadError."""
    return _Run(load).loop()


class _Run:
    """One run's state. Message numbers count from 0; tags from `tags_used` + 1."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.messages = load.messages
        self.frames = load.frames
        self.publisher = socket.socket(fileno=load.publish_fd)
        self.consumer = None if load.consume_fd is None else socket.socket(fileno=load.consume_fd)
        self.bytes_sent = self.confirmed = self.nacked = self.delivered = self.acked = 0
        self.reads = self.writes = 0
        self.confirms = bytearray()
        self.deliveries = bytearray()
        self.delivery_size = 0
        self.acks = bytearray()
        self.sent: deque[tuple[int, int]] = deque()  # (messages begun by then, when), for confirms
        self.sent_again: deque[tuple[int, int]] = deque()  # the same, for deliveries
        self.confirm_us: Counter[int] = Counter()
        self.deliver_us: Counter[int] = Counter()

    def loop(self) -> Outcome:
        start = time.monotonic_ns()
        try:
            while not self.finished():
                if self.load.limit_ns and time.monotonic_ns() - start > self.load.limit_ns:
                    self.messages = self.begun()
                self.publish()
                self.acknowledge()
                if not self.finished():
                    self.wait()
        finally:
            self.publisher.detach()
            if self.consumer:
                self.consumer.detach()
        elapsed = time.monotonic_ns() - start
        return Outcome(
            messages=self.messages,
            elapsed_ns=elapsed,
            nacked=self.nacked,
            delivered=self.delivered,
            reads=self.reads,
            writes=self.writes,
            confirm_us=self.confirm_us,
            deliver_us=self.deliver_us,
        )

    def begun(self) -> int:
        """Messages of which at least one byte is written."""
        return -(-self.bytes_sent // self.load.message_size)

    def permitted(self) -> int:
        """Bytes that may be written: the confirm window's end."""
        return min(self.confirmed + self.load.window, self.messages) * self.load.message_size

    def finished(self) -> bool:
        if self.confirmed < self.messages:
            return False
        return not self.consumer or (self.acked >= self.messages and not self.acks)

    def publish(self) -> None:
        until = self.permitted()
        view = memoryview(self.frames)
        while self.bytes_sent < until:
            offset = self.bytes_sent % len(self.frames)
            chunk = view[offset : offset + until - self.bytes_sent]
            now = time.monotonic_ns()
            try:
                wrote = self.publisher.send(chunk)
            except BlockingIOError:
                return
            self.writes += 1
            self.bytes_sent += wrote
            self.sent.append((self.begun(), now))
            if self.consumer:
                self.sent_again.append((self.begun(), now))
            if wrote < len(chunk):
                return

    def acknowledge(self) -> None:
        if not self.consumer:
            return
        while self.delivered - self.acked >= self.load.ack_every:
            self.ack(self.acked + self.load.ack_every)
        if self.delivered >= self.messages and self.acked < self.delivered:
            self.ack(self.delivered)
        if self.acks:
            try:
                wrote = self.consumer.send(self.acks)
            except BlockingIOError:
                return
            self.writes += 1
            del self.acks[:wrote]

    def ack(self, upto: int) -> None:
        self.acks += struct.pack(">BHIHHQBB", 1, 1, 13, 60, 80, self.load.tags_used + upto, 1, 0xCE)
        self.acked = upto

    def wait(self) -> None:
        poller = select.poll()
        writing = select.POLLOUT if self.bytes_sent < self.permitted() else 0
        poller.register(self.publisher, select.POLLIN | writing)
        if self.consumer:
            poller.register(self.consumer, select.POLLIN | (select.POLLOUT if self.acks else 0))
        ready = dict(poller.poll(self.load.stall_ns / 1e6))
        if not ready:
            raise LoadError(
                f"stalled: {self.begun()} sent, {self.confirmed} confirmed, {self.delivered} delivered"
            )
        if ready.get(self.load.publish_fd, 0) & ~select.POLLOUT:
            self.receive(self.publisher, self.confirms)
            self.take_confirms()
        if self.consumer and ready.get(self.consumer.fileno(), 0) & ~select.POLLOUT:
            self.receive(self.consumer, self.deliveries)
            self.take_deliveries()

    def receive(self, connection: socket.socket, held: bytearray) -> None:
        got = connection.recv(READ_SIZE)
        if not got:
            raise LoadError("the broker closed the connection")
        self.reads += 1
        held += got

    def take_confirms(self) -> None:
        now = time.monotonic_ns()
        while (size := _whole_frame(self.confirms)) is not None:
            got = struct.unpack_from(">HH", self.confirms, 7) if self.confirms[0] == 1 else None
            if got in (BASIC_ACK, BASIC_NACK):
                tag, flags = struct.unpack_from(">QB", self.confirms, 11)
                self.confirm(tag - self.load.tags_used, bool(flags & 1), got == BASIC_NACK, now)
            elif got is not None:
                raise LoadError(_unexpected(self.confirms, got))
            del self.confirms[:size]

    def confirm(self, number: int, multiple: bool, negative: bool, now: int) -> None:
        if not self.confirmed < number <= self.begun():
            raise LoadError("a confirm of a tag that was never sent, or twice")
        if not multiple and number != self.confirmed + 1:
            raise LoadError("single confirms out of order: use the native loop for such a broker")
        if negative:
            self.nacked += number - self.confirmed
        _spread(self.sent, self.confirmed, number, now, self.confirm_us)
        self.confirmed = number

    def take_deliveries(self) -> None:
        held = self.deliveries
        if not self.delivery_size and not self.learn_size():
            return
        size = self.delivery_size
        count = len(held) // size
        if not count:
            return
        if held[size - 1 : count * size : size] != b"\xce" * count or held[0] != 1:
            raise LoadError("a delivery of another size than the first")
        del held[: count * size]
        if self.delivered + count > self.begun():
            raise LoadError("more messages were delivered than published")
        _spread(self.sent_again, self.delivered, self.delivered + count, time.monotonic_ns(), self.deliver_us)
        self.delivered += count

    def learn_size(self) -> bool:
        """Sum the first delivery's method, header and body frames, once they are all here."""
        at = 0
        for kind in (1, 2, 3):
            size = _whole_frame(self.deliveries, at)
            if size is None:
                return False
            if self.deliveries[at] != kind:
                raise LoadError(f"a frame of type {self.deliveries[at]} where {kind} was due")
            if kind == 1 and (got := struct.unpack_from(">HH", self.deliveries, at + 7)) != (60, 60):
                raise LoadError(_unexpected(self.deliveries, got))
            at += size
        self.delivery_size = at
        return True


def _whole_frame(held: bytearray, at: int = 0) -> int | None:
    """The size of the frame at `at` with its head and end, when all of it is held."""
    if len(held) - at < 8:
        return None
    size: int = struct.unpack_from(">I", held, at + 3)[0] + 8
    if len(held) - at < size:
        return None
    if held[at + size - 1] != 0xCE:
        raise LoadError("a frame without its end octet")
    return size


def _unexpected(held: bytearray, got: tuple[int, ...]) -> str:
    if got in ((20, 40), (10, 50)):
        return f"closed by the broker: {held[14 : 14 + held[13]].decode(errors='replace')}"
    return f"unexpected method {got[0]}.{got[1]}"


def _spread(sent: deque[tuple[int, int]], first: int, end: int, now: int, counts: Counter[int]) -> None:
    """Count the latency of messages first..end-1, a whole write at a time."""
    while first < end:
        begun, when = sent[0]
        upto = min(begun, end)
        if upto > first:
            counts[(now - when) // 1000] += upto - first
            first = upto
        if begun <= end:
            sent.popleft()
