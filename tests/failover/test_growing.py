"""A broker that was alone becomes one of a pair, and dies: what it had before is on the other one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import kombu.entity
import pika
import pytest

from tests.failover.nodes.pair import Pair, channel_of
from understudy.client import Publisher

_Queue: Any = kombu.entity.Queue
ORDERS = _Queue("orders", durable=True)
MESSAGES = 300
PERSISTENT = pika.BasicProperties(delivery_mode=2)


def _publish(pair: Pair, name: str, exchange: str, key: str, numbers: range) -> None:
    with channel_of(pair, name) as channel:
        channel.confirm_delivery()
        for number in numbers:
            channel.basic_publish(exchange, key, b"%d" % number, PERSISTENT, mandatory=True)


def _drain(pair: Pair, name: str, queue: str) -> list[int]:
    found = []
    with channel_of(pair, name) as channel:
        while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
            found.append(int(got[2]))
    return found


@pytest.mark.system
def test_queues_of_a_standalone_broker_survive_the_first_failover_of_its_pair(
    tmp_path: Path, judge: Callable[..., dict[str, Any]]
) -> None:
    ledgers = tmp_path / "clients"
    with Pair(tmp_path) as pair:
        pair.start("left", brokers="")
        assert pair.status("left") == "standalone"
        left = str(pair.addresses["left"])
        with channel_of(pair, "left") as channel:
            channel.queue_declare("work", durable=True)
            channel.exchange_declare("jobs", "topic", durable=True)
            channel.queue_bind("work", "jobs", "#")
        _publish(pair, "left", "jobs", "a", range(MESSAGES))
        with Publisher(left, "alone", ledgers, declare=[ORDERS]) as shop:
            for number in range(MESSAGES):
                shop.publish(b"%d" % number, "orders")
        assert pair.stop("left") == 0

        pair.whole()
        with Publisher(pair.both, "shop", ledgers, declare=[ORDERS]) as shop:
            for number in range(MESSAGES, 2 * MESSAGES):
                shop.publish(b"%d" % number, "orders")
        _publish(pair, "left", "jobs", "b", range(MESSAGES, 2 * MESSAGES))
        pair.kill("left")
        code, _, err = pair.command("promote", "right")
        assert code == 0, err

        _publish(pair, "right", "jobs", "c", range(2 * MESSAGES, 3 * MESSAGES))
        assert _drain(pair, "right", "work") == list(range(3 * MESSAGES))
        assert _drain(pair, "right", "orders") == list(range(2 * MESSAGES))
        pair.start("left")
        pair.wait_for("left", "ready")
        assert pair.stop("left") == pair.stop("right") == 0
    answer = judge(tmp_path)
    assert answer["verdict"] == "proven", answer
