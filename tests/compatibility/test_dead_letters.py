"""Dead-letter exchanges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika

from tests.compatibility.clients import Got, drained, private, publish, ready, wait_until

New = Callable[[str], str]


def reject(channel: Any, queue: str) -> None:
    """The next message of `queue` is not wanted."""
    channel.basic_reject(channel.basic_get(queue)[0].delivery_tag, requeue=False)


def test_rejected(channel: Any, new: New) -> None:
    exchange, dead = new("dlx"), private(channel)
    channel.exchange_declare(exchange, "fanout")
    channel.queue_bind(dead, exchange)
    queue = private(channel, **{"x-dead-letter-exchange": exchange})
    sent = {"priority": 3, "message_id": "m", "delivery_mode": 2, "headers": {"mine": [1]}}
    publish(channel, queue, b"x", expiration="600000", **sent)
    reject(channel, queue)
    method, properties, body = channel.basic_get(dead)
    assert (method.exchange, method.routing_key, method.redelivered, body) == (exchange, queue, False, b"x")
    headers = properties.headers
    (death,) = headers.pop("x-death")
    assert death.pop("time").year > 2000
    assert death == {
        "count": 1, "reason": "rejected", "queue": queue, "exchange": "", "routing-keys": [queue],
        "original-expiration": "600000",
    }  # fmt: skip
    assert headers == {
        "mine": [1],
        "x-first-death-reason": "rejected", "x-first-death-queue": queue, "x-first-death-exchange": "",
        "x-last-death-reason": "rejected", "x-last-death-queue": queue, "x-last-death-exchange": "",
    }  # fmt: skip
    assert (properties.priority, properties.message_id, properties.delivery_mode) == (3, "m", 2)
    assert properties.expiration is None


def test_dead_letter_routing_key_replaces_all_others(channel: Any) -> None:
    dead, copy = private(channel), private(channel)
    queue = private(channel, **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    publish(channel, queue, b"x", headers={"CC": [copy]})
    drained(channel, copy)
    reject(channel, queue)
    method, properties, _ = channel.basic_get(dead)
    assert method.routing_key == dead
    assert "CC" not in properties.headers
    assert properties.headers["x-death"][0]["routing-keys"] == [queue, copy]
    assert ready(channel, copy) == 0


def test_dead_letters_keep_their_routing_keys(channel: Any, new: New) -> None:
    exchange, dead, copy = new("dlx"), private(channel), new("copy")
    channel.exchange_declare(exchange, "direct")
    channel.queue_bind(dead, exchange, copy)
    queue = private(channel, **{"x-dead-letter-exchange": exchange})
    publish(channel, queue, b"x", headers={"CC": [copy]})
    reject(channel, queue)
    assert channel.basic_get(dead)[1].headers["CC"] == [copy]


def test_history_of_deaths(channel: Any) -> None:
    one = private(channel)
    first = private(channel, **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": one})
    publish(channel, first, b"x")
    reject(channel, first)
    for _ in range(2):  # a client sends it back, with its history, as RabbitMQ's did up to 3.13
        _, properties, body = channel.basic_get(one, auto_ack=True)
        channel.basic_publish("", first, body, properties)
        reject(channel, first)
    _, properties, _ = channel.basic_get(one)
    assert [(death["queue"], death["count"]) for death in properties.headers["x-death"]] == [(first, 3)]


def test_an_exchange_that_is_missing_takes_no_dead_letters(channel: Any) -> None:
    queue = private(channel, **{"x-dead-letter-exchange": "nowhere"})
    publish(channel, queue, b"x")
    reject(channel, queue)
    assert ready(channel, queue) == 0
    publish(channel, queue, b"the channel lives on")
    assert ready(channel, queue) == 1


def test_an_internal_exchange_takes_dead_letters(channel: Any, new: New) -> None:
    exchange, dead = new("dlx"), private(channel)
    channel.exchange_declare(exchange, "fanout", internal=True)
    channel.queue_bind(dead, exchange)
    queue = private(channel, **{"x-dead-letter-exchange": exchange})
    publish(channel, queue, b"x")
    reject(channel, queue)
    assert drained(channel, dead) == [b"x"]


def test_dead_letters_by_headers(channel: Any, new: New) -> None:
    exchange, dead = new("dlx"), private(channel)
    channel.exchange_declare(exchange, "headers")
    channel.queue_bind(dead, exchange, "", {"x-match": "all", "kind": "a"})
    queue = private(channel, **{"x-dead-letter-exchange": exchange})
    for kind in ("a", "b"):
        publish(channel, queue, kind.encode(), headers={"kind": kind})
        reject(channel, queue)
    assert drained(channel, dead) == [b"a"]


def test_a_cycle_without_a_rejection_ends(connection: Any, channel: Any) -> None:
    name = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_delete(name)
    watch = private(channel)
    channel.queue_bind(watch, "amq.direct", name)
    round_ = {"x-message-ttl": 20, "x-dead-letter-exchange": "amq.direct", "x-dead-letter-routing-key": name}
    queue = private(channel, **round_)
    channel.queue_bind(queue, "amq.direct", name)
    publish(channel, queue, b"x")
    wait_until(connection, lambda: ready(channel, watch) == 1)
    assert ready(channel, queue) == 0  # not there again, although the exchange routes it there


def test_a_dead_letter_of_many_headers_is_no_cycle(connection: Any, channel: Any) -> None:
    dead = private(channel)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead, "x-max-length": 0}
    publish(channel, private(channel, **arguments), b"x", headers={"long": "y" * 20_000})
    wait_until(connection, lambda: drained(channel, dead) == [b"x"])


def test_a_cycle_with_a_rejection_goes_on(connection: Any, channel: Any, new: New) -> None:
    """Tried again after a while: the usual pair of a work queue and a delay queue."""
    work, delay = new("work"), new("delay")
    for queue, other, more in ((work, delay, {}), (delay, work, {"x-message-ttl": 10})):
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": other, **more}
        channel.queue_declare(queue, arguments=arguments)
    got = Got()
    channel.basic_consume(work, got)
    publish(channel, work, b"x")
    for turn in range(1, 5):
        got.wait(connection, turn)
        channel.basic_reject(got[-1][0].delivery_tag, requeue=False)
    got.wait(connection, 5)
    deaths = got[-1][1].headers["x-death"]
    assert [(death["queue"], death["reason"], death["count"]) for death in deaths] == [
        (delay, "expired", 4), (work, "rejected", 4)
    ]  # fmt: skip


def test_purged_and_deleted_messages_are_no_dead_letters(channel: Any, new: New) -> None:
    dead, queue = private(channel), new("q")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    for end in (channel.queue_purge, channel.queue_delete):
        channel.queue_declare(queue, arguments=arguments)
        publish(channel, queue, b"x")
        end(queue)
    assert ready(channel, dead) == 0


def test_forged_history_of_deaths(channel: Any) -> None:
    dead = private(channel)
    queue = private(channel, **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    for forged in ("x", [1, {"queue": 5}], [{"queue": dead, "reason": "expired", "count": -1}]):
        channel.basic_publish("", queue, b"x", pika.BasicProperties(headers={"x-death": forged}))
        reject(channel, queue)
        (death,) = channel.basic_get(dead)[1].headers["x-death"]
        assert (death["queue"], death["count"]) == (queue, 1)
