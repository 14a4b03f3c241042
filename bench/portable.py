"""The load generator's loop in Python, for machines without a C compiler: same counts, more CPU.

Deliveries of one size that are not verified are counted by dividing bytes by that size, and each one's end
octet is checked with one strided slice; verified ones are parsed frame by frame.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

from bench.loads import Load, LoadError, Outcome

READ_SIZE = 262144
NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
BASIC_DELIVER, BASIC_ACK, BASIC_NACK = (60, 60), (60, 80), (60, 120)


def run(loads: Sequence[Load]) -> list[Outcome]:
    """Run loads side by side, each over its own sockets, to their end. Raises LoadError."""
    return loop([Run(load) for load in loads])


def loop(runs: Sequence[Run]) -> list[Outcome]:
    """Run them to their end. Raises LoadError."""
    start = time.monotonic_ns()
    waiting = [each for each in runs if not each.step(start)]
    while waiting:
        _wait(waiting)
        waiting = [each for each in waiting if not each.step(start)]
    elapsed = time.monotonic_ns() - start
    return [each.outcome(elapsed) for each in runs]


def _wait(runs: Sequence[Run]) -> None:
    """Wait until something arrives or may be written, and take what arrived."""
    poller = select.poll()
    readers = {}
    for each in runs:
        readers[each.publisher.fileno()] = each.confirms_arrive
        poller.register(each.publisher, select.POLLIN | (select.POLLOUT if each.may_publish() else 0))
        if each.consumer:
            readers[each.consumer.fileno()] = each.deliveries_arrive
            poller.register(each.consumer, select.POLLIN | (select.POLLOUT if each.acks else 0))
    ready = poller.poll(runs[0].load.stall_ns / 1e6)
    if not ready:
        raise LoadError(runs[0].stalled())
    for descriptor, events in ready:
        if events & ~select.POLLOUT:
            readers[descriptor]()


class Run:
    """One load's state. Message numbers count from 0; tags from `tags_used` + 1."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.messages = load.messages
        self.publisher, self.consumer = load.publisher, load.consumer
        self.at = self.confirmed = self.stamped = load.published
        self.partial = self.nacked = self.delivered = self.acked = 0
        self.singles: set[int] = set()
        """Confirmed one by one, beyond the first that is not."""
        self.reads = self.writes = 0
        self.confirms = bytearray()
        self.deliveries = bytearray()
        self.delivery_size = 0
        self.acks = bytearray()
        self.sent_at = array("Q", bytes(8 * load.published))
        self.confirm_us: Counter[int] = Counter()
        self.deliver_us: Counter[int] = Counter()
        self.check = Check(self)

    def step(self, start: int) -> bool:
        """Write what may be written; says whether all is done."""
        if self.load.limit_ns and time.monotonic_ns() - start > self.load.limit_ns:
            self.messages = min(self.messages, self.begun())
        self.publish()
        self.acknowledge()
        return self.finished()

    def outcome(self, elapsed_ns: int) -> Outcome:
        return Outcome(
            messages=self.messages,
            elapsed_ns=elapsed_ns,
            nacked=self.nacked,
            delivered=self.delivered,
            reads=self.reads,
            writes=self.writes,
            confirm_us=self.confirm_us,
            deliver_us=self.deliver_us,
        )

    def stalled(self) -> str:
        return f"stalled: {self.begun()} sent, {self.confirmed} confirmed, {self.delivered} delivered"

    def begun(self) -> int:
        """Messages of which at least one byte is written."""
        return self.at + (self.partial > 0)

    def permitted(self) -> int:
        """Messages that may be written: the confirm window's end."""
        return min(self.confirmed + len(self.singles) + self.load.window, self.messages)

    def may_publish(self) -> bool:
        return self.at < self.permitted()

    def finished(self) -> bool:
        if self.confirmed < self.messages:
            return False
        return not self.consumer or (self.acked >= self.messages * self.load.fanout and not self.acks)

    def publish(self) -> None:
        ring, until = self.load.ring, self.permitted()
        view = memoryview(ring.octets)
        while self.at < until:
            slot = self.at % len(ring.ends)
            last = min(slot + until - self.at, len(ring.ends))
            begin = (ring.ends[slot - 1] if slot else 0) + self.partial
            if self.load.content:
                self.stamp(self.at + last - slot)
            before, now = self.begun(), time.monotonic_ns()
            try:
                wrote = self.publisher.send(view[begin : ring.ends[last - 1]])
            except NOT_NOW:
                return
            self.writes += 1
            whole = bisect_right(ring.ends, begin + wrote)
            self.at += whole - slot
            self.partial = begin + wrote - (ring.ends[whole - 1] if whole else 0)
            self.sent_at.extend([now] * (self.begun() - before))
            if begin + wrote < ring.ends[last - 1]:
                return

    def stamp(self, until: int) -> None:
        """Put its number into the body of each message below `until`."""
        octets, ends = self.load.ring.octets, self.load.ring.ends
        for number in range(max(self.stamped, self.at), until):
            header = _header_of(octets, ends, number % len(ends))
            struct.pack_into(">Q", octets, header + _size(octets, header) + 7, number)
        self.stamped = max(self.stamped, until)

    def acknowledge(self) -> None:
        if not self.consumer:
            return
        while self.delivered - self.acked >= self.load.ack_every:
            self.ack(self.acked + self.load.ack_every)
        if self.delivered >= self.messages * self.load.fanout and self.acked < self.delivered:
            self.ack(self.delivered)
        if self.acks:
            try:
                wrote = self.consumer.send(self.acks)
            except NOT_NOW:
                return
            self.writes += 1
            del self.acks[:wrote]

    def ack(self, upto: int) -> None:
        tag, multiple = self.load.deliveries_used + upto, self.load.ack_every > 1
        self.acks += struct.pack(">BHIHHQBB", 1, 1, 13, 60, 80, tag, multiple, 0xCE)
        self.acked = upto

    def receive(self, connection: socket.socket, held: bytearray) -> None:
        try:
            got = connection.recv(READ_SIZE)
            # What TLS has decrypted already is seen by no poll.
            while isinstance(connection, ssl.SSLSocket) and (pending := connection.pending()):
                got += connection.recv(pending)
        except NOT_NOW:
            return
        if not got:
            raise LoadError("the broker closed the connection")
        self.reads += 1
        held += got

    def confirms_arrive(self) -> None:
        self.receive(self.publisher, self.confirms)
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
        if not self.confirmed < number <= self.begun() or number - 1 in self.singles:
            raise LoadError("a confirm of a tag that was never sent, or twice")
        first = self.confirmed if multiple else number - 1
        for index in range(first, number):
            if index not in self.singles:
                self.singles.add(index)
                self.nacked += negative
                self.confirm_us[(now - self.sent_at[index]) // 1000] += 1
        while self.confirmed in self.singles:
            self.singles.remove(self.confirmed)
            self.confirmed += 1

    def deliveries_arrive(self) -> None:
        assert self.consumer is not None
        self.receive(self.consumer, self.deliveries)
        if self.load.content:
            self.check.take()
        else:
            self.count_deliveries()

    def count_deliveries(self) -> None:
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
        now = time.monotonic_ns()
        for index in range(self.delivered, self.delivered + count):
            self.deliver_us[(now - self.sent_at[index]) // 1000] += 1
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
            if kind == 1 and (got := struct.unpack_from(">HH", self.deliveries, at + 7)) != BASIC_DELIVER:
                raise LoadError(_unexpected(self.deliveries, got))
            at += size
        self.delivery_size = at
        return True


class Check:
    """Holds each delivery of a run against what was published."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.next: Counter[int] = Counter()
        """By stream: how many came."""
        self.stream = 0
        self.header = b""
        self.body_at = 0

    def take(self) -> None:
        held, at = self.run.deliveries, 0
        while (size := _whole_frame(held, at)) is not None:
            payload = bytes(held[at + 7 : at + size - 1])
            if held[at] == 1:
                self.method(payload)
            elif held[at] == 2:
                self.header, self.body_at = payload, 0
            elif held[at] == 3:
                self.body(payload)
            at += size
        del held[:at]

    def method(self, payload: bytes) -> None:
        run, got = self.run, struct.unpack_from(">HH", payload)
        if got != BASIC_DELIVER:
            raise LoadError(_unexpected(bytearray(7) + payload, got))
        tag_end = 5 + payload[4]
        tag, redelivered = struct.unpack_from(">QB", payload, tag_end)
        if tag != run.load.deliveries_used + run.delivered + 1:
            raise LoadError("a delivery tag out of sequence")
        if run.delivered >= run.begun() * run.load.fanout:
            raise LoadError("more messages were delivered than published")
        if redelivered:
            raise LoadError("a message was delivered twice: it is marked as redelivered")
        if run.load.fanout > 1:
            self.stream = int(payload[5:tag_end])

    def body(self, payload: bytes) -> None:
        """A message counts as delivered once all of its body is here."""
        content = self.run.load.content
        assert content is not None
        (due,) = struct.unpack_from(">Q", self.header, 4)
        if self.body_at + len(payload) > due:
            raise LoadError("a body longer than its header says")
        skip = 0
        if not self.body_at:
            skip = 8
            self.identify(struct.unpack_from(">Q", payload)[0])
        if payload[skip:] != content[self.body_at + skip : self.body_at + len(payload)]:
            raise LoadError("a message has another content than it was published with")
        self.body_at += len(payload)
        self.run.delivered += self.body_at == due

    def identify(self, index: int) -> None:
        """Its turn, and its properties."""
        run, load = self.run, self.run.load
        if index >= run.begun():
            raise LoadError("a message that was never published")
        if load.fanout > 1:
            stream, due = self.stream, self.next[self.stream]
        else:
            stream = index % load.streams
            due = stream + self.next[stream] * load.streams
        if index != due:
            raise LoadError(f"message {index} came where {due} was due")
        self.next[stream] += 1
        octets, ends = load.ring.octets, load.ring.ends
        header = _header_of(octets, ends, index % len(ends))
        if self.header != octets[header + 7 : header + _size(octets, header) - 1]:
            raise LoadError("a message has other properties than it was published with")
        run.deliver_us[(time.monotonic_ns() - run.sent_at[index]) // 1000] += 1


def _size(octets: bytearray, at: int) -> int:
    """Of the frame that begins there, with its head and end."""
    size: int = struct.unpack_from(">I", octets, at + 3)[0] + 8
    return size


def _header_of(octets: bytearray, ends: array[int], slot: int) -> int:
    """Where the content header frame of a pre-built message begins: after the method frame."""
    start = ends[slot - 1] if slot else 0
    return start + _size(octets, start)


def _whole_frame(held: bytearray, at: int = 0) -> int | None:
    """The size of the frame at `at` with its head and end, when all of it is held."""
    if len(held) - at < 8:
        return None
    size = _size(held, at)
    if len(held) - at < size:
        return None
    if held[at + size - 1] != 0xCE:
        raise LoadError("a frame without its end octet")
    return size


def _unexpected(held: bytearray, got: tuple[int, ...]) -> str:
    if got in ((20, 40), (10, 50)):
        return f"closed by the broker: {held[14 : 14 + held[13]].decode(errors='replace')}"
    return f"unexpected method {got[0]}.{got[1]}"
