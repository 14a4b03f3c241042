"""Consumers that know a message by its replication id: the same one wherever and whenever it comes again."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.ha.kit import consumer, deliveries
from tests.ha.pair import Host, Pair
from tests.ha.replication.test_numbers import succeed
from understudy.client import OwnTransaction


def said(found: list[Any]) -> list[tuple[str, str, bool]]:
    return [(each.body.decode(), str(each.id), each.redelivered) for each in found]


def published(pair: Pair, host: Host, texts: str) -> None:
    position = pair.publish(host, "q", texts)
    pair.until(lambda: pair.confirmed(host, position))


def test_a_message_has_one_id_over_requeue_failover_and_restart() -> None:
    pair = Pair()
    a, b = pair.hosts
    pair.up()
    pair.declare(a, "q")
    published(pair, a, "ab")
    billing = consumer(pair, "q")
    first, second = billing.receive(), billing.receive()
    assert first is not None and second is not None
    ids = [str(first.id), str(second.id)]
    queue = a.running.vhost.queues["q"]
    assert ids == [f"{queue.uuid.hex()}:{pair[0].running.vhost.history.position.epoch}:{n}" for n in (1, 2)]
    billing.reject(first, requeue=True)
    again = billing.receive()
    assert again is not None
    assert (str(again.id), again.redelivered) == (ids[0], True)
    succeed(pair, a, b)
    published(pair, b, "c")
    found = [billing.receive() for _ in range(4)]
    assert found[0] is None, "the connection is lost"
    assert [(str(each.id), each.redelivered) for each in found[1:3] if each] == [
        (ids[0], True), (ids[1], True),
    ]  # fmt: skip
    assert found[3] is not None
    assert not found[3].redelivered and str(found[3].id) not in ids
    pair.run(0.2)
    for host in (b, a):
        pair.kill(host)
    pair.start(b)
    pair.run(0.3)
    assert pair.ask(b, "promote", force_lossy=True)["ok"]
    assert billing.receive() is None
    third = str(found[3].id)
    assert said(deliveries(billing)) == [("a", ids[0], True), ("b", ids[1], True), ("c", third, True)]


@pytest.mark.parametrize("own", [False, True])
def test_what_comes_again_because_the_failover_took_its_ack_is_skipped(tmp_path: Path, own: bool) -> None:
    """The primary dies after it took the acks, and before the backup hears of them."""
    pair = Pair()
    a, b = pair.hosts
    pair.up()
    pair.declare(a, "q")
    published(pair, a, "abcd")
    database = sqlite3.connect(tmp_path / "shop.db")
    memory = OwnTransaction(sqlite3, database)
    memory.create()
    billing = consumer(pair, "q", exactly_once=True, processed=memory if own else tmp_path / "ids.db")
    seen = []
    for _ in range(2):
        delivery = billing.receive()
        assert delivery is not None
        seen.append(delivery.body)
        billing.ack(delivery)
    pair.run(0.1)
    pair.hold(a, b)
    for _ in range(2):
        delivery = billing.receive()
        assert delivery is not None
        seen.append(delivery.body)
        billing.ack(delivery)
    assert pair.contents(a, "q") == ""
    succeed(pair, a, b)
    assert pair.contents(b, "q") == "cd"
    published(pair, b, "e")
    assert billing.receive() is None, "the connection is lost"
    seen += [each.body for each in deliveries(billing)]
    assert seen == [b"a", b"b", b"c", b"d", b"e"]
    assert billing.counts.skipped == 2
    pair.run(0.1)
    assert pair.contents(b, "q") == ""
    billing.close()
    database.close()


@pytest.mark.parametrize("once", [True, False])
def test_what_only_a_primary_that_dies_has_is_not_delivered(tmp_path: Path, once: bool) -> None:
    """To a consumer that processes a message once. Another one gets it early, and again with another id."""
    pair = Pair()
    a, b = pair.hosts
    pair.up()
    pair.declare(a, "q")
    published(pair, a, "a")
    more: dict[str, Any] = {"exactly_once": True, "processed": tmp_path / "ids.db"} if once else {}
    billing = consumer(pair, "q", **more)
    seen = said(deliveries(billing))
    pair.hold(a, b)
    pair.publish(a, "q", "b")
    seen += said(deliveries(billing))
    assert [text for text, _, _ in seen] == (["a"] if once else ["a", "b"])
    succeed(pair, a, b)
    published(pair, b, "b")
    assert billing.receive() is None, "the connection is lost"
    seen += said(deliveries(billing))
    assert [text for text, _, _ in seen].count("b") == (1 if once else 2)
    assert len({id_ for text, id_, _ in seen if text == "b"}) == (1 if once else 2)
    billing.close()
