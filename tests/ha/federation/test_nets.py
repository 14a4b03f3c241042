"""Nets of several nodes: each receiver gets each message once, whatever ways there are."""

from __future__ import annotations

import itertools

import pytest

from tests.ha.federation.nets import Net, restore


def build(links: list[tuple[str, str]], **sizes: int) -> Net:
    """`links`: (downstream, upstream). Each node has a queue q of its own, bound with its own name and with
    `all`."""
    net = Net(**sizes)
    net.up()
    net.exchange(*sizes)
    for node in sizes:
        net.queue(node, "q", node, "all")
    for downstream, upstream in links:
        net.federate(downstream, upstream)
    for downstream, upstream in links:
        net.runs(downstream, upstream)
    net.run(1.0)
    return net


RING = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]
DIAMOND = [("b", "a"), ("c", "a"), ("d", "b"), ("d", "c")]
STAR = [*itertools.product("bcd", "a"), *itertools.product("a", "bcd")]
CHAIN = [("b", "a"), ("c", "b"), ("d", "c")]
BOTH = [("a", "b"), ("b", "a")]


@pytest.mark.parametrize("links", [RING, STAR, CHAIN, BOTH], ids=["ring", "star", "chain", "both"])
def test_each_node_gets_what_it_wants_once(links: list[tuple[str, str]]) -> None:
    nodes = sorted({node for link in links for node in link})
    net = build(links, **dict.fromkeys(nodes, 1))
    net.send("a", "all", "1")
    net.send("a", nodes[-1], "2")
    net.run(2.0)
    for node in nodes:
        expected = "12" if node == nodes[-1] else "1"
        assert "".join(sorted(net.content(node, "q"))) == expected, node
    for downstream, upstream in links:
        assert net.waiting(upstream, downstream) == 0


MESH = [*itertools.permutations("abcd", 2)]
RING_BOTH = [*RING, *((up, down) for down, up in RING)]
LETTERS = "abcdefghij"


@pytest.mark.parametrize("links", [DIAMOND, MESH, RING_BOTH], ids=["diamond", "mesh", "ring both ways"])
def test_what_comes_by_several_ways_comes_once_and_in_order(links: list[tuple[str, str]]) -> None:
    """Also while ways break and are mended, and while brokers that take fail over."""
    net = build(links, a=1, b=1, c=1, d=2)
    b, c = net.serving("b"), net.serving("c")
    net.send("b", "d", "0")  # so that ids at b and at c differ
    net.gets("d", "q", "0")
    for at, letter in enumerate(LETTERS):
        net.send("a", "all", letter)
        net.send("a", "d", letter.upper())  # only one node wants it
        net.run(0.02 * (at % 3))
        match at:
            case 2:
                net.separate(b, net.serving("a"), reset=True)
            case 4:
                net.heal()
                net.separate(c, net.serving("d"), reset=True)
            case 6:
                net.run(0.5)
                host = net.serving("d")
                net.kill(host)
                net.run(0.2)
                assert net.ask(next(h for h in net.nodes["d"] if h is not host), "promote")["ok"]
                net.start(host)
            case 7:
                net.heal()
    for node in "bc":
        net.gets(node, "q", LETTERS)
    net.gets("d", "q", "0" + "".join(letter + letter.upper() for letter in LETTERS))
    for downstream, upstream in links:
        assert net.waiting(upstream, downstream) == 0
    assert sum(net.line("d", upstream)["doubles"] for downstream, upstream in links if downstream == "d") > 0


def test_a_broker_made_anew_with_the_same_name_is_another_origin() -> None:
    """Its ids begin again: they are not those that came before."""
    net = build(DIAMOND, a=1, b=1, c=1, d=1)
    net.send("a", "all", "123")
    net.gets("d", "q", "123")
    host = net.serving("a")
    net.kill(host)
    restore(host, {}, 0, "f" * 32)
    net.start(host)
    net.exchange("a")
    for node in "bc":
        net.runs(node, "a")
    net.run(0.5)
    net.send("a", "all", "456")
    net.gets("d", "q", "123456")


def test_an_interest_ends_everywhere_when_its_queue_does() -> None:
    """Nothing keeps it alive in a ring: who hears of it from a neighbour does not tell it back."""
    net = build(RING, a=1, b=1, c=1, d=1)
    net.serving("a").running.vhost.delete_queue("q", owner=net)
    net.run(2.0)
    for node in "bcd":
        exchange = net.serving(node).running.vhost.exchanges["x"]
        assert "a" not in {binding.routing_key for binding in exchange.bindings.values()}, node


def test_messages_go_through_a_pair_in_the_middle_while_it_fails_over() -> None:
    net = build([("mid", "top"), ("leaf", "mid")], top=1, mid=2, leaf=1)
    net.send("top", "leaf", "123")
    net.run(0.02)
    first, second = net.nodes["mid"]
    net.kill(first)
    net.run(0.1)
    net.send("top", "leaf", "456")
    assert net.ask(second, "promote")["ok"]
    net.gets("leaf", "q", "123456")
    assert net.content("mid", "q") == ""
