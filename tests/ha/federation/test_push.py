"""Agents that give: every row of the table of modes, and what becomes of the messages."""

from __future__ import annotations

from typing import Any

import pytest

from ha.adapter.inbox import Arrived
from ha.core.federation.wire import LinkMethod
from tests.ha.federation.nets import LOGIN, Net, agent, entry
from tests.ha.federation.test_hop import joined
from tests.ha.pair import Host


def made(kind: str = "topic", nodes: dict[str, int] | None = None, **mode: Any) -> Net:
    """`leaf` has an agent for `hub`. At either node queue q is bound with `k`."""
    net = Net(**(nodes or {"hub": 1, "leaf": 1}))
    net.up()
    net.exchange("hub", "leaf", kind=kind)
    for node in ("hub", "leaf"):
        net.queue(node, "q", "k")
    net.queue("hub", "all", "#" if kind == "topic" else "k")
    net.federate("leaf", "hub", **mode)
    net.runs("leaf", "hub")
    net.run(0.3)
    return net


@pytest.mark.parametrize(
    ("mode", "at_leaf", "at_hub"),
    [
        ({"forward_mode": "none", "consume_mode": "all"}, "a b", "b"),
        ({"forward_mode": "all", "consume_mode": "none"}, "a", "a b"),
        ({"forward_mode": "all", "consume_mode": "all"}, "a b", "a b"),
        ({"forward_mode": "all", "consume_mode": "none", "copy": 0}, "", "a b"),
        ({"forward_mode": "all", "consume_mode": "all", "copy": 0}, "a b", "a b"),
        ({"forward_mode": "unmatched", "consume_mode": "none"}, "a", "b"),
        ({"forward_mode": "unmatched", "consume_mode": "all"}, "a b", "b"),
    ],
    ids=["subscriber", "publisher", "both", "remote only", "by the root", "locator", "service"],
)
@pytest.mark.parametrize("kind", ["topic", "direct"])
def test_a_message_of_either_side_goes_where_the_mode_says(
    mode: dict[str, Any], at_leaf: str, at_hub: str, kind: str
) -> None:
    """a is published at the leaf, b at the hub, both with the key of a queue at each."""
    net = made(kind, **mode)
    net.send("leaf", "k", "a")
    net.run(1.0)
    net.send("hub", "k", "b")
    net.run(1.0)
    assert " ".join(net.content("leaf", "q")) == at_leaf
    assert " ".join(net.content("hub", "q")) == at_hub
    assert net.line("leaf", "hub")["waiting"] == net.waiting("hub", "leaf") == 0


def test_what_no_binding_matches_goes_upstream() -> None:
    net = made(forward_mode="unmatched", consume_mode="none")
    net.send("leaf", "nobody", "1")
    net.send("leaf", "k", "2")
    net.run(1.0)
    assert (net.content("leaf", "q"), net.content("hub", "all")) == ("2", "1")


def test_by_the_root_all_nodes_have_one_order() -> None:
    net = Net(hub=1, one=1, two=1)
    net.up()
    net.exchange("hub", "one", "two")
    for node in ("hub", "one", "two"):
        net.queue(node, "q", "k")
    for node in ("one", "two"):
        net.federate(node, "hub", forward_mode="all", consume_mode="all", copy=0)
    for node in ("one", "two"):
        net.runs(node, "hub")
    net.run(0.5)
    for at, text in enumerate("abcdefgh"):
        net.send(("one", "two", "hub")[at % 3], "k", text)
        net.step()
    net.run(2.0)
    order = net.content("hub", "q")
    assert sorted(order) == list("abcdefgh")
    assert net.content("one", "q") == net.content("two", "q") == order


@pytest.mark.parametrize("killed", ["hub", "leaf"])
@pytest.mark.parametrize("after", range(1, 60, 7))
def test_given_messages_survive_a_failover_at_either_end(killed: str, after: int) -> None:
    net = made(nodes={"hub": 2, "leaf": 2}, forward_mode="all", consume_mode="none")
    net.send("leaf", "k", "12345678")
    for _ in range(after):
        net.step()
        net.now += 0.001
    first, second = net.nodes[killed]
    net.kill(first)
    net.run(0.1)
    assert net.ask(second, "promote")["ok"]
    net.runs("leaf", "hub")
    net.send("leaf", "k", "9")
    net.gets("hub", "q", "123456789")
    net.until(lambda: net.line("leaf", "hub")["waiting"] == 0)


def test_an_outage_keeps_what_is_to_be_given() -> None:
    net = made(forward_mode="all", consume_mode="none")
    a, b = net.hosts
    net.send("leaf", "k", "0")
    net.until(lambda: net.line("leaf", "hub")["given"] == 1)
    net.separate(a, b, reset=True)
    net.send("leaf", "k", "123")
    net.run(2.0)
    line = net.line("leaf", "hub")
    assert (line["waiting"], line["given"]) == (3, 1) and net.content("leaf", "q") == "0123"
    net.heal()
    net.gets("hub", "q", "0123")
    net.until(lambda: net.line("leaf", "hub")["given"] == 4)


def test_a_giver_that_is_removed_leaves_nothing_behind_at_either_end() -> None:
    net = made(forward_mode="all", consume_mode="all")
    net.send("leaf", "k", "1")
    net.send("hub", "k", "0")
    net.run(0.5)
    hub, leaf = net.serving("hub").running, net.serving("leaf").running
    assert net.cursors("hub") and net.cursors("leaf")
    assert net.define(net.serving("leaf"), entry("federation-agent", "x@hub", action="delete"))["ok"]
    net.run(0.5)
    for node in (hub, leaf):
        assert not [name for name in node.vhost.queues if name.startswith("amq.link.x@")]
    assert net.cursors("hub") == net.cursors("leaf") == []
    net.send("leaf", "k", "2")
    net.run(0.5)
    assert sorted(net.content("hub", "q")) == ["0", "1"]
    assert net.define(net.serving("leaf"), entry("federation-upstream", "hub", action="delete"))["ok"]
    net.run(0.5)
    for node in (hub, leaf):
        assert not [name for name in node.vhost.queues if name.startswith("amq.link.")]
    assert sorted(net.content("leaf", "q")) == ["0", "1", "2"]


def test_an_exchange_that_is_declared_later_gives_from_its_first_message_on() -> None:
    net = joined()
    host = net.serving("leaf")
    net.define(host, agent("late", "hub", consume_mode="none", forward_mode="all"))
    net.run(0.5)
    net.exchange("hub", name="late")
    net.queue("hub", "all", "#", exchange="late")
    vhost = host.running.vhost
    vhost.declare_exchange("late", "topic", durable=True)
    net.send("leaf", "k", "1", exchange="late")
    net.gets("hub", "all", "1")


@pytest.mark.parametrize("way", ["taken", "given"])
def test_an_agent_that_drops_keeps_nothing_while_the_line_is_down(way: str) -> None:
    taken = way == "taken"
    source, target = ("hub", "leaf") if taken else ("leaf", "hub")
    modes = {"consume_mode": "all" if taken else "none", "forward_mode": "none" if taken else "all"}
    net = made(on_outage="drop", **modes)
    net.send(source, "k", "1")
    net.gets(target, "q", "1")
    net.separate(*net.hosts, reset=True)
    net.run(0.3)
    net.send(source, "k", "23")
    net.run(1.0)
    net.heal()
    net.runs("leaf", "hub")
    net.run(0.5)
    net.send(source, "k", "4")
    net.gets(target, "q", "14")


def test_a_switchover_that_comes_to_nothing_at_the_end_of_a_tick_keeps_the_order() -> None:
    """What came meanwhile is heard before what comes after it; else the cursor passes over it."""
    net = made(forward_mode="all", consume_mode="none")
    hub = net.serving("hub").running
    hub.broker.pause_input()
    net.send("leaf", "k", "a")
    net.until(lambda: hub.federation._held)
    net.send("leaf", "k", "b")
    net.until(lambda: LinkMethod.DATA in [it.method for it in hub._inbox._items if isinstance(it, Arrived)])
    hub.broker.resume_input()
    net.gets("hub", "q", "ab")


@pytest.mark.parametrize("way", ["pull", "push"])
def test_a_line_breaks_before_that_primary_dies(way: str) -> None:
    """A new link says only what is on every disk that counts, as an old one does."""
    net = joined(hub=1, leaf=2) if way == "pull" else made(
        nodes={"leaf": 1, "hub": 2}, forward_mode="all", consume_mode="none"
    )  # fmt: skip
    giver, taker = ("hub", "leaf") if way == "pull" else ("leaf", "hub")
    first, second = net.nodes[taker]
    net.hold(first, second)
    net.send(giver, "a.b" if way == "pull" else "k", "123")
    net.until(lambda: net.content(taker, "q") == "123")
    net.reset(net.nodes[giver][0], first)
    net.until(lambda: net.line("leaf", "hub")["state"] != "running")
    net.runs("leaf", "hub")
    net.run(0.2)
    assert net.content(taker, "q") == "123"  # it came again, and was left out
    net.kill(first)
    net.heal()
    net.run(0.1)
    assert net.ask(second, "promote")["ok"]
    net.gets(taker, "q", "123")


def limits_of(net: Net, node: str, name: str) -> list[dict[str, Any]]:
    """Of that link queue, at each broker of the node."""
    queues = [host.running.vhost.queues[name] for host in net.nodes[node]]
    known = ("x-max-length-bytes", "x-message-ttl", "x-expires")
    return [{key: queue.arguments[key] for key in known if key in queue.arguments} for queue in queues]


def octets_of(host: Host) -> int:
    return host.running.vhost.octets


def test_a_limit_that_changes_holds_for_what_waits_to_be_given_also_after_a_failover() -> None:
    net = made(nodes={"hub": 1, "leaf": 2}, forward_mode="all", consume_mode="none", message_ttl=60_000)
    first, second = net.nodes["leaf"]
    for member in net.nodes["leaf"]:
        net.separate(net.hosts[0], member, reset=True)
    net.send("leaf", "k", "12345")
    net.until(lambda: net.line("leaf", "hub")["waiting"] == 5)
    before = octets_of(first), octets_of(second)
    net.define(first, agent("x", "hub", forward_mode="all", consume_mode="none", max_length_bytes=2))
    net.until(lambda: net.line("leaf", "hub")["waiting"] == 2)
    net.run(0.1)
    assert limits_of(net, "leaf", "amq.link.x@>hub") == [{"x-max-length-bytes": 2}] * 2
    assert octets_of(first) - before[0] == octets_of(second) - before[1] < 0
    net.kill(first)
    net.run(0.1)
    assert net.ask(second, "promote")["ok"]
    net.send("leaf", "k", "6")
    net.run(0.1)
    net.heal()
    net.gets("hub", "q", "56")


def test_a_limit_that_changes_reaches_the_link_queue_upstream() -> None:
    net = made(nodes={"hub": 2, "leaf": 1}, consume_mode="all", expires=600_000)
    name = "amq.link.x@leaf"
    assert limits_of(net, "hub", name) == [{"x-max-length-bytes": 1 << 30, "x-expires": 600_000}] * 2
    net.define(net.serving("leaf"), agent("x", "hub", consume_mode="all", message_ttl=0, max_length_bytes=9))
    net.runs("leaf", "hub")
    net.run(0.1)
    assert limits_of(net, "hub", name) == [{"x-max-length-bytes": 9, "x-message-ttl": 0}] * 2
    first, second = net.nodes["hub"]
    net.kill(first)
    net.run(0.1)
    assert net.ask(second, "promote")["ok"]
    assert net.serving("hub").running.vhost.queues[name].expires is None


def test_an_agent_that_is_refused_changes_no_limit() -> None:
    net = made(nodes={"hub": 1, "leaf": 1}, consume_mode="all")
    host = net.serving("leaf")
    addresses = [f"127.0.0.1:{net.hosts[0].port}"]
    net.define(
        host,
        entry("federation-upstream", "again", addresses=addresses, login=LOGIN),
        agent("x", "again", consume_mode="all", max_length_bytes=1),
    )
    net.until(lambda: net.line("leaf", "again")["state"] == "refused")
    assert limits_of(net, "hub", "amq.link.x@leaf") == [{"x-max-length-bytes": 1 << 30}]
