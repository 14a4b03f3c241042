"""kombu and Celery's way of using a broker: confirms, consumers, pools, SimpleQueue."""

from __future__ import annotations

from typing import Any

import kombu
import pytest
from kombu.pools import producers

from tests.broker.server.live import Live


@pytest.mark.parametrize("confirm", [True, False])
def test_produce_and_consume(live: Live, confirm: bool) -> None:
    exchange = kombu.Exchange("tasks", "topic", durable=True)
    queue = kombu.Queue("tasks.all", exchange, routing_key="tasks.#")
    got: list[Any] = []

    def on_message(body: Any, message: Any) -> None:
        got.append(body)
        message.ack()

    with kombu.Connection(live.url, transport_options={"confirm_publish": confirm}) as connection:
        producer = connection.Producer()
        for n in range(50):
            producer.publish(
                {"n": n}, exchange=exchange, routing_key=f"tasks.{n}", declare=[queue], retry=True
            )
        with connection.Consumer(queue, callbacks=[on_message], prefetch_count=7):
            while len(got) < 50:
                connection.drain_events(timeout=10)
        assert got == [{"n": n} for n in range(50)]
        assert connection.default_channel.queue_declare("tasks.all", passive=True).message_count == 0


def test_simple_queue_and_large_bodies(live: Live) -> None:
    with kombu.Connection(live.url) as connection, connection.SimpleQueue("simple") as queue:
        queue.put("x" * 500_000)
        message = queue.get(timeout=10)
        assert message.payload == "x" * 500_000
        message.requeue()
        again = queue.get(timeout=10)
        assert again.delivery_info["redelivered"]
        again.reject()


def test_pool_and_fanout(live: Live) -> None:
    with kombu.Connection(live.url) as connection:
        fanout = kombu.Exchange("events", "fanout", durable=False)
        queues = [
            kombu.Queue(f"events.{n}", fanout, auto_delete=True)(connection.channel()) for n in range(3)
        ]
        for queue in queues:
            queue.declare()
        with producers[connection].acquire(block=True) as producer:
            producer.publish("hello", exchange=fanout, serializer="json")
        assert [queue.get(no_ack=True).payload for queue in queues] == ["hello"] * 3


def test_failover_list_skips_a_dead_address(live: Live) -> None:
    dead = "amqp://guest:guest@127.0.0.1:1//"
    with kombu.Connection([dead, live.url]) as connection:
        connection.ensure_connection(max_retries=3, interval_start=0, interval_step=0)
        assert connection.connected
