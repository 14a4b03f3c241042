"""Producers that number their messages, on the wire: what comes again is not enqueued again."""

from __future__ import annotations

from typing import Any

import pytest

from broker.model.history.records import Duplicate, EnqueueRun, Numbering
from broker.model.vhost.producers import LONGEST_JUMP
from broker.security.authenticator import hash_password
from broker.security.identity import User, default_users
from tests.broker.amqp091.transacting import Batches, bodies, refused
from tests.broker.amqp091.wire import Raw, World, message


def producer(world: World, name: str = "shop", *, mode: str = "confirm", **told: Any) -> Raw:
    client = world.open(properties={"producer_id": name, **{f"producer_{k}": v for k, v in told.items()}})
    assert client.call(1, f"{mode}.select").name == f"{mode}.select-ok"
    return client


def world_with(*queues: str, **arguments: Any) -> World:
    world = World()
    client = world.open()
    client.call(1, "exchange.declare", exchange="all", type="fanout")
    for name in queues:
        client.call(1, "queue.declare", queue=name, arguments=arguments)
        client.call(1, "queue.bind", queue=name, exchange="all")
    return world


def send(client: Raw, *texts: bytes, exchange: str = "all", key: str = "") -> list[str]:
    """Publish in one tick. The names of the answers."""
    client.raw(b"".join(message(1, text, exchange, key) for text in texts))
    client.world.pass_time(0.1)
    return client.names()


def test_what_is_sent_again_after_a_lost_connection_is_enqueued_once() -> None:
    world = world_with("q")
    assert send(producer(world), b"1", b"2", b"3") == ["basic.ack"]
    again = producer(world, next=2)
    assert send(again, b"2", b"3", b"4") == ["basic.ack"]
    assert bodies(world, "q") == [b"1", b"2", b"3", b"4"]
    assert world.vhost.shared.producers.duplicates == 2


def test_a_consumed_message_does_not_come_again() -> None:
    world = world_with("q")
    send(producer(world), b"1")
    world.open().call(1, "basic.get", queue="q", no_ack=True)
    assert send(producer(world), b"1", b"2") == ["basic.ack"]
    assert bodies(world, "q") == [b"2"]


def test_a_fan_out_is_completed_and_not_doubled() -> None:
    world = world_with("a")
    send(producer(world), b"1", b"2")
    setup = world.open()
    setup.call(1, "queue.declare", queue="b")
    setup.call(1, "queue.bind", queue="b", exchange="all")
    batches = Batches()
    world.broker.sinks.append(batches)
    world.vhost.history.ledger_wanted = True
    send(producer(world, next=2), b"2", b"3")
    assert bodies(world, "a") == [b"1", b"2", b"3"]
    assert bodies(world, "b") == [b"2", b"3"]
    records = [record for batch in batches.taken for record in batch.records]
    told = {(r.numbering, r.first) for r in records if isinstance(r, Duplicate)}
    assert told == {(Numbering("shop", 0, 2), 1)}
    firsts = [run.numbering.first for run in records if isinstance(run, EnqueueRun) and run.numbering]
    assert sorted(firsts) == [2, 3]


def test_what_a_full_queue_refused_is_taken_later() -> None:
    world = world_with("q", **{"x-max-length": 1, "x-overflow": "reject-publish"})
    assert send(producer(world), b"1", b"2", b"3") == ["basic.ack", "basic.nack"]
    world.open().call(1, "basic.get", queue="q", no_ack=True)
    assert send(producer(world, next=2), b"2", b"3") == ["basic.ack", "basic.nack"]
    assert bodies(world, "q") == [b"2"]


def test_a_queue_that_is_made_again_starts_afresh() -> None:
    world = world_with("q")
    send(producer(world), b"1")
    setup = world.open()
    setup.call(1, "queue.delete", queue="q")
    setup.call(1, "queue.declare", queue="q")
    send(producer(world), b"1", exchange="", key="q")
    assert bodies(world, "q") == [b"1"]
    assert list(world.vhost.shared.producers.queues_of("/", "shop")) == [world.vhost.queues["q"]]


def test_a_transaction_marks_at_its_commit() -> None:
    world = world_with("q")
    client = producer(world, mode="tx")
    send(client, b"1")
    client.call(1, "tx.rollback")
    again = producer(world, mode="tx")
    send(again, b"1")
    assert again.call(1, "tx.commit").name == "tx.commit-ok"
    third = producer(world, mode="tx")
    send(third, b"1", b"2")
    assert third.call(1, "tx.commit").name == "tx.commit-ok"
    assert bodies(world, "q") == [b"1", b"2"]


def test_a_commit_that_only_repeats_needs_no_room() -> None:
    world = world_with("q", **{"x-max-length": 2, "x-overflow": "reject-publish"})
    for texts in ((b"1", b"2"), (b"1", b"2")):
        client = producer(world, mode="tx")
        send(client, *texts)
        assert client.call(1, "tx.commit").name == "tx.commit-ok"
    send(client, b"3")
    client.send(1, "tx.commit")
    refused(client, 406, "transaction not committed: queue 'q' is full")
    assert bodies(world, "q") == [b"1", b"2"]


def test_the_newcomer_fences_the_older_session() -> None:
    world = world_with("q")
    old = producer(world, epoch=3)
    new = producer(world, epoch=3)
    refused(old, 403, "producer 'shop' goes on at another connection")
    newer = producer(world, epoch=4)
    refused(new, 403, "producer 'shop' goes on at another connection")
    late = world.open(properties={"producer_id": "shop", "producer_epoch": 3})
    late.send(1, "confirm.select")
    refused(late, 403, "producer 'shop' has a newer process (epoch 4; this is 3)")
    assert send(newer, b"1") == ["basic.ack"] and bodies(world, "q") == [b"1"]


def test_another_user_is_refused() -> None:
    world = World(users=(*default_users(), User("other", password_hash=hash_password("other"))))
    producer(world)
    other = world.open(user="other", password="other", properties={"producer_id": "shop"})
    other.send(1, "confirm.select")
    refused(other, 403, "producer 'shop' is of another user")


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"producer_id": 7}, "producer_id is a text of 1 to 255 octets, not 7"),
        ({"producer_id": ""}, "producer_id is a text of 1 to 255 octets, not ''"),
        ({"producer_id": "x" * 256}, "producer_id is a text of 1 to 255 octets, not 'xxx"),
        ({"producer_id": "\0"}, "producer_id is a text of 1 to 255 octets, not '\\x00'"),
        ({"producer_id": "p", "producer_next": 0}, "producer_next is a whole number from 1 to 2^62, not 0"),
        ({"producer_id": "p", "producer_next": 2**63 - 1}, "producer_next is a whole number from 1 to 2^62"),
        ({"producer_id": "p", "producer_epoch": "x"}, "producer_epoch is a whole number from 0 to 2^62, not"),
        ({"producer_id": "p", "producer_epoch": True}, "producer_epoch is a whole number from 0 to 2^62"),
        ({"producer_next": 1}, "producer_next without producer_id"),
        ({"producer_id": "shop", "producer_next": LONGEST_JUMP + 5001}, "too far above its last one (5000)"),
        (
            {"producer_id": "shop", "producer_next": 3976},
            "goes on with number 3976, but has had 5000: at most",
        ),
    ],
)
def test_a_claim_that_cannot_be_is_refused_in_one_line(told: dict[str, Any], why: str) -> None:
    world = world_with("q")
    send(producer(world, next=5000), b"x")
    client = world.open(properties=told)
    client.send(1, "confirm.select")
    seen = refused(client, 406, "PRECONDITION_FAILED")
    assert why in seen["reply_text"] and "\n" not in seen["reply_text"]


def test_one_channel_of_a_connection_has_the_numbers() -> None:
    client = producer(world_with("q"))
    client.call(2, "channel.open")
    client.send(2, "confirm.select")
    (seen,) = client.read()
    assert seen.name == "channel.close" and "open another connection" in seen["reply_text"]


def test_producers_beyond_the_limit_are_forgotten_the_idlest_first() -> None:
    world = world_with("q")
    producers = world.vhost.shared.producers
    producers.most = 2
    first, second = producer(world, "first"), producer(world, "second")
    send(first, b"1")
    third = world.open(properties={"producer_id": "third"})
    third.send(1, "confirm.select")
    refused(third, 406, "2 producers are connected, and there may be no more (producers.most)")
    first.connection.lost(world.now)
    second.connection.lost(world.now)
    producer(world, "third")
    assert {name for _, name in world.vhost.shared.directory.producers} == {"second", "third"}
    assert producers.forgotten == 1 and not producers.queues_of("/", "first")
    (said,) = [line for line in world.logged if "forgotten" in line]
    why = "there may be 2 (producers.most)"
    assert said == f"producer 'first' of virtual host '/' is forgotten: {why} (producer-forgotten)"
    assert send(producer(world, "first"), b"1") == ["basic.ack"]
    assert bodies(world, "q") == [b"1", b"1"], "it had been forgotten"


def test_a_producer_that_was_idle_for_its_time_is_forgotten() -> None:
    world = world_with("q")
    producers = world.vhost.shared.producers
    producers.idle = 60.0
    client, other = producer(world), producer(world, "other")
    send(client, b"1")
    client.connection.lost(world.now)
    world.pass_time(59)
    assert producers.queues_of("/", "shop")
    world.pass_time(2)
    assert {name for _, name in world.vhost.shared.directory.producers} == {"other"}
    assert not producers.queues_of("/", "shop")
    assert send(other, b"2") == ["basic.ack"]
