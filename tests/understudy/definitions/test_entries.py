"""Virtual hosts, users, permissions and policies of a definitions file: what is imported, and what
is named."""

from __future__ import annotations

from typing import Any

import pytest

from broker.model.history.records import EntryPut
from broker.model.vhost.directory import Directory, EntryFault, check_entry
from tests.understudy.definitions.made import (
    EVERYTHING,
    HASH,
    HERE,
    binding,
    exchange,
    file_of,
    names,
    permission,
    policy,
    queue,
    texts,
    user,
)
from understudy.definitions.apply import expected
from understudy.definitions.entries import Entry
from understudy.definitions.export import document_of, text_of
from understudy.definitions.parse import answered, read_definitions, validated
from understudy.definitions.plan import plan_of
from understudy.definitions.strict_json import DefinitionsError


def nested(levels: int) -> object:
    return [nested(levels - 1)] if levels else 1


def test_users_permissions_and_policies_come_over() -> None:
    file = file_of(users=[user()], permissions=[permission(read="^a")], policies=[policy(priority=3)])
    plan = plan_of(file, HERE)
    assert texts(plan) == []
    assert [(item.kind, item.value) for item in plan.items if isinstance(item, Entry)] == [
        ("user", {"password_hash": f"$rabbit_password_hashing_sha256${HASH}", "tags": []}),
        ("permission", EVERYTHING | {"read": "^a"}),
        (
            "policy",
            {"pattern": "^a", "apply-to": "all", "priority": 3, "definition": {"max-length": 5}},
        ),
    ]


@pytest.mark.parametrize(
    ("value", "fits"),
    [(2**63 - 1, True), (2**63, False), (-(2**63), True), (1e300, True), (float("inf"), False),
     (nested(31), True), (nested(32), False), ({"k" * 255: 1}, True), ({"k" * 256: 1}, False),
     ({"a\0": 1}, False)],
)  # fmt: skip
def test_a_policy_may_hold_just_what_a_definitions_file_can_say(value: object, fits: bool) -> None:
    """A policy that a broker accepts and its own export cannot hold would block every import."""
    line = policy(definition={"ha-params": value})
    entry = EntryPut("policy", "/", "short", {"pattern": "^a", "definition": line["definition"]})
    if fits:
        check_entry(Directory(), entry)
        validated({"policies": [line]})
        return
    with pytest.raises(EntryFault):
        check_entry(Directory(), entry)
    with pytest.raises(DefinitionsError):
        validated({"policies": [line]})


def test_a_user_with_a_clear_password_is_named_and_keeps_the_old_one() -> None:
    """RabbitMQ accepts such files. Importing the user without its password would lock the user out."""
    clear = {"name": "alice", "password": "secret", "tags": []}
    there = answered({"users": [user()]})
    plan = plan_of(file_of(users=[clear], permissions=[permission()]), there)
    assert names(plan) == ["permission 'alice'"]
    assert texts(plan) == [
        "1 user (alice): its password is not hashed: add the user with `understudy user add`"
    ]
    both = file_of(users=[user() | {"password": "secret"}])
    assert names(plan_of(both, HERE)) == ["user 'alice'"] and texts(plan_of(both, HERE)) == []


def test_what_is_in_other_virtual_hosts_comes_over_into_them() -> None:
    file = file_of(
        vhosts=[{"name": "/"}, {"name": "eu", "description": "West", "tags": ["a"]}],
        users=[user()], permissions=[permission(vhost="eu")], policies=[policy(vhost="eu")],
        queues=[queue(), queue(vhost="eu")], exchanges=[exchange(vhost="eu")],
        bindings=[binding(vhost="eu"), binding("amq.topic", "q", vhost="eu")],
    )  # fmt: skip
    plan = plan_of(file, HERE)
    assert texts(plan) == []
    assert names(plan) == [
        "virtual host 'eu'", "user 'alice'", "permission 'alice' in virtual host 'eu'",
        "policy 'short' in virtual host 'eu'", "exchange 'x' in virtual host 'eu'", "queue 'q'",
        "queue 'q' in virtual host 'eu'", "binding of queue 'q' to 'x' with key 'k' in virtual host 'eu'",
        "binding of queue 'q' to 'amq.topic' with key 'k' in virtual host 'eu'",
    ]  # fmt: skip
    assert isinstance(plan.items[0], Entry)
    assert plan.items[0].value == {"description": "West", "tags": ["a"]}


def test_an_end_of_a_binding_is_looked_for_in_its_own_virtual_host() -> None:
    file = file_of(
        vhosts=[{"name": "eu"}], queues=[queue()], exchanges=[exchange()], bindings=[binding(vhost="eu")]
    )
    with pytest.raises(DefinitionsError, match=r"/bindings/0/source: no exchange 'x' in the file or on"):
        plan_of(file, HERE)


def test_what_is_in_a_virtual_host_that_is_nowhere_is_named() -> None:
    file = file_of(queues=[queue(vhost="eu")], policies=[policy(vhost="eu")])
    assert texts(plan_of(file, HERE)) == [
        "1 virtual host (eu with 1 queue, 1 policy): neither in the file nor on this broker"
    ]
    there = validated({"vhosts": [{"name": "eu"}]})
    assert len(plan_of(file, there).items) == 2


def test_a_virtual_host_is_changed_and_the_usual_root_is_none() -> None:
    there = validated({"vhosts": [{"name": "/"}, {"name": "eu"}]})
    about = {"description": "Default virtual host", "tags": []}
    file = file_of(vhosts=[{"name": "/", "metadata": about}, {"name": "eu", "metadata": {"tags": ["x"]}}])
    plan = plan_of(file, there)
    assert names(plan) == ["virtual host 'eu'"]
    assert dict(expected(plan).changed) == {"vhosts": 1}


def test_what_is_there_and_is_another_is_changed() -> None:
    there = {"users": [user(), user("bob")], "permissions": [permission()], "policies": [policy()]}
    file = file_of(
        users=[user(), user("bob", tags=["administrator"]), user("carol")],
        permissions=[permission(write="^$"), permission("carol")], policies=[policy()],
    )  # fmt: skip
    outcome = expected(plan_of(file, validated(there)))
    assert dict(outcome.there) == {"users": 1, "policies": 1}
    assert dict(outcome.changed) == {"users": 1, "permissions": 1}
    assert dict(outcome.new) == {"users": 1, "permissions": 1}


@pytest.mark.parametrize(
    ("lists", "named"),
    [
        (
            {"users": [user(hashing_algorithm="rabbit_password_hashing_md5")]},
            "1 user (alice): its password_hash is of rabbit_password_hashing_md5, and this broker takes",
        ),
        (
            {"users": [user("ha2", tags=["ha"])]},
            "1 user (ha2): user 'ha2': the tag 'ha' is for the pair's own",
        ),
        (
            {"permissions": [permission("nobody")]},
            "1 permission (nobody): permission for 'nobody': there is no",
        ),
        (
            {"users": [user()], "permissions": [permission(read="(?<x")]},
            "1 permission (alice): permission 'alice': read is no regular expression",
        ),
        (
            {"policies": [policy(definition={"max-age": "1D"})]},
            "1 policy (short): policy 'short': definition: max-age: no policy has such a key",
        ),
        (
            {"policies": [policy(definition={"ha-params": ["x" * 1000] * 300})]},
            "1 policy (short): policy 'short': it takes",
        ),
        (
            {"policies": [policy(definition={"ha-mode": "all"})]},
            "1 policy with ha-mode (short): kept, without effect here",
        ),
        (
            {"permissions": [permission("guest", read="^a")]},
            "1 permission by pattern (guest): users of this node's configuration may do everything",
        ),
    ],
)
def test_what_a_directory_cannot_hold_is_named(lists: dict[str, Any], named: str) -> None:
    (text,) = texts(plan_of(file_of(**lists), HERE))
    assert text.startswith(named)


@pytest.mark.parametrize(
    ("lists", "fault"),
    [
        ({"users": [user(password_hash="AAAA")]}, "/users/0/password_hash: is no hash of that algorithm"),
        ({"users": [user(), user()]}, "/users/1: is a duplicate of /users/0"),
        ({"permissions": [permission(), permission()]}, "/permissions/1: is a duplicate of /permissions/0"),
        ({"policies": [policy(pattern=1)]}, "/policies/0/pattern: not a string"),
        ({"policies": [policy(definition=3)]}, "/policies/0/definition: not an object"),
        (
            {"policies": [policy(), policy(name="b", definition={"max-age": "1D", "max-length": -1})]},
            "/policies/1/definition/max-length: ",
        ),
        (
            {"policies": [policy(definition={"alternate-exchange": 1})]},
            "/policies/0/definition/alternate-exchange: not a string",
        ),
    ],
)
def test_a_wrong_entry_is_a_fault_of_the_file(lists: dict[str, Any], fault: str) -> None:
    with pytest.raises(DefinitionsError) as told:
        plan_of(file_of(**lists), HERE)
    assert str(told.value).startswith(fault)


def test_limits_topic_permissions_and_operator_policies_go_out_and_come_back() -> None:
    lists = {
        "users": [user(limits={"max-channels": 3})],
        "topic_permissions": [
            {"user": "alice", "vhost": "/", "exchange": x, "write": "^a", "read": ""} for x in ("x", "y/z")
        ],
        "parameters": [
            {"component": "vhost-limits", "vhost": "/", "name": "limits", "value": {"max-queues": 7}},
            {"component": "operator_policy", "vhost": "/", "name": "cap",
             "value": {"pattern": ".*", "apply-to": "queues", "priority": 0, "definition": {"expires": 9}}},
        ],
    }  # fmt: skip
    file = read_definitions(b"".join(text_of(document_of(lists))))
    plan = plan_of(file, HERE)
    assert texts(plan) == [] and names(plan) == [
        "user 'alice'", "topic permission 'alice on x'", "topic permission 'alice on y/z'",
        "limits of user 'alice'", "limits of virtual host '/'", "operator policy 'cap'",
    ]  # fmt: skip
    there = expected(plan_of(file, answered(lists))).there
    assert sum(there.values()) == 6 and there["operator_policies"] == 1


def test_wrong_limits_and_operator_policies_are_named() -> None:
    value = {"pattern": ".*", "definition": {"alternate-exchange": "x"}}
    limits = {"component": "vhost-limits", "name": "limits", "vhost": "/", "value": {"max-queues": "7"}}
    file = file_of(
        users=[user(limits={"max-connections": 1.0, "max-queues": 1})],
        topic_permissions=[{"user": "bob", "exchange": "x", "write": "", "read": ""}],
        parameters=[limits, {"component": "operator_policy", "name": "cap", "value": value}],
    )
    assert [text.partition(": ")[0] for text in texts(plan_of(file, HERE))] == [
        "1 operator-policy (cap)", "1 topic-permission (bob/x)", "1 user-limits (alice)",
        "1 vhost-limits (limits)",
    ]  # fmt: skip


# -- federation

HUB = {"component": "federation-upstream", "vhost": "/", "name": "hub",
       "value": {"addresses": ["h:5672"], "login": "centre"}}  # fmt: skip
MODES = {"consume-mode": "all", "forward-mode": "none"}


def agent(exchange: str = "x", **more: Any) -> dict[str, Any]:
    value = {"exchange": exchange, "upstream": "hub", **MODES, **more}
    return {"component": "federation-agent", "vhost": "/", "name": f"{exchange}@hub", "value": value}


def test_upstreams_and_agents_go_out_and_come_back() -> None:
    mine = answered({"parameters": [agent(), agent("y", **{"max-hops": 3}), HUB]})
    document = document_of({"users": [], "parameters": [agent(), agent("y", **{"max-hops": 3}), HUB]})
    file = read_definitions(b"".join(text_of(document)))
    plan = plan_of(file, HERE)
    assert texts(plan) == [] and names(plan) == ["upstream 'hub'", "agent 'x@hub'", "agent 'y@hub'"]
    assert expected(plan).new == {"upstreams": 1, "agents": 2}
    assert expected(plan_of(file, mine)).there == {"upstreams": 1, "agents": 2}
    other = file_of(parameters=[HUB, agent(paused=True), agent("z", **{"max-hops": 3.0})])
    outcome = expected(plan_of(other, mine))
    assert (outcome.new, outcome.changed, outcome.there) == ({"agents": 1}, {"agents": 1}, {"upstreams": 1})


def test_what_of_federation_is_not_imported_is_named() -> None:
    uri = {**HUB, "name": "far", "value": {"uri": "amqp://u:secret@h", "max-hops": 2}}
    file = file_of(
        parameters=[
            agent("amq.peer"), agent("inner"), agent("x", copy=0), HUB, uri, HUB | {"vhost": "eu"},
            {"component": "shovel", "name": "s", "vhost": "/", "value": {"src-uri": ["amqp://u:secret@h"]}},
            {"component": "federation-upstream-set", "name": "all", "value": [{"upstream": "a"}]},
        ],
        exchanges=[exchange("inner", internal=True)],
    )  # fmt: skip
    plan = plan_of(file, HERE)
    assert names(plan) == ["upstream 'hub'", "upstream 'far'", "exchange 'inner'"]
    told = texts(plan)
    assert [text.partition(":")[0] for text in told] == [
        "1 federation-agent (amq.peer@hub)", "1 federation-agent (x@hub)", "1 federation-agent (inner@hub)",
        "1 shovel (s)", "1 virtual host (eu with 1 upstream)",
    ]  # fmt: skip
    assert not any("secret" in left.text or "\n" in left.text for left in plan.left_out)
    with pytest.raises(DefinitionsError, match=r"/parameters/1: is a duplicate of /parameters/0"):
        file_of(parameters=[HUB, HUB])
