"""What goes wrong on the way of a queue to a broker of no cluster: cuts, slow followers, anything at all."""

from __future__ import annotations

import os
import random
from typing import Any, ClassVar

import pytest

from ha.core.mirror import feed as queue_feed
from tests.ha.mirror.copies import following, in_order
from tests.ha.pair import raw
from tests.tiers import sampled, sweep


@sweep("step", sample=25, whole=5)
def test_a_link_cut_at_any_byte_leaves_a_part_in_order_and_the_rest_comes(step: int) -> None:
    copies = following(texts="")
    a, b = copies.hosts
    cuts = 0
    for passing in range(400, 2000, step):  # before that it is not logged in
        copies.separate(a, b, reset=True)
        copies.until(lambda: copies.line["state"] == "connecting")
        copies.consume(a, "q", 1)
        copies.publish(a, "q", "abc")
        queue = a.running.vhost.queues["q"]
        taken = [queue.pop(no_ack=False) for _ in range(3)][1]
        assert taken is not None
        queue.acknowledge([taken])
        if queue.message_count > 8:
            queue.purge()
        copies.heal()
        copies.link_ends["a", "b"] = passing
        copies.until(lambda: bool(copies.cut) or copies.line["state"] == "following")
        if not copies.cut:
            del copies.link_ends["a", "b"]
            break
        cuts += 1
        held = in_order(copies)
        if passing % 7 == 0:
            copies.kill(b, keep=passing % 2 == 0)
            copies.start(b)
            assert passing % 2 or in_order(copies) == held
        copies.heal()
        copies.follows(a)
    assert cuts > 50, cuts
    copies.follows(a)


def test_the_live_stream_cut_at_any_byte() -> None:
    copies = following(texts="abcd")
    a = copies[0]
    for passing in range(1, 200):
        copies.link_ends["a", "b"] = passing
        copies.consume(a, "q", 1)
        copies.publish(a, "q", "x")
        copies.run(0.05)
        copies.link_ends.pop(("a", "b"), None)
        in_order(copies)
        copies.heal()
        copies.follows(a)


def test_a_frozen_follower_holds_no_confirm_and_no_more_than_a_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_feed, "WINDOW", 500)
    copies = following()
    a, b = copies.hosts
    b.frozen = True
    for _ in range(50):
        position = copies.publish(a, "q", "abcdefghij")
        copies.run(0.02)
        assert copies.confirmed(a, position)
    [feed] = a.running.replications.feeds.feeds.values()
    assert feed.sent - feed.received < 1500
    assert a.running.next_deadline() != a.running.now, "it does not spin"
    copies.consume(a, "q", 100)
    b.frozen = False
    copies.follows(a)


def test_a_source_has_more_to_do_as_long_as_there_is_more_and_the_follower_takes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_feed, "SHARE", 100)
    copies = following()
    a, b = copies.hosts
    b.frozen = True
    copies.publish(a, "q", "abcdefghij" * 10)
    copies.step()
    assert a.running.next_deadline() == a.running.now, "it wants another tick at once"
    b.frozen = False
    copies.follows(a)
    assert a.running.next_deadline() != a.running.now


def test_a_primary_that_serves_no_more_says_so_and_the_next_is_followed() -> None:
    copies = following(3)
    a, other, _ = copies.hosts
    assert copies.ask(a, "demote")["ok"]
    copies.until(lambda: "a: it does not serve" in copies.line["error"])
    assert copies.contents(copies.b, "q") == "abc"
    assert copies.ask(other, "promote")["ok"]
    copies.publish(other, "q", "d")
    copies.follows(other)


def test_a_primary_that_cannot_prove_to_be_one_feeds_nobody() -> None:
    copies = following(3, authority="register")
    a, other, _ = copies.hosts
    copies.register.cut = {"a"}
    copies.separate(a, other)
    copies.until(lambda: a.running.broker.withheld)
    copies.until(lambda: "cannot prove to be the primary" in copies.line["error"])
    copies.heal()
    copies.register.cut.clear()
    copies.until(lambda: not a.running.broker.withheld)
    copies.follows(a)


def test_a_follower_for_which_too_much_has_left_compares_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_feed, "WINDOW", 500)
    monkeypatch.setattr(queue_feed, "MOST_RANGES", 5)
    copies = following(texts="abcdefghijklmnopqrstuvwxyz")
    a, b = copies.hosts
    b.frozen = True
    for _ in range(10):
        copies.publish(a, "q", "0123456789")
        copies.run(0.02)
    queue = a.running.vhost.queues["q"]
    entries = [entry for entry in (queue.pop(no_ack=False) for _ in range(26)) if entry is not None]
    queue.acknowledge(entries[::2])
    copies.run(0.1)
    assert a.running.status()["followers"] == []
    b.frozen = False
    copies.until(lambda: "too far behind" in copies.line["error"])
    copies.follows(a)


def test_a_follower_that_can_take_no_more_stops_the_stream_and_not_the_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_feed, "WINDOW", 500)
    copies = following()
    a, b = copies.hosts
    b.running.broker.disk.raised = True
    for _ in range(30):
        copies.publish(a, "q", "abcdefghij")
        copies.run(0.02)
    assert b.running.vhost.queues["q"].total_count < 60
    b.running.broker.disk.raised = False
    copies.follows(a)


def test_a_follower_that_can_take_no_more_takes_no_more_of_new_connections_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its disk would be full after enough of them."""
    monkeypatch.setattr(queue_feed, "WINDOW", 500)
    copies = following()
    a, b = copies.hosts
    b.running.broker.disk.raised = True
    copies.publish(a, "q", "abcdefghij" * 30)
    copies.run(0.1)
    for _ in range(20):
        copies.kill(a)
        copies.until(lambda: copies.line["state"] == "connecting")
        copies.start(a)
        copies.run(1.5)
    assert b.running.vhost.queues["q"].total_count < 60
    assert copies.line["error"] == "this broker takes no more for now: low on disk"
    b.running.broker.disk.raised = False
    copies.follows(a)


class Fate:
    """One seed: a pair that is written to, read from, cut, killed and promoted, and a follower that is cut
    and killed too. What that holds is in order and without a double at every step, and in the end all of it.
    """

    WEIGHTS: ClassVar = {
        "publish": 9, "transient": 3, "take": 6, "ack": 5, "requeue": 3, "purge": 1, "cut": 3, "freeze": 1,
        "disk": 1, "restart": 1, "fail": 1, "switch": 1, "run": 6,
    }  # fmt: skip

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        rules = self.random.choice([{}, {"x-max-length": 40}, {"x-message-ttl": 300}, {"x-max-priority": 5}])
        self.copies = following(3, texts="", arguments=rules)
        self.primary = self.copies[0]
        self.held: list[Any] = []

    def step(self) -> None:
        copies, chance, primary = self.copies, self.random, self.primary
        what = chance.choices(list(self.WEIGHTS), list(self.WEIGHTS.values()))[0]
        queue = primary.running.vhost.queues["q"]
        match what:
            case "publish" | "transient":
                texts = "".join(chance.choices("abcdefghij", k=chance.randint(1, 30)))
                self.publish(texts, persistent=what == "publish")
            case "take":
                popped = (queue.pop(no_ack=chance.random() < 0.3) for _ in range(chance.randint(1, 20)))
                self.held += [
                    e for e in popped if e is not None and e[0] in queue._unacked.get(e[1].epoch, {})
                ]
            case "ack" | "requeue":
                chance.shuffle(self.held)
                some, self.held = self.held[::2], self.held[1::2]
                (queue.acknowledge if what == "ack" else queue.requeue)(some)
            case "purge":
                queue.purge()
            case "cut":
                copies.link_ends[primary.name, "c"] = chance.randint(1, 600)
            case "freeze":
                copies.b.frozen = not copies.b.frozen
            case "disk":
                copies.b.syncing = not copies.b.syncing
            case "restart":
                copies.kill(copies.b, keep=chance.random() < 0.5)
                copies.start(copies.b)
            case "fail" | "switch":
                self.change(planned=what == "switch")
        copies.run(chance.choice([0.0, 0.005, 0.01, 0.05, 0.3]))
        if copies.cut and chance.random() < 0.4:
            copies.heal()
        if copies.b.running.vhost.serving:
            in_order(copies)

    def publish(self, texts: str, *, persistent: bool) -> None:
        vhost = self.primary.running.vhost
        vhost.publish(
            vhost.route("", "q"), [raw(text) for text in texts], persistent=persistent, channel=1,
            largest_frame=30, priority=self.random.choice([0, 0, 3, 5]),
        )  # fmt: skip

    def change(self, *, planned: bool) -> None:
        """The other of the pair serves from now on, if it is ready; or, after a switchover that comes to
        nothing, the same one again, in another epoch perhaps."""
        copies, old = self.copies, self.primary
        other = copies[1] if old is copies[0] else copies[0]
        if other.node is None or other.status != "ready" or old.status not in ("active", "recovering"):
            return
        epoch = old.running.core.epoch
        if planned:
            copies.ask(old, "switchover", 10.0)
        else:
            copies.kill(old)
            assert copies.ask(other, "promote", 10.0, force_lossy=True)["ok"]
            copies.start(old)
        serving = (host for host in (other, old) if host.status in ("active", "recovering"))
        self.primary = next(serving)
        if self.primary.running.core.epoch != epoch:
            self.held = []

    def end(self) -> None:
        copies = self.copies
        copies.heal()
        copies.link_ends.clear()
        copies.b.frozen, copies.b.syncing = False, True
        self.publish("!", persistent=True)
        copies.follows(self.primary)
        in_order(copies)


@pytest.mark.parametrize("number", sampled(40, sample=10))
def test_whatever_happens_the_follower_ends_equal(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = int(os.environ.get("REPLICATE_SEED", number))
    print(f"REPLICATE_SEED={seed}")
    monkeypatch.setattr(queue_feed, "SHARE", 300)
    monkeypatch.setattr(queue_feed, "WINDOW", 900)
    fate = Fate(seed)
    for _ in range(60):
        fate.step()
    fate.end()
