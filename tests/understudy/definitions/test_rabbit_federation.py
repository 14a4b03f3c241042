"""RabbitMQ's parameters of federation, and shovels, in a definitions file: what becomes of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.understudy.definitions.made import HERE, binding, exchange, file_of, policy, queue, texts
from understudy.definitions.entries import Entry
from understudy.definitions.plan import ImportPlan, plan_of

URI = "amqps://far:s%40cret@rabbit1/%2Fshop"


def parameter(component: str, name: str, value: Any, vhost: str = "/") -> dict[str, Any]:
    return {"component": component, "name": name, "vhost": vhost, "value": value}


def upstream(name: str = "far", uri: Any = URI, **more: Any) -> dict[str, Any]:
    return parameter("federation-upstream", name, {"uri": uri, **more})


def federating(key: str, value: str, pattern: str = "^x", **more: Any) -> dict[str, Any]:
    return policy("federating", pattern=pattern, definition={key: value}, **{"apply-to": "exchanges", **more})


def planned(**lists: Any) -> ImportPlan:
    plan = plan_of(file_of(**lists), HERE)
    assert not any("s@cret" in left.text or "s%40cret" in left.text for left in plan.left_out)
    return plan


def made(plan: ImportPlan) -> dict[str, dict[str, Any]]:
    """Upstreams and agents, by name."""
    kinds = ("federation-upstream", "federation-agent")
    return {item.name: item.value for item in plan.items if isinstance(item, Entry) and item.kind in kinds}


def test_an_upstream_and_a_policy_become_an_upstream_and_agents() -> None:
    plan = planned(
        parameters=[upstream(expires=3600000, **{"max-hops": 2, "prefetch-count": 5})],
        policies=[federating("federation-upstream", "far")],
        exchanges=[exchange("x"), exchange("x2"), exchange("y"), exchange("x3", internal=True)],
    )
    agent = {"upstream": "far", "consume-mode": "all", "max-hops": 2, "expires": 3600000}
    assert made(plan) == {
        "far": {"addresses": ["rabbit1:5671"], "login": "far", "vhost": "/shop", "protocol": "amqp"},
        "x@far": {"exchange": "x", **agent},
        "x2@far": {"exchange": "x2", **agent},
    }
    assert texts(plan) == []
    said = [left.text for left in plan.left_out]
    login = (
        "1 password of an upstream (user far, with tls): no password is imported: set federation.logins.far"
    )
    assert f"{login} in the configuration of each broker" in said


def test_sets_and_patterns_of_upstreams() -> None:
    lists = {
        "parameters": [
            upstream("a", ["amqp://h1", "amqp://h2:5673"]), upstream("b", "amqp://u:s%40cret@[::1]:7"),
            parameter("federation-upstream-set", "one", [{"upstream": "b", "max-hops": 3}]),
        ],
        "exchanges": [exchange("x")],
    }  # fmt: skip
    for key, value, agents in (
        ("federation-upstream-set", "all", ["x@a", "x@b"]),
        ("federation-upstream-set", "one", ["x@b"]),
        ("federation-upstream-set", "none", []),
        ("federation-upstream-pattern", "^a$", ["x@a"]),
    ):
        found = made(planned(policies=[federating(key, value)], **lists))
        assert sorted(name for name in found if "@" in name) == agents
    assert found["a"]["addresses"] == ["h1:5672", "h2:5673"] and found["b"]["addresses"] == ["[::1]:7"]


def test_the_policy_that_applies_decides_also_for_built_in_exchanges() -> None:
    found = planned(
        parameters=[upstream()], exchanges=[exchange("x")],
        policies=[
            federating("federation-upstream", "far", pattern=".", priority=1),
            policy("other", pattern="^x", priority=2, definition={"alternate-exchange": "a"}),
        ],
    )  # fmt: skip
    agents = [name for name in made(found) if "@" in name]
    assert "amq.topic@far" in agents and "x@far" not in agents and "amq.peer@far" not in agents


@pytest.mark.parametrize(
    ("lists", "what"),
    [
        ({"parameters": [upstream(uri=7)]}, "1 upstream (far): it has no URI"),
        ({"parameters": [upstream(uri="http://far:s%40cret@h")]}, "1 upstream (far): its URI cannot be read"),
        ({"parameters": [upstream(uri="amqp://far:s%40cret@h:port")]}, "1 upstream (far): its URI cannot be"),
        ({"parameters": [upstream(uri="amqp://")]}, "1 upstream (far): its URI leads to the broker"),
        ({"parameters": [upstream(uri=["amqp://a@h", "amqp://b@h"])]}, "1 upstream (far): its URIs have"),
        (
            {
                "parameters": [upstream(exchange="other")], "exchanges": [exchange("x")],
                "policies": [federating("federation-upstream", "far")],
            },
            "1 agent (x@far): it names another exchange there",
        ),
        (
            {
                "parameters": [upstream()], "queues": [queue("xq")],
                "policies": [federating("federation-upstream", "far", **{"apply-to": "queues"})],
            },
            "1 federation of a queue (xq): ",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named(lists: dict[str, Any], what: str) -> None:
    [text] = texts(planned(**lists))
    assert text.startswith(what)


def shovel(**value: Any) -> list[dict[str, Any]]:
    ends = {"src-uri": URI, "src-exchange": "x", "dest-uri": "amqp://", "dest-exchange": "x"}
    found = {**ends, **{key.replace("_", "-"): item for key, item in value.items()}}
    return [parameter("shovel", "s", {key: item for key, item in found.items() if item is not None})]


def test_shovels_between_exchanges_of_one_name_become_agents() -> None:
    takes = made(planned(parameters=shovel(src_exchange_key="#"), exchanges=[exchange("x")]))
    assert takes["x@shovel-s"] == {"exchange": "x", "upstream": "shovel-s", "consume-mode": "all"}
    assert takes["shovel-s"]["addresses"] == ["rabbit1:5671"]
    gives = made(planned(parameters=shovel(src_uri="amqp://", dest_uri=URI), exchanges=[exchange("x")]))
    assert (gives["x@shovel-s"]["consume-mode"], gives["x@shovel-s"]["forward-mode"]) == ("none", "all")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"src_queue": "q", "src_exchange": None}, "a queue"),
        ({"dest_queue": "q", "dest_exchange": None}, "a queue"),
        ({"dest_exchange": "y"}, "exchanges of one name"),
        ({"src_exchange_key": "eur.*"}, "one routing key"),
        ({"dest_exchange_key": "k"}, "one routing key"),
        ({"dest_uri": "amqp://u@h"}, "neither end"),
        ({"src_uri": "amqp://"}, "neither end"),
        ({"dest_uri": "amqp:///other"}, "another virtual host"),
        ({"src_uri": [5]}, "no URI"),
    ],
)
def test_other_shovels_are_named(value: dict[str, Any], why: str) -> None:
    plan = planned(parameters=shovel(**value), exchanges=[exchange("x")])
    [text] = texts(plan)
    assert text.startswith("1 shovel (s): ") and why in text and not made(plan)


def test_what_federation_made_for_itself_does_not_come_over() -> None:
    own = {"arguments": {"x-internal-purpose": "federation"}}
    plan = planned(
        exchanges=[exchange("x"), exchange("federation: x -> r A", type="x-federation-upstream", **own)],
        queues=[queue("q"), queue("federation: x -> r", **own)],
        bindings=[
            binding("x", "q"), binding("x", "federation: x -> r A", destination_type="exchange"),
            binding("federation: x -> r A", "federation: x -> r"),
            binding("x", "federation: x -> s A", destination_type="exchange"),  # rabbitmqctl leaves it out
        ],
    )  # fmt: skip
    assert [type(item).__name__ for item in plan.items] == [
        "ExchangeDefinition", "QueueDefinition", "BindingDefinition",
    ]  # fmt: skip
    assert texts(plan) == []
