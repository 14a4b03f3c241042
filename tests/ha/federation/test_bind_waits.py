"""`x-federation-wait`: a bind is answered once the upstreams know of it, so that no first message is lost."""

from __future__ import annotations

from typing import Any

import pytest

from broker import bind_waits
from broker.bind_waits import WAIT, BindWaits
from broker.errors import PreconditionFailed
from tests.ha.federation.nets import Net, agent
from tests.ha.federation.test_hop import joined
from tests.ha.federation.test_interest import at_hub
from tests.ha.pair import STEP
from tests.ha.replication.test_contents import Client

FAR = 0.2
"""Seconds of one way over the line, where that matters."""

SOON = 0.05
"""Long enough for a disk."""


def client(net: Net, node: str = "leaf") -> Client:
    return Client(net, net.serving(node))


def bind(of: Client, key: str, wait: object = 5000, queue: str = "q", **more: Any) -> None:
    of.send(1, "queue.bind", queue=queue, exchange="x", routing_key=key, arguments={WAIT: wait, **more})


def told(net: Net, of: Client, most: float) -> tuple[list[str], float]:
    """What it hears first, and after how long; [] and `most` if nothing comes."""
    began, seen = net.now, of.look()
    while not seen and net.now - began < most:
        net.run(STEP)
        seen = of.look()
    return seen, net.now - began


def test_the_answer_comes_once_the_upstream_knows_and_the_first_message_is_there() -> None:
    net = joined()
    host = net.nodes["hub"][0]
    here = client(net)
    net.hold(net.nodes["leaf"][0], host)  # nothing that the leaf says arrives
    bind(here, "new")
    net.run(FAR)
    assert here.look() == [] and "new" not in at_hub(net)
    net.heal()
    seen, _ = told(net, here, 1.0)
    assert seen == ["queue.bind-ok"] and "new" in at_hub(net)
    net.send("hub", "new", "1")
    net.gets("leaf", "q", "1")


def test_it_waits_no_longer_than_it_says() -> None:
    net = joined()
    net.separate(*net.hosts, reset=True)
    here = client(net)
    bind(here, "new", 700)
    seen, waited = told(net, here, 2.0)
    assert seen == ["queue.bind-ok"] and 0.7 - 2 * STEP <= waited <= 0.7 + 2 * STEP
    net.heal()
    net.until(lambda: "new" in at_hub(net))


def test_it_waits_over_a_line_that_breaks_and_comes_back() -> None:
    net = joined()
    here = client(net)
    net.hold(net.nodes["leaf"][0], net.nodes["hub"][0])
    bind(here, "new", 30_000)
    net.separate(*net.hosts, reset=True)
    net.run(2.0)
    assert here.look() == []
    net.heal()
    seen, _ = told(net, here, 10.0)
    assert seen == ["queue.bind-ok"] and "new" in at_hub(net)


def test_what_others_bind_meanwhile_makes_it_wait_no_longer() -> None:
    net = joined()
    here, vhost = client(net), net.serving("leaf").running.vhost
    bind(here, "new", 30_000)
    for number in range(100):
        vhost.bind_queue("q", "x", f"more.{number}", owner=net)
        net.run(STEP)
        if here.look():
            break
    else:
        raise AssertionError("it waits for what was bound later")
    assert "new" in at_hub(net)


@pytest.mark.parametrize("why", ["no agent", "paused", "known", "none", "no answer"])
def test_where_nobody_has_to_know_or_all_do_it_is_answered_at_once(why: str) -> None:
    net = Net(hub=1, leaf=1)
    net.up()
    net.exchange("hub", "leaf")
    net.queue("leaf", "q", "old")
    if why != "no agent":
        net.federate("leaf", "hub")
        net.runs("leaf", "hub")
    if why == "paused":
        assert net.define(net.serving("leaf"), agent("x", "hub", paused=True))["ok"]
    if why in ("none", "no answer"):
        net.separate(*net.hosts, reset=True)
    here = client(net)
    if why == "no answer":
        bind_nowait = {"nowait": True, "arguments": {WAIT: 5000}}
        here.send(1, "queue.bind", queue="q", exchange="x", routing_key="new", **bind_nowait)
        here.send(1, "basic.qos")
        assert told(net, here, SOON)[0] == ["basic.qos-ok"]
        return
    bind(here, "old" if why == "known" else "new", 0 if why == "none" else 5000)
    assert told(net, here, SOON)[0] == ["queue.bind-ok"]


def test_the_channel_keeps_its_order_and_others_do_not_wait() -> None:
    net = joined()
    net.separate(*net.hosts, reset=True)
    here, other = client(net), client(net)
    bind(here, "new", 500)
    here.send(1, "queue.declare", queue="later")
    other.send(1, "queue.declare", queue="other")
    assert (here.look(), other.look()) == ([], ["queue.declare-ok"])
    net.run(0.6)
    assert here.look() == ["queue.bind-ok", "queue.declare-ok"]


def test_a_switchover_does_not_wait_for_it() -> None:
    net = joined(hub=1, leaf=2)
    first, second = net.nodes["leaf"]
    net.hold(first, net.nodes["hub"][0])
    here = client(net)
    bind(here, "new", 60_000)
    net.run(0.1)
    assert here.look() == []
    assert net.ask(first, "switchover")["ok"]
    net.until(lambda: second.status == "active", 5.0)
    net.heal()
    net.until(lambda: "new" in at_hub(net))


def test_it_is_no_part_of_the_binding() -> None:
    net = joined()
    here = client(net)
    bind(here, "new")
    told(net, here, 1.0)
    vhost = net.serving("leaf").running.vhost
    [made] = [each for each in vhost.exchanges["x"].bindings.values() if each.routing_key == "new"]
    assert made.arguments == {}
    here.send(1, "queue.unbind", queue="q", exchange="x", routing_key="new", arguments={WAIT: 10})
    assert told(net, here, SOON)[0] == ["queue.unbind-ok"]
    net.until(lambda: "new" not in at_hub(net))


def test_a_binding_of_an_exchange_to_an_exchange_waits_likewise() -> None:
    net = joined()
    net.exchange("leaf", name="inner")
    here = client(net)
    net.hold(net.nodes["leaf"][0], net.nodes["hub"][0])
    here.send(
        1, "exchange.bind", destination="inner", source="x", routing_key="deep", arguments={WAIT: 5000}
    )  # fmt: skip
    net.run(0.1)
    assert here.look() == []
    net.heal()
    assert told(net, here, 1.0)[0] == ["exchange.bind-ok"] and "deep" in at_hub(net)
    here.send(1, "exchange.unbind", destination="inner", source="x", routing_key="deep")
    assert told(net, here, SOON)[0] == ["exchange.unbind-ok"]


@pytest.mark.parametrize("wait", [-1, 60_001, True, "100", None])
def test_a_wait_that_is_none_is_refused(wait: object) -> None:
    net = joined()
    here = client(net)
    bind(here, "new", wait)
    assert here.look() == ["channel.close"]
    exchange = net.serving("leaf").running.vhost.exchanges["x"]
    assert [each.routing_key for each in exchange.bindings.values()] == ["a.*"]


def test_of_a_plain_upstream_the_answer_of_the_broker_there_is_waited_for() -> None:
    net = Net(hub=1, leaf=1)
    net.up()
    net.exchange("hub", "leaf")
    net.queue("leaf", "q", "a.*")
    net.federate("leaf", "hub", plain=True)
    net.runs("leaf", "hub")
    here = client(net)
    net.hold(net.nodes["leaf"][0], net.nodes["hub"][0])
    bind(here, "new")
    net.run(FAR)
    assert here.look() == []
    net.heal()
    assert told(net, here, 1.0)[0] == ["queue.bind-ok"]
    net.send("hub", "new", "1")
    net.gets("leaf", "q", "1")


def test_no_more_wait_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bind_waits, "MOST", 3)
    waits, known = BindWaits(), [False]
    made = [waits.begin(1.0 + number, lambda: known[0]) for number in range(3)]
    with pytest.raises(PreconditionFailed):
        waits.begin(1.0, lambda: False)
    assert waits.begin(1.0, lambda: True) is None
    assert waits.next_deadline() == 1.0
    waits.end_tick(1.0)
    assert [wait.ended() for wait in made if wait is not None] == [True, False, False]
    known[0] = True
    assert [wait.ended() for wait in made if wait is not None] == [True, True, True]
    for number in range(3):
        waits.begin(2.0 + number, lambda: False)
