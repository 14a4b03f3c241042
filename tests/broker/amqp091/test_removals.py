"""Messages removed by rules, because they expired or exceed a limit; and the targets of dead letters."""

from __future__ import annotations

from typing import Any

import pytest

from broker.amqp091.codec.properties import headers_of
from broker.model.history.batch import Batch
from broker.model.history.records import Dequeue, EnqueueRun
from broker.model.queue.cut import held_after
from broker.model.queue.removals import AT_ONCE, ROUNDS
from broker.model.values import Reason
from tests.broker.amqp091.wire import Raw, World, message


class Ledger:
    """A sink that records which messages left, why, and in which batch."""

    def __init__(self, world: World) -> None:
        self.batches: list[Batch] = []
        world.vhost.history.sinks.append(self)
        world.vhost.history.ledger_wanted = True

    def batch(self, batch: Batch) -> None:
        self.batches.append(batch)

    def left(self, queue: bytes) -> dict[Reason, int]:
        found: dict[Reason, int] = {}
        for batch in self.batches:
            for record in batch.records:
                if isinstance(record, Dequeue) and record.queue == queue:
                    count = sum(high - low + 1 for low, high in record.ranges)
                    found[record.reason] = found.get(record.reason, 0) + count
        return found


class Shop:
    """A broker with one client and queue `q`, declared with `arguments`."""

    def __init__(self, **arguments: Any) -> None:
        self.world = World()
        self.client = self.world.open()
        self.ledger = Ledger(self.world)
        self.client.call(1, "queue.declare", queue="q", arguments=_named(arguments))
        self.queue = self.world.vhost.queues["q"]

    def publish(self, *bodies: str, expiration: str = "", queue: str = "q") -> None:
        properties = b"\0\0"
        if expiration:
            properties = b"\x01\0" + bytes([len(expiration)]) + expiration.encode()
        self.client.raw(
            b"".join(message(1, b.encode(), routing_key=queue, properties=properties) for b in bodies)
        )

    def declare(self, name: str, **arguments: Any) -> None:
        self.client.call(1, "queue.declare", queue=name, arguments=_named(arguments))

    def consume(self, queue: str = "q", channel: int = 1) -> None:
        self.client.send(channel, "basic.consume", queue=queue, consumer_tag=f"c{channel}")

    def bodies(self) -> list[str]:
        return [seen.body.decode() for seen in self.client.read() if seen.name == "basic.deliver"]

    def drain(self, queue: str) -> list[str]:
        found = []
        while (seen := self.client.call(1, "basic.get", queue=queue, no_ack=True)).name == "basic.get-ok":
            found.append(seen.body.decode())
        return found

    def left(self) -> dict[Reason, int]:
        self.world.pass_time(0.02)
        return self.ledger.left(self.queue.uuid)


def _named(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"x-" + name.replace("_", "-"): value for name, value in arguments.items()}


# -- time


def test_a_message_expires_without_a_reader() -> None:
    shop = Shop(message_ttl=100)
    shop.publish("a", "b")
    shop.world.pass_time(0.05)
    shop.publish("c")
    shop.world.pass_time(0.06)
    assert shop.queue.message_count == 1
    assert shop.left() == {Reason.EXPIRED: 2}
    shop.world.pass_time(0.05)
    assert shop.left() == {Reason.EXPIRED: 3}
    assert shop.world.vhost.history.left[Reason.EXPIRED] == 3


def test_the_shorter_of_the_queues_time_and_the_messages_own_counts() -> None:
    shop = Shop(message_ttl=100)
    shop.publish("short", expiration="30")
    shop.publish("long", expiration="5000")
    shop.world.pass_time(0.04)
    assert shop.queue.message_count == 1
    shop.world.pass_time(0.07)
    assert shop.queue.message_count == 0


def test_a_time_of_zero_means_now_or_never() -> None:
    shop = Shop(message_ttl=0)
    shop.publish("never")
    assert shop.left() == {Reason.EXPIRED: 1}
    shop.consume()
    shop.client.read()
    shop.publish("now")
    assert shop.bodies() == ["now"]
    assert shop.left() == {Reason.EXPIRED: 1}


def test_an_expired_message_behind_a_live_one_is_never_delivered() -> None:
    """RabbitMQ drops it when it reaches the head; until then it counts."""
    shop = Shop()
    shop.publish("lives")
    shop.publish("over", expiration="10")
    shop.publish("lives too")
    shop.world.pass_time(1)
    assert shop.queue.message_count == 3
    shop.consume()
    assert shop.bodies() == ["lives", "lives too"]
    assert shop.left() == {Reason.EXPIRED: 1}


def test_get_returns_no_expired_message() -> None:
    shop = Shop()
    shop.publish("lives")
    shop.publish("over", "over", expiration="10")
    shop.publish("last")
    shop.world.pass_time(1)
    assert shop.drain("q") == ["lives", "last"]
    assert shop.left() == {Reason.EXPIRED: 2, Reason.ACKED: 2}


def test_a_message_returned_after_its_expiry_is_removed() -> None:
    shop = Shop(message_ttl=100)
    shop.publish("a")
    tag = shop.client.call(1, "basic.get", queue="q")["delivery_tag"]
    shop.world.pass_time(1)
    assert shop.queue.unacked_count == 1
    shop.client.send(1, "basic.reject", delivery_tag=tag, requeue=True)
    assert shop.left() == {Reason.EXPIRED: 1}


def test_two_consumers_share_the_unexpired_messages() -> None:
    shop = Shop()
    shop.client.call(2, "channel.open")
    for number in range(10):
        shop.publish(str(number), expiration="10" if number % 3 == 1 else "")
    shop.world.pass_time(1)
    shop.consume(channel=1)
    shop.consume(channel=2)
    assert sorted(shop.bodies()) == ["0", "2", "3", "5", "6", "8", "9"]
    assert shop.left() == {Reason.EXPIRED: 3}


def test_a_follower_expires_nothing_until_it_is_promoted() -> None:
    """Invariant 18."""
    shop = Shop(message_ttl=100)
    shop.publish("a", "b")
    world = shop.world
    world.broker.close_connections(320, "over", world.now)
    world.tick()
    world.vhost.history.flush(world.now, 0, force=True)
    world.vhost.shared.deactivate()
    world.pass_time(10)
    assert shop.queue.total_count == 2
    world.vhost.shared.activate(2)
    world.tick()
    assert shop.queue.total_count == 0
    assert shop.left() == {Reason.EXPIRED: 2}


# -- limits


def test_the_oldest_leave_a_queue_that_is_too_long() -> None:
    shop = Shop(max_length=3)
    shop.publish(*"abcde")
    assert shop.drain("q") == ["c", "d", "e"]
    assert shop.left() == {Reason.DROPPED: 2, Reason.ACKED: 3}


def test_messages_that_a_consumer_can_take_are_not_dropped() -> None:
    shop = Shop(max_length=1)
    shop.client.call(1, "basic.qos", prefetch_count=2)
    shop.consume()
    shop.client.read()
    shop.publish(*"abcde")
    assert shop.bodies() == ["a", "b"]
    assert shop.left() == {Reason.DROPPED: 2}
    assert (shop.queue.message_count, shop.queue.unacked_count) == (1, 2)


def test_bodies_alone_count_for_a_limit_of_bytes() -> None:
    shop = Shop(max_length_bytes=10)
    shop.publish("aaaa", "bbbb", "cc")
    assert shop.queue.message_count == 3
    shop.publish("d")
    assert shop.drain("q") == ["bbbb", "cc", "d"]
    shop.publish("12345678901")
    assert shop.queue.message_count == 0
    assert shop.queue.ready_octets == 0


def test_octets_are_kept_through_get_back_purge_and_change_of_sides() -> None:
    shop = Shop(max_length_bytes=100)
    shop.publish("aaaa", "bbb", "cc")
    tag = shop.client.call(1, "basic.get", queue="q")["delivery_tag"]
    assert shop.queue.ready_octets == 5
    shop.client.send(1, "basic.nack", delivery_tag=tag, requeue=True)
    assert shop.queue.ready_octets == 9
    shop.world.vhost.history.flush(shop.world.now, 0, force=True)
    shop.world.vhost.shared.deactivate()
    shop.world.vhost.shared.activate(2)
    assert shop.queue.ready_octets == 9
    shop.queue.purge()
    assert shop.queue.ready_octets == 0


def _confirms(client: Raw) -> list[tuple[str, int, bool]]:
    return [(s.name, s["delivery_tag"], s["multiple"]) for s in client.read()]


def test_a_full_queue_refuses_publishes_with_a_nack() -> None:
    shop = Shop(max_length=2, overflow="reject-publish")
    shop.client.call(1, "confirm.select")
    shop.publish("a")
    assert _confirms(shop.client) == [("basic.ack", 1, False)]
    shop.publish(*"bcd")
    assert _confirms(shop.client) == [("basic.ack", 2, False), ("basic.nack", 4, True)]
    shop.publish("e")
    assert _confirms(shop.client) == [("basic.nack", 5, False)]
    assert shop.drain("q") == ["a", "b"]
    shop.publish(*"fg")
    assert _confirms(shop.client) == [("basic.ack", 7, True)]


def test_other_queues_accept_what_one_refuses_with_a_nack() -> None:
    shop = Shop(max_length=1, overflow="reject-publish")
    shop.declare("open")
    for queue in ("q", "open"):
        shop.client.call(1, "queue.bind", queue=queue, exchange="amq.fanout")
    shop.client.call(1, "confirm.select")
    shop.client.raw(b"".join(message(1, b, "amq.fanout") for b in (b"a", b"b", b"c")))
    assert _confirms(shop.client) == [("basic.ack", 1, False), ("basic.nack", 3, True)]
    assert shop.drain("q") == ["a"]
    assert shop.drain("open") == ["a", "b", "c"]


def test_a_limit_of_bytes_refuses_too() -> None:
    shop = Shop(max_length_bytes=4, overflow="reject-publish")
    shop.client.call(1, "confirm.select")
    shop.publish("aa", "bb", "c")
    assert _confirms(shop.client) == [("basic.ack", 2, True), ("basic.nack", 3, False)]


# -- dead letters


def _deaths(seen: Any) -> list[tuple[str, str, int]]:
    headers = headers_of(b"\2\0\1" + len(seen.header).to_bytes(4, "big") + seen.header + b"\xce")
    return [(death["queue"], death["reason"], death["count"]) for death in headers["x-death"]]


@pytest.mark.parametrize("why", ["rejected", "expired", "maxlen"])
def test_a_dead_letter_moves_in_one_step_of_history(why: str) -> None:
    rules = {"rejected": {}, "expired": {"message_ttl": 10}, "maxlen": {"max_length": 0}}[why]
    shop = Shop(dead_letter_exchange="", dead_letter_routing_key="dead", **rules)
    shop.declare("dead")
    shop.publish("m")
    if why == "rejected":
        tag = shop.client.call(1, "basic.get", queue="q")["delivery_tag"]
        shop.client.send(1, "basic.reject", delivery_tag=tag, requeue=False)
    shop.world.pass_time(1)
    seen = shop.client.call(1, "basic.get", queue="dead")
    assert (seen.body, seen["exchange"], seen["routing_key"]) == (b"m", "", "dead")
    assert _deaths(seen) == [("q", why, 1)]
    assert shop.left() == {Reason.DEAD_LETTERED: 1}
    dead = shop.world.vhost.queues["dead"].uuid
    for batch in shop.ledger.batches:
        came = any(isinstance(r, EnqueueRun) and dead in r.queues for r in batch.records)
        went = any(isinstance(r, Dequeue) and r.queue == shop.queue.uuid for r in batch.records)
        assert came == went


@pytest.mark.parametrize("exchange", ["nowhere", "amq.direct"])
def test_an_unroutable_dead_letter_leaves_for_its_own_reason(exchange: str) -> None:
    shop = Shop(dead_letter_exchange=exchange, message_ttl=10)
    shop.publish("m")
    shop.world.pass_time(1)
    assert shop.left() == {Reason.EXPIRED: 1}


def test_purged_and_deleted_messages_are_no_dead_letters() -> None:
    shop = Shop(dead_letter_exchange="", dead_letter_routing_key="dead")
    shop.declare("dead")
    shop.publish("a")
    shop.client.call(1, "queue.purge", queue="q")
    shop.publish("b")
    shop.client.call(1, "queue.delete", queue="q")
    assert shop.drain("dead") == []
    assert shop.left() == {Reason.PURGED: 1, Reason.DELETED: 1}


def test_a_message_in_an_automatic_cycle_is_dropped() -> None:
    shop = Shop(dead_letter_exchange="", dead_letter_routing_key="back", message_ttl=10)
    shop.declare("back", dead_letter_exchange="", dead_letter_routing_key="q", message_ttl=10)
    shop.publish("m")
    shop.world.pass_time(1)
    assert shop.left() == {Reason.DEAD_LETTERED: 1}
    back = shop.world.vhost.queues["back"]
    assert shop.ledger.left(back.uuid) == {Reason.EXPIRED: 1}


def test_a_rejected_message_may_cycle_with_each_rejection() -> None:
    """The usual way to retry later."""
    shop = Shop(dead_letter_exchange="", dead_letter_routing_key="later")
    shop.declare("later", dead_letter_exchange="", dead_letter_routing_key="q", message_ttl=10)
    shop.publish("m")
    for turn in range(1, 4):
        seen = shop.client.call(1, "basic.get", queue="q")
        if turn > 1:
            assert _deaths(seen) == [("later", "expired", turn - 1), ("q", "rejected", turn - 1)]
        shop.client.send(1, "basic.reject", delivery_tag=seen["delivery_tag"], requeue=False)
        shop.world.pass_time(1)
    assert shop.left() == {Reason.DEAD_LETTERED: 3}


def test_a_full_queue_may_dead_letter_refused_messages() -> None:
    shop = Shop(
        max_length=1, overflow="reject-publish-dlx", dead_letter_exchange="", dead_letter_routing_key="dead"
    )
    shop.declare("dead")
    shop.client.call(1, "confirm.select")
    shop.publish(*"abc")
    assert _confirms(shop.client) == [("basic.ack", 1, False), ("basic.nack", 3, True)]
    assert shop.drain("dead") == ["b", "c"]


def test_the_expiration_is_taken_off_a_dead_letter() -> None:
    shop = Shop(dead_letter_exchange="", dead_letter_routing_key="dead")
    shop.declare("dead")
    shop.publish("m", expiration="10")
    shop.world.pass_time(5)
    assert shop.drain("dead") == ["m"]


def test_a_dead_letter_exchange_may_go_by_headers() -> None:
    shop = Shop(dead_letter_exchange="amq.headers", message_ttl=10)
    for name in ("expired", "rejected"):
        shop.declare(name)
        arguments = {"x-match": "all-with-x", "x-first-death-reason": name}
        shop.client.call(1, "queue.bind", queue=name, exchange="amq.headers", arguments=arguments)
    shop.publish("m")
    shop.world.pass_time(1)
    assert (shop.drain("expired"), shop.drain("rejected")) == (["m"], [])


def test_dead_letters_of_dead_letters_leave_time_for_others() -> None:
    """A check of a queue takes some, a tick makes a few checks, and the next tick continues."""
    shop = Shop(max_length=0, dead_letter_exchange="amq.fanout")
    for name in ("left", "right"):
        shop.declare(name, max_length=0, dead_letter_exchange="", dead_letter_routing_key="end")
        shop.client.call(1, "queue.bind", queue=name, exchange="amq.fanout")
    shop.declare("end")
    count = ROUNDS * AT_ONCE + 1
    properties = b"\0\0"
    burst = message(1, b"m", routing_key="q", properties=properties) * count
    before = len(shop.ledger.batches)
    shop.client.raw(burst)
    end = shop.world.vhost.queues["end"]
    assert end.message_count == 2 * count
    batches = shop.ledger.batches[before:]
    assert len(batches) > 1
    largest = max(sum(r.count for r in batch.records if isinstance(r, EnqueueRun)) for batch in batches[1:])
    assert largest <= 3 * 2 * ROUNDS * AT_ONCE


# -- priorities


def _with_priority(priority: int) -> bytes:
    return b"\x08\0" + bytes([priority])


def _publish_by_priority(shop: Shop, *priorities: int) -> None:
    for number, priority in enumerate(priorities):
        body = f"{priority}.{number}"
        shop.client.publish(1, body.encode(), routing_key="q", properties=_with_priority(priority))


def test_higher_priorities_come_first_and_are_capped() -> None:
    shop = Shop(max_priority=3)
    _publish_by_priority(shop, 0, 2, 9, 1, 3, 2)
    assert shop.drain("q") == ["9.2", "3.4", "2.1", "2.5", "1.3", "0.0"]


def test_requeued_messages_return_to_their_places() -> None:
    shop = Shop(max_priority=3)
    _publish_by_priority(shop, 1, 2, 1)
    tags = [shop.client.call(1, "basic.get", queue="q")["delivery_tag"] for _ in range(2)]
    shop.client.send(1, "basic.nack", delivery_tag=tags[1], multiple=True, requeue=True)
    assert shop.drain("q") == ["2.1", "1.0", "1.2"]


def test_priorities_survive_a_change_of_sides_and_a_snapshot_is_by_id() -> None:
    shop = Shop(max_priority=3)
    _publish_by_priority(shop, 0, 2, 1)
    assert [seq for seq, _, _ in held_after(shop.queue, (0, 0), 2).entries] == [1, 2]
    assert [seq for seq, _, _ in held_after(shop.queue, (1, 2), 2).entries] == [3]
    shop.world.vhost.history.flush(shop.world.now, 0, force=True)
    shop.world.vhost.shared.deactivate()
    shop.world.vhost.shared.activate(2)
    _publish_by_priority(shop, 2)
    assert [seq for seq, _, _ in shop.queue.held_entries()] == [1, 2, 3, 1]
    assert shop.drain("q") == ["2.1", "2.0", "1.2", "0.0"]


def test_the_lowest_priority_leaves_last_also_by_limit() -> None:
    """As in RabbitMQ, drop-head removes the head, the message that would be delivered next."""
    shop = Shop(max_priority=3, max_length=2)
    _publish_by_priority(shop, 0, 2, 1)
    assert shop.drain("q") == ["1.2", "0.0"]
