"""Of several ways that bring a node's messages one carries them, and the others stand by, and take over."""

from __future__ import annotations

import pytest

from ha.core.errors import LinkError
from ha.core.federation.holes import Hole, Holes
from ha.core.federation.offers import Offered, encode_offers, parse_offers, parse_withheld
from ha.core.federation.ways import Ways
from tests.ha.federation.nets import Net

DIAMOND = [("b", "a"), ("c", "a"), ("d", "b"), ("d", "c")]
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def diamond(**sizes: int) -> Net:
    """d takes from b and c, and these from a. Messages of a come by both, until one of the two stands by."""
    net = Net(**{"a": 1, "b": 1, "c": 1, "d": 1} | sizes)
    net.up()
    net.exchange(*"abcd")
    net.queue("d", "q", "k")
    for downstream, upstream in DIAMOND:
        net.federate(downstream, upstream)
    for downstream, upstream in DIAMOND:
        net.runs(downstream, upstream)
    net.run(0.5)
    net.send("a", "k", "0")
    net.until(lambda: bool(standing(net)))
    return net


def standing(net: Net) -> str:
    """The upstream of d that stands by for a; "" if none does."""
    return "".join(up for up in "bc" if net.line("d", up)["stands_by"] == ["a"])


def carrying(net: Net) -> str:
    by = standing(net)
    assert len(by) == 1, by
    return "bc".replace(by, "")


def test_one_way_carries_and_of_the_other_only_offers_come() -> None:
    net = diamond()
    carries, stands = carrying(net), standing(net)
    for letter in LETTERS:
        net.send("a", "k", letter)
        net.send(stands, "k", letter.upper())  # its own messages go on
    net.run(1.0)
    assert sorted(net.content("d", "q")) == sorted("0" + LETTERS + LETTERS.upper())
    line = net.line("d", stands)
    assert (line["offered"], line["doubles"], line["taken"]) == (26, 27, 27)
    assert net.line("d", carries)["doubles"] == 0 == net.waiting("b", "d") == net.waiting("c", "d")


def test_the_other_way_carries_at_once_when_a_link_is_gone() -> None:
    net = diamond()
    lost = carrying(net)
    net.kill(net.serving(lost))
    net.send("a", "k", "1")
    net.until(lambda: net.content("d", "q") == "01", 0.5)


@pytest.mark.parametrize("fault", ["none", "taker", "feeder", "both"])
def test_the_other_way_brings_what_was_offered_if_the_line_behind_the_first_is_down(fault: str) -> None:
    """Nothing is lost of what was offered when the brokers at the ends of that link fail over."""
    net = diamond(b=2, c=2, d=2)
    carries, stands = carrying(net), standing(net)
    net.separate(net.serving("a"), net.serving(carries))
    for letter in LETTERS[:6]:
        net.send("a", "k", letter)
        net.send(stands, "k", letter.upper())
        net.run(0.02)
    assert net.content("d", "q") == "0ABCDEF"
    net.run(0.05)
    for node in {"none": "", "taker": "d", "feeder": stands, "both": "d" + stands}[fault]:
        host = net.serving(node)
        net.kill(host)
        assert net.ask(next(h for h in net.nodes[node] if h is not host), "promote")["ok"]
        net.start(host)
    net.until(lambda: len(net.content("d", "q")) == 13, 3.0)
    assert standing(net) in ("", carries)
    net.heal()
    net.run(3.0)
    assert net.content("d", "q") == "0ABCDEFabcdef"
    net.send("a", "k", "z")
    net.gets("d", "q", "0ABCDEFabcdefz")
    assert net.waiting(stands, "d") == 0 == net.waiting(carries, "d")


def test_rules() -> None:
    ways = Ways()
    for way in "abp":
        ways.opened(way, able=way != "p")  # p: a broker that sends no offers
    ways.came("a", "n", again=False)
    ways.came("b", "n", again=True)
    ways.came("p", "n", again=True)
    assert (ways.change("a"), ways.change("b"), ways.change("p")) == (None, frozenset("n"), None)
    ways.late("b", "n")
    assert ways.change("b") == frozenset() and ways.change("b") is None
    ways.came("a", "n", again=True)
    assert ways.stands_by("a") == frozenset("n")
    ways.closed("b")
    assert ways.change("a") == frozenset() == ways.stands_by("b")


def test_holes() -> None:
    holes = Holes((Hole(1, 2, 9), Hole(2, 1, 3)))
    assert holes.cut(Hole(1, 4, 5)) == [Hole(1, 4, 5)] and holes.cut(Hole(1, 4, 5)) == []
    holes.add(Hole(1, 5, 6))
    assert holes.up_to((1, 5)) == (Hole(1, 2, 3), Hole(1, 5, 6))
    holes.cut_between((1, 2), (2, 3))
    assert holes.up_to((3, 0)) == (Hole(1, 2, 2), Hole(2, 3, 3)) and len(holes) == 2
    assert holes.cut(Hole(1, 0, 99)) == [Hole(1, 2, 2)]


@pytest.mark.parametrize(
    "body", [b"", b"\2", b"\1x", encode_offers([Offered(1, 1, 0, "n", 1, 1)], last=True),
             encode_offers([Offered(1, 1, (1 << 18) + 1, "n", 1, 1)], last=True),
             encode_offers([Offered(1, 1, 1, "n@m", 1, 1)], last=True),
             encode_offers([Offered(1, 1, 1, "node", 1, 1)], last=False)[:-1],
             encode_offers([Offered(1, 1, 1, "n", 1, 1)] * 1025, last=False)],
)  # fmt: skip
def test_offers_that_cannot_be_right(body: bytes) -> None:
    with pytest.raises(LinkError):
        parse_offers(body)
    with pytest.raises(LinkError):
        parse_withheld(body)
