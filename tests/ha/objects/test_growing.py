"""From one broker to a pair: what was declared before there was a pair gets a backup with it."""

from __future__ import annotations

from typing import Any

from broker.model.history.records import EntryPut
from broker.model.queue.consumer import Consumer
from broker.model.values import Scope
from ha.adapter import codes
from tests.ha.pair import Host, Pair


class Growing(Pair):
    """A broker of its own, until `grow`; `b` is there from then on."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.paired = False

    def brokers(self, host: Host) -> list[tuple[str, int]]:
        return super().brokers(host) if self.paired else []

    def restart(self, *hosts: Host) -> None:
        for host in hosts:
            self.run(0.1)
            if host.node is not None:
                self.kill(host)
        self.start(*hosts)

    def grow(self, primary: int = 0, **more: Any) -> None:
        self.paired = True
        self.restart(*self.hosts)
        self.run(0.3)
        answer = self.ask(self.hosts[primary], "promote", **more)
        assert answer["ok"], answer
        self.until(lambda: self.hosts[1 - primary].status == "ready")

    def fail_over(self, old: Host, new: Host) -> None:
        self.run(0.2)
        self.kill(old)
        self.run(0.3)
        answer = self.ask(new, "promote")
        assert answer["ok"], answer

    def levels(self, host: Host) -> dict[str, str]:
        found = self.ask(host, "query")["status"]["queue_list"]
        return {line["name"]: line["replicate"] for line in found}

    def route(self, host: Host, exchange: str, key: str) -> list[str]:
        vhost = host.running.vhost
        return sorted(queue.name for queue in vhost.route(exchange, key).queues)


def standalone(pair: Growing) -> Host:
    """It has queues of each kind, messages of two of its lives, and ways from exchange to exchange."""
    a = pair.hosts[0]
    pair.start(a)
    vhost = a.running.vhost
    pair.declare(a, "q")
    pair.declare(a, "work", auto_delete=True)
    pair.declare(a, "here", arguments={"x-replicate": "none"})
    pair.declare(a, "known", arguments={"x-replicate": "configuration"})
    vhost.declare_exchange("x", "topic", durable=True)
    vhost.declare_exchange("way", "fanout", durable=True, auto_delete=True)
    vhost.declare_exchange("local", "direct", durable=True, arguments={"x-replicate": "none"})
    vhost.bind_exchange("way", "x", "#")
    for exchange, key in (("way", ""), ("amq.topic", "t"), ("local", "k")):
        vhost.bind_queue("q", exchange, key, owner=pair)
    for queue in ("q", "work", "here", "known"):
        pair.publish(a, queue, "abc")
    pair.restart(a)
    pair.publish(a, "q", "de")
    assert pair.consume(a, "q", 1) == "a"
    pair.run(0.1)
    return a


def test_what_a_standalone_broker_had_survives_the_first_failover() -> None:
    pair = Growing()
    a, b = standalone(pair), pair.hosts[1]
    assert pair.levels(a) == {"q": "unset", "work": "unset", "here": "none", "known": "configuration"}
    pair.grow()
    assert pair.levels(a) == {"q": "all", "work": "all", "here": "none", "known": "configuration"}
    assert pair.fingerprint(a) == pair.fingerprint(b)
    pair.publish(a, "q", "fg")
    assert pair.consume(a, "q", 2) == "bc"
    pair.fail_over(a, b)
    assert pair.contents(b, "q") == "defg" and pair.contents(b, "work") == "abc"
    assert b.running.vhost.queues.keys() == {"q", "work", "known"} and pair.contents(b, "known") == ""
    assert pair.route(b, "x", "any") == ["q"] and pair.route(b, "amq.topic", "t") == ["q"]
    pair.publish(b, "q", "h")
    pair.start(a)
    pair.until(lambda: a.status == "ready")
    assert pair.contents(a, "q") == "defgh" and pair.fingerprint(a) == pair.fingerprint(b)
    assert pair.contents(a, "here") == "abc"


def test_the_level_is_given_once_and_told_once() -> None:
    pair = Growing()
    a, b = standalone(pair), pair.hosts[1]
    pair.grow()
    told = a.told(codes.LEVELS_SET)
    assert told == [codes.LEVELS_SET.say(count=4, level="all").sentence]
    before = sorted(map(repr, a.running.vhosts.definitions()))
    pair.settings["replicate"] = "configuration"
    pair.restart(a, b)
    scopes = {r.name: r.scope for r in a.running.vhosts.definitions() if hasattr(r, "durable")}
    replicated = dict.fromkeys(("x", "way", "q", "work", "known"), Scope.STORE | Scope.LINK)
    assert scopes == replicated | {"local": Scope.STORE, "here": Scope.STORE}
    assert sorted(map(repr, a.running.vhosts.definitions())) == before
    pair.run(0.3)
    assert pair.ask(a, "promote")["ok"]
    pair.until(lambda: b.status == "ready")
    assert sorted(map(repr, a.running.vhosts.definitions())) == before
    assert a.told(codes.LEVELS_SET) == told


def test_the_level_is_the_pairs_and_not_the_standalone_brokers() -> None:
    pair = Growing(replicate="none")
    a = standalone(pair)
    assert pair.levels(a)["q"] == "unset" and a.running.vhost.queues["q"].scope == Scope.STORE
    pair.settings["replicate"] = "configuration"
    pair.grow()
    assert pair.levels(a)["q"] == "configuration"
    assert pair.contents(a, "q") == "bcde" and pair.contents(pair.hosts[1], "q") == ""


def test_a_node_with_data_of_a_later_epoch_waits_for_a_later_one() -> None:
    """Its store can only go forward: it ended at each start, and nobody said why."""
    pair = Growing(lease=0.5)
    a, b = pair.hosts
    b.number = 40_000
    pair.start(b)
    pair.declare(b, "q")
    pair.publish(b, "q", "xyz")
    pair.run(0.2)
    pair.kill(b)
    pair.paired = True
    pair.start(a)
    pair.run(0.3)
    assert pair.ask(a, "promote", force_lossy=True)["ok"]
    pair.declare(a, "q")
    pair.publish(a, "q", "ab")
    pair.start(b)
    pair.run(2.0)
    served, held = a.running.core.epoch, b.running.status()["position"][0]
    assert (a.status, b.status) == ("active", "joining") and held > served
    (said,) = [line for line in a.log if "is not taken in" in line]
    assert said == (
        f"b is not taken in: the joining node holds data of epoch {held} from outside this pair, and a "
        f"serves in {served}; demote and promote a, for a later epoch, or start the joining node with "
        f"an empty data directory"
    )
    assert pair.contents(b, "q") == "xyz"
    assert pair.ask(a, "demote")["ok"]
    pair.until(lambda: pair.ask(a, "promote")["ok"])
    pair.until(lambda: b.status == "ready")
    assert pair.contents(b, "q") == "ab" and pair.fingerprint(a) == pair.fingerprint(b)
    assert b.running.status()["quarantined"] == 3


def test_two_that_were_alone_each_name_the_other_and_the_way_out() -> None:
    pair = Growing()
    for host in pair.hosts:
        pair.start(host)
        pair.declare(host, "q")
        pair.publish(host, "q", host.name * 2)
        pair.run(0.2)
    pair.paired = True
    pair.restart(*pair.hosts)
    pair.run(0.5)
    first, last = sorted(pair.hosts, key=lambda host: int(host.running.status()["position"][0]))
    for host, other in ((first, last), (last, first)):
        answer = pair.ask(host, "promote")
        assert (
            answer["code"] == "promote-other-holds-data"
            and f"; next: promote {other.name};" in answer["reason"]
        )
    assert pair.ask(last, "promote", force_lossy=True)["ok"]
    pair.until(lambda: first.status == "ready")
    assert pair.contents(first, "q") == last.name * 2 and first.running.status()["quarantined"] == 2


def test_a_standalone_broker_says_nothing_of_levels_at_its_starts() -> None:
    pair = Growing()
    a = standalone(pair)
    pair.restart(a)
    assert pair.levels(a)["q"] == "unset" and not a.told(codes.LEVELS_SET)
    assert pair.contents(a, "q") == "bcde"


def test_a_used_auto_delete_queue_ends_unless_its_consumers_return() -> None:
    """It has had a consumer, at the standalone broker; after a start from what was stamped, too."""
    pair = Growing()
    a, b = standalone(pair), pair.hosts[1]

    class Sink:
        def credit(self, consumer: Consumer) -> int:
            return 0

    sink: Any = Sink()
    vhost = a.running.vhost
    vhost.consume(vhost.queues["work"], Consumer("c", sink))
    pair.grow()
    pair.restart(a, b)
    assert a.running.vhost.queues["work"].consumer_seen
    pair.run(0.3)
    assert pair.ask(a, "promote")["ok"]
    pair.run(11)
    assert "work" not in a.running.vhost.queues and "work" not in b.running.vhost.queues


def test_the_other_virtual_hosts_grow_as_well() -> None:
    pair = Growing()
    a, b = standalone(pair), pair.hosts[1]
    a.running.vhosts.change_directory([EntryPut("vhost", "", "shop", {"description": "", "tags": []})])
    shop = a.running.vhosts["shop"]
    shop.declare_queue("orders", owner=pair, durable=True)
    shop.declare_exchange("x", "fanout", durable=True)
    shop.bind_queue("orders", "x", "", owner=pair)
    pair.grow()
    pair.fail_over(a, b)
    shop = b.running.vhosts["shop"]
    assert [queue.name for queue in shop.route("x", "").queues] == ["orders"]


def test_the_empty_broker_is_not_promoted_and_by_force_costs_nothing() -> None:
    """What the other one has stays with it, and gets its level when that one is promoted."""
    pair = Growing()
    a, b = standalone(pair), pair.hosts[1]
    pair.paired = True
    pair.restart(a, b)
    pair.run(0.3)
    answer = pair.ask(b, "promote")
    assert not answer["ok"] and "a holds data" in answer["reason"], answer
    assert pair.ask(b, "promote", force_lossy=True)["ok"]
    pair.until(lambda: a.status == "ready")
    pair.declare(b, "new")
    pair.fail_over(b, a)
    assert pair.levels(a)["q"] == "all" and pair.contents(a, "q") == "bcde"
    assert pair.route(a, "x", "any") == ["q"]
    pair.start(b)
    pair.until(lambda: b.status == "ready")
    assert pair.contents(b, "q") == "bcde" and pair.fingerprint(a) == pair.fingerprint(b)


def test_a_level_that_the_disk_never_had_comes_back_from_the_backup() -> None:
    """The primary's power fails before its disk has the level that the backup has got from it."""
    pair = Growing()
    a, b = standalone(pair), pair.hosts[1]
    pair.paired = True
    pair.restart(a, b)
    pair.run(0.3)
    a.syncing = False
    assert pair.ask(a, "promote")["ok"]
    pair.until(lambda: b.status == "ready")
    pair.fail_over(a, b)
    vhost = b.running.vhost
    vhost.unbind_queue("q", "amq.topic", "t", owner=pair)
    vhost.unbind_queue("q", "way", "", owner=pair)
    assert pair.consume(b, "q", 1) == "b"
    pair.publish(b, "q", "f")
    pair.run(0.1)
    a.syncing = True
    pair.start(a)
    assert pair.levels(a)["q"] == "unset"
    pair.until(lambda: a.status == "ready")
    assert pair.contents(a, "q") == "cdef" and pair.fingerprint(a) == pair.fingerprint(b)
    assert a.running.status()["quarantined"] == 3, "of `known`, whose messages no backup ever had"
    pair.fail_over(b, a)
    assert pair.contents(a, "q") == "cdef" and pair.route(a, "amq.topic", "t") == []
    pair.restart(a)
    assert pair.contents(a, "q") == "cdef" and pair.levels(a)["q"] == "all"


def test_of_two_standalone_brokers_neither_is_promoted_unforced() -> None:
    pair = Growing()
    a, b = standalone(pair), pair.hosts[1]
    pair.start(b)
    pair.declare(b, "other")
    pair.run(0.1)
    pair.paired = True
    pair.restart(a, b)
    pair.run(0.3)
    for host, other in ((a, b), (b, a)):
        answer = pair.ask(host, "promote")
        assert not answer["ok"] and f"{other.name} holds data" in answer["reason"], answer
