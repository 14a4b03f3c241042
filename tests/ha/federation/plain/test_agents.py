"""Agents at a broker that is spoken to in plain AMQP 0-9-1, here another Understudy."""

from __future__ import annotations

from typing import Any

from broker.amqp091.codec.frames import body_of
from broker.amqp10.conversion import incoming, is_stored
from tests.broker.amqp10.messages import payload
from tests.ha.federation.nets import Net

QUEUE = "federation: x -> leaf"
PERSISTENT = (
    b"\x02\0\1\0\0\0\x0f" + b"\0<\0\0" + b"\0\0\0\0\0\0\0\1" + b"\x10\0\2\xce"
    + b"\x03\0\1\0\0\0\1%c\xce"
)  # fmt: skip
"""The frames of a message that says so itself, with a one-octet body."""


def joined(**agent: Any) -> Net:
    """`leaf` takes from `hub`; its queue q is bound with `a.*`."""
    net = Net(hub=1, leaf=1)
    net.up()
    net.exchange("hub", "leaf")
    net.queue("leaf", "q", "a.*")
    net.federate("leaf", "hub", plain=True, **agent)
    net.runs("leaf", "hub")
    return net


def publish(net: Net, node: str, key: str, *raws: bytes) -> None:
    vhost = net.serving(node).running.vhost
    route = vhost.route("x", key)
    vhost.publish(route, list(raws), persistent=True, channel=1, largest_frame=len(raws[0]))


def there(net: Net) -> int:
    """Messages of `leaf` that wait at the hub."""
    queue = net.serving("hub").running.vhost.queues.get(QUEUE)
    return queue.total_count if queue is not None else 0


def bound(net: Net) -> list[str]:
    """The keys for which the exchange of the hub is bound to that of `leaf`."""
    bindings = net.serving("hub").running.vhost.exchanges["x"].bindings.values()
    return sorted(binding.routing_key for binding in bindings if binding.target.name == f"{QUEUE} A")


def test_what_matches_a_binding_here_comes_and_is_acked_when_it_is_safe() -> None:
    net = joined()
    net.send("hub", "a.b", "12")
    net.send("hub", "other", "9")
    net.send("hub", "a.c", "3", persistent=False)
    net.gets("leaf", "q", "123")
    net.until(lambda: there(net) == 0)
    line = net.line("leaf", "hub")
    assert (line["taken"], line["routed"], line["interest"]) == (3, 3, 1)
    assert line["promise"] == "at least once" and "at 127.0.0.1:5000" in line["source"]


def test_nothing_is_acked_that_is_not_on_the_disk() -> None:
    net = joined()
    leaf = net.serving("leaf")
    leaf.disk_does("stop")
    publish(net, "hub", "a.b", *(PERSISTENT % text for text in (b"1", b"2")))
    net.until(lambda: net.content("leaf", "q") == "12")
    net.run(1.0)
    assert there(net) == 2
    leaf.disk_does("go")
    net.until(lambda: there(net) == 0)


def test_interest_follows_binds_and_unbinds() -> None:
    net = joined()
    vhost = net.serving("leaf").running.vhost
    net.queue("leaf", "more", "b", "c")
    net.until(lambda: bound(net) == ["a.*", "b", "c"])
    vhost.unbind_queue("more", "x", "b", owner=net)
    net.until(lambda: bound(net) == ["a.*", "c"])
    vhost.delete_queue("more", owner=net)
    net.until(lambda: bound(net) == ["a.*"])
    assert net.line("leaf", "hub")["interest"] == 1


def test_an_outage_of_the_line_loses_nothing_and_leaves_no_binding() -> None:
    net = joined()
    a, b = net.hosts
    vhost = net.serving("leaf").running.vhost
    net.separate(a, b, reset=True)
    net.send("hub", "a.b", "12")
    net.queue("leaf", "more", "b")
    vhost.unbind_queue("q", "x", "a.*", owner=net)
    net.run(3.0)
    net.heal()
    net.runs("leaf", "hub")
    net.until(lambda: bound(net) == ["b"] and there(net) == 0)
    net.send("hub", "b", "3")
    net.gets("leaf", "more", "3")


def test_a_restart_here_makes_the_bindings_anew_and_misses_nothing() -> None:
    net = joined()
    leaf = net.serving("leaf")
    net.kill(leaf)
    net.send("hub", "a.b", "12")
    net.start(leaf)
    net.until(lambda: net.content("leaf", "q") == "12")
    net.runs("leaf", "hub")
    net.until(lambda: there(net) == 0 and bound(net) == ["a.*"])
    assert not [name for name in net.serving("hub").running.vhost.exchanges if name.endswith(" B")]


def test_a_queue_that_is_deleted_there_is_made_again() -> None:
    net = joined()
    net.serving("hub").running.vhost.delete_queue(QUEUE, owner=net)
    net.until(lambda: net.line("leaf", "hub")["state"] != "running")
    net.runs("leaf", "hub")
    net.send("hub", "a.b", "1")
    net.gets("leaf", "q", "1")


def test_refusals_are_said_and_it_goes_on_by_itself() -> None:
    net = Net(hub=1, leaf=1)
    net.up()
    net.exchange("leaf")
    net.queue("leaf", "q", "a")
    net.federate("leaf", "hub", plain=True)
    net.until(lambda: net.line("leaf", "hub")["state"] == "refused")
    assert "it has no exchange 'x' to federate" in net.line("leaf", "hub")["reason"]
    net.exchange("hub")
    net.runs("leaf", "hub")
    net.send("hub", "a", "1")
    net.gets("leaf", "q", "1")


def test_pause_resume_and_removal() -> None:
    net = joined()
    net.federate("leaf", "hub", plain=True, paused=True)
    net.until(lambda: net.line("leaf", "hub")["state"] == "paused")
    net.send("hub", "a.b", "12")
    net.run(0.5)
    assert net.content("leaf", "q") == "" and there(net) == 2
    net.federate("leaf", "hub", plain=True)
    net.gets("leaf", "q", "12")
    gone = {"action": "delete", "kind": "federation-agent", "vhost": "/", "name": "x@hub", "value": {}}
    assert net.define(net.serving("leaf"), gone)["ok"]
    hub = net.serving("hub").running.vhost
    net.until(lambda: QUEUE not in hub.queues and not hub.exchanges["x"].bindings)


def test_with_drop_nothing_waits_there() -> None:
    net = joined(on_outage="drop")
    a, b = net.hosts
    net.separate(a, b, reset=True)
    net.run(3.0)
    assert QUEUE not in net.serving("hub").running.vhost.queues
    net.send("hub", "a.b", "12")
    net.heal()
    net.runs("leaf", "hub")
    net.send("hub", "a.b", "3")
    net.gets("leaf", "q", "3")


def test_what_is_given_is_let_go_of_when_it_is_confirmed() -> None:
    net = joined(forward_mode="all")
    net.queue("hub", "all", "#")
    net.send("leaf", "a.b", "12")
    net.gets("hub", "all", "12")
    net.gets("leaf", "q", "12")
    net.until(lambda: net.line("leaf", "hub")["waiting"] == 0)
    line = net.line("leaf", "hub")
    assert line["given"] == 2 and line["looped"] == 2  # they matched a.* there, and were dropped here


def test_what_is_given_waits_for_the_line() -> None:
    net = joined(forward_mode="unmatched")
    net.queue("hub", "all", "#")
    a, b = net.hosts
    net.separate(a, b, reset=True)
    net.send("leaf", "a.b", "1")
    net.send("leaf", "z", "23")
    net.run(3.0)
    assert net.line("leaf", "hub")["waiting"] == 2
    net.heal()
    net.until(lambda: net.content("hub", "all") == "23")
    assert net.content("leaf", "q") == "1"


def test_with_copy_0_messages_come_by_way_of_the_upstream_only() -> None:
    net = joined(forward_mode="all", copy=0)
    net.queue("hub", "all", "#")
    net.send("leaf", "a.b", "12")
    net.send("hub", "a.b", "3")
    net.gets("leaf", "q", "123" if net.content("leaf", "q").startswith("1") else "312")
    assert sorted(net.content("hub", "all")) == ["1", "2", "3"]


def test_two_nodes_that_take_from_each_other_have_each_message_once() -> None:
    net = joined()
    net.queue("hub", "q", "a.*")
    net.federate("hub", "leaf", plain=True)
    net.runs("hub", "leaf")
    net.run(1.0)
    net.send("hub", "a.b", "12")
    net.send("leaf", "a.b", "3")
    net.until(lambda: len(net.content("hub", "q")) + len(net.content("leaf", "q")) >= 6)
    net.run(1.0)
    assert sorted(net.content("hub", "q")) == sorted(net.content("leaf", "q")) == ["1", "2", "3"]
    for node, other in (("hub", "leaf"), ("leaf", "hub")):
        net.serving(node).running.vhost.delete_queue("q", owner=net)
        net.until(lambda: net.line(node, other)["interest"] == 0)  # noqa: B023


def test_a_name_of_this_very_node_is_refused() -> None:
    net = Net(hub=1, leaf=1)
    net.up()
    net.exchange("leaf")
    answer = net.define(
        net.serving("leaf"),
        {
            "action": "put", "kind": "federation-upstream", "vhost": "/", "name": "me",
            "value": {"addresses": ["127.0.0.1:5001"], "login": "plain", "protocol": "amqp"},
        },
        {
            "action": "put", "kind": "federation-agent", "vhost": "/", "name": "x@me",
            "value": {"exchange": "x", "upstream": "me", "consume-mode": "all"},
        },
    )  # fmt: skip
    assert answer["ok"], answer
    net.until(lambda: net.line("leaf", "me")["state"] == "refused")
    assert "node 'leaf' itself" in net.line("leaf", "me")["reason"]


def test_a_mode_that_becomes_none_takes_and_gives_what_waits_and_ends() -> None:
    net = joined(forward_mode="all")
    net.queue("hub", "all", "#")
    net.separate(*net.hosts, reset=True)
    net.send("hub", "a.b", "12")
    net.send("leaf", "z", "3")
    net.federate("leaf", "hub", plain=True, consume_mode="none", forward_mode="none")
    net.run(1.0)
    net.heal()
    net.until(lambda: net.line("leaf", "hub")["state"] == "off")
    assert (net.content("leaf", "q"), net.content("hub", "all")) == ("12", "123")
    hub = net.serving("hub").running.vhost
    assert QUEUE not in hub.queues and not any(name.startswith(QUEUE) for name in hub.exchanges)
    net.send("hub", "a.b", "4")
    net.run(0.5)
    assert net.content("leaf", "q") == "12" and bound(net) == []


def test_a_failover_here_loses_nothing() -> None:
    net = Net(hub=1, leaf=2)
    net.up()
    net.exchange("hub", "leaf")
    net.queue("leaf", "q", "a.*")
    net.federate("leaf", "hub", plain=True, forward_mode="all")
    net.runs("leaf", "hub")
    net.queue("hub", "all", "b")
    first, second = net.nodes["leaf"]
    publish(net, "hub", "a.b", *(PERSISTENT % text for text in (b"1", b"2", b"3")))
    publish(net, "leaf", "b", *(PERSISTENT % text for text in (b"7", b"8")))
    for _ in range(4):
        net.step()
        net.now += 0.001
    net.kill(first)
    net.run(0.1)
    assert net.ask(second, "promote")["ok"]
    net.runs("leaf", "hub")
    publish(net, "hub", "a.b", PERSISTENT % b"4")
    net.until(lambda: set(net.content("leaf", "q")) == set("1234"))
    net.until(lambda: there(net) == 0 and set(net.content("hub", "all")) == set("78"))


def test_what_was_published_over_amqp_1_0_is_given_as_0_9_1() -> None:
    net = joined(forward_mode="all")
    net.queue("hub", "all", "#")
    publish(net, "leaf", "z", incoming(payload(properties=["id"])).raw, PERSISTENT % b"2")
    net.until(lambda: net.content("hub", "all").endswith("2"))
    first = net.serving("hub").running.vhost.queues["all"].held_entries()[0][2]
    assert not is_stored(first) and body_of(first) == b"body"


def test_who_gives_has_a_connection_of_its_own_while_there_is_one() -> None:
    """A broker under an alarm reads nothing from a connection that publishes, and so no acks on it."""
    net = joined()
    hub = net.serving("hub").running.broker

    def lines() -> int:
        return len(hub.connections)

    assert lines() == 1
    net.federate("leaf", "hub", plain=True, forward_mode="all")
    net.runs("leaf", "hub")
    net.until(lambda: lines() == 2)
    net.federate("leaf", "hub", plain=True)
    net.until(lambda: lines() == 1)
    net.runs("leaf", "hub")
