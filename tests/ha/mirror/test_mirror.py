"""Ad-hoc replication: a broker of no cluster follows a queue of a pair, or of another broker on its own."""

from __future__ import annotations

from typing import Any

import pytest

from ha.core.id_setter import IdSetter
from tests.ha.mirror.mirrors import Mirrors, following


def test_the_queue_comes_to_be_with_what_it_holds_and_follows() -> None:
    mirrors = following()
    a, b = mirrors.hosts
    mirrors.publish(a, "q", "def")
    assert mirrors.consume(a, "q", 2) == "ab"
    mirrors.follows(a)
    assert mirrors.contents(b, "q") == "cdef"
    assert b.running.vhost.queues["q"].durable
    assert mirrors.line["from"] == "a at 127.0.0.1:5000"
    [follower] = a.running.status()["followers"]
    assert follower == {"queue": "q", "follower": "b", "state": "following"}


def test_unacknowledged_messages_are_held_and_may_come_back() -> None:
    mirrors = following()
    a = mirrors[0]
    queue = a.running.vhost.queues["q"]
    taken = [queue.pop(no_ack=False) for _ in range(2)]
    mirrors.run(0.2)
    assert mirrors.contents(mirrors.b, "q") == "abc"
    queue.requeue([entry for entry in taken if entry is not None])
    mirrors.publish(a, "q", "d")
    mirrors.follows(a)
    assert mirrors.contents(mirrors.b, "q") == "abcd"


@pytest.mark.parametrize("persistent", [True, False])
def test_a_queue_that_no_store_sees_is_followed_too(persistent: bool) -> None:
    mirrors = Mirrors(dequeue_lag=0.0)
    mirrors.begin()
    mirrors[0].running.vhost.declare_queue("t", owner=mirrors)
    mirrors.publish(mirrors[0], "t", "abc", persistent=persistent)
    assert mirrors.replicate("t")["ok"]
    mirrors.follows(mirrors[0], "t")
    assert mirrors.consume(mirrors[0], "t", 1) == "a"
    mirrors.publish(mirrors[0], "t", "d", persistent=persistent)
    mirrors.follows(mirrors[0], "t")
    assert mirrors.contents(mirrors.b, "t") == "bcd"


def test_a_source_that_fails_over_is_followed_and_nothing_comes_twice() -> None:
    mirrors = following(3)
    a, other, _ = mirrors.hosts
    mirrors.kill(a)
    mirrors.until(lambda: mirrors.line["state"] == "connecting")
    assert mirrors.ask(other, "promote")["ok"]
    mirrors.publish(other, "q", "de")
    mirrors.follows(other)
    assert mirrors.contents(mirrors.b, "q") == "abcde"
    assert mirrors.line["from"] == "b at 127.0.0.1:5001"
    mirrors.start(a)
    mirrors.until(lambda: a.status == "ready")
    mirrors.publish(other, "q", "f")
    mirrors.follows(other)


def test_resync_drops_and_restores_what_only_the_dead_primary_saw() -> None:
    mirrors = following(3, texts="abcdef")
    a, other, c = mirrors.hosts
    mirrors.hold(a, other)
    mirrors.consume(a, "q", 2)
    mirrors.publish(a, "q", "xyz")
    mirrors.until(lambda: mirrors.contents(c, "q") == "cdefxyz")
    mirrors.kill(a)
    mirrors.held.clear()
    assert mirrors.ask(other, "promote")["ok"]
    mirrors.publish(other, "q", "g")
    mirrors.follows(other)
    assert mirrors.contents(c, "q") == "abcdefg"
    assert not any("anew" in line for line in c.log), c.log


def test_a_primary_that_was_followed_already_is_not_followed_into_the_past() -> None:
    mirrors = following(3)
    a, other, c = mirrors.hosts
    for pair in ((a, other), (a, c)):
        mirrors.separate(*pair, reset=True)
    mirrors.run(4.0)
    assert mirrors.ask(other, "promote", force_lossy=True)["ok"]
    mirrors.publish(other, "q", "n")
    mirrors.follows(other)
    mirrors.separate(other, c, reset=True)
    mirrors.cut.discard(frozenset({"a", "c"}))
    mirrors.run(1.5)
    assert mirrors.line["state"] == "connecting"
    assert mirrors.contents(c, "q") == "abcn"
    mirrors.heal()
    mirrors.follows(other)


@pytest.mark.parametrize("again", [True, False])
def test_a_queue_deleted_at_the_source_stays_and_mixes_with_no_other(again: bool) -> None:
    mirrors = following()
    a, b = mirrors.hosts
    a.running.vhost.delete_queue("q", owner=mirrors)
    if again:
        mirrors.declare(a, "q")
        mirrors.publish(a, "q", "xyz")
    mirrors.until(lambda: mirrors.line["state"] == "source gone")
    mirrors.run(1.5)
    assert mirrors.line["state"] == "source gone"
    expected = "another one of the same name" if again else "it has no queue 'q'"
    assert expected in mirrors.line["error"]
    assert mirrors.contents(b, "q") == "abc"
    assert mirrors.ask(b, "replicate-stop", name="q")["ok"]
    assert mirrors.consume(b, "q", 3) == "abc"


@pytest.mark.parametrize("keep", [True, False])
def test_a_follower_that_starts_again_goes_on_where_it_was(keep: bool) -> None:
    mirrors = following()
    a, b = mirrors.hosts
    mirrors.publish(a, "q", "t", persistent=False)
    mirrors.follows(a)
    mirrors.kill(b, keep=keep)
    mirrors.consume(a, "q", 1)
    mirrors.publish(a, "q", "de")
    mirrors.run(0.2)
    mirrors.start(b)
    assert mirrors.contents(b, "q") == "abc"
    mirrors.follows(a)
    assert mirrors.contents(b, "q") == "bctde"
    sent = sum(feed.sent for feed in a.running.mirrors.source.feeds.values())
    assert sent < 800, "only what is missing is fetched"


def test_a_source_that_starts_again_is_followed_on() -> None:
    mirrors = following()
    a, b = mirrors.hosts
    mirrors.publish(a, "q", "t", persistent=False)
    mirrors.follows(a)
    mirrors.kill(a)
    mirrors.run(0.5)
    assert mirrors.contents(b, "q") == "abct"
    mirrors.start(a)
    mirrors.publish(a, "q", "d")
    mirrors.follows(a)
    assert mirrors.contents(b, "q") == "abcd"


def test_a_stopped_mirror_is_an_ordinary_queue_after_a_restart_too() -> None:
    mirrors = following()
    a, b = mirrors.hosts
    answer = mirrors.ask(b, "replicate-stop", name="q")
    assert answer["ok"] and answer["reason"] == "'q' is an ordinary queue now, with 3 messages"
    assert b.running.status()["replications"] == []
    assert isinstance(b.running.vhost.queues["q"].ids, IdSetter)
    mirrors.publish(a, "q", "x")
    mirrors.publish(b, "q", "y")
    mirrors.run(0.5)
    assert a.running.status()["followers"] == []
    mirrors.kill(b)
    mirrors.start(b)
    entries = b.running.vhost.queues["q"].held_entries()
    assert [entry[1].redelivered for entry in entries] == [True] * 4
    assert mirrors.consume(b, "q", 9) == "abcy"


@pytest.mark.parametrize("stop", [True, False])
def test_who_asked_hears_of_it_when_it_is_on_disk_and_not_before(stop: bool) -> None:
    mirrors = following() if stop else Mirrors()
    if not stop:
        mirrors.begin()
    b = mirrors.b
    question = {"name": "q"} if stop else {"source": mirrors.addresses, "queue": "q"}
    for synced in (False, True):
        b.syncing = synced
        answers: list[dict[str, Any]] = []
        b.running.manage("replicate-stop" if stop else "replicate", question, answers.append, mirrors.now)
        mirrors.run(1.0)
        assert [answer["ok"] for answer in answers] == [True] * synced
        mirrors.kill(b)
        mirrors.start(b)
        follows_now = [line["name"] for line in b.running.status()["replications"]] == ["q"]
        assert follows_now is (stop is not synced)


def test_a_broker_put_into_a_pair_stops_following_and_keeps_its_messages() -> None:
    mirrors = following()
    a, b = mirrors.hosts
    mirrors.kill(b)
    mirrors.paired = True
    mirrors.start(b)
    mirrors.run(0.3)
    assert mirrors.line["state"] == "paused"
    assert mirrors.ask(b, "replicate-stop", name="q")["reason"] == "b does not serve"
    assert mirrors.ask(b, "promote", force_lossy=True)["ok"]
    mirrors.publish(a, "q", "d")
    mirrors.run(0.5)
    assert mirrors.line["state"] == "paused"
    assert mirrors.contents(b, "q") == "abc"
    assert mirrors.ask(b, "replicate-stop", name="q")["ok"]
    assert mirrors.consume(b, "q", 9) == "abc"


def test_another_name_and_another_address() -> None:
    mirrors = Mirrors(3, dequeue_lag=0.0)
    mirrors.begin()
    answer = mirrors.ask(mirrors.b, "replicate", 15.0, source=["127.0.0.1:5000"], queue="q", name="mine")
    assert answer == {"ok": True, "reason": "'mine' follows 'q' of a at 127.0.0.1:5000"}
    mirrors.publish(mirrors[0], "q", "ab")
    mirrors.until(lambda: mirrors.contents(mirrors.b, "mine") == "ab")
    mirrors.kill(mirrors[0])
    assert mirrors.ask(mirrors[1], "promote")["ok"]
    assert mirrors.replicate(name="mine")["ok"]
    mirrors.publish(mirrors[1], "q", "c")
    mirrors.until(lambda: mirrors.contents(mirrors.b, "mine") == "abc")
    assert mirrors.line["source"] == "127.0.0.1:5000,127.0.0.1:5001"


def test_one_that_is_told_to_look_elsewhere_in_vain_says_so() -> None:
    """It said that it follows, with success, and followed nobody any more."""
    mirrors = Mirrors(3, dequeue_lag=0.0)
    mirrors.begin()
    right = mirrors.ask(mirrors.b, "replicate", 15.0, source=["127.0.0.1:5000"], queue="q")
    assert right["ok"], right
    for wrong, why in (
        ("127.0.0.1:5001", "it does not serve (ready)"),
        (f"127.0.0.1:{mirrors.b.port}", "this very broker"),
    ):
        answer = mirrors.ask(mirrors.b, "replicate", 15.0, source=[wrong], queue="q")
        assert not answer["ok"]
        assert answer["changed"]
        assert answer["reason"].startswith(
            f"'q' looks for 'q' at {wrong} from now on, and has not found it yet: "
        )
        assert why in answer["reason"]
    assert mirrors.ask(mirrors.b, "replicate", 15.0, source=["127.0.0.1:5000"], queue="q") == right
    mirrors.publish(mirrors[0], "q", "a")
    mirrors.until(lambda: mirrors.contents(mirrors.b, "q") == "a")


def test_a_queue_that_follows_is_itself_not_followed() -> None:
    mirrors = Mirrors(3, alone=True, dequeue_lag=0.0)
    mirrors.begin()
    first = mirrors.ask(mirrors[1], "replicate", 15.0, source=["127.0.0.1:5000"], queue="q")
    assert first["ok"], first
    second = mirrors.ask(mirrors.b, "replicate", 15.0, source=["127.0.0.1:5001"], queue="q")
    assert not second["ok"]
    assert "its queue 'q' is itself replicated, from 127.0.0.1:5000" in second["reason"]


@pytest.mark.parametrize("errors", [(0, 3 * 3_600_000), (3 * 3_600_000, 0)])
@pytest.mark.parametrize("again", [False, True])
def test_a_stopped_mirror_keeps_the_ttl_despite_another_clock(errors: tuple[int, int], again: bool) -> None:
    """`again`: some have come before the connection broke, the others after it."""
    mirrors = Mirrors(dequeue_lag=0.0)
    a, b = mirrors[0], mirrors.b
    a.wall_error, b.wall_error = errors
    mirrors.begin("q", {"x-message-ttl": 60_000})
    mirrors.publish(a, "q", "ab")
    assert mirrors.replicate()["ok"]
    mirrors.follows(a)
    if again:
        mirrors.reset(a, b)
    mirrors.publish(a, "q", "c")
    mirrors.follows(a)
    assert mirrors.ask(b, "replicate-stop", name="q")["ok"]
    mirrors.run(50)
    assert mirrors.contents(b, "q") == "abc"
    mirrors.run(15)
    assert mirrors.contents(b, "q") == ""
