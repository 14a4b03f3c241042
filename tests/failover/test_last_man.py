"""A real primary that is left alone, killed with `kill -9` and restarted, has its transient messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import kombu.entity
import pika
import pytest

from tests.failover.nodes.pair import Pair, channel_of
from understudy.client import Publisher
from understudy.management import ask

_Queue: Any = kombu.entity.Queue
ORDERS = _Queue("orders", durable=True)
TRANSIENT = pika.BasicProperties(delivery_mode=1)


def kept(pair: Pair) -> bool:
    return ask(pair.addresses["left"], "status")["status"]["last_man"]["on_disk_since"] is not None


def waiting(pair: Pair) -> int:
    return int(ask(pair.addresses["left"], "status")["status"]["dequeues"]["waiting"])


def take(channel: Any, count: int | None = None) -> list[int]:
    found: list[int] = []
    while (count is None or len(found) < count) and (got := channel.basic_get("orders"))[0] is not None:
        channel.basic_ack(got[0].delivery_tag)
        found.append(int(got[2]))
    return found


@pytest.mark.system
def test_what_is_transient_is_there_after_kill_9_of_the_last_man(
    tmp_path: Path, judge: Callable[..., dict[str, Any]]
) -> None:
    with Pair(tmp_path, "ha.last_man=persist", "ha.ack_timeout=500ms") as pair:
        pair.whole()
        with Publisher(pair.both, "shop", tmp_path / "clients", declare=[ORDERS]) as shop:
            for number in range(300):
                shop.publish(b"%d" % number, "orders", persistent=False)
            pair.kill("right")
            pair.until(lambda: kept(pair), "the last man has everything on disk")
            for number in range(300, 500):
                shop.publish(b"%d" % number, "orders", persistent=False)
            shop.flush(timeout=10)
        with channel_of(pair, "left") as channel:
            assert take(channel, 50) == list(range(50))
            pair.until(lambda: not waiting(pair), "the acks to be in the history")
            channel.confirm_delivery()
            channel.basic_publish("", "orders", b"500", TRANSIENT)  # confirmed once all before it is on disk
        pair.kill("left")
        pair.start("left")
        answer = pair.ask("left", "promote")
        assert answer["ok"], answer
        with channel_of(pair, "left") as channel:
            assert take(channel) == list(range(50, 501))
        assert pair.stop("left") == 0
    answer = judge(tmp_path)
    assert answer["verdict"] == "proven", answer
