"""Rules that remove messages, on real processes whose primary is killed under load: every confirmed message
is where its rule sends it, once, and the books agree (invariants 1, 18, 29)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kombu.entity
import pytest

from tests.failover.pair import PATIENCE, Pair, channel_of
from understudy.client import Publisher

_Queue: Any = kombu.entity.Queue
MESSAGES = 3_000
KILL_AT = 1_000
LIMIT = 100
DEAD = _Queue("dead", durable=True)
BRIEF = _Queue(
    "brief",
    durable=True,
    queue_arguments={"x-message-ttl": 200, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
)
SHORT = _Queue("short", durable=True, queue_arguments={"x-max-length": LIMIT})


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with Pair(tmp_path) as made:
        yield made


def _ready(channel: Any, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def _drain(channel: Any, queue: str, reason: str | None = None) -> list[int]:
    """All numbers in order; each acked. `reason`: what the newest of its deaths must say."""
    found = []
    while True:
        method, properties, body = channel.basic_get(queue)
        if method is None:
            return found
        if reason is not None:
            (death,) = properties.headers["x-death"]
            assert (death["reason"], death["count"]) == (reason, 1)
        found.append(int(body))
        channel.basic_ack(method.delivery_tag)


def test_dead_letters_and_limits_survive_the_death_of_the_primary(
    pair: Pair, judge: Callable[..., dict[str, Any]]
) -> None:
    pair.whole()
    books = pair.folder / "clients"
    with Publisher(pair.both, "shop", books, declare=[DEAD, BRIEF, SHORT], window=50) as shop:
        for number in range(MESSAGES):
            if number == KILL_AT:
                pair.until(lambda: shop.counts.confirmed > KILL_AT // 2, "confirms")
                pair.kill("left")
                code, _, err = pair.command("promote", "right")
                assert code == 0, err
            shop.publish(b"%d" % number, "brief")
            shop.publish(b"%d" % number, "short")
    assert shop.counts.confirmed == 2 * MESSAGES
    with channel_of(pair, "right") as channel:
        pair.until(lambda: _ready(channel, "brief") == 0, "the last message to expire", PATIENCE)
        dead = Counter(_drain(channel, "dead", "expired"))
        assert set(dead) == set(range(MESSAGES))
        assert dead.total() <= MESSAGES + shop.counts.resent
        assert _drain(channel, "short") == list(range(MESSAGES - LIMIT, MESSAGES))
    pair.start("left")
    pair.wait_for("left", "ready")
    assert pair.stop("left") == pair.stop("right") == 0
    answer = judge(pair.folder)
    assert answer["verdict"] == "proven", answer
