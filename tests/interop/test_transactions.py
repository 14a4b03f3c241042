"""Transactions by pika and by py-amqp: commit, rollback, returns, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import amqp
import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from tests.broker.server.live import Live


@pytest.fixture
def pika_connection(live: Live) -> Iterator[Any]:
    with pika.BlockingConnection(pika.URLParameters(f"amqp://guest:guest@{live.host}:{live.port}/%2F")) as it:
        yield it


@pytest.fixture
def amqp_connection(live: Live) -> Iterator[Any]:
    with amqp.Connection(f"{live.host}:{live.port}") as connection:
        yield connection


def _ready(live: Live, queue: str) -> int:
    """As another client sees it."""
    with amqp.Connection(f"{live.host}:{live.port}") as other:
        return int(other.channel().queue_declare(queue, passive=True).message_count)


def test_pika_commits_and_rolls_back_publishes(live: Live, pika_connection: Any) -> None:
    channel = pika_connection.channel()
    channel.queue_declare("q")
    channel.tx_select()
    for body in (b"", b"small", b"x" * 400_000):
        channel.basic_publish("", "q", body)
    channel.queue_declare("q", passive=True)
    assert _ready(live, "q") == 0
    channel.tx_rollback()
    assert _ready(live, "q") == 0
    for body in (b"", b"small", b"x" * 400_000):
        channel.basic_publish("", "q", body)
    channel.tx_commit()
    assert [channel.basic_get("q", auto_ack=True)[2] for _ in range(3)] == [b"", b"small", b"x" * 400_000]


def test_pika_moves_messages_with_its_acks(live: Live, pika_connection: Any) -> None:
    channel = pika_connection.channel()
    for queue in ("one", "other"):
        channel.queue_declare(queue)
    for n in range(6):
        channel.basic_publish("", "one", b"%d" % n)
    channel.tx_select()
    channel.basic_qos(prefetch_count=2)
    moved = []
    for method, _, body in channel.consume("one", inactivity_timeout=10):
        assert method is not None
        channel.basic_publish("", "other", body)
        channel.basic_ack(method.delivery_tag)
        if len(moved) % 2:
            channel.tx_commit()
        moved.append(body)
        if len(moved) == 5:
            break
    channel.close()
    assert moved == [b"0", b"1", b"2", b"3", b"4"]
    assert (_ready(live, "one"), _ready(live, "other")) == (2, 4)


def test_pika_gets_returns_before_commit_ok(pika_connection: Any) -> None:
    channel = pika_connection.channel()
    returned: list[bytes] = []
    channel.add_on_return_callback(lambda channel, method, properties, body: returned.append(body))
    channel.tx_select()
    channel.basic_publish("", "nowhere", b"lost", mandatory=True)
    channel.queue_declare("q")
    pika_connection.process_data_events(0)
    assert returned == []
    channel.tx_commit()
    pika_connection.process_data_events(0)
    assert returned == [b"lost"]


def test_pika_is_refused_what_rabbitmq_refuses(live: Live, pika_connection: Any) -> None:
    channel = pika_connection.channel()
    with pytest.raises(ChannelClosedByBroker, match=r"406.*channel is not transactional"):
        channel.tx_commit()
    channel = pika_connection.channel()
    channel.confirm_delivery()
    with pytest.raises(ChannelClosedByBroker, match=r"406.*cannot switch from confirm to tx mode"):
        channel.tx_select()
    channel = pika_connection.channel()
    channel.queue_declare("q")
    channel.tx_select()
    channel.basic_publish("", "q", b"not alone")
    channel.basic_publish("none", "q", b"to a missing exchange")
    with pytest.raises(ChannelClosedByBroker, match="404"):
        channel.tx_commit()
    assert _ready(live, "q") == 0


def test_py_amqp_commits_and_rolls_back(live: Live, amqp_connection: Any) -> None:
    channel = amqp_connection.channel()
    channel.queue_declare("q", auto_delete=False)
    channel.tx_select()
    channel.tx_select()
    channel.basic_publish(amqp.Message("no"), routing_key="q")
    channel.tx_rollback()
    channel.basic_publish(amqp.Message("yes"), routing_key="q")
    assert _ready(live, "q") == 0
    channel.tx_commit()
    assert _ready(live, "q") == 1
    message = channel.basic_get("q")
    channel.basic_ack(message.delivery_tag)
    channel.tx_rollback()
    channel.basic_reject(message.delivery_tag, requeue=True)
    assert _ready(live, "q") == 0
    channel.tx_commit()
    assert _ready(live, "q") == 1
    assert channel.basic_get("q", no_ack=True).delivery_info["redelivered"]


def test_py_amqp_that_goes_has_done_nothing(live: Live, amqp_connection: Any) -> None:
    with amqp.Connection(f"{live.host}:{live.port}") as leaving:
        channel = leaving.channel()
        channel.queue_declare("q", auto_delete=False)
        channel.basic_publish(amqp.Message("1"), routing_key="q")
        channel.tx_select()
        message = channel.basic_get("q")
        channel.basic_ack(message.delivery_tag)
        channel.basic_publish(amqp.Message("2"), routing_key="q")
    channel = amqp_connection.channel()
    assert channel.basic_get("q", no_ack=True).body == "1"
    assert channel.basic_get("q") is None


def test_py_amqp_raises_for_commit_without_select(amqp_connection: Any) -> None:
    with pytest.raises(amqp.exceptions.PreconditionFailed, match="channel is not transactional"):
        amqp_connection.channel().tx_commit()
    with pytest.raises(amqp.exceptions.PreconditionFailed, match="channel is not transactional"):
        amqp_connection.channel().tx_rollback()
