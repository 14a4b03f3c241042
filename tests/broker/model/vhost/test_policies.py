"""Policies on new and existing queues, with and without arguments, and after a promotion."""

from __future__ import annotations

import pytest

from broker.errors import PreconditionFailed
from broker.model.queue.arguments import NO_RULES, OverflowRule, QueueRules, rules_of
from broker.model.queue.consumer import Consumer
from broker.model.queue.removals import AT_ONCE, DROPPED_AT_ONCE, ROUNDS
from broker.model.values import Need, Reason
from broker.model.vhost.policies import rules_under
from broker.model.vhost.vhost import VirtualHost
from tests.broker.model.helpers import OWNER, Sink, publish, seqs
from tests.broker.model.shop import Shop
from tests.simulation.harness.machines.virtual_overflow import VirtualOverflow


@pytest.fixture
def shop() -> Shop:
    return Shop()


# -- what one policy makes of arguments


@pytest.mark.parametrize(
    ("level", "need"),
    [("all-disks", Need.DURABLE), ("primary-disk", Need.OWN_DISK), ("all-memory", Need.MEMORY)],
)
def test_the_level_of_confirms_is_a_policys_alone(level: str, need: Need) -> None:
    argument = {"x-ha-confirm": "all-memory", "ha-confirm": "all-memory", "x-max-length": 5}
    assert rules_under(argument, {"ha-confirm": level}) == QueueRules(max_length=5, confirm=need)
    assert rules_under(argument, {}) == QueueRules(max_length=5)


@pytest.mark.parametrize(
    ("arguments", "definition", "rules"),
    [
        ({}, {}, NO_RULES),
        ({"x-max-length": 5}, {}, QueueRules(max_length=5)),
        ({}, {"max-length": 5}, QueueRules(max_length=5)),
        ({"x-max-length": 5}, {"max-length": 7}, QueueRules(max_length=5)),
        ({"x-max-length": 7}, {"max-length": 5}, QueueRules(max_length=5)),
        ({"x-max-length-bytes": 7}, {"max-length-bytes": 0}, QueueRules(max_length_bytes=0)),
        ({"x-message-ttl": 0}, {"message-ttl": 5}, QueueRules(message_ttl=0)),
        ({"x-expires": 9}, {"expires": 8}, QueueRules(expires=8)),
        ({"x-overflow": "drop-head"}, {"overflow": "reject-publish"}, QueueRules()),
        ({}, {"overflow": "reject-publish"}, QueueRules(overflow=OverflowRule.REJECT_PUBLISH)),
        ({"x-dead-letter-exchange": ""}, {"dead-letter-exchange": "x"}, QueueRules(dead_letter_exchange="")),
        (
            {"x-dead-letter-exchange": "x", "x-dead-letter-routing-key": "mine"},
            {"dead-letter-exchange": "y", "dead-letter-routing-key": "its"},
            QueueRules(dead_letter_exchange="x", dead_letter_routing_key="mine"),
        ),
        (  # each by itself, in RabbitMQ too
            {"x-dead-letter-exchange": "x"},
            {"dead-letter-exchange": "y", "dead-letter-routing-key": "its"},
            QueueRules(dead_letter_exchange="x", dead_letter_routing_key="its"),
        ),
        (
            {"x-dead-letter-exchange": "x"},
            {"dead-letter-routing-key": "its"},
            QueueRules(dead_letter_exchange="x", dead_letter_routing_key="its"),
        ),
        ({}, {"dead-letter-routing-key": "its"}, NO_RULES),
        ({"x-max-priority": 3}, {"max-length": 5}, QueueRules(max_length=5, max_priority=3)),
        ({"x-max-length": "five"}, {"max-length": 5}, QueueRules(max_length=5)),
        ({"x-max-length": 5}, {"max-length": "five", "ha-mode": "all"}, QueueRules(max_length=5)),
        ({}, {"ha-confirm": "most"}, NO_RULES),
    ],
)
def test_of_numbers_the_smaller_else_the_argument(
    arguments: dict[str, object], definition: dict[str, object], rules: QueueRules
) -> None:
    assert rules_under(arguments, definition) == rules
    assert definition or rules_under(arguments, definition) == rules_of(arguments)


# -- which one


def test_policies_apply_to_new_and_to_existing_queues(shop: Shop) -> None:
    before = shop.queue("q.before")
    shop.policy({"max-length": 2})
    after, other = shop.queue("q.after"), shop.queue("other")
    assert [queue.rules.max_length for queue in (before, after, other)] == [2, 2, None]
    assert [queue.policy for queue in (before, after, other)] == ["p", "p", None]
    shop.no_policy()
    assert [queue.rules for queue in (before, after, other)] == [NO_RULES] * 3
    assert [queue.policy for queue in (before, after, other)] == [None] * 3


def test_only_the_matching_policy_of_highest_priority_applies(shop: Shop) -> None:
    queue = shop.queue()
    shop.policy({"max-length": 2}, "low", priority=-1)
    shop.policy({"message-ttl": 9}, "high", priority=1)
    shop.policy({"expires": 9}, "exchanges", priority=2, **{"apply-to": "exchanges"})
    assert (queue.policy, queue.rules) == ("high", QueueRules(message_ttl=9))
    shop.no_policy("high")
    assert (queue.policy, queue.rules) == ("low", QueueRules(max_length=2))
    shop.policy({"max-length": 3}, "low", pattern="^r", priority=-1)
    assert (queue.policy, queue.rules) == (None, NO_RULES)


def test_exclusive_and_server_named_queues_obey_too(shop: Shop) -> None:
    shop.policy({"max-length": 2}, pattern="^amq.gen-")
    made = shop.vhost.declare_queue("", owner=OWNER, exclusive=True)
    assert made.rules.max_length == 2


def test_declarations_stay_as_declared(shop: Shop) -> None:
    queue = shop.queue(max_length=9)
    shop.policy({"max-length": 2, "overflow": "reject-publish"})
    assert shop.queue(max_length=9) is queue
    with pytest.raises(PreconditionFailed):
        shop.queue(max_length=2)
    assert queue.declaration().arguments == {"x-max-length": 9}
    shop.tick()


def test_the_list_of_queues_names_the_policy_on_a_follower_too(shop: Shop) -> None:
    shop.queue()
    shop.queue("other")
    shop.policy({"max-length": 2})
    shop.tick()
    for vhost in (shop.vhost, shop.follower.vhost):
        assert {line.name: line.policy for line in vhost.shared.list_queues()} == {"q": "p", "other": None}


# -- limits


def test_a_new_limit_removes_excess_and_a_dropped_limit_nothing(shop: Shop) -> None:
    queue = shop.queue()
    shop.publish(5)
    shop.tick()
    shop.policy({"max-length": 3})
    shop.tick()
    assert seqs(list(queue.ready)) == [3, 4, 5] and shop.left == {"q": {Reason.DROPPED: 2}}
    shop.policy({"max-length": 4})
    shop.publish(2)
    shop.tick()
    assert seqs(list(queue.ready)) == [4, 5, 6, 7]
    shop.no_policy()
    shop.publish(5)
    shop.tick()
    assert queue.message_count == 9 and shop.left == {"q": {Reason.DROPPED: 3}}


def test_a_limit_on_bytes_counts_paged_out_messages_too(shop: Shop) -> None:
    shop.vhost.shared.window = 2
    queue = shop.queue()
    shop.publish(6, body=b"four")
    queue.page_out(VirtualOverflow(), 1000)
    shop.publish(1, body=b"four")
    assert queue.backlog.paged_out == 4 and queue.ready_octets == 0
    shop.policy({"max-length-bytes": 100})
    assert queue.ready_octets == 28
    shop.policy({"max-length-bytes": 13})
    shop.tick()
    assert (queue.message_count, queue.ready_octets) == (3, 12)
    shop.no_policy()
    shop.publish(5, body=b"four")
    shop.policy({"max-length-bytes": 20, "max-length": 9})
    assert queue.ready_octets == 32
    shop.tick()
    assert (queue.message_count, queue.ready_octets) == (5, 20)
    assert shop.left == {"q": {Reason.DROPPED: 7}}


def test_unacknowledged_messages_count_when_they_return(shop: Shop) -> None:
    queue, sink = shop.queue(), Sink(limit=2)
    shop.publish(3, body=b"four")
    consumer = Consumer("c", sink)
    shop.vhost.consume(queue, consumer)
    shop.tick()
    shop.policy({"max-length-bytes": 8})
    assert queue.ready_octets == 4
    shop.vhost.cancel(queue, consumer)
    queue.requeue(sink.got)
    shop.tick()
    assert seqs(list(queue.ready)) == [2, 3] and queue.ready_octets == 8


def test_many_that_are_too_much_leave_in_several_ticks(shop: Shop) -> None:
    queue, many = shop.queue(), DROPPED_AT_ONCE * ROUNDS
    shop.publish(many + 7)
    shop.policy({"max-length": 2})
    shop.tick()
    assert queue.message_count == 7
    shop.tick()
    assert queue.message_count == 2
    assert not shop.vhost.removals.waiting
    assert shop.left == {"q": {Reason.DROPPED: many + 5}}


def test_large_ones_that_are_too_much_leave_in_several_ticks_too(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.model.queue.queue.OCTETS_AT_ONCE", 2000)
    shop.vhost.shared.window = 2
    queue = shop.queue()
    shop.publish(20, body=b"x" * 1000)
    queue.page_out(VirtualOverflow(), 1 << 20)
    shop.policy({"max-length-bytes": 3000})
    shop.tick()
    assert queue.message_count == 20 - 2 * ROUNDS
    for _ in range(3):
        shop.tick()
    assert (queue.message_count, queue.ready_octets) == (3, 3000)


def test_overflow_changes_on_the_way(shop: Shop) -> None:
    queue = shop.queue(max_length=2)
    shop.publish(2)
    stale = shop.vhost.route("", "q")
    shop.policy({"overflow": "reject-publish"})
    refused = shop.vhost.publish(stale, [b"x"] * 3, persistent=True, channel=1, largest_frame=9)
    assert refused.accepted == 0
    shop.tick()
    assert seqs(list(queue.ready)) == [1, 2]
    shop.policy({"overflow": "drop-head", "max-length": 1})
    shop.tick()
    assert seqs(list(queue.ready)) == [2]
    shop.publish()
    shop.tick()
    assert seqs(list(queue.ready)) == [3]


def test_a_refusing_queue_keeps_messages_above_a_new_limit(shop: Shop) -> None:
    queue = shop.queue()
    shop.publish(5)
    shop.policy({"max-length": 2, "overflow": "reject-publish"})
    shop.publish()
    shop.tick()
    assert queue.message_count == 5 and not shop.left


# -- time


def test_a_new_ttl_counts_from_each_messages_enqueue(shop: Shop) -> None:
    queue = shop.queue()
    shop.publish(2)
    shop.pass_time(100)
    shop.publish()
    shop.policy({"message-ttl": 150})
    shop.tick()
    assert queue.message_count == 3 and shop.vhost.removals.next() == 150
    shop.policy({"message-ttl": 90})
    shop.tick()
    assert queue.message_count == 1 and shop.left == {"q": {Reason.EXPIRED: 2}}
    shop.policy({"message-ttl": 500})
    shop.pass_time(300)
    assert queue.message_count == 1 and shop.vhost.removals.next() == 600
    shop.no_policy()
    shop.tick()
    assert shop.vhost.removals.next() is None
    shop.pass_time(10_000)
    assert queue.message_count == 1 and shop.left == {"q": {Reason.EXPIRED: 2}}


def test_the_shorter_of_both_times_counts_and_the_messages_own_with_them(shop: Shop) -> None:
    queue = shop.queue(message_ttl=100)
    shop.policy({"message-ttl": 50})
    route = shop.vhost.route("", "q")
    for own in (20, None):
        shop.vhost.publish(route, [b"x"], persistent=True, channel=1, largest_frame=9, expiration=own)
    shop.pass_time(20)
    assert queue.message_count == 1
    shop.no_policy()
    shop.pass_time(60)
    assert queue.message_count == 1
    shop.pass_time(20)
    assert queue.message_count == 0 and shop.left == {"q": {Reason.EXPIRED: 2}}


def test_consumers_get_nothing_that_the_new_time_ends(shop: Shop) -> None:
    queue, sink = shop.queue(), Sink()
    shop.publish(AT_ONCE + 5)
    shop.pass_time(100)
    shop.publish()
    shop.policy({"message-ttl": 90})
    shop.vhost.consume(queue, Consumer("c", sink))
    shop.tick()
    assert seqs(sink.got) == [AT_ONCE + 6]
    assert shop.left == {"q": {Reason.EXPIRED: AT_ONCE + 5}}


def test_a_queue_expires_by_policy_counted_from_the_change(shop: Shop) -> None:
    shop.queue()
    used = shop.queue("q.used")
    shop.vhost.consume(used, Consumer("c", Sink()))
    shop.pass_time(1000)
    shop.policy({"expires": 500})
    shop.pass_time(400)
    shop.queue("q.late", expires=200)
    shop.tick()
    assert shop.vhost.expiries.next() == pytest.approx(1.6)  # q.late
    shop.policy({"expires": 2000})
    shop.pass_time(500)
    assert sorted(shop.vhost.queues) == ["q", "q.used"]
    shop.pass_time(1899)
    assert "q" in shop.vhost.queues
    shop.no_policy()
    shop.pass_time(9999)
    assert sorted(shop.vhost.queues) == ["q", "q.used"] and shop.vhost.expiries.next() is None
    shop.policy({"expires": 10})
    shop.pass_time()
    shop.pass_time(10)
    assert sorted(shop.vhost.queues) == ["q.used"]


# -- dead letters


def test_dead_letters_go_where_the_policy_says_while_it_does(shop: Shop) -> None:
    dead = shop.queue("dead")
    queue = shop.queue(max_length=1)
    shop.policy({"dead-letter-exchange": "", "dead-letter-routing-key": "dead"})
    shop.publish(3)
    shop.tick()
    assert dead.message_count == 2 and shop.left == {"q": {Reason.DEAD_LETTERED: 2}}
    shop.policy({"dead-letter-exchange": "nowhere"})
    shop.publish()
    shop.tick()
    shop.no_policy()
    shop.publish()
    shop.tick()
    assert (dead.message_count, queue.message_count) == (2, 1)
    assert shop.left == {"q": {Reason.DEAD_LETTERED: 2, Reason.DROPPED: 2}}


def test_the_exchange_of_an_argument_wins_and_the_policys_key_holds(shop: Shop) -> None:
    dead = shop.queue("dead")
    shop.queue(max_length=0, dead_letter_exchange="")
    shop.policy({"dead-letter-exchange": "amq.fanout", "dead-letter-routing-key": "dead"})
    shop.publish()
    shop.tick()
    assert dead.message_count == 1


# -- exchanges


def alternates(vhost: VirtualHost, *names: str) -> list[str | None]:
    return [vhost.exchanges[name].alternate for name in names]


def test_exchanges_have_the_alternate_of_their_policy_and_an_argument_wins(shop: Shop) -> None:
    vhost = shop.vhost
    strays, other = shop.queue("strays"), shop.queue("other")
    for exchange, queue in (("amq.fanout", "strays"), ("amq.topic", "other")):
        vhost.bind_queue(queue, exchange, "#", owner=OWNER)
    vhost.declare_exchange("x", "direct")
    vhost.declare_exchange("y", "direct", arguments={"alternate-exchange": "amq.topic"})
    publish(vhost, "nobody", b"m", exchange="x")
    shop.policy({"alternate-exchange": "amq.fanout"}, pattern=".*", **{"apply-to": "all"})
    vhost.declare_exchange("z", "direct")
    for exchange in ("", "x", "y", "z"):
        publish(vhost, "nobody", b"m", exchange=exchange)
    assert (strays.message_count, other.message_count) == (2, 1)
    assert vhost.exchanges["x"].declaration().arguments == {}
    shop.tick()
    names = ("", "x", "y", "z", "amq.direct")
    shop.promote()
    for each in (vhost, shop.follower.vhost):
        assert alternates(each, *names) == [None, "amq.fanout", "amq.topic", "amq.fanout", "amq.fanout"]
    shop.no_policy()
    publish(vhost, "nobody", b"m", exchange="x")
    assert alternates(vhost, *names) == [None, None, "amq.topic", None, None]
    assert strays.message_count == 2


def test_a_policy_for_queues_is_none_for_exchanges(shop: Shop) -> None:
    shop.vhost.declare_exchange("q.x", "direct")
    shop.policy({"alternate-exchange": "amq.fanout"})
    assert alternates(shop.vhost, "q.x") == [None]
