"""Rules that remove messages, on real processes whose primary is killed under load: every confirmed message
is where its rule sends it, once, and the ledgers agree (invariants 1, 18, 29). And what was declared with a
queue or an exchange holds on the node that is promoted (6)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kombu.entity
import pika.exceptions
import pytest

from tests.failover.nodes.pair import PATIENCE, Pair, channel_of
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
SMALL = _Queue("small", durable=True, queue_arguments={"x-max-length-bytes": LIMIT * len(str(MESSAGES))})
FULL = {"x-max-length-bytes": 10, "x-overflow": "reject-publish"}
IDLE = 1.0
"""Seconds."""


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


@pytest.mark.system
def test_dead_letters_and_limits_survive_the_death_of_the_primary(
    pair: Pair, judge: Callable[..., dict[str, Any]]
) -> None:
    pair.whole()
    ledgers = pair.folder / "clients"
    with Publisher(pair.both, "shop", ledgers, declare=[DEAD, BRIEF, SHORT, SMALL], window=50) as shop:
        for number in range(MESSAGES):
            if number == KILL_AT:
                pair.until(lambda: shop.counts.confirmed > KILL_AT // 2, "confirms")
                pair.kill("left")
                code, _, err = pair.command("promote", "right")
                assert code == 0, err
            shop.publish(b"%d" % number, "brief")
            shop.publish(b"%d" % number, "short")
            shop.publish(b"%d" % number, "small")
    assert shop.counts.confirmed == 3 * MESSAGES
    with channel_of(pair, "right") as channel:
        pair.until(lambda: _ready(channel, "brief") == 0, "the last message to expire", PATIENCE)
        dead = Counter(_drain(channel, "dead", "expired"))
        assert set(dead) == set(range(MESSAGES))
        assert dead.total() <= MESSAGES + shop.counts.resent
        for queue in ("short", "small"):
            assert _drain(channel, queue) == list(range(MESSAGES - LIMIT, MESSAGES))
    pair.start("left")
    pair.wait_for("left", "ready")
    assert pair.stop("left") == pair.stop("right") == 0
    answer = judge(pair.folder)
    assert answer["verdict"] == "proven", answer


def _refused_with(channel: Any, code: int, ask: Callable[[Any], Any]) -> Any:
    """Another channel, for what comes next."""
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refusal:
        ask(channel)
    assert refusal.value.reply_code == code
    return channel.connection.channel()


def _publish(channel: Any, exchange: str, body: bytes, key: str = "") -> None:
    channel.basic_publish(exchange, key, body, pika.BasicProperties(delivery_mode=2), mandatory=True)


def _goes_in(channel: Any) -> Any:
    """By the outer exchange alone; a channel for what comes next."""
    channel.confirm_delivery()
    _publish(channel, "outer", b"123")
    assert channel.queue_purge("behind").method.message_count == 1
    return _refused_with(channel, 403, lambda channel: _publish(channel, "inner", b"123"))


def _is_gone(channel: Any, queue: str) -> bool:
    with channel.connection.channel() as other:
        try:
            other.queue_declare(queue, passive=True)
        except pika.exceptions.ChannelClosedByBroker as refusal:
            assert refusal.reply_code == 404
            return True
    return False


def test_what_was_declared_holds_on_the_node_that_is_promoted(pair: Pair) -> None:
    pair.whole()
    with channel_of(pair, "left") as channel:
        channel.exchange_declare("outer", "fanout", durable=True)
        channel.exchange_declare("inner", "direct", durable=True, internal=True)
        channel.exchange_bind("inner", "outer")
        channel.queue_declare("behind", durable=True)
        channel.queue_bind("behind", "inner", "")
        channel.queue_declare("full", durable=True, arguments=FULL)
        channel.queue_declare("idle", durable=True, arguments={"x-expires": int(IDLE * 1000)})
        channel.queue_declare("used", durable=True, arguments={"x-expires": 600_000})
        channel = _goes_in(channel)
        channel.confirm_delivery()
        _publish(channel, "", b"12345678", "full")
        with pytest.raises(pika.exceptions.NackError):
            _publish(channel, "", b"123", "full")
    pair.kill("left")
    code, _, err = pair.command("promote", "right")
    assert code == 0, err
    with channel_of(pair, "right") as channel:
        channel.confirm_delivery()
        with pytest.raises(pika.exceptions.NackError):
            _publish(channel, "", b"123", "full")
        _publish(channel, "", b"12", "full")
        assert _ready(channel, "full") == 2
        channel = _goes_in(channel)
        threading.Event().wait(2 * IDLE)  # to look at it is to use it
        assert _is_gone(channel, "idle")
        assert not _is_gone(channel, "used")
