"""Global names: `QUEUE@NODE` is the queue of that name at that node, from anywhere in the net."""

from __future__ import annotations

from broker.model.queue.direct_reply import PREFIX
from tests.ha.federation.nets import LOGIN, Net, entry
from tests.ha.pair import raw


def chain(**sizes: int) -> Net:
    """`leaf` and `other` have `hub` as their upstream, and that has `top`."""
    net = Net(**(sizes or {"top": 1, "hub": 1, "leaf": 1, "other": 1}))
    net.up()
    for node, upstream in (("hub", "top"), ("leaf", "hub"), ("other", "hub")):
        if node in net.nodes:
            joined(net, node, upstream)
    net.until(lambda: all(knows(net, node) == {*net.nodes} - {node} for node in net.nodes))
    return net


def joined(net: Net, node: str, upstream: str, **more: object) -> None:
    addresses = [f"127.0.0.1:{member.port}" for member in net.nodes[upstream]]
    put = entry("federation-upstream", upstream, addresses=addresses, login=LOGIN, **more)
    assert net.define(net.serving(node), put)["ok"]


def knows(net: Net, node: str) -> set[str]:
    """The nodes to which it has a way."""
    lines = net.serving(node).running.status()["federation"]["routes"]
    return {line["node"] for line in lines if line["state"] == "running"}


def send(net: Net, node: str, key: str, text: str) -> bool:
    """To the default exchange. False: it goes nowhere, so that a mandatory message is returned."""
    vhost = net.serving(node).running.vhost
    route = vhost.route("", key)
    vhost.publish(route, [raw(text)], persistent=True, channel=1, largest_frame=22)
    return bool(route.queues)


def test_a_name_holds_from_every_node_and_an_unknown_one_is_returned() -> None:
    net = chain()
    for number, node in enumerate(net.nodes):
        net.queue(node, f"q{number}")
        for sender in net.nodes:
            assert send(net, sender, f"q{number}@{node}", sender[0])
            net.run(0.5)
        assert sorted(net.content(node, f"q{number}")) == sorted("thlo")
        assert not send(net, node, f"nothing@{node}", "x") and not send(net, node, f"q{number}@nowhere", "x")
    assert all(net.waiting(node, other, "amq.nodes") == 0 for node in net.nodes for other in net.nodes)


def test_a_queue_of_that_whole_name_wins() -> None:
    net = chain()
    net.queue("leaf", "q")
    net.queue("leaf", "q@top")
    net.queue("top", "q")
    assert send(net, "leaf", "q@top", "1") and send(net, "other", "q@top", "2")
    net.gets("leaf", "q@top", "1")
    net.gets("top", "q", "2")


def test_replies_come_over_failovers_of_both_ends_and_of_the_node_between() -> None:
    """A temporary queue has a name that holds everywhere; what is on its way waits."""
    net = chain(top=2, hub=2, leaf=2)
    leaf = net.serving("leaf").running.vhost
    reply = leaf.declare_queue("", owner=net, arguments={"x-replicate": "all"}).name
    assert reply.endswith("@leaf")
    net.run(0.1)
    for number, node in enumerate(("hub", "leaf", "top")):
        top, host = net.serving("top"), net.serving(node)
        assert send(net, "top", reply, str(number))
        position = top.running.vhost.history.position
        net.until(lambda: net.confirmed(top, position))  # noqa: B023
        net.kill(host)
        other = next(h for h in net.nodes[node] if h is not host)
        net.run(0.2)
        assert net.ask(other, "promote")["ok"]
        net.start(host)
        net.until(lambda: host.status == "ready")  # noqa: B023
        net.until(lambda: net.content("leaf", reply).endswith(str(number)))  # noqa: B023
    assert net.content("leaf", reply) == "012"


def test_a_direct_reply_comes_from_another_node() -> None:
    net = chain()
    name = (
        net.serving("leaf")
        .running.vhost.declare_queue("", owner=net, exclusive=True, auto_delete=True, prefix=PREFIX)
        .name
    )
    assert name.startswith("amq.rabbitmq.reply-to.") and name.endswith("@leaf")
    assert send(net, "top", name, "r") and send(net, "other", name, "s")
    net.until(lambda: sorted(net.content("leaf", name)) == ["r", "s"])


def test_ways_are_found_around_rings_and_end_with_their_node() -> None:
    net = Net(a=1, b=1, c=1, d=1)
    net.up()
    ring = ["a", "b", "c", "d"]
    for at, node in enumerate(ring):
        joined(net, node, ring[at - 1])
        net.queue(node, "q")
    net.until(lambda: all(knows(net, node) == {*ring} - {node} for node in ring))
    for node in ring:
        for sender in ring:
            assert send(net, sender, f"q@{node}", sender)
            net.run(0.5)
        net.gets(node, "q", "abcd")
    for node, upstream in (("a", "d"), ("d", "c")):  # d leaves the ring
        gone = entry("federation-upstream", upstream, action="delete")
        assert net.define(net.serving(node), gone)["ok"]
    net.until(lambda: knows(net, "a") == {"b", "c"} and knows(net, "d") == set())
    assert not send(net, "b", "q@d", "x")


def test_routes_are_off_where_an_administrator_says_so() -> None:
    net = Net(hub=1, leaf=1)
    net.up()
    joined(net, "leaf", "hub", routes=False)
    net.run(1.0)
    assert not send(net, "leaf", "q@hub", "1") and not send(net, "hub", "q@leaf", "1")
    joined(net, "leaf", "hub")
    net.until(lambda: knows(net, "hub") == {"leaf"})
    joined(net, "leaf", "hub", routes=False)
    net.until(lambda: knows(net, "hub") == set() and knows(net, "leaf") == set())
