"""What a broker downstream wants, if that is much: each tick tells and applies a share of it."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from ha.adapter.federation import wishes
from ha.core.federation import feeder, heeding, telling
from ha.core.federation.heeding import MOST_WAITING
from ha.core.federation.wire import LinkMethod
from tests.builds import PURE_ONLY
from tests.ha.federation.nets import Net
from tests.ha.federation.test_bad_input import ASKED, LinkLiar, bind, goes_on, interest
from tests.ha.federation.test_hop import joined

MANY = 3 * heeding.SLICE + 7


def bound(net: Net, count: int) -> None:
    vhost = net.serving("leaf").running.vhost
    for number in range(count):
        vhost.bind_queue("q", "x", f"many.{number}", owner=net)


def at_hub(net: Net) -> set[str]:
    """The keys that the leaf is known to want."""
    vhost = net.serving("hub").running.vhost
    queue = vhost.queues.get("amq.link.x@leaf")
    return {binding.routing_key for binding in vhost.bound_to(queue)} if queue is not None else set()


def wanted(net: Net) -> set[str]:
    exchange = net.serving("leaf").running.vhost.exchanges["x"]
    return {binding.routing_key for binding in exchange.bindings.values()}


@pytest.mark.parametrize("first", [True, False], ids=["a whole set", "changes"])
def test_no_tick_applies_more_than_its_share_and_others_are_served_in_between(first: bool) -> None:
    net = joined(hub=1, leaf=1, other=1)
    net.exchange("other")
    net.queue("other", "o", "b")
    net.federate("other", "hub")
    net.runs("other", "hub")
    net.separate(net.nodes["hub"][0], net.nodes["leaf"][0], reset=True)
    if first:
        net.kill(net.nodes["leaf"][0])
        net.start(net.nodes["leaf"][0])
        net.run(0.1)
    bound(net, MANY)
    net.heal()
    net.until(lambda: len(at_hub(net)) > 1)
    seen = [len(at_hub(net))]
    net.send("hub", "b", "1")
    while seen[-1] <= MANY:
        assert net.line("leaf", "hub")["state"] == "starting"
        net.step()
        net.now += 0.001
        seen.append(len(at_hub(net)))
    assert max(new - old for old, new in pairwise(seen)) <= heeding.SLICE
    assert len(seen) > 3 and net.content("other", "o") == "1"
    net.runs("leaf", "hub")
    net.send("hub", "many.0", "2")
    net.send("hub", f"many.{MANY - 1}", "3")
    net.gets("leaf", "q", "23")


def test_a_set_that_is_not_whole_takes_nothing_away() -> None:
    """A leaf that knows nothing tells all anew. Until it has, what it wanted before still comes."""
    net = joined()
    bound(net, MANY)
    net.until(lambda: at_hub(net) == wanted(net))
    net.kill(net.nodes["leaf"][0])
    net.start(net.nodes["leaf"][0])
    vhost = net.serving("leaf").running.vhost
    vhost.unbind_queue("q", "x", "many.0", owner=net)  # the digest differs
    vhost.bind_queue("q", "x", "new", owner=net)
    last = f"many.{MANY - 1}"
    net.until(lambda: net.line("leaf", "hub")["state"] == "starting")
    sent = 0
    while net.line("leaf", "hub")["state"] != "running":
        assert last in at_hub(net)
        net.send("hub", last, "m")
        sent += 1
        net.step()
        net.now += 0.001
    assert sent > 3 and at_hub(net) == wanted(net)
    net.gets("leaf", "q", "m" * sent)


def test_a_hub_that_starts_anew_looks_at_a_share_each_tick() -> None:
    net = joined()
    bound(net, MANY)
    net.until(lambda: at_hub(net) == wanted(net))
    host = net.nodes["hub"][0]
    net.kill(host)
    net.until(lambda: net.line("leaf", "hub")["state"] != "running")
    net.start(host)
    seen = [0]
    while net.line("leaf", "hub")["state"] != "running":
        net.step()
        net.now += 0.001
        if host.running.vhosts.serving:
            known = host.running.federation._queues._interest.values()
            seen.append(sum(len(interest.held) for interest in known if interest.exchange.name == "x"))
    assert seen[-1] == MANY + 1
    assert max(new - old for old, new in pairwise(seen)) <= heeding.SLICE
    net.send("hub", f"many.{MANY - 1}", "1")
    net.gets("leaf", "q", "1")


@PURE_ONLY
@pytest.mark.parametrize("seed", range(12))
def test_whatever_changes_and_breaks_the_hub_knows_in_the_end_what_is_wanted(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is wanted all the time comes all the time."""
    random = Random(seed)
    for module in (telling, heeding):
        monkeypatch.setattr(module, "SLICE", random.choice((1, 3, 10)))
    monkeypatch.setattr(feeder, "SLICE", 4)
    monkeypatch.setattr(feeder, "LEAST_SHARE", 1)
    monkeypatch.setattr(telling, "PART", random.choice((60, 600)))
    monkeypatch.setattr(telling, "WINDOW", random.choice((100, 1000)))
    monkeypatch.setattr(wishes, "MOST_CHANGES", random.choice((5, 1000)))
    net = joined()
    a, b = net.hosts
    sent = 0
    for _ in range(150):
        vhost = net.serving("leaf").running.vhost
        for _ in range(random.randrange(8)):
            change = vhost.bind_queue if random.random() < 0.5 else vhost.unbind_queue
            change("q", "x", f"k{random.randrange(30)}", owner=net)
        if random.random() < 0.1:
            net.separate(a, b, reset=True)
        if random.random() < 0.2:
            net.heal()
        if random.random() < 0.02:
            net.kill(b)
            net.start(b)
        if random.random() < 0.3:
            net.send("hub", "a.always", chr(ord("A") + sent % 26))
            sent += 1
        net.step()
        net.now += random.choice((0.0, 0.001, 0.3))
    net.heal()
    net.runs("leaf", "hub")
    net.until(lambda: at_hub(net) == wanted(net) and net.waiting("hub", "leaf") == 0)
    net.gets("leaf", "q", "".join(chr(ord("A") + number % 26) for number in range(sent)))


@PURE_ONLY
def test_changes_while_the_line_is_down_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wishes, "MOST_CHANGES", 100)
    net = joined()
    net.separate(*net.hosts, reset=True)
    vhost = net.serving("leaf").running.vhost
    [watcher] = vhost.watchers["x"]
    for number in range(500):
        vhost.bind_queue("q", "x", f"k{number}", owner=net)
        vhost.unbind_queue("q", "x", f"k{number}", owner=net)
        assert len(watcher.__self__._changed) <= 104  # type: ignore[attr-defined]
    vhost.bind_queue("q", "x", "new", owner=net)
    net.heal()
    net.until(lambda: at_hub(net) == {"a.*", "new"})


def test_a_taker_that_tells_more_than_is_applied_loses_its_connection() -> None:
    net = joined()
    liar = LinkLiar(net)
    liar.tell(LinkMethod.OPEN, ASKED)
    hub = net.serving("hub").running
    hub.broker.pause_input()  # nothing is applied meanwhile
    much = interest(*[bind(f"k.{n}.{'x' * 200}") for n in range(190)])
    for _ in range(MOST_WAITING // len(much) + 2):
        assert liar.closed is None
        liar.tell(LinkMethod.DATA, much)
    hub.broker.resume_input()
    liar.move()
    assert liar.closed is not None and liar.closed.code == 501
    goes_on(net)
