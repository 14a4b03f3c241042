"""Operator policies: what they make of policies and arguments, now and after a promotion."""

from __future__ import annotations

from typing import Any

import pytest

from broker.model.history.records import EntryDelete, EntryPut
from broker.model.queue.arguments import OverflowRule, QueueRules
from broker.model.vhost.directory import EntryFault
from broker.model.vhost.policies import rules_under
from broker.model.vhost.policy_rules import merged
from tests.broker.model.shop import Shop


def put(shop: Shop, definition: dict[str, Any], name: str = "o", **more: Any) -> None:
    value = {"pattern": "", "apply-to": "queues", "priority": 0, "definition": definition, **more}
    shop.vhost.shared.change_directory([EntryPut("operator-policy", "/", name, {**value, "pattern": ".*"})])


@pytest.mark.parametrize(
    ("policy", "by_operator", "found"),
    [
        ({}, {"max-length": 5}, {"max-length": 5}),
        ({"max-length": 3}, {"max-length": 5}, {"max-length": 3}),
        ({"max-length": 7}, {"max-length": 5}, {"max-length": 5}),
        ({"delivery-limit": -1}, {"delivery-limit": 5}, {"delivery-limit": 5}),
        ({"max-length": "7"}, {"max-length": 5}, {"max-length": 5}),
        ({"overflow": "drop-head"}, {"overflow": "reject-publish"}, {"overflow": "reject-publish"}),
        ({"dead-letter-exchange": "x"}, {"expires": 9}, {"dead-letter-exchange": "x", "expires": 9}),
    ],
)
def test_of_limits_the_smaller_else_the_operators(policy: Any, by_operator: Any, found: Any) -> None:
    assert merged(policy, by_operator) == found


def test_an_argument_is_limited_too() -> None:
    assert rules_under({"x-max-length": 9}, merged({}, {"max-length": 5})) == QueueRules(max_length=5)


def test_both_apply_and_each_goes_by_itself() -> None:
    shop = Shop()
    queue, other = shop.queue(), shop.queue("other")
    shop.policy({"max-length": 9, "overflow": "reject-publish"})
    put(shop, {"max-length": 4})
    assert (queue.rules.max_length, queue.rules.overflow) == (4, OverflowRule.REJECT_PUBLISH)
    assert (other.rules.max_length, other.ruled_by, other.operated_by and other.operated_by.name) == (
        4,
        None,
        "o",
    )
    assert shop.queue("later").rules.max_length == 4
    put(shop, {"max-length": 2}, "p", priority=1)
    assert queue.rules.max_length == 2
    shop.no_policy()
    assert queue.rules.overflow is OverflowRule.DROP_HEAD and queue.rules.max_length == 2
    shop.vhost.shared.change_directory([EntryDelete("operator-policy", "/", name) for name in "op"])
    assert queue.rules == QueueRules()


def test_a_promoted_follower_obeys_them() -> None:
    shop = Shop()
    shop.queue()
    put(shop, {"max-length": 2})
    shop.tick()
    assert shop.promote().queues["q"].rules.max_length == 2


@pytest.mark.parametrize(
    ("definition", "why"),
    [
        ({"dead-letter-exchange": "x"}, "dead-letter-exchange: no operator policy has such a key"),
        ({"max-length": -1}, "max-length: "),
        ({}, "at least one key"),
    ],
)
def test_a_wrong_one_is_refused(definition: dict[str, Any], why: str) -> None:
    with pytest.raises(EntryFault, match=why):
        put(Shop(), definition)
