"""Queues deeper than the memory that their brokers are given: through a failover and a restart, every
message is there, once, in order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kombu.entity
import pytest

from tests.failover.nodes.pair import PATIENCE, Pair
from understudy.client import Consumer, Publisher

_Queue: Any = kombu.entity.Queue
DEEP = _Queue("deep", durable=True)
COUNT = 12_000
PAGED = "broker.paging_limit=1MiB"
"""Less than the process has: all that is beyond the window at a queue's front leaves memory."""


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with Pair(tmp_path, PAGED) as made:
        yield made.whole()


def paged_out(pair: Pair, name: str) -> int:
    code, out, err = pair.command("status", name, "--format", "json")
    assert code == 0, err
    found: int = json.loads(out)["paged"]
    return found


def overflow(pair: Pair, name: str) -> list[Path]:
    return list((pair.folder / name / "overflow").iterdir())


def test_a_deep_queue_survives_its_primary_and_its_next_restart(pair: Pair) -> None:
    with Publisher(pair.both, "shop", declare=[DEEP], window=1000) as shop:
        for number in range(COUNT):
            shop.publish(b"%d" % number + b"." * 300, "deep")
        shop.flush(PATIENCE)
        pair.until(lambda: paged_out(pair, "left") > COUNT // 2, "messages to leave the primary's memory")
    assert overflow(pair, "left") and overflow(pair, "right")
    pair.kill("left")
    code, _, err = pair.command("promote", "right")
    assert code == 0, err
    assert paged_out(pair, "right") > COUNT // 2
    seen: list[int] = []
    with Consumer(pair.both, "deep", "half", prefetch=500) as consumer:
        while len(seen) < COUNT // 2:
            delivery = consumer.receive(PATIENCE)
            assert delivery is not None
            seen.append(int(delivery.body.rstrip(b".")))
            consumer.ack(delivery)
        consumer.flush()
    pair.kill("right")
    pair.start("left", "right")
    pair.until(lambda: pair.command("promote", "right")[0] == 0, "right to be promoted again")
    with Consumer(pair.both, "deep", "rest", prefetch=500) as consumer:
        while len(set(seen)) < COUNT:
            delivery = consumer.receive(PATIENCE)
            assert delivery is not None
            seen.append(int(delivery.body.rstrip(b".")))
            consumer.ack(delivery)
    assert sorted(set(seen)) == list(range(COUNT))
    first = seen[: COUNT // 2]
    assert first == sorted(first)
