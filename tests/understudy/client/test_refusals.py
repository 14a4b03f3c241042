"""A message that the broker answers by closing the channel: it is given up, told and noted, and the others go
on."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import kombu.entity
import pytest

from broker.settings import BrokerSettings
from tests.understudy.broker_thread import BrokerThread
from understudy.client import Consumer, Publisher, Refused

ORDERS: Any = getattr(kombu.entity, "Queue")("orders", durable=True)  # noqa: B009 (kombu is half typed)
DEEP: dict[str, Any] = reduce(lambda inner, _: {"in": inner}, range(70), {})


@pytest.fixture
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(settings=BrokerSettings(message_max=100_000)) as running:
        yield running


def noted(directory: Path, kind: str) -> list[dict[str, Any]]:
    (path,) = directory.glob("*.ledger.jsonl")
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [record for record in found if record["kind"] == kind]


def arrived(broker: BrokerThread) -> list[bytes]:
    """All that is in the queue, in order."""
    with Consumer(str(broker.address), "orders", "all") as everything:
        return [d.body for d in iter(lambda: everything.receive(0.3), None)]  # type: ignore[misc]


def in_order_of_first(bodies: list[bytes]) -> list[bytes]:
    return list(dict.fromkeys(bodies))


def test_a_missing_exchange_costs_its_own_message_only(broker: BrokerThread, tmp_path: Path) -> None:
    """What was sent before it is sent again once at most, what was sent behind it arrives once."""
    heard: list[Refused] = []
    with Publisher(str(broker.address), "shop", tmp_path, declare=[ORDERS], on_refused=heard.append) as shop:
        for number in range(100):
            if number == 50:
                shop.publish(b"lost", "key", exchange="missing", message_id="m-1")
            shop.publish(b"%d" % number, "orders")
        shop.flush(20)
        assert (shop.counts.confirmed, shop.counts.nacked, shop.in_doubt) == (100, 1, 0)
        assert not shop.failover.outages, "a broker that refuses one message serves"
    (refused,) = heard
    assert (refused.sequence, refused.message_id, refused.exchange, refused.code) == (
        51,
        "m-1",
        "missing",
        404,
    )
    assert str(refused) == (
        "message 51 (message_id 'm-1'), published to exchange 'missing' with the routing key 'key', is"
        " refused and dropped: 404 NOT_FOUND - no exchange 'missing' in vhost '/'"
    )
    (nacked,) = noted(tmp_path, "nacked")
    runs = noted(tmp_path, "sent")
    assert [
        run["pfirst"] + nacked["first"] - run["first"]
        for run in runs
        if run["prod"] == nacked["prod"] and run["first"] <= nacked["first"] <= run["last"]
    ] == [51]
    assert nacked["reason"].startswith("404 NOT_FOUND")
    bodies = arrived(broker)
    assert in_order_of_first(bodies) == [b"%d" % number for number in range(100)]
    times = Counter(bodies)
    assert max(times.values()) <= 2
    assert all(times[b"%d" % number] == 1 for number in range(50, 100))


def test_many_refused_ones_in_one_window_double_nothing_twice(broker: BrokerThread) -> None:
    heard: list[int] = []
    with Publisher(
        str(broker.address),
        "shop",
        declare=[ORDERS],
        on_refused=lambda refused: heard.append(refused.sequence),
    ) as shop:
        for number in range(60):
            shop.publish(b"%d" % number, "orders" if number % 20 else "key", "" if number % 20 else "missing")
        shop.flush(20)
    assert heard == [1, 21, 41]
    bodies = arrived(broker)
    assert in_order_of_first(bodies) == [b"%d" % number for number in range(60) if number % 20]
    assert max(Counter(bodies).values()) <= 2


def test_one_that_is_too_large_costs_nothing_else(broker: BrokerThread) -> None:
    with Publisher(str(broker.address), "shop", declare=[ORDERS]) as shop:
        shop.publish(b"1", "orders")
        shop.publish(b" " * 100_001, "orders", message_id="large")
        shop.publish(b"2", "orders")
        with pytest.raises(Refused, match=r"'large'.* 311 CONTENT_TOO_LARGE") as caught:
            shop.flush(20)
        assert caught.value.sequence == 2
        assert (shop.counts.confirmed, shop.in_doubt) == (2, 0), "all else is confirmed before it is raised"
        shop.publish(b"3", "orders")
    assert in_order_of_first(arrived(broker)) == [b"1", b"2", b"3"]


def test_a_few_polls_are_enough_for_what_is_sent_one_by_one(broker: BrokerThread) -> None:
    heard: list[Refused] = []
    with Publisher(str(broker.address), "shop", declare=[ORDERS], on_refused=heard.append) as shop:
        shop._hear_every = math.inf
        for number in range(200):
            shop.publish(b"%d" % number, "orders", "missing" if number == 150 else "")
        polls = 0
        while shop.in_doubt:
            shop.poll(5)
            polls += 1
        assert (len(heard), shop.counts.confirmed) == (1, 199)
        assert polls < 20


def test_a_refusal_is_raised_once_and_by_publish_before_it_takes_its_own(broker: BrokerThread) -> None:
    with Publisher(str(broker.address), "shop", declare=[ORDERS]) as shop:
        shop.publish(b"lost", "key", exchange="missing")
        while not shop.counts.nacked:
            shop._hear(5)
        with pytest.raises(Refused):
            shop.publish(b"1", "orders")
        assert shop.counts.published == 1
        assert shop.publish(b"1", "orders") == 2
        shop.flush(20)
    assert arrived(broker) == [b"1"]


@pytest.mark.parametrize(("odd", "code"), [
    ({"expiration": "10s"}, 406),
    ({"headers": {"BCC": "orders"}}, 406),
    ({"headers": {"CC": 5}}, 406),
    ({"headers": {"a\0b": 1}}, 502),
    ({"headers": DEEP}, 502),
])  # fmt: skip
def test_odd_properties_cost_their_own_message_only(
    broker: BrokerThread, odd: dict[str, Any], code: int
) -> None:
    """The broker named no method when it closed for these: it was not taken for a refusal, all before it was
    sent once more with each call, and nothing behind it ever."""
    heard: list[Refused] = []
    with Publisher(str(broker.address), "shop", declare=[ORDERS], on_refused=heard.append) as shop:
        shop.connect()
        with broker.frozen():  # so that all of them go out together
            for number in range(20):
                if number == 10:
                    shop.publish(b"odd", "orders", **odd)
                shop.publish(b"%d" % number, "orders")
        shop.flush(20)
        assert (shop.counts.confirmed, shop.counts.nacked, shop.in_doubt) == (20, 1, 0)
    assert [(refused.sequence, refused.code) for refused in heard] == [(11, code)]
    bodies = arrived(broker)
    assert in_order_of_first(bodies) == [b"%d" % number for number in range(20)]
    assert max(Counter(bodies).values()) <= 2


def test_headers_that_fit_into_no_frame_of_this_broker_are_given_up(tmp_path: Path) -> None:
    """They were sent, cost the connection, and were sent again, thousands of times."""
    heard: list[Refused] = []
    with BrokerThread(settings=BrokerSettings(frame_max=4096)) as broker:
        with Publisher(
            str(broker.address), "shop", tmp_path, declare=[ORDERS], on_refused=heard.append
        ) as shop:
            for number in range(4):
                if number == 2:
                    shop.publish(b"wide", "orders", headers={"h": "x" * 4058}, message_id="wide")
                    shop.publish(b"just", "orders", headers={"h": "x" * 4057})
                shop.publish(b"%d" % number, "orders")
            shop.flush(20)
            assert (shop.counts.confirmed, shop.counts.nacked, shop.failover.connects) == (5, 1, 1)
        assert arrived(broker) == [b"0", b"1", b"just", b"2", b"3"]
    (refused,) = heard
    assert (refused.sequence, refused.message_id, refused.code) == (3, "wide", 501)
    assert "4,077 octets" in refused.text and "4,076" in refused.text
    (nacked,) = noted(tmp_path, "nacked")
    (unsent,) = [run for run in noted(tmp_path, "sent") if run["prod"] == nacked["prod"]]
    assert (unsent["first"], unsent["last"], unsent["pfirst"]) == (nacked["first"], nacked["last"], 3)
