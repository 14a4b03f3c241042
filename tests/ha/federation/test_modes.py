"""An agent that takes or gives no more: what waits from before is not lost, and nothing is left behind."""

from __future__ import annotations

from random import Random

import pytest

from tests.ha.federation.nets import Net, agent
from tests.ha.federation.test_interest import at_hub
from tests.ha.federation.test_push import made


def change(net: Net, **modes: object) -> None:
    assert net.define(net.serving("leaf"), agent("x", "hub", **modes))["ok"]
    net.run(0.1)


def links(net: Net, node: str) -> list[str]:
    return [name for name in net.serving(node).running.vhost.queues if name.startswith("amq.link.x@")]


def clean(net: Net) -> bool:
    """No link queue and no cursor anywhere."""
    return not [found for node in net.nodes for found in (*net.cursors(node), *links(net, node))]


def test_what_waits_to_be_given_is_given_also_after_a_failover() -> None:
    net = made(nodes={"hub": 1, "leaf": 2}, forward_mode="all", consume_mode="none")
    net.send("leaf", "k", "1")
    net.gets("hub", "q", "1")
    for member in net.nodes["leaf"]:
        net.separate(net.hosts[0], member, reset=True)
    net.send("leaf", "k", "23")
    change(net, forward_mode="none", consume_mode="none")
    net.send("leaf", "k", "4")
    first, second = net.nodes["leaf"]
    net.run(0.2)
    net.kill(first)
    net.run(0.1)
    assert net.ask(second, "promote")["ok"]
    net.until(lambda: net.line("leaf", "hub")["state"] == "connecting")
    assert net.line("leaf", "hub")["waiting"] == 2 and not clean(net)
    net.heal()
    net.gets("hub", "q", "123")
    net.until(lambda: clean(net))
    assert net.line("leaf", "hub")["state"] == "off"


def test_an_agent_that_gives_no_more_says_what_it_still_does() -> None:
    net = made(forward_mode="all", consume_mode="none")
    hub, leaf = net.hosts
    net.hold(hub, leaf)
    net.send("leaf", "k", "1")
    change(net, forward_mode="none", consume_mode="all")
    net.send("leaf", "k", "2")
    net.reset(hub, leaf)
    net.separate(hub, leaf)
    net.until(lambda: "connection" in net.line("leaf", "hub")["reason"])
    net.heal()
    seen = set()
    for _ in range(3000):
        seen.add(net.line("leaf", "hub")["reason"])
        net.step()
        net.now += 0.001
    assert "forward-mode is none: what waits here is still given" in seen
    assert net.content("hub", "q") == "1" and links(net, "leaf") == []
    assert (net.line("leaf", "hub")["state"], net.line("leaf", "hub")["reason"]) == ("running", "")


def test_an_empty_link_queue_ends_when_the_upstream_can_forget_it() -> None:
    net = made(forward_mode="all", consume_mode="none")
    net.send("leaf", "k", "1")
    net.gets("hub", "q", "1")
    net.separate(*net.hosts, reset=True)
    change(net, forward_mode="none", consume_mode="none")
    net.run(1.0)
    assert net.line("leaf", "hub")["state"] == "connecting" and net.cursors("hub")
    net.heal()
    net.until(lambda: clean(net))
    assert net.line("leaf", "hub")["state"] == "off"


def test_what_waits_to_be_taken_is_taken_and_nothing_new() -> None:
    net = made(nodes={"hub": 2, "leaf": 2}, consume_mode="all")
    net.send("hub", "k", "1")
    net.gets("leaf", "q", "1")
    for hub in net.nodes["hub"]:
        for leaf in net.nodes["leaf"]:
            net.separate(hub, leaf, reset=True)
    net.send("hub", "k", "23")
    change(net, consume_mode="none", forward_mode="none")
    for members in net.nodes.values():
        net.run(0.2)
        net.kill(members[0])
        net.run(0.1)
        assert net.ask(members[1], "promote")["ok"]
    assert net.line("leaf", "hub")["state"] == "connecting"
    net.heal()
    net.gets("leaf", "q", "123")
    net.until(lambda: clean(net))
    net.send("hub", "k", "4")
    net.run(0.5)
    assert net.content("leaf", "q") == "123" and net.line("leaf", "hub")["state"] == "off"


def test_an_agent_that_never_took_a_message_leaves_no_link_queue_upstream() -> None:
    net = made(consume_mode="all")
    assert links(net, "hub")
    change(net, consume_mode="none", forward_mode="all")
    net.until(lambda: links(net, "hub") == [])
    net.runs("leaf", "hub")
    net.send("leaf", "k", "1")
    net.send("hub", "k", "0")
    net.gets("hub", "q", "01")
    assert net.content("leaf", "q") == "1"
    change(net, consume_mode="all", forward_mode="none")
    net.runs("leaf", "hub")
    net.run(0.3)
    net.send("hub", "k", "2")
    net.gets("leaf", "q", "12")


def test_what_was_to_come_back_does() -> None:
    """Those messages were given instead of going to the queues here."""
    net = made(forward_mode="all", consume_mode="all", copy=0)
    net.separate(*net.hosts, reset=True)
    net.send("leaf", "k", "12")
    change(net, forward_mode="none", consume_mode="all")
    net.send("leaf", "k", "3")
    assert net.content("leaf", "q") == "3"
    net.heal()
    net.gets("leaf", "q", "312")
    assert net.content("hub", "q") == "12" and links(net, "leaf") == []


@pytest.mark.system
@pytest.mark.parametrize("seed", range(10))
def test_whatever_the_modes_and_faults_each_message_that_is_to_go_comes_once(seed: int) -> None:
    """What is published here while the agent gives, or there while a link queue is bound."""
    random = Random(seed)
    net = made(nodes={"hub": 2, "leaf": 2}, consume_mode="all", forward_mode="all")
    given, taken = set[str](), set[str]()
    forward = "all"
    letters = iter(map(chr, range(33, 127)))
    for _ in range(120):
        act = random.random()
        if act < 0.25:
            forward = random.choice(("all", "none"))
            change(net, forward_mode=forward, consume_mode=random.choice(("all", "none")))
        elif act < 0.35:
            net.separate(random.choice(net.nodes["hub"]), random.choice(net.nodes["leaf"]), reset=True)
        elif act < 0.5:
            net.heal()
        elif act < 0.53:
            fail_over(net, random.choice(("hub", "leaf")))
        elif act < 0.75 and forward == "all":
            given.add(letter := next(letters))
            net.send("leaf", "k", letter)
        elif act >= 0.75 and "k" in at_hub(net):
            taken.add(letter := next(letters))
            net.send("hub", "k", letter)
        net.run(random.choice((0.001, 0.01, 0.5)))
    net.heal()
    change(net, forward_mode="none", consume_mode="none")
    net.until(lambda: clean(net))
    assert len(given) > 5 and len(taken) > 5
    assert sorted(net.content("hub", "q")) == sorted(net.content("leaf", "q")) == sorted(given | taken)


def fail_over(net: Net, node: str) -> None:
    """The other broker of the pair serves, and the first one becomes its backup."""
    first = net.serving(node)
    second = next(host for host in net.nodes[node] if host is not first)
    net.until(lambda: second.status == "ready")
    net.kill(first)
    net.run(0.1)
    assert net.ask(second, "promote")["ok"]
    net.start(first)
    net.until(lambda: first.status == "ready")
