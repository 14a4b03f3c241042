"""Senders whose messages have numbers: what comes again is accepted, and not enqueued again."""

from __future__ import annotations

from typing import Any

from proton import Delivery, Endpoint, Message, symbol, ulong

from broker.model.history.marks import last_of
from tests.broker.amqp10.wire import Talker, world10


def told(number: int, **more: Any) -> dict[Any, Any]:
    return {symbol("producer_id"): "shop", symbol("producer_next"): number} | {
        symbol(key): value for key, value in more.items()
    }


def sender(talker: Talker, number: int, **more: Any) -> Any:
    """The attach is answered once the producer is known."""
    link = talker.sender("q", properties=told(number, **more))
    talker.world.pass_time(0.1)
    talker.turn()
    return link


def states(sent: list[Delivery]) -> list[Any]:
    return [delivery.remote_state for delivery in sent]


def test_a_link_goes_on_with_its_old_numbers_and_fences_the_one_before() -> None:
    world = world10()
    world.open().call(1, "queue.declare", queue="q")
    old = Talker(world)
    first = sender(old, 1)
    old.send(first, *(Message(body=text) for text in "ab"))
    talker = Talker(world)
    link = sender(talker, 2, producer_epoch=1)
    sent = talker.send(link, *(Message(body=text) for text in "bc"))
    assert states(sent) == [Delivery.ACCEPTED] * 2
    assert world.vhost.queues["q"].message_count == 3
    old.turn()
    assert first.state & Endpoint.REMOTE_CLOSED
    assert first.remote_condition.name == "amqp:unauthorized-access"
    assert "producer 'shop' goes on at another connection" in first.remote_condition.description
    late = talker.sender("q", "late", properties=told(3))
    assert "has a newer process (epoch 1; this is 0)" in late.remote_condition.description


def test_a_claim_that_cannot_be_is_refused_with_its_link() -> None:
    world = world10()
    world.open().call(1, "queue.declare", queue="q")
    talker = Talker(world, properties=told(0))
    assert "producer_next is a whole number from 1" in talker.sender("q").remote_condition.description
    sent_settled = Talker(world).sender("q", settled=True, properties=told(1))
    assert "messages with numbers are not sent settled" in sent_settled.remote_condition.description
    named = Talker(world, properties=told(7))
    link = named.sender("q")
    named.turn()
    named.send(link, Message(body="x"))
    assert last_of(world.vhost.queues["q"].marks["shop"]) == 7


def test_a_number_that_is_too_large_is_named_as_a_number() -> None:
    world = world10()
    world.open().call(1, "queue.declare", queue="q")
    condition = sender(Talker(world), ulong(2**63)).remote_condition
    assert condition.name == "amqp:precondition-failed"
    assert condition.description == f"producer_next is a whole number from 1 to 2^62, not {2**63}"
