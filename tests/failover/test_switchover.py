"""Switchovers of real processes under load: everything confirmed arrives, and the ledgers agree.

How long clients wait is not asserted here: `python -m bench.switchover` prints it.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kombu.entity
import pytest

from tests.failover.nodes.pair import PATIENCE, Pair, channel_of
from understudy.client import Consumer, Publisher
from understudy.demo.plain_client import Plain

_Queue: Any = kombu.entity.Queue
ORDERS = _Queue("orders", durable=True)
ROUNDS = 4
AHEAD = 2000
"""Messages that the publisher may be ahead of the consumer: the rest of the backlog would only take time."""
OTHER = {"left": "right", "right": "left"}


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with Pair(tmp_path) as made:
        yield made


class Traffic:
    """A publisher and a consumer, each in a thread of its own, until `stop`."""

    def __init__(self, pair: Pair) -> None:
        ledgers = pair.folder / "clients"
        self.publisher = Publisher(pair.both, "shop", ledgers, declare=[ORDERS], window=100)
        self.consumer = Consumer(pair.both, "orders", "store", ledgers, declare=[ORDERS])
        self.seen: Counter[int] = Counter()
        self.sent = 0
        self._room = threading.Semaphore(AHEAD)
        self._enough = threading.Event()
        self._all_sent = threading.Event()
        self._threads = [threading.Thread(target=run) for run in (self._publish, self._consume)]
        for thread in self._threads:
            thread.start()

    def _publish(self) -> None:
        try:
            with self.publisher:
                while not self._enough.is_set():
                    if self._room.acquire(timeout=0.1):
                        self.publisher.publish(b"%d" % self.sent, "orders")
                        self.sent += 1
        finally:
            self._all_sent.set()

    def _done(self) -> bool:
        return self._all_sent.is_set() and len(self.seen) >= self.publisher.counts.confirmed

    def _consume(self) -> None:
        with self.consumer:
            for delivery in self.consumer.deliveries(until=self._done):
                self.seen[int(delivery.body)] += 1
                if self.seen[int(delivery.body)] == 1:
                    self._room.release()

    def stop(self) -> None:
        self._enough.set()
        for thread in self._threads:
            thread.join(2 * PATIENCE)
        assert not any(thread.is_alive() for thread in self._threads)


@pytest.mark.system
def test_there_and_back_under_load_loses_nothing_and_the_ledgers_agree(
    pair: Pair, judge: Callable[..., dict[str, Any]]
) -> None:
    pair.whole()
    traffic = Traffic(pair)
    primary = "left"
    try:
        for _ in range(ROUNDS):
            before = traffic.publisher.counts.confirmed
            pair.until(lambda: traffic.publisher.counts.confirmed > before + 100, "confirms")  # noqa: B023
            code, out, err = pair.command("switchover", primary, "--to", OTHER[primary], "--format", "json")
            assert code == 0, err
            assert json.loads(out)["ok"]
            primary = OTHER[primary]
            assert pair.status(primary) in ("recovering", "active")
            pair.wait_for(OTHER[primary], "ready")
    finally:
        traffic.stop()
    counts = traffic.publisher.counts
    assert (counts.confirmed, counts.nacked) == (traffic.sent, 0)
    assert sorted(traffic.seen) == list(range(traffic.sent))
    assert [pair.answer(name)["quarantined"] for name in OTHER] == [0, 0]
    assert pair.stop(OTHER[primary]) == pair.stop(primary) == 0
    answer = judge(pair.folder)
    assert answer["verdict"] == "proven", [answer["missing"], answer["findings"]]


def test_any_node_may_be_asked_and_who_cannot_says_why(pair: Pair) -> None:
    pair.whole()
    code, _, err = pair.command("switchover", "left", "--to", "nobody")
    assert code == 1
    assert "nobody cannot take over: it is no backup of this node" in err
    assert err.count("\n") == 1
    code, out, err = pair.command("switchover", "right")  # the backup: who serves is asked instead
    assert code == 0, err
    assert out.startswith(f"{pair.addresses['left']}: right serves in epoch ")
    pair.wait_for("left", "ready")
    pair.kill("left")
    pair.until(lambda: "serving alone" in pair.answer("right")["reason"], "left to be excluded")
    code, _, err = pair.command("switchover", "right")
    assert code == 1
    assert "no backup is in sync" in err


def test_an_idle_primary_serves_on_when_its_heir_is_frozen(pair: Pair) -> None:
    pair.whole()
    with channel_of(pair, "left") as channel:
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()
        pair.freeze("right")
        try:
            code, _, err = pair.command("switchover", "left")
            assert code == 1
            assert "not switched over to right: it " in err
            assert "did not answer" in err
            assert "left serves on; ask again" in err
            assert err.count("\n") == 1
            assert pair.status("left") == "active"
            channel.basic_publish("", "q", b"still here")
            assert channel.basic_get("q", auto_ack=True)[2] == b"still here"
        finally:
            pair.thaw("right")
    pair.wait_for("right", "ready")
    pair.until(lambda: "confirms wait for right" in pair.answer("left")["reason"], "right to be in sync")
    code, out, err = pair.command("switchover", "left")
    assert code == 0, err
    assert "right serves in epoch " in out


def test_plain_kombu_code_goes_along(pair: Pair) -> None:
    pair.whole()
    client = Plain(pair.both, _Queue("plain", durable=True))
    client.connect()
    stop = threading.Event()
    thread = threading.Thread(target=client.run, args=(400, 0.0, stop))
    thread.start()
    try:
        pair.until(lambda: client.counts()["confirmed"] > 100, "some confirms")
        code, _, err = pair.command("switchover", "left")
        assert code == 0, err
        thread.join(2 * PATIENCE)
        assert not thread.is_alive()
    finally:
        stop.set()
        thread.join(PATIENCE)
    counts = client.counts()
    assert (counts["published"], counts["confirmed"], counts["lost"]) == (400, 400, 0)
