"""What a primary confirmed alone, and a forced promotion left behind, is set aside and comes back by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import kombu.entity

from tests.failover.pair import PATIENCE, Pair, understudy
from understudy.client import Consumer, Publisher

_Queue: Any = kombu.entity.Queue
ORDERS = _Queue("orders", durable=True)


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
        pair.kill("left")
        pair.start("right")
        code, _, err = pair.command("promote", "right", "--force-lossy")
        assert code == 0, err
        pair.start("left")
        pair.wait_for("left", "ready")
        assert pair.answer("left")["quarantined"] == 20

        data = str(tmp_path / "left")
        code, out, _ = understudy("quarantine", "list", "-d", data, "--format", "json")
        (row,) = json.loads(out)["queues"]
        assert (code, row["name"], row["messages"], row["republished"]) == (0, "orders", 20, 0)
        code, out, _ = understudy("quarantine", "show", "orders", "-d", data, "--limit", "1")
        assert (code, '"number": 10' in out) == (0, True)
        code, out, err = understudy("quarantine", "republish", "orders", "-d", data, "-b", pair.both)
        assert (code, out, err) == (0, "20 of 20 messages republished and confirmed\n", "")

        with Consumer(pair.both, "orders", "billing") as consumer:
            found = [int(d.body) for d in consumer.deliveries(until=lambda: consumer.counts.received == 30)]
        assert found == list(range(30))
