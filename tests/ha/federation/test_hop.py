"""One hop: what a broker downstream wants, and what it gets, each message once."""

from __future__ import annotations

import pytest

from broker.amqp091.codec.content import write_content
from ha.adapter.federation import feeding
from tests.builds import PURE_ONLY
from tests.ha.federation.nets import Net


def joined(**sizes: int) -> Net:
    """`leaf` takes from `hub`; its queue q is bound with `a.*`."""
    net = Net(**(sizes or {"hub": 1, "leaf": 1}))
    net.up()
    net.exchange("hub", "leaf")
    net.queue("leaf", "q", "a.*")
    net.federate("leaf", "hub")
    net.runs("leaf", "hub")
    return net


def test_what_matches_a_binding_downstream_comes_once_and_leaves_the_link_queue() -> None:
    net = joined()
    net.send("hub", "a.b", "123")
    net.send("hub", "other", "9")
    net.send("hub", "a.c", "4")
    net.gets("leaf", "q", "1234")
    net.until(lambda: net.waiting("hub", "leaf") == 0)
    line = net.line("leaf", "hub")
    assert (line["taken"], line["routed"], line["interest"], line["source"]) == (
        4,
        4,
        1,
        "a at 127.0.0.1:5000",
    )


def test_interest_follows_binds_unbinds_and_the_ends_of_queues() -> None:
    net = joined()
    vhost = net.serving("leaf").running.vhost
    net.queue("leaf", "more", "b", "b")
    net.run(0.3)
    net.send("hub", "b", "1")
    net.gets("leaf", "more", "1")
    net.queue("leaf", "more2", "b")
    vhost.unbind_queue("more", "x", "b", owner=net)
    net.run(0.3)
    assert net.line("leaf", "hub")["interest"] == 2  # the other binding of that key is still there
    vhost.delete_queue("more2", owner=net)
    net.run(0.3)
    assert net.line("leaf", "hub")["interest"] == 1
    net.send("hub", "b", "2")
    net.run(0.3)
    assert net.waiting("hub", "leaf") == 0 and net.content("leaf", "more") == "1"


def test_an_outage_loses_nothing_and_doubles_nothing() -> None:
    net = joined()
    a, b = net.hosts
    net.send("hub", "a.b", "1")
    net.gets("leaf", "q", "1")
    net.separate(a, b, reset=True)
    net.send("hub", "a.b", "234")
    net.run(3.0)
    assert net.line("leaf", "hub")["state"] == "connecting" and net.waiting("hub", "leaf") == 3
    net.heal()
    net.gets("leaf", "q", "1234")
    net.until(lambda: net.waiting("hub", "leaf") == 0)


@pytest.mark.parametrize("killed", ["hub", "leaf"])
@pytest.mark.parametrize("after", range(1, 60, 5))
def test_a_failover_at_either_end_at_any_instant_loses_nothing_and_doubles_nothing(
    killed: str, after: int
) -> None:
    net = joined(hub=2, leaf=2)
    net.send("hub", "a.b", "12345678")
    for _ in range(after):
        net.step()
        net.now += 0.001
    first, second = net.nodes[killed]
    net.kill(first)
    net.run(0.1)
    assert net.ask(second, "promote")["ok"]
    net.runs("leaf", "hub")
    net.send("hub", "a.b", "9")
    sent = set("123456789")
    net.until(lambda: set(net.content("leaf", "q")) == sent)
    net.run(0.5)
    assert net.content("leaf", "q") == "123456789"
    net.until(lambda: net.waiting("hub", "leaf") == 0)


@PURE_ONLY
def test_a_deep_link_queue_drains_though_nobody_publishes(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a tick's share, and more than the window, waits."""
    monkeypatch.setattr(feeding, "SHARE", 500)
    monkeypatch.setattr(feeding, "WINDOW", 2000)
    net = joined()
    net.separate(*net.hosts, reset=True)
    for _ in range(60):
        net.send("hub", "a.b", "1234567890")
    net.run(0.1)
    net.heal()
    net.gets("leaf", "q", "1234567890" * 60)
    net.until(lambda: net.waiting("hub", "leaf") == 0)


@pytest.mark.parametrize("restarted", [False, True], ids=["line down", "restarted"])
def test_arguments_that_changed_while_no_link_was_up(restarted: bool) -> None:
    net = Net(hub=1, leaf=1)
    net.up()
    net.exchange("hub", "leaf", kind="headers")
    net.queue("leaf", "q")
    vhost = net.serving("leaf").running.vhost
    vhost.bind_queue("q", "x", "", {"colour": "red"}, owner=net)
    net.federate("leaf", "hub")
    net.runs("leaf", "hub")
    net.run(0.3)
    net.separate(*net.hosts, reset=True)
    vhost.bind_queue("q", "x", "", {"colour": "blue"}, owner=net)
    vhost.unbind_queue("q", "x", "", {"colour": "red"}, owner=net)
    net.run(0.5)
    if restarted:
        net.kill(net.hosts[1])
        net.start(net.hosts[1])
    net.heal()
    net.runs("leaf", "hub")
    net.run(0.3)
    at_hub = net.serving("hub").running.vhost.exchanges["x"].bindings.values()
    assert [binding.arguments["colour"] for binding in at_hub] == ["blue"]


def test_the_upstream_keeps_what_only_a_primary_that_dies_has() -> None:
    net = joined(hub=1, leaf=2)
    first, second = net.nodes["leaf"]
    net.hold(first, second)
    net.send("hub", "a.b", "123")
    net.run(0.2)
    assert net.content("leaf", "q") == "123" and net.waiting("hub", "leaf") == 3
    net.kill(first)
    net.heal()
    net.run(0.1)
    assert net.ask(second, "promote")["ok"]
    net.gets("leaf", "q", "123")
    net.until(lambda: net.waiting("hub", "leaf") == 0)


@pytest.mark.parametrize("way", ["takes", "is given"])
def test_what_only_a_primary_that_dies_has_goes_to_no_other_node(way: str) -> None:
    """Its publisher sends it again to the new primary, since it has no confirm."""
    net = Net(hub=2, leaf=1)
    net.up()
    net.exchange("hub", "leaf")
    net.queue("leaf", "q", "a.*")
    if way == "takes":
        net.federate("leaf", "hub")
        net.runs("leaf", "hub")
    else:
        net.federate("hub", "leaf", consume_mode="none", forward_mode="all")
        net.runs("hub", "leaf")
    net.send("hub", "a.b", "1", persistent=False)
    net.gets("leaf", "q", "1")
    first, second = net.nodes["hub"]
    net.hold(second, first)
    net.hold(first, second)
    net.send("hub", "a.b", "23")
    net.send("hub", "a.b", "4", persistent=False)
    net.run(0.2)
    assert net.content("leaf", "q") == "1"
    net.kill(first)
    net.heal()
    net.run(0.1)
    assert net.ask(second, "promote")["ok"]
    net.send("hub", "a.b", "234")
    net.gets("leaf", "q", "1234")


def test_a_link_that_breaks_gives_back_what_no_backup_has_yet() -> None:
    net = joined(hub=2, leaf=1)
    first, second = net.nodes["hub"]
    net.hold(second, first)
    net.send("hub", "a.b", "12")
    net.run(0.1)
    net.reset(first, net.nodes["leaf"][0])
    net.run(0.2)
    net.runs("leaf", "hub")
    assert net.content("leaf", "q") == ""
    net.heal()
    net.gets("leaf", "q", "12")
    net.until(lambda: net.waiting("hub", "leaf") == 0)


def test_what_was_taken_before_the_line_broke_leaves_the_link_queue_without_another_message() -> None:
    """The word of it was lost. Nothing is sent again, and nothing waits for a newer message."""
    net = joined()
    a, b = net.hosts
    net.hold(b, a)
    net.send("hub", "a.b", "12")
    net.run(0.2)
    assert net.content("leaf", "q") == "12" and net.waiting("hub", "leaf") == 2
    net.reset(a, b)
    net.heal()
    net.runs("leaf", "hub")
    net.until(lambda: net.waiting("hub", "leaf") == 0)
    assert (net.content("leaf", "q"), net.line("leaf", "hub")["doubles"]) == ("12", 0)


def test_a_message_keeps_its_first_id_where_a_window_knows_it() -> None:
    """The queue with the window does not take it again; the link queue beside it does."""
    net = Net(hub=1, mid=1, leaf=1)
    net.up()
    net.exchange("hub", "mid", "leaf")
    net.queue("mid", "once", "a", **{"x-dedup-window": 100})
    net.queue("leaf", "q", "a")
    for node, upstream in (("mid", "hub"), ("leaf", "mid")):
        net.federate(node, upstream)
        net.runs(node, upstream)
    net.run(0.3)
    _, mid, leaf = net.hosts
    net.separate(mid, leaf, reset=True)
    vhost = net.serving("hub").running.vhost
    for text in "121":
        raws = [write_content({"message_id": text}, text.encode(), 4096).raw]
        vhost.publish(vhost.route("x", "a"), raws, persistent=True, channel=1, largest_frame=60)
    net.until(lambda: net.waiting("mid", "leaf") == 3)
    assert net.content("mid", "once") == "12"
    held = mid.running.vhost.queues["amq.link.x@leaf"].held_entries()
    first = held[0][1].origin
    assert first is not None
    assert [(e.origin[0], e.origin[1] + n) if e.origin else None for n, e, _ in held] == [
        (first[0], first[1] + held[0][0] + more) for more in range(3)
    ]


def test_a_backup_takes_the_gaps_in_the_ids_of_link_queues() -> None:
    """Link queues share their ids. A gap is no reason to fetch the queue again."""
    net = joined(hub=2, leaf=1, other=1)
    net.exchange("other")
    net.queue("other", "o", "b")
    net.federate("other", "hub")
    net.runs("other", "hub")
    net.run(0.3)
    for key in ("a.b", "b", "b", "a.b", "a.b", "b"):
        net.send("hub", key, "1")
        net.run(0.3)
    net.gets("leaf", "q", "111")
    net.gets("other", "o", "111")
    assert not [line for host in net.nodes["hub"] for line in host.log if "was due" in line]


def test_while_input_is_paused_no_question_is_due() -> None:
    """A switchover pauses input. An agent asks nothing then, so its next question must not make ticks."""
    net = Net(hub=1, leaf=1)
    net.up()
    net.exchange("leaf")
    net.federate("leaf", "hub")
    net.until(lambda: net.line("leaf", "hub")["reason"] != "")
    leaf = net.serving("leaf").running
    assert leaf.federation.next_deadline() is not None
    leaf.broker.pause_input()
    net.run(20)
    assert leaf.federation.next_deadline() is None
    leaf.broker.resume_input()
    net.exchange("hub")
    net.runs("leaf", "hub")
