"""A promoted follower applies the policies that exist at the promotion."""

from __future__ import annotations

import pytest

from broker.model.history.records import EntryDelete, EntryPut
from broker.model.queue.arguments import NO_RULES, QueueRules
from tests.broker.model.shop import Shop


@pytest.fixture
def shop() -> Shop:
    return Shop()


RULES = {
    "max-length": 3, "max-length-bytes": 100, "message-ttl": 50, "expires": 400, "overflow": "reject-publish",
    "dead-letter-exchange": "", "dead-letter-routing-key": "dead",
}  # fmt: skip


@pytest.mark.parametrize("policy_first", [True, False])
def test_a_promoted_follower_obeys_the_same_rules(shop: Shop, policy_first: bool) -> None:
    if policy_first:
        shop.policy(RULES)
    queue = shop.queue(max_length=9)
    if not policy_first:
        shop.policy(RULES)
    shop.queue("dead")
    shop.publish(2)
    shop.tick()
    copied = shop.follower.vhost.queues["q"]
    assert copied.rules == QueueRules(max_length=9), "a follower decides nothing"
    shop.follower.vhost.shared.wall_ms = 10_000
    assert copied.total_count == 2
    promoted = shop.promote()
    assert (copied.rules, copied.policy) == (queue.rules, "p")
    assert copied.ready_octets == 2
    route = promoted.route("", "q")
    taken = promoted.publish(route, [b"x"] * 5, persistent=True, channel=1, largest_frame=9)
    assert taken.accepted == 1
    promoted.shared.expire(1.0)
    promoted.shared.wall_ms += 50
    promoted.shared.dispatch()
    assert (copied.message_count, promoted.queues["dead"].message_count) == (0, 3)
    promoted.shared.expire(1.4)
    assert sorted(promoted.queues) == ["dead"]


def test_a_promoted_follower_applies_the_current_policies(shop: Shop) -> None:
    shop.queue()
    shop.policy({"max-length": 2, "message-ttl": 5})
    shop.tick()
    shop.vhost.shared.deactivate()
    queue = shop.vhost.queues["q"]
    shop.vhost.shared.apply(EntryDelete("policy", "/", "p"))
    shop.vhost.shared.activate(2)
    assert (queue.rules, queue.policy, queue.watched) == (NO_RULES, None, False)


def test_a_policy_set_before_promotion_leaves_no_stale_route(shop: Shop) -> None:
    queue = shop.queue()
    stale = shop.vhost.route("", "q")
    shop.tick()
    shop.vhost.shared.deactivate()
    definition = {"max-length": 1, "overflow": "reject-publish"}
    shop.vhost.shared.apply(EntryPut("policy", "/", "p", {"pattern": "q", "definition": definition}))
    shop.vhost.shared.activate(2)
    taken = shop.vhost.publish(stale, [b"x"] * 3, persistent=True, channel=1, largest_frame=9)
    assert taken.accepted == queue.message_count == 1
