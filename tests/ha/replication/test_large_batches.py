"""A large batch on its way is no silence: while its bytes move, its backup is not given up; when they do not,
it is."""

from __future__ import annotations

import pytest

from broker.amqp091.codec.frames import BODY, HEADER, frame
from broker.amqp091.codec.grammar import encode_frame
from broker.model.values import Position
from ha.core.primary.remote_backup import Phase, RemoteBackup
from ha.core.record.in_sync_record import Incarnation, RecordVersion
from ha.core.tuning import Tuning
from ha.core.wire.link import Ack
from tests.ha.client import PERSISTENT, Client
from tests.ha.pair import STEP, Pair
from understudy.config.settings import BrokerSection

MIB = 1 << 20
TUNING = Tuning(ack_timeout=2.0, least_rate=8 * MIB)


class Link:
    """A primary that sends batches to a backup in sync, which acknowledges all the time."""

    def __init__(self) -> None:
        self.backup = RemoteBackup(Incarnation("b", 1), "b", 1, 0.0)
        self.backup.phase = Phase.IN_SYNC
        self.n = self.durable = self.received = 0
        self.now = 0.0

    def send(self, size: int) -> None:
        self.n += 1
        self.backup.sending(Position(1, self.n), size, self.now)
        self.backup.bytes_sent += size

    def ack(self, seconds: float, *, received: int = 0, durable: int = 0) -> str:
        """After so many seconds: what has moved, and what is on disk since; the primary's verdict then."""
        self.now += seconds
        self.received += received
        self.durable = max(self.durable, durable)
        position = Position(1, self.durable)
        ack = Ack(position, position, self.now, self.received, RecordVersion(1, 1), complete=True)
        self.backup.acknowledged(ack, self.now)
        return self.backup.verdict(TUNING, self.now, 0.0)


def test_a_batch_may_take_its_time_while_its_bytes_move() -> None:
    link = Link()
    link.send(64 * MIB)
    link.send(100)
    for _ in range(7):
        assert link.ack(1.0, received=9 * MIB) == ""
    assert link.ack(1.0, received=MIB + 100) == "", "all of both is there"
    assert link.ack(1.9) == ""
    assert link.ack(7.9, durable=1) == "", "a slow disk has 8 s more, also for what is behind it"
    assert link.ack(0.3) == "no acknowledgement for 2 s"


@pytest.mark.parametrize(("rate", "seconds"), [(0, 2), (1000, 10)])
def test_a_link_that_stands_or_trickles_is_found(rate: int, seconds: int) -> None:
    """64 MiB may take 8 s at the least rate, and 2 s beyond."""
    link = Link()
    link.send(64 * MIB)
    verdicts = [link.ack(1.0, received=rate) for _ in range(seconds + 1)]
    assert verdicts == [""] * seconds + ["no acknowledgement for 2 s"]


def test_a_disk_that_stands_is_found() -> None:
    link = Link()
    link.send(1000)
    assert link.ack(0.1, received=1000) == ""
    assert [link.ack(1.0) for _ in range(3)] == ["", "", "no acknowledgement for 2 s"]


def test_silence_is_silence_however_large_the_batch() -> None:
    link = Link()
    link.send(64 * MIB)
    assert link.ack(1.0, received=9 * MIB) == ""
    assert link.backup.verdict(TUNING, link.now + 2.1, 0.0) == "no acknowledgement for 2 s"


def test_the_largest_message_is_confirmed_by_both_and_survives_a_failover() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    client = Client("c", a, pair.now)
    pair.run(2 * STEP)
    client.pump(pair.now)
    client.begin(pair.now)
    size = BrokerSection().max_message_size
    assert size == 128 * MIB
    client.conn.receive(encode_frame(1, "basic.publish", routing_key="q"), pair.now)
    client.conn.receive(frame(HEADER, 1, b"\0\x3c\0\0" + size.to_bytes(8, "big") + PERSISTENT), pair.now)
    part = frame(BODY, 1, bytes(range(256)) * 256) * 4
    for _ in range(size // MIB * 4):
        client.conn.receive(part, pair.now)
    said: list[str] = []
    pair.until(lambda: said.extend(client.pump(pair.now)) or bool(said))
    assert said == ["c: confirmed 1"]
    pair.kill(a)
    assert pair.ask(b, "promote")["ok"]
    ((_, _, raw),) = b.running.vhost.queues["q"].ready
    assert raw.count(part) == size // MIB * 4
