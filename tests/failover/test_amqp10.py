"""Failover under AMQP 1.0 and 0-9-1 clients that read what the others publish; the ledgers prove it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kombu.entity
import pytest

from tests.failover.nodes.pair import PATIENCE, Pair

pytest.importorskip("proton")

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Backoff, Container

from understudy.client import Consumer as PlainConsumer
from understudy.client import Publisher as PlainPublisher
from understudy.client.amqp10 import Consumer, Publisher

_Queue: Any = kombu.entity.Queue
QUEUES: Any = {name: _Queue(name, durable=True) for name in ("to-proton", "to-kombu", "within")}
BEFORE, AFTER = 400, 200
"""Messages that each publisher has confirmed before the kill at least, and sends after the promotion."""


class Sender(threading.Thread):
    """Publishes numbers until it is told to stop, one after another, to all of its queues in turn."""

    def __init__(self, publisher: Any, queues: tuple[str, ...]) -> None:
        super().__init__(name=publisher.name, daemon=True)
        self.publisher = publisher
        self._queues = queues
        self.sent = 0
        self.enough = threading.Event()

    def run(self) -> None:
        with self.publisher:
            while not self.enough.is_set():
                for queue in self._queues:
                    self.publisher.publish(b"%d" % self.sent, queue)
                self.sent += 1


class Reader(threading.Thread):
    """Consumes one queue until it is told to stop."""

    def __init__(self, consumer: Any) -> None:
        super().__init__(name=consumer.name, daemon=True)
        self.consumer = consumer
        self.seen: set[int] = set()
        self.enough = threading.Event()

    def run(self) -> None:
        with self.consumer:
            for delivery in self.consumer.deliveries(until=self.enough.is_set):
                self.seen.add(int(delivery.body))


def test_a_killed_primary_loses_nothing_for_either_protocol(
    tmp_path: Path, judge: Callable[..., dict[str, Any]]
) -> None:
    with Pair(tmp_path) as pair:
        pair.whole()
        ledgers = tmp_path / "clients"
        with PlainPublisher(pair.both, "declares", declare=QUEUES.values()) as publisher:
            publisher.connect(PATIENCE)
        senders = [
            Sender(Publisher(pair.both, "shop10", ledgers), ("to-kombu", "/queues/within")),
            Sender(PlainPublisher(pair.both, "shop091", ledgers), ("to-proton",)),
        ]
        readers = [
            Reader(Consumer(pair.both, "to-proton", "reads10", ledgers)),
            Reader(Consumer(pair.both, "/queues/within", "within10", ledgers)),
            Reader(PlainConsumer(pair.both, "to-kombu", "reads091", ledgers)),
        ]
        for client in (*readers, *senders):
            client.start()
        try:
            for sender in senders:
                pair.until(lambda s=sender: s.publisher.counts.confirmed > BEFORE, "confirms")
            pair.kill("left")
            code, _, err = pair.command("promote", "right")
            assert code == 0, err
            for sender in senders:
                more = sender.publisher.counts.confirmed + AFTER
                pair.until(lambda s=sender, m=more: s.publisher.counts.confirmed > m, "confirms again")
        finally:
            for sender in senders:
                sender.enough.set()
            for sender in senders:
                sender.join(2 * PATIENCE)
        by_proton, by_kombu = (set(range(sender.sent)) for sender in senders)
        wanted = (by_kombu, by_proton, by_proton)
        try:
            for reader, numbers in zip(readers, wanted, strict=True):
                pair.until(lambda r=reader, n=numbers: r.seen >= n, f"all for {reader.name}")
        finally:
            for reader in readers:
                reader.enough.set()
            for reader in readers:
                reader.join(PATIENCE)
        assert not [client for client in (*senders, *readers) if client.is_alive()]
        shop = senders[0].publisher
        assert shop.counts.confirmed == shop.counts.published == 2 * senders[0].sent
        assert (shop.failover.connects, len(shop.failover.outages)) == (2, 1)
        assert [reader.seen for reader in readers] == list(wanted)
        pair.start("left")
        pair.wait_for("left", "ready")
        assert pair.stop("left") == pair.stop("right") == 0
    answer = judge(tmp_path)
    assert answer["verdict"] == "proven", answer
    assert answer["totals"]["published"] == shop.counts.published + senders[1].publisher.counts.published
    assert {writer["writer"] for writer in answer["writers"]} >= {"shop10", "reads10", "within10"}


class Plain(MessagingHandler):
    """Proton's own reconnecting, without heartbeats: sends a number every two milliseconds."""

    def __init__(self, urls: list[str]) -> None:
        super().__init__(auto_accept=False)
        self.container = Container(self)
        self.accepted: set[int] = set()
        self.enough = threading.Event()
        self._urls = urls
        self._sent = 0
        self._by_tag: dict[Any, int] = {}

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(
            urls=self._urls, reconnect=Backoff(initial=0.05, factor=1, max_delay=0.05), user="guest",
            password="guest", allowed_mechs="PLAIN",
        )  # fmt: skip
        self._sender = event.container.create_sender(connection, "/queues/within")
        event.container.schedule(0.002, self)

    def on_timer_task(self, event: Any) -> None:
        if self.enough.is_set():
            event.container.stop()
            return
        if self._sender.credit > 0:
            delivery = self._sender.send(Message(body=b"%d" % self._sent, inferred=True, durable=True))
            self._by_tag[delivery.tag] = self._sent
            self._sent += 1
        event.container.schedule(0.002, self)

    def on_accepted(self, event: Any) -> None:
        self.accepted.add(self._by_tag[event.delivery.tag])


def test_plain_proton_code_finds_the_broker_that_serves_by_its_own_list(tmp_path: Path) -> None:
    """After a crash, and after a switchover, in which its broker takes leave: it must notice both."""
    with Pair(tmp_path) as pair:
        pair.whole()
        with PlainPublisher(pair.both, "declares", declare=QUEUES.values()) as publisher:
            publisher.connect(PATIENCE)
        plain = Plain([f"amqp://{address}" for address in pair.both.split(",")])
        running = threading.Thread(target=plain.container.run, daemon=True)
        running.start()
        try:
            pair.until(lambda: len(plain.accepted) > 100, "some are accepted")
            pair.kill("left")
            assert pair.command("promote", "right")[0] == 0
            before = len(plain.accepted)
            pair.until(lambda: len(plain.accepted) > before + 100, "more, after the crash")
            pair.start("left")
            pair.wait_for("left", "ready")
            code, _, err = pair.command("switchover", "right")
            assert code == 0, err
            before = len(plain.accepted)
            pair.until(lambda: len(plain.accepted) > before + 100, "more, after the switchover")
        finally:
            plain.enough.set()
            running.join(PATIENCE)
        assert not running.is_alive()
        reader = Reader(Consumer(pair.both, "within", "reads"))
        reader.start()
        try:
            pair.until(lambda: reader.seen >= plain.accepted, "all that was accepted")
        finally:
            reader.enough.set()
            reader.join(PATIENCE)
