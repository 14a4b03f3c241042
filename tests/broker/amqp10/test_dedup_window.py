"""Senders to a queue with `x-dedup-window`: the ids are those of AMQP 0-9-1."""

from __future__ import annotations

from typing import Any

from proton import Delivery, Message, symbol

from tests.broker.amqp10.wire import Talker, world10


def test_an_id_that_comes_again_is_accepted_and_one_that_cannot_be_is_rejected_alone() -> None:
    world = world10()
    client = world.open()
    client.call(1, "queue.declare", queue="q", arguments={"x-dedup-window": 100})
    talker = Talker(world)
    told: list[dict[str, Any]] = [
        {"id": "a"}, {"id": "b", "properties": {"x-dedup-id": "a"}}, {"id": 7}, {"id": "7"},
        {"id": b"\xff\0"}, {"id": b"\xff\0"}, {"properties": {"x-dedup-id": "x" * 1025}}, {"id": "c"}, {},
        {"properties": {"x-dedup-id": "x" * 65536}}, {"annotations": {symbol("x-dedup-id"): {"a": 1}}},
    ]  # fmt: skip
    sent = talker.send(talker.sender("q"), *(Message(body="x", **each) for each in told))
    states = [delivery.remote_state for delivery in sent]
    taken, refused = Delivery.ACCEPTED, Delivery.REJECTED
    assert states == [taken] * 6 + [refused] + [taken] * 2 + [refused] * 2
    wanted = "x-dedup-id is a text of 1 to 1024 octets"
    for at, why in ((6, f"{wanted}, not of 1025"), (9, wanted), (10, f"{wanted}, not of type table")):
        condition = sent[at].remote.condition
        assert (condition.name, condition.description) == ("amqp:precondition-failed", why)
    assert world.vhost.queues["q"].message_count == 5
    client.raw(b"")
    assert world.vhost.shared.known_ids == 3
