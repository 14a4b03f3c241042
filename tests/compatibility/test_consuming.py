"""Consuming: qos, acknowledgements, redelivery, cancellation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kombu
import pika
import pytest
from pika.exceptions import UnroutableError

from tests.broker.server.live import Live
from tests.compatibility.clients import (
    PATIENCE,
    Got,
    cut_off,
    drained,
    private,
    publish,
    ready,
    refused,
    wait_until,
)

New = Callable[[str], str]
TEN = [b"%d" % n for n in range(10)]


def test_prefetch_of_a_consumer(connection: Any, channel: Any) -> None:
    queue = private(channel)
    publish(channel, queue, *TEN)
    channel.basic_qos(prefetch_count=3)
    one, two = Got(), Got()
    channel.basic_consume(queue, one)
    one.wait(connection, 3)
    channel.basic_consume(queue, two)
    two.wait(connection, 3)
    assert ready(channel, queue) == 4
    assert (one.bodies, two.bodies) == (TEN[:3], TEN[3:6])
    channel.basic_ack(one[0][0].delivery_tag)
    one.wait(connection, 4)


def test_prefetch_of_a_channel(connection: Any, channel: Any) -> None:
    queue = private(channel)
    publish(channel, queue, *TEN)
    channel.basic_qos(prefetch_count=3, global_qos=True)
    got = Got()
    for _ in range(2):
        channel.basic_consume(queue, got)
    got.wait(connection, 3)
    assert ready(channel, queue) == 7
    channel.basic_ack(got[-1][0].delivery_tag, multiple=True)
    got.wait(connection, 6)
    assert ready(channel, queue) == 4


def test_prefetch_that_celery_raises(live: Live, new: New) -> None:
    """The calls of `celery.worker.consumer.tasks`: each task with an ETA raises the prefetch by one. Three
    queues with a prefetch of one have one message at work, not three."""
    with kombu.Connection(f"amqp://guest:guest@{live.host}:{live.port}//") as connection:
        channel = connection.default_channel
        everywhere = not connection.qos_semantics_matches_spec
        channel.basic_qos(0, 1, everywhere)
        queues = [kombu.Queue(new("celery"), exclusive=True) for _ in range(3)]
        got: list[Any] = []
        consumer = kombu.Consumer(channel, queues, accept=["json"], callbacks=[lambda *a: got.append(a)])
        consumer.consume()
        producer = kombu.Producer(channel)
        for queue in queues:
            producer.publish({}, routing_key=queue.name)  # which hears what has come meanwhile
        while not got:
            connection.drain_events(timeout=PATIENCE)
        assert sum(channel.queue_declare(q.name, passive=True).message_count for q in queues) == 2
        assert len(got) == 1
        for most in (2, 3):
            consumer.qos(prefetch_count=most, apply_global=everywhere)
            while len(got) < most:
                connection.drain_events(timeout=PATIENCE)


def test_prefetch_size(connection: Any) -> None:
    with cut_off(540, "prefetch_size!=0"):
        connection.channel().basic_qos(prefetch_size=1000)


def test_automatic_acknowledgement(connection: Any, channel: Any) -> None:
    queue = private(channel)
    publish(channel, queue, *TEN)
    channel.basic_qos(prefetch_count=1)
    got = Got()
    channel.basic_consume(queue, got, auto_ack=True)
    assert got.wait(connection, 10).bodies == TEN


def test_round_robin(connection: Any, channel: Any) -> None:
    queue = private(channel)
    channel.basic_qos(prefetch_count=5)
    one, two = Got(), Got()
    for got in (one, two):
        channel.basic_consume(queue, got)
    publish(channel, queue, *TEN)
    wait_until(connection, lambda: len(one) + len(two) == 10)
    assert sorted(one.bodies + two.bodies) == TEN
    assert (len(one), len(two)) == (5, 5)


def test_requeue_to_the_original_place(channel: Any) -> None:
    queue = private(channel)
    publish(channel, queue, *TEN[:4])
    tags = [channel.basic_get(queue)[0].delivery_tag for _ in range(3)]
    channel.basic_nack(tags[2], requeue=True)
    channel.basic_reject(tags[0], requeue=True)
    channel.basic_nack(tags[1], requeue=False)
    again = [channel.basic_get(queue, auto_ack=True) for _ in range(3)]
    assert [(method.redelivered, body) for method, _, body in again] == [
        (True, b"0"), (True, b"2"), (False, b"3")
    ]  # fmt: skip


def test_what_a_closed_channel_held_comes_back(connection: Any, channel: Any) -> None:
    queue = private(channel)
    publish(channel, queue, b"x")
    other = connection.channel()
    assert other.basic_get(queue)[0].redelivered is False
    other.close()
    assert channel.basic_get(queue)[0].redelivered is True


def test_recover(channel: Any, connection: Any) -> None:
    queue = private(channel)
    publish(channel, queue, *TEN[:3])
    for _ in range(3):
        channel.basic_get(queue)
    channel.basic_recover(requeue=True)
    assert drained(channel, queue) == TEN[:3]
    with cut_off(540, "requeue=false"):
        connection.channel().basic_recover(requeue=False)


def test_unknown_delivery_tag(connection: Any) -> None:
    channel = connection.channel()
    channel.basic_ack(99)
    with refused(406, "unknown delivery tag 99"):
        private(channel)


def test_cancel_notification(connection: Any, channel: Any, new: New) -> None:
    queue = new("q")
    channel.queue_declare(queue)
    cancelled: list[Any] = []
    channel.add_on_cancel_callback(cancelled.append)
    tag = channel.basic_consume(queue, Got())
    connection.channel().queue_delete(queue)
    wait_until(connection, lambda: cancelled)
    assert cancelled[0].method.consumer_tag == tag


def test_a_queue_deleted_by_its_consumer(live: Live) -> None:
    with kombu.Connection(f"amqp://guest:guest@{live.host}:{live.port}//") as connection:
        channel = connection.channel()
        channel.queue_declare("deleted by its consumer")
        channel.basic_consume("deleted by its consumer", callback=lambda message: None)
        assert channel.queue_delete("deleted by its consumer") == 0


def test_cancel_leaves_what_was_delivered_outstanding(connection: Any, channel: Any) -> None:
    queue = private(channel)
    publish(channel, queue, *TEN)
    channel.basic_qos(prefetch_count=4)
    got = Got()
    tag = channel.basic_consume(queue, got)
    got.wait(connection, 4)
    channel.basic_cancel(tag)
    assert ready(channel, queue) == 6
    channel.basic_nack(0, multiple=True)
    assert ready(channel, queue) == 10


def test_exclusive_consumer(connection: Any, channel: Any) -> None:
    queue = private(channel)
    channel.basic_consume(queue, Got(), exclusive=True)
    with refused(403, f"queue '{queue}' in vhost '/' in exclusive use"):
        connection.channel().basic_consume(queue, Got())


def test_consumer_tag_twice(connection: Any, channel: Any) -> None:
    queue = private(channel)
    channel.basic_consume(queue, Got(), consumer_tag="same")
    connection.channel().basic_consume(queue, Got(), consumer_tag="same")  # another channel's
    channel._impl._consumers.pop("same")  # pika would not ask
    channel._consumer_infos.pop("same")
    with cut_off(530, "attempt to reuse consumer tag 'same'"):
        channel.basic_consume(queue, Got(), consumer_tag="same")


def test_get(channel: Any) -> None:
    queue = private(channel)
    assert channel.basic_get(queue) == (None, None, None)
    publish(channel, queue, b"1", b"2")
    method, _, body = channel.basic_get(queue)
    assert (method.message_count, method.exchange, method.routing_key, body) == (1, "", queue, b"1")


def test_flow(connection: Any, channel: Any) -> None:
    queue = private(channel)
    got = Got()
    channel.basic_consume(queue, got, auto_ack=True)
    assert channel.flow(False) is False
    publish(channel, queue, b"x")
    assert ready(channel, queue) == 1
    assert channel.flow(True) is True
    got.wait(connection, 1)


def test_consumer_priorities(connection: Any, channel: Any) -> None:
    """All go to the consumer of the highest priority that has room, and to others once it has none."""
    queue = private(channel)
    low, normal, high = Got(), Got(), Got()
    channel.basic_consume(queue, low, arguments={"x-priority": -1})
    channel.basic_consume(queue, normal)
    channel.basic_qos(prefetch_count=4)
    channel.basic_consume(queue, high, arguments={"x-priority": 10})
    publish(channel, queue, *TEN[:6])
    wait_until(connection, lambda: len(high) + len(normal) + len(low) == 6)
    assert (high.bodies, normal.bodies, low) == (TEN[:4], TEN[4:6], [])
    channel.basic_ack(high[1][0].delivery_tag, multiple=True)
    publish(channel, queue, *TEN[6:9])
    wait_until(connection, lambda: len(high) + len(normal) + len(low) == 9)
    assert (high.bodies[4:], normal.bodies[2:], low) == (TEN[6:8], TEN[8:9], [])


def test_single_active_consumer_and_priorities(connection: Any, channel: Any, new: New) -> None:
    """As in RabbitMQ's classic queues, one that came first stays active; its successor has the highest
    priority."""
    queue, got = new("single"), {priority: Got() for priority in (0, 1, 5)}
    channel.queue_declare(queue, arguments={"x-single-active-consumer": True})
    tags = [
        channel.basic_consume(queue, mine, arguments={"x-priority": priority}, auto_ack=True)
        for priority, mine in got.items()
    ]
    publish(channel, queue, b"a")
    got[0].wait(connection, 1)
    channel.basic_cancel(tags[0])
    publish(channel, queue, b"b")
    got[5].wait(connection, 1)
    assert not got[1]
    channel.queue_delete(queue)


WRONG = [
    ("x-priority", "banana", '"expected integer, got longstr"'),
    ("x-priority", True, '"expected integer, got bool"'),
    ("x-priority", None, '"expected integer, got void"'),
    ("x-priority", {}, '"expected integer, got table"'),
    ("x-priority", [1, 2, 3], '"expected integer, got array"'),
    ("x-cancel-on-ha-failover", 1, "{unacceptable_type,signedint}"),
]


@pytest.mark.parametrize(("name", "value", "text"), WRONG)
def test_arguments_of_a_consumer_of_a_wrong_type(
    connection: Any, channel: Any, name: str, value: Any, text: str
) -> None:
    queue, got = private(channel), Got()
    told = f"PRECONDITION_FAILED - invalid arg '{name}' for queue '{queue}' in vhost '/': "
    with refused(406, told + text):
        connection.channel().basic_consume(queue, got, arguments={name: value}, consumer_tag="c")
    channel.basic_consume(queue, got, arguments={name: 5 if name == "x-priority" else True}, consumer_tag="c")
    publish(channel, queue, b"x")
    got.wait(connection, 1)


def test_single_active_consumer(connect: Callable[..., Any], connection: Any, new: New) -> None:
    """The one that came first gets all. When it goes, the next one takes over."""
    queue, first, one, two = new("single"), connect(), Got(), Got()
    channel = connection.channel()
    channel.queue_declare(queue, arguments={"x-single-active-consumer": True})
    active = first.channel()
    active.basic_consume(queue, one)
    channel.basic_consume(queue, two)
    with refused(403, f"queue '{queue}' in vhost '/' in exclusive use"):
        connection.channel().basic_consume(queue, Got(), exclusive=True)
    publish(channel, queue, *TEN)
    one.wait(first, 10)
    active.basic_ack(one[2][0].delivery_tag, multiple=True)
    assert one.bodies == TEN and not two
    first.close()
    two.wait(connection, 7)
    assert two.bodies == TEN[3:]
    assert all(method.redelivered for method, _, _ in two)
    channel.queue_delete(queue)


REPLY_TO = "amq.rabbitmq.reply-to"


def test_direct_reply_to(connect: Callable[..., Any], connection: Any, channel: Any, new: New) -> None:
    """A request names the requester's channel, and the reply comes to its consumer, as pika's tutorial does
    it. Somebody may ask whether the requester still waits."""
    server, replies, requests, queue = connect(), Got(), Got(), new("requests")
    responder = server.channel()
    responder.queue_declare(queue, auto_delete=True)
    responder.basic_consume(queue, requests, auto_ack=True)
    tag = channel.basic_consume(REPLY_TO, replies, auto_ack=True)
    for number in range(3):
        publish(channel, queue, b"?", reply_to=REPLY_TO, correlation_id=str(number), headers={"a": number})
    requests.wait(server, 3)
    names = {properties.reply_to for _, properties, _ in requests}
    (name,) = names
    assert name.startswith(REPLY_TO + ".") and requests[2][1].headers == {"a": 2}
    assert responder.queue_declare(name, passive=True).method.consumer_count == 1
    for _, properties, _ in requests:
        responder.basic_publish(
            "", properties.reply_to, b"!", pika.BasicProperties(correlation_id=properties.correlation_id)
        )
    replies.wait(connection, 3)
    assert [(method.exchange, method.routing_key) for method, _, _ in replies] == [("", name)] * 3
    assert [properties.correlation_id for _, properties, _ in replies] == ["0", "1", "2"]
    channel.basic_cancel(tag)
    with refused(404, f"no queue '{name}' in vhost '/'"):
        responder.queue_declare(name, passive=True)
    responder = server.channel()
    responder.confirm_delivery()
    with pytest.raises(UnroutableError):
        responder.basic_publish("", name, b"late", mandatory=True)


def test_direct_reply_to_that_cannot_be(connection: Any) -> None:
    with refused(406, "reply consumer cannot acknowledge"):
        connection.channel().basic_consume(REPLY_TO, Got())
    channel = connection.channel()
    channel.basic_consume(REPLY_TO, Got(), auto_ack=True)
    with refused(406, "reply consumer already set"):
        channel.basic_consume(REPLY_TO, Got(), auto_ack=True)
    channel = connection.channel()
    with refused(406, "fast reply consumer does not exist"):
        publish(channel, "nobody", b"?", reply_to=REPLY_TO)
        channel.queue_declare("", exclusive=True)
    assert connection.channel().queue_declare(REPLY_TO, passive=True).method.consumer_count == 1
    with refused(404):
        connection.channel().basic_get(REPLY_TO)


def test_consumer_timeout(connect: Callable[..., Any], connection: Any, channel: Any, new: New) -> None:
    """A message that is out for too long comes back, and costs its channel."""
    queue, got, next_one = new("slow"), Got(), Got()
    channel.queue_declare(queue, arguments={"x-consumer-timeout": 200})
    publish(channel, queue, b"task")
    channel.basic_consume(queue, got)
    got.wait(connection, 1)
    with refused(406, "delivery acknowledgement on channel 1 timed out. Timeout value used: 200 ms. This"):
        channel.start_consuming()
    other = connect()
    other.channel().basic_consume(queue, next_one, auto_ack=True)
    next_one.wait(other, 1)
    assert next_one[0][0].redelivered
    other.channel().queue_delete(queue)


def test_browsing(connect: Callable[..., Any], connection: Any, channel: Any) -> None:
    """Not in RabbitMQ: a consumer that sees what is ready, and what comes later, and takes none of it."""
    queue, seen, taken = private(channel), Got(), Got()
    publish(channel, queue, *TEN[:5])
    tag = channel.basic_consume(queue, seen, auto_ack=True, arguments={"x-browse": True})
    assert seen.wait(connection, 5).bodies == TEN[:5]
    publish(channel, queue, *TEN[5:])
    assert seen.wait(connection, 10).bodies == TEN
    assert ready(channel, queue) == 10
    channel.basic_consume(queue, taken, exclusive=True)
    assert taken.wait(connection, 10).bodies == TEN and len(seen) == 10
    channel.basic_cancel(tag)
    with refused(406, "a browsing consumer cannot acknowledge"):
        connection.channel().basic_consume(queue, seen, arguments={"x-browse": True})
    with refused(406, "invalid arg 'x-browse'"):
        connection.channel().basic_consume(queue, seen, auto_ack=True, arguments={"x-browse": 1})
