"""What a primary confirmed alone, and a forced promotion left behind, is set aside and comes back by hand."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import kombu.entity
import pika
import pytest

from tests.failover.nodes.pair import PATIENCE, Pair, channel_of, understudy
from understudy.client import Consumer, Publisher

_Queue: Any = kombu.entity.Queue
ORDERS = _Queue("orders", durable=True)
TYPED = pika.BasicProperties(
    content_type="text/plain", delivery_mode=2, priority=3, correlation_id="c", message_id="m",
    timestamp=1_700_000_000, type="t", app_id="a",
    headers={
        "small": 5, "wide": 2**40, "negative": -7, "true": True, "void": None,
        "when": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "money": Decimal("19.99"), "octets": b"\xff\x00",
        "table": {"deeper": {"list": [1, "two", None, b"\x80"]}},
    },
)  # fmt: skip


@pytest.mark.system
def test_messages_that_a_forced_promotion_left_behind_are_listed_shown_and_republished(
    tmp_path: Path,
) -> None:
    with Pair(tmp_path) as pair:
        pair.whole()
        with Publisher(pair.both, "shop", declare=[ORDERS]) as shop:
            for number in range(10):
                shop.publish(b"%d" % number, "orders")
            shop.flush(timeout=PATIENCE)
            pair.stop("right")
            for number in range(10, 30):
                shop.publish(b"%d" % number, "orders", headers={"number": number})
            shop.flush(timeout=PATIENCE)
        with channel_of(pair, "left") as channel:
            channel.confirm_delivery()
            channel.queue_declare("typed", durable=True)
            channel.basic_publish("", "typed", b"typed", TYPED)
        pair.kill("left")
        pair.start("right")
        code, _, err = pair.command("promote", "right", "--force-lossy")
        assert code == 0, err
        pair.start("left")
        pair.wait_for("left", "ready")
        assert pair.answer("left")["quarantined"] == 21

        data = str(tmp_path / "left")
        code, out, _ = understudy("quarantine", "list", "-d", data, "--format", "json")
        row, typed = json.loads(out)["queues"]
        assert (typed["name"], typed["messages"]) == ("typed", 1)
        assert (code, row["name"], row["messages"], row["republished"]) == (0, "orders", 20, 0)
        code, out, _ = understudy("quarantine", "show", "orders", "-d", data, "--limit", "1")
        assert (code, '"number": 10' in out) == (0, True)
        code, out, err = understudy("quarantine", "republish", "orders", "-d", data, "-b", pair.both)
        assert (code, out, err) == (0, "20 of 20 messages republished and confirmed\n", "")

        with channel_of(pair, "right") as channel:
            channel.queue_declare("typed", durable=True)
            assert understudy("quarantine", "republish", "-d", data, "-b", pair.both)[0] == 0
            _, properties, body = channel.basic_get("typed", auto_ack=True)
        assert properties.headers.pop("x-quarantined").startswith(typed["queue"])
        assert (properties, body) == (TYPED, b"typed")

        with Consumer(pair.both, "orders", "billing") as consumer:
            found = [int(d.body) for d in consumer.deliveries(until=lambda: consumer.counts.received == 30)]
        assert found == list(range(30))
