"""The class tx."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika

from tests.compatibility.clients import drained, private, publish, ready, refused

New = Callable[[str], str]


def test_commit_and_rollback_of_publishes(connection: Any, channel: Any) -> None:
    one, two = private(channel), private(channel)
    transacted = connection.channel()
    transacted.tx_select()
    for queue in (one, two):
        publish(transacted, queue, b"1", b"2")
    assert (ready(channel, one), ready(channel, two)) == (0, 0)
    transacted.tx_commit()
    publish(transacted, one, b"3")
    transacted.tx_rollback()
    transacted.tx_commit()
    assert (drained(channel, one), drained(channel, two)) == ([b"1", b"2"], [b"1", b"2"])


def test_acknowledgements_count_from_the_commit(connection: Any, channel: Any) -> None:
    queue = private(channel)
    publish(channel, queue, b"1", b"2", b"3")
    transacted = connection.channel()
    transacted.tx_select()
    tags = [transacted.basic_get(queue)[0].delivery_tag for _ in range(3)]
    transacted.basic_ack(tags[0])
    transacted.tx_rollback()
    transacted.basic_ack(tags[0])  # outstanding again, and not requeued
    transacted.basic_nack(tags[1], requeue=True)
    assert ready(channel, queue) == 0
    transacted.tx_commit()
    assert ready(channel, queue) == 1
    transacted.close()
    assert drained(channel, queue) == [b"2", b"3"]


def test_mandatory_in_a_transaction_is_returned_at_the_commit(channel: Any) -> None:
    returned: list[Any] = []
    channel.add_on_return_callback(lambda _c, method, _p, body: returned.append((method.reply_code, body)))
    channel.tx_select()
    channel.basic_publish("", "nowhere", b"x", mandatory=True)
    private(channel)
    assert returned == []
    channel.tx_commit()
    channel.connection.process_data_events(0)
    assert returned == [(312, b"x")]


def test_transactions_and_confirms_exclude_each_other(connection: Any) -> None:
    one, two = connection.channel(), connection.channel()
    one.tx_select()
    with refused(406, "cannot switch from tx to confirm mode"):
        one.confirm_delivery()
    two.confirm_delivery()
    with refused(406, "cannot switch from confirm to tx mode"):
        two.tx_select()
    with refused(406, "channel is not transactional"):
        connection.channel().tx_commit()


def test_publish_to_no_exchange_in_a_transaction(channel: Any) -> None:
    channel.tx_select()
    channel.basic_publish("gone", "k", b"x", pika.BasicProperties())
    with refused(404, "no exchange 'gone' in vhost '/'"):
        channel.tx_commit()


def test_a_full_queue_in_a_transaction(connection: Any, channel: Any) -> None:
    """RabbitMQ says 406, too, `partial tx completion`: the other queue has what it took."""
    full = private(channel, **{"x-max-length": 1, "x-overflow": "reject-publish"})
    other = private(channel)
    transacted = connection.channel()
    transacted.tx_select()
    publish(transacted, other, b"x")
    publish(transacted, full, b"1", b"2")
    with refused(406, f"transaction not committed: queue '{full}' is full"):
        transacted.tx_commit()
    assert (ready(channel, full), ready(channel, other)) == (0, 0)
