"""What goes wrong on the way of a queue to a broker of no cluster: cuts, slow followers, anything at all."""

from __future__ import annotations

import os
import random
from typing import Any, ClassVar

import pytest

from ha.core.mirror import feed as queue_feed
from tests.ha.mirror.mirrors import following, in_order
from tests.ha.pair import raw
from tests.tiers import sampled, sweep


@sweep("step", sample=25, more=10, whole=5)
def test_a_link_cut_at_any_byte_leaves_a_part_in_order_and_the_rest_comes(step: int) -> None:
    mirrors = following(texts="")
    a, b = mirrors.hosts
    cuts = 0
    for passing in range(400, 2000, step):  # before that it is not logged in
        mirrors.separate(a, b, reset=True)
        mirrors.until(lambda: mirrors.line["state"] == "connecting")
        mirrors.consume(a, "q", 1)
        mirrors.publish(a, "q", "abc")
        queue = a.running.vhost.queues["q"]
        taken = [queue.pop(no_ack=False) for _ in range(3)][1]
        assert taken is not None
        queue.acknowledge([taken])
        if queue.message_count > 8:
            queue.purge()
        mirrors.heal()
        mirrors.link_ends["a", "b"] = passing
        mirrors.until(lambda: bool(mirrors.cut) or mirrors.line["state"] == "following")
        if not mirrors.cut:
            del mirrors.link_ends["a", "b"]
            break
        cuts += 1
        held = in_order(mirrors)
        if passing % 7 == 0:
            mirrors.kill(b, keep=passing % 2 == 0)
            mirrors.start(b)
            assert passing % 2 or in_order(mirrors) == held
        mirrors.heal()
        mirrors.follows(a)
    assert cuts > 50, cuts
    mirrors.follows(a)


def test_the_live_stream_cut_at_any_byte() -> None:
    mirrors = following(texts="abcd")
    a = mirrors[0]
    for passing in range(1, 200):
        mirrors.link_ends["a", "b"] = passing
        mirrors.consume(a, "q", 1)
        mirrors.publish(a, "q", "x")
        mirrors.run(0.05)
        mirrors.link_ends.pop(("a", "b"), None)
        in_order(mirrors)
        mirrors.heal()
        mirrors.follows(a)


def test_a_frozen_follower_holds_no_confirm_and_no_more_than_a_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_feed, "WINDOW", 500)
    mirrors = following()
    a, b = mirrors.hosts
    b.frozen = True
    for _ in range(50):
        position = mirrors.publish(a, "q", "abcdefghij")
        mirrors.run(0.02)
        assert mirrors.confirmed(a, position)
    [feed] = a.running.mirrors.source.feeds.values()
    assert feed.sent - feed.received < 1500
    assert a.running.next_deadline() != a.running.now, "it does not spin"
    mirrors.consume(a, "q", 100)
    b.frozen = False
    mirrors.follows(a)


def test_a_source_wants_ticks_while_there_is_more_to_send(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_feed, "SHARE", 100)
    mirrors = following()
    a, b = mirrors.hosts
    b.frozen = True
    mirrors.publish(a, "q", "abcdefghij" * 10)
    mirrors.step()
    assert a.running.next_deadline() == a.running.now, "it wants another tick at once"
    b.frozen = False
    mirrors.follows(a)
    assert a.running.next_deadline() != a.running.now


def test_a_primary_that_serves_no_more_says_so_and_the_next_is_followed() -> None:
    mirrors = following(3)
    a, other, _ = mirrors.hosts
    assert mirrors.ask(a, "demote")["ok"]
    mirrors.until(lambda: "a: it does not serve" in mirrors.line["error"])
    assert mirrors.contents(mirrors.b, "q") == "abc"
    assert mirrors.ask(other, "promote")["ok"]
    mirrors.publish(other, "q", "d")
    mirrors.follows(other)


def test_a_primary_that_cannot_prove_to_be_one_feeds_nobody() -> None:
    mirrors = following(3, authority="register")
    a, other, _ = mirrors.hosts
    mirrors.register.cut = {"a"}
    mirrors.separate(a, other)
    mirrors.until(lambda: a.running.broker.output_fenced)
    mirrors.until(lambda: "cannot prove to be the primary" in mirrors.line["error"])
    mirrors.heal()
    mirrors.register.cut.clear()
    mirrors.until(lambda: not a.running.broker.output_fenced)
    mirrors.follows(a)


def test_a_follower_for_which_too_much_has_left_compares_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_feed, "WINDOW", 500)
    monkeypatch.setattr(queue_feed, "MOST_RANGES", 5)
    mirrors = following(texts="abcdefghijklmnopqrstuvwxyz")
    a, b = mirrors.hosts
    b.frozen = True
    for _ in range(10):
        mirrors.publish(a, "q", "0123456789")
        mirrors.run(0.02)
    queue = a.running.vhost.queues["q"]
    entries = [entry for entry in (queue.pop(no_ack=False) for _ in range(26)) if entry is not None]
    queue.acknowledge(entries[::2])
    mirrors.run(0.1)
    assert a.running.status()["followers"] == []
    b.frozen = False
    mirrors.until(lambda: "too far behind" in mirrors.line["error"])
    mirrors.follows(a)


def test_a_full_follower_stops_the_stream_but_not_the_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_feed, "WINDOW", 500)
    mirrors = following()
    a, b = mirrors.hosts
    b.running.broker.disk.raised = True
    for _ in range(30):
        mirrors.publish(a, "q", "abcdefghij")
        mirrors.run(0.02)
    assert b.running.vhost.queues["q"].total_count < 60
    b.running.broker.disk.raised = False
    mirrors.follows(a)


def test_a_full_follower_takes_nothing_from_new_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its disk would be full after enough of them."""
    monkeypatch.setattr(queue_feed, "WINDOW", 500)
    mirrors = following()
    a, b = mirrors.hosts
    b.running.broker.disk.raised = True
    mirrors.publish(a, "q", "abcdefghij" * 30)
    mirrors.run(0.1)
    for _ in range(20):
        mirrors.kill(a)
        mirrors.until(lambda: mirrors.line["state"] == "connecting")
        mirrors.start(a)
        mirrors.run(1.5)
    assert b.running.vhost.queues["q"].total_count < 60
    assert mirrors.line["error"] == "this broker takes no more for now: low on disk"
    b.running.broker.disk.raised = False
    mirrors.follows(a)


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
        self.mirrors = following(3, texts="", arguments=rules)
        self.primary = self.mirrors[0]
        self.held: list[Any] = []

    def step(self) -> None:
        mirrors, chance, primary = self.mirrors, self.random, self.primary
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
                mirrors.link_ends[primary.name, "c"] = chance.randint(1, 600)
            case "freeze":
                mirrors.b.frozen = not mirrors.b.frozen
            case "disk":
                mirrors.b.syncing = not mirrors.b.syncing
            case "restart":
                mirrors.kill(mirrors.b, keep=chance.random() < 0.5)
                mirrors.start(mirrors.b)
            case "fail" | "switch":
                self.change(planned=what == "switch")
        mirrors.run(chance.choice([0.0, 0.005, 0.01, 0.05, 0.3]))
        if mirrors.cut and chance.random() < 0.4:
            mirrors.heal()
        if mirrors.b.running.vhost.serving:
            in_order(mirrors)

    def publish(self, texts: str, *, persistent: bool) -> None:
        vhost = self.primary.running.vhost
        vhost.publish(
            vhost.route("", "q"), [raw(text) for text in texts], persistent=persistent, channel=1,
            largest_frame=30, priority=self.random.choice([0, 0, 3, 5]),
        )  # fmt: skip

    def change(self, *, planned: bool) -> None:
        """The other of the pair serves from now on, if it is ready; or, after a switchover that comes to
        nothing, the same one again, in another epoch perhaps."""
        mirrors, old = self.mirrors, self.primary
        other = mirrors[1] if old is mirrors[0] else mirrors[0]
        if other.node is None or other.status != "ready" or old.status not in ("active", "recovering"):
            return
        epoch = old.running.core.epoch
        if planned:
            mirrors.ask(old, "switchover", 10.0)
        else:
            mirrors.kill(old)
            assert mirrors.ask(other, "promote", 10.0, force_lossy=True)["ok"]
            mirrors.start(old)
        serving = (host for host in (other, old) if host.status in ("active", "recovering"))
        self.primary = next(serving)
        if self.primary.running.core.epoch != epoch:
            self.held = []

    def end(self) -> None:
        mirrors = self.mirrors
        mirrors.heal()
        mirrors.link_ends.clear()
        mirrors.b.frozen, mirrors.b.syncing = False, True
        self.publish("!", persistent=True)
        mirrors.follows(self.primary)
        in_order(mirrors)


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
