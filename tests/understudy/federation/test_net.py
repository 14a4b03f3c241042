"""The map of a net and the way of a message through it, of brokers in this process; and the picture."""

from __future__ import annotations

import threading
from typing import Any
from xml.etree import ElementTree

from tests.ha.federation.nets import Net
from tests.ha.pair import Host
from understudy.federation.net import AWAY, GIVES, TAKES, NetBroker, NetLink, NetNode
from understudy.federation.net import Net as Drawn
from understudy.federation.picture import MOST_LINES, svg
from understudy.federation.route import AGAIN, Route, Visit
from understudy.federation.survey import OTHER, UNASKED, UNKNOWN, Survey
from understudy.management import Unreachable
from understudy.shared.codes import Coded

SVG = "{http://www.w3.org/2000/svg}"


def address(host: Host) -> str:
    return f"127.0.0.1:{host.port}"


def survey(net: Net, *starts: str, refuse: str = "", downstream: bool = False) -> Survey:
    """By one question at a time: the brokers share one clock. The host at `refuse` refuses the login."""
    lock = threading.Lock()
    hosts = {address(host): host for host in net.hosts}

    def ask(at: str) -> dict[str, Any]:
        host = hosts.get(at)
        if host is None or host.node is None or at == refuse:
            raise Unreachable(Coded("no", "403" if at == refuse else f"cannot reach {at}"))
        with lock:
            return dict(net.ask(host, "query")["status"])

    told: list[tuple[int, int]] = []
    made = Survey(ask, lambda *progress: told.append(progress), downstream)
    made.run(starts)
    assert told[-1][0] == told[-1][1] == len(made.answers) + len(made.faults)
    return made


def told(net: Drawn) -> set[tuple[str, str, str, str, int | None]]:
    return {
        (link.exchange, net.label(link.source), net.label(link.target), link.state, link.waiting)
        for link in net.links
    }


def star() -> Net:
    """`one` and `two` take from the pair `hub`, and `two` gives, too."""
    net = Net(hub=2, one=1, two=1)
    net.up()
    net.exchange("hub", "one", "two")
    for node in ("hub", "one", "two"):
        net.queue(node, "q", "k.#")
    net.federate("one", "hub")
    net.federate("two", "hub", forward_mode="all")
    for node in ("one", "two"):
        net.runs(node, "hub")
    net.run(0.5)
    return net


def test_a_map_shows_all_nodes_and_what_waits_for_one_that_is_away() -> None:
    net = star()
    net.kill(net.nodes["one"][0])
    net.run(0.5)
    net.send("hub", "k.a", "xyz")
    net.run(0.5)
    backup = net.nodes["hub"][1]
    found = survey(net, address(net.nodes["two"][0])).net()
    kinds = {found.label(key): (node.kind, node.serves) for key, node in found.nodes.items()}
    assert kinds == {"hub": ("pair", net.serving("hub").name), "two": ("single", "d"), "one": ("?", "")}
    assert told(found) == {
        ("x", "hub", "two", "running", 0), ("x", "two", "hub", "running", 0), ("x", "hub", "one", AWAY, 3),
    }  # fmt: skip
    [away] = [node for node in found.nodes.values() if node.name == "one"]
    assert (away.reason, away.brokers) == (UNKNOWN, [])
    # From the backup, which names the primary; a leaf that refuses, and one that is down, say why.
    starts = (address(backup), address(net.nodes["one"][0]), address(net.nodes["two"][0]))
    refused = survey(net, *starts, refuse=address(net.nodes["two"][0]))
    assert {at: fault.sentence for at, fault in refused.faults.items()} == {
        starts[1]: f"cannot reach {starts[1]}", starts[2]: "403",
    }  # fmt: skip
    assert ("x", "hub", "two", "running", 0) in told(refused.net())


def test_a_node_downstream_is_asked_where_it_says_that_it_is_if_that_is_wanted() -> None:
    """It gets the password of who asks."""
    net = star()
    hub = address(net.serving("hub"))
    for downstream in (False, True):
        made = survey(net, hub, downstream=downstream)
        assert (address(net.nodes["one"][0]) in made.answers) is downstream
        drawn = made.net()
        leaf = next(node for node in drawn.nodes.values() if node.name == "one")
        assert [broker.address for broker in leaf.brokers] == [address(net.nodes["one"][0])]
        assert leaf.reason == ("" if downstream else UNASKED)
        assert len(drawn.nodes) == 3 and len(drawn.links) == 3
        taken = [link.interest for link in drawn.links if link.way == TAKES]
        assert taken == [1, 1]  # as the upstream knows it, where the leaf was not asked


def test_an_upstream_is_known_by_its_link_queue_where_its_addresses_lead_nowhere() -> None:
    net = star()
    made = survey(net, *(address(host) for host in net.hosts))
    for found in made.answers.values():
        for upstream in found["federation"]["upstreams"]:
            upstream["addresses"] = ["10.0.0.1:5672"]
    drawn = made.net()
    assert len(drawn.nodes) == 3 and len(drawn.links) == 3
    assert {drawn.label(link.upstream) for link in drawn.links} == {"hub"}


def test_another_broker_gets_no_password() -> None:
    net = star()
    two = address(net.nodes["two"][0])
    status = dict(net.ask(net.nodes["two"][0], "query")["status"])
    for upstream in status["federation"]["upstreams"]:
        upstream["protocol"] = "amqp"
    asked: list[str] = []
    made = Survey(lambda at: asked.append(at) or status)  # type: ignore[func-returns-value]
    made.run([two])
    assert asked == [two]
    assert {node.reason for node in made.net().nodes.values()} == {"", OTHER}


def route(net: Net, start: str, key: str) -> list[tuple[int, str, str, str, str]]:
    made = survey(net, *(address(host) for host in net.hosts)).net()
    at = next(each.key for each in made.nodes.values() if each.name == start)
    way = Route(made, Visit(at, "/", "x"), key)
    while (due := way.due) is not None:
        answer = net.ask(net.serving(made.nodes[due.node].name), "federation-trace", **way.question())
        assert answer["ok"], answer
        way.take(answer["steps"])
    return sorted((step["hop"], step["node"], step["to"], step["name"], step["note"]) for step in way.steps)


def test_a_trace_follows_a_message_from_node_to_node_and_not_back() -> None:
    net = star()
    assert route(net, "two", "k.a") == [
        (0, "two", "queue", "q", ""), (0, "two", "upstream", "hub", ""),
        (1, "hub", "node", "one", ""), (1, "hub", "queue", "q", ""),
        (2, "one", "queue", "q", ""),
    ]  # fmt: skip
    assert route(net, "one", "k.a") == [(0, "one", "queue", "q", "")]


def test_a_trace_says_where_a_message_comes_twice() -> None:
    net = Net(a=1, b=1, c=1)
    net.up()
    net.exchange("a", "b", "c")
    net.queue("c", "q", "#")
    for node, upstream in (("b", "a"), ("c", "a"), ("c", "b")):
        net.federate(node, upstream)
        net.runs(node, upstream)
    net.run(0.5)
    assert AGAIN in [note for *_, note in route(net, "a", "k")]


def test_a_picture_has_a_box_for_each_node_and_no_text_of_others_is_markup() -> None:
    bad = '<script>"&\x1b'
    net = Drawn()
    for key in ("hub", "leaf", bad):
        net.nodes[key] = NetNode(key, key, [NetBroker(key, "h:1", "active")], serves=key, asked="h:1")
    net.nodes["lost"] = NetNode("lost", "lost", reason="cannot reach h:2")
    many = [NetLink(f"{bad}{n}", TAKES, "leaf", "hub", "hub", "/", "/", "running", 5) for n in range(20)]
    net.links = [*many, NetLink("x", GIVES, bad, "hub", "hub", "/", "/", "refused", reason="no")]
    net.links.append(NetLink("x", TAKES, "hub", "leaf", "leaf", "/", "/", "running", 0))  # a ring
    root = ElementTree.fromstring(svg(net))
    words = " ".join("".join(text.itertext()) for text in root.iter(f"{SVG}text"))
    assert len(list(root.iter(f"{SVG}rect"))) == 1 + len(net.nodes)
    assert len([path for path in root.iter(f"{SVG}path") if path.get("marker-end")]) == 3
    assert f"and {20 - MOST_LINES} more links" in words and "4 nodes, 22 links, 21 of them running" in words
    assert '<script>"&\\x1b' in words and "cannot reach h:2" in words and not list(root.iter("script"))
    assert svg(Drawn())
    levels = [[net.label(key) for key in level] for level in net.levels()]
    assert levels[0][0] in ("lost", "hub") and sum(map(len, levels)) == 4
