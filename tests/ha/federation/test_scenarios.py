"""What a net is for, by the same script with single brokers and with pairs."""

from __future__ import annotations

import pytest

from tests.ha.federation.nets import Net
from tests.ha.federation.satellite import SlowNet
from tests.ha.federation.test_routes import knows, send
from tests.ha.pair import STEP

SIZES = pytest.mark.parametrize("size", [1, 2], ids=["single", "pairs"])
DIGITS = "0123456789"


def fail(net: Net, node: str) -> None:
    """The primary of the node dies, and the other one is promoted; or the only one starts again."""
    host = net.serving(node)
    net.kill(host)
    others = [other for other in net.nodes[node] if other is not host]
    net.run(0.1)
    if others:
        assert net.ask(others[0], "promote")["ok"]
    net.start(host)
    net.until(lambda: any(h.node is not None and h.running.vhosts.serving for h in net.nodes[node]))


def until_whole(net: Net, node: str) -> None:
    """Where there are two, the other is in sync again."""
    net.until(lambda: sorted(h.status for h in net.nodes[node])[-1] in ("ready", "standalone"))


@SIZES
def test_business_goes_on_over_failovers_of_either_end(size: int) -> None:
    net = Net(None, floor=size, office=size)
    net.up()
    net.exchange("floor", "office")
    net.queue("office", "orders", "order.#")
    net.federate("office", "floor")
    net.runs("office", "floor")
    net.run(0.3)
    sent = ""
    for at, letter in enumerate("abcdefgh"):
        net.send("floor", "order.new", letter)
        sent += letter
        net.run(0.1)
        fail(net, ("floor", "office")[at % 2])
        began = net.now
        net.runs("office", "floor")
        assert net.now - began < 2.0
        net.gets("office", "orders", sent)
        until_whole(net, "floor")
        until_whole(net, "office")
    net.until(lambda: net.waiting("floor", "office") == 0)


def region(size: int, subscribers: int) -> tuple[SlowNet, int]:
    """Ten prices for so many subscribers behind a satellite. Returns the octets that they took, too."""
    net = SlowNet(exchange=size, region=size)
    net.delay("exchange", "region", 0.6)
    net.up()
    for node in net.nodes:
        net.exchange(node)
    for number in range(subscribers):
        net.queue("region", f"desk{number}", "price.*")
    net.federate("region", "exchange")
    net.until(lambda: net.line("region", "exchange")["state"] == "running")
    net.until(lambda: all(knows(net, node) for node in net.nodes))
    net.run(3.0)
    before = net.octets["exchange", "region"]
    for letter in DIGITS:
        net.send("exchange", "price.eur", letter)
    net.run(3.0)
    return net, net.octets["exchange", "region"] - before


@pytest.mark.system
@SIZES
def test_a_region_behind_a_satellite_gets_data_and_services(size: int) -> None:
    net, for_one = region(size, 1)
    many, for_ten = region(size, 10)
    assert net.content("region", "desk0") == DIGITS
    assert [many.content("region", f"desk{n}") for n in range(10)] == [DIGITS] * 10
    assert abs(for_ten - for_one) <= for_one / 100  # one copy crosses, however many want it
    many.queue("exchange", "quotes")
    many.queue("region", "replies")
    assert send(many, "region", "quotes@exchange", "?")
    many.gets("exchange", "quotes", "?")
    assert send(many, "exchange", "replies@region", "!")
    many.gets("region", "replies", "!")


@SIZES
def test_a_broker_at_a_customer_serves_its_site_and_has_the_central_feed(size: int) -> None:
    net = Net(None, centre=size, customer=size)
    net.up()
    net.exchange("centre", "customer", name="feed")
    net.exchange("customer", name="local")
    net.queue("customer", "screen", "news.#", exchange="feed")
    net.queue("customer", "jobs", "job", exchange="local")
    net.federate("customer", "centre", "feed")
    net.runs("customer", "centre", "feed")
    net.run(0.3)
    net.send("centre", "news.a", "1", exchange="feed")
    net.gets("customer", "screen", "1")
    for one in net.nodes["centre"]:
        for other in net.nodes["customer"]:
            net.separate(one, other, reset=True)
    net.send("centre", "news.b", "23", exchange="feed")
    net.send("customer", "job", "x", exchange="local")
    net.run(0.1)
    fail(net, "customer")
    net.send("customer", "job", "y", exchange="local")
    net.gets("customer", "jobs", "xy")
    net.heal()
    net.runs("customer", "centre", "feed")
    net.gets("customer", "screen", "123")
    assert "local" not in net.serving("centre").running.vhost.exchanges


EXCHANGES, UPSTREAMS = 20, ("dead", "frozen", "refusing", "well", "fine")


def latencies(net: Net, exchanges: list[tuple[str, str]], rounds: int = 5) -> list[int]:
    """Of messages over each of these exchanges, in steps of the clock."""
    found: list[int] = []
    for _ in range(rounds):
        for name, upstream in exchanges:
            before, began = len(net.content("here", f"q-{name}")), net.now
            net.send(upstream, "k", "m", exchange=name)
            net.until(lambda: len(net.content("here", f"q-{name}")) > before)  # noqa: B023
            found.append(round((net.now - began) / STEP))
    return sorted(found)


@pytest.mark.system
def test_upstreams_in_trouble_leave_the_flows_of_others_alone() -> None:
    net = Net(None, here=1, **dict.fromkeys(UPSTREAMS, 1))
    net.up()
    names = [(f"x{n}", UPSTREAMS[n % len(UPSTREAMS)]) for n in range(EXCHANGES)]
    for name, upstream in names:
        net.exchange("here", name=name)
        net.exchange(upstream, name=name, kind="direct" if upstream == "refusing" else "topic")
        net.queue("here", f"q-{name}", "k", exchange=name)
        net.federate("here", upstream, name)
    good = [(name, upstream) for name, upstream in names if upstream in ("well", "fine")]
    for name, upstream in names:
        if upstream != "refusing":
            net.runs("here", upstream, name)
    before = latencies(net, good)
    dead, frozen = net.serving("dead"), net.serving("frozen")
    net.kill(dead)
    frozen.frozen = True
    assert latencies(net, good) == before
    net.run(15.0)
    assert latencies(net, good) == before
    states = {upstream: net.line("here", upstream, name)["state"] for name, upstream in names}
    assert states == {
        "dead": "connecting", "frozen": "connecting", "refusing": "refused", "well": "running",
        "fine": "running",
    }  # fmt: skip
    frozen.frozen = False
    net.start(dead)
    for name, upstream in names:
        if upstream != "refusing":
            net.runs("here", upstream, name)


@pytest.mark.system
@pytest.mark.parametrize("widths", [(3, 3), (10, 10)], ids=["1:3:9", "1:10:100"])
def test_a_tree_brings_each_message_once_to_each_leaf(widths: tuple[int, int]) -> None:
    """A subscriber at each leaf, and one in the middle."""
    middle, leaves = widths
    parents = {f"m{n}": "top" for n in range(middle)}
    parents |= {f"l{m}-{n}": f"m{m}" for m in range(middle) for n in range(leaves)}
    net = Net(None, top=1, **dict.fromkeys(parents, 1))
    net.up()
    for host in net.hosts:
        host.running.vhost.declare_exchange("x", "topic", durable=True)
        if host is not net.hosts[0]:
            net.declare(host, "q")
            host.running.vhost.bind_queue("q", "x", "price.#", owner=net)
    for node, parent in parents.items():
        net.federate(node, parent)
    net.until(lambda: all(net.line(node, parent)["state"] == "running" for node, parent in parents.items()))
    net.run(0.5)
    for digit in DIGITS:
        net.send("top", "price.eur", digit)
        net.step()
    net.until(lambda: all(len(net.content(node, "q")) >= len(DIGITS) for node in parents))
    net.run(0.5)
    assert {net.content(node, "q") for node in parents} == {DIGITS}
    assert not any(net.waiting(parent, node) for node, parent in parents.items())
