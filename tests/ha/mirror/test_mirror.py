"""Ad-hoc replication: a broker of no cluster follows a queue of a pair, or of another broker on its own."""

from __future__ import annotations

from typing import Any

import pytest

from ha.core.id_setter import IdSetter
from tests.ha.mirror.copies import Copies, following


def test_the_queue_comes_to_be_with_what_it_holds_and_follows() -> None:
    copies = following()
    a, b = copies.hosts
    copies.publish(a, "q", "def")
    assert copies.consume(a, "q", 2) == "ab"
    copies.follows(a)
    assert copies.contents(b, "q") == "cdef"
    assert b.running.vhost.queues["q"].durable
    assert copies.line["from"] == "a at 127.0.0.1:5000"
    [follower] = a.running.status()["followers"]
    assert follower == {"queue": "q", "follower": "b", "state": "following"}


def test_unacknowledged_messages_are_held_and_may_come_back() -> None:
    copies = following()
    a = copies[0]
    queue = a.running.vhost.queues["q"]
    taken = [queue.pop(no_ack=False) for _ in range(2)]
    copies.run(0.2)
    assert copies.contents(copies.b, "q") == "abc"
    queue.requeue([entry for entry in taken if entry is not None])
    copies.publish(a, "q", "d")
    copies.follows(a)
    assert copies.contents(copies.b, "q") == "abcd"


@pytest.mark.parametrize("persistent", [True, False])
def test_a_queue_that_no_store_sees_is_followed_too(persistent: bool) -> None:
    copies = Copies(dequeue_lag=0.0)
    copies.begin()
    copies[0].running.vhost.declare_queue("t", owner=copies)
    copies.publish(copies[0], "t", "abc", persistent=persistent)
    assert copies.replicate("t")["ok"]
    copies.follows(copies[0], "t")
    assert copies.consume(copies[0], "t", 1) == "a"
    copies.publish(copies[0], "t", "d", persistent=persistent)
    copies.follows(copies[0], "t")
    assert copies.contents(copies.b, "t") == "bcd"


def test_a_source_that_fails_over_is_followed_and_nothing_comes_twice() -> None:
    copies = following(3)
    a, other, _ = copies.hosts
    copies.kill(a)
    copies.until(lambda: copies.line["state"] == "connecting")
    assert copies.ask(other, "promote")["ok"]
    copies.publish(other, "q", "de")
    copies.follows(other)
    assert copies.contents(copies.b, "q") == "abcde"
    assert copies.line["from"] == "b at 127.0.0.1:5001"
    copies.start(a)
    copies.until(lambda: a.status == "ready")
    copies.publish(other, "q", "f")
    copies.follows(other)


def test_what_only_the_dead_primary_had_goes_and_what_it_alone_had_dequeued_comes_back_in_its_place() -> None:
    copies = following(3, texts="abcdef")
    a, other, c = copies.hosts
    copies.hold(a, other)
    copies.consume(a, "q", 2)
    copies.publish(a, "q", "xyz")
    copies.until(lambda: copies.contents(c, "q") == "cdefxyz")
    copies.kill(a)
    copies.held.clear()
    assert copies.ask(other, "promote")["ok"]
    copies.publish(other, "q", "g")
    copies.follows(other)
    assert copies.contents(c, "q") == "abcdefg"
    assert not any("anew" in line for line in c.log), c.log


def test_a_primary_that_was_followed_already_is_not_followed_into_the_past() -> None:
    copies = following(3)
    a, other, c = copies.hosts
    for pair in ((a, other), (a, c)):
        copies.separate(*pair, reset=True)
    copies.run(4.0)
    assert copies.ask(other, "promote", force_lossy=True)["ok"]
    copies.publish(other, "q", "n")
    copies.follows(other)
    copies.separate(other, c, reset=True)
    copies.cut.discard(frozenset({"a", "c"}))
    copies.run(1.5)
    assert copies.line["state"] == "connecting"
    assert copies.contents(c, "q") == "abcn"
    copies.heal()
    copies.follows(other)


@pytest.mark.parametrize("again", [True, False])
def test_a_queue_deleted_at_the_source_stays_here_and_never_mixes_with_another(again: bool) -> None:
    copies = following()
    a, b = copies.hosts
    a.running.vhost.delete_queue("q", owner=copies)
    if again:
        copies.declare(a, "q")
        copies.publish(a, "q", "xyz")
    copies.until(lambda: copies.line["state"] == "source gone")
    copies.run(1.5)
    assert copies.line["state"] == "source gone"
    expected = "another one of the same name" if again else "it has no queue 'q'"
    assert expected in copies.line["error"]
    assert copies.contents(b, "q") == "abc"
    assert copies.ask(b, "replicate-stop", name="q")["ok"]
    assert copies.consume(b, "q", 3) == "abc"


@pytest.mark.parametrize("keep", [True, False])
def test_a_follower_that_starts_again_goes_on_where_it_was(keep: bool) -> None:
    copies = following()
    a, b = copies.hosts
    copies.publish(a, "q", "t", persistent=False)
    copies.follows(a)
    copies.kill(b, keep=keep)
    copies.consume(a, "q", 1)
    copies.publish(a, "q", "de")
    copies.run(0.2)
    copies.start(b)
    assert copies.contents(b, "q") == "abc"
    copies.follows(a)
    assert copies.contents(b, "q") == "bctde"
    sent = sum(feed.sent for feed in a.running.replications.feeds.feeds.values())
    assert sent < 800, "only what is missing is fetched"


def test_a_source_that_starts_again_is_followed_on() -> None:
    copies = following()
    a, b = copies.hosts
    copies.publish(a, "q", "t", persistent=False)
    copies.follows(a)
    copies.kill(a)
    copies.run(0.5)
    assert copies.contents(b, "q") == "abct"
    copies.start(a)
    copies.publish(a, "q", "d")
    copies.follows(a)
    assert copies.contents(b, "q") == "abcd"


def test_stopped_it_is_an_ordinary_queue_whose_messages_are_redelivered_also_after_a_restart() -> None:
    copies = following()
    a, b = copies.hosts
    answer = copies.ask(b, "replicate-stop", name="q")
    assert answer["ok"] and answer["reason"] == "'q' is an ordinary queue now, with 3 messages"
    assert b.running.status()["replications"] == []
    assert isinstance(b.running.vhost.queues["q"].ids, IdSetter)
    copies.publish(a, "q", "x")
    copies.publish(b, "q", "y")
    copies.run(0.5)
    assert a.running.status()["followers"] == []
    copies.kill(b)
    copies.start(b)
    entries = b.running.vhost.queues["q"].held_entries()
    assert [entry[1].redelivered for entry in entries] == [True] * 4
    assert copies.consume(b, "q", 9) == "abcy"


@pytest.mark.parametrize("stop", [True, False])
def test_who_asked_hears_of_it_when_it_is_on_disk_and_not_before(stop: bool) -> None:
    copies = following() if stop else Copies()
    if not stop:
        copies.begin()
    b = copies.b
    question = {"name": "q"} if stop else {"source": copies.addresses, "queue": "q"}
    for synced in (False, True):
        b.syncing = synced
        answers: list[dict[str, Any]] = []
        b.running.manage("replicate-stop" if stop else "replicate", question, answers.append, copies.now)
        copies.run(1.0)
        assert [answer["ok"] for answer in answers] == [True] * synced
        copies.kill(b)
        copies.start(b)
        follows_now = [line["name"] for line in b.running.status()["replications"]] == ["q"]
        assert follows_now is (stop is not synced)


def test_a_broker_that_is_put_into_a_pair_follows_no_more_and_keeps_what_it_has() -> None:
    copies = following()
    a, b = copies.hosts
    copies.kill(b)
    copies.paired = True
    copies.start(b)
    copies.run(0.3)
    assert copies.line["state"] == "paused"
    assert copies.ask(b, "replicate-stop", name="q")["reason"] == "b does not serve"
    assert copies.ask(b, "promote", force_lossy=True)["ok"]
    copies.publish(a, "q", "d")
    copies.run(0.5)
    assert copies.line["state"] == "paused"
    assert copies.contents(b, "q") == "abc"
    assert copies.ask(b, "replicate-stop", name="q")["ok"]
    assert copies.consume(b, "q", 9) == "abc"


def test_another_name_and_another_address() -> None:
    copies = Copies(3, dequeue_lag=0.0)
    copies.begin()
    answer = copies.ask(copies.b, "replicate", 15.0, source=["127.0.0.1:5000"], queue="q", name="mine")
    assert answer == {"ok": True, "reason": "'mine' follows 'q' of a at 127.0.0.1:5000"}
    copies.publish(copies[0], "q", "ab")
    copies.until(lambda: copies.contents(copies.b, "mine") == "ab")
    copies.kill(copies[0])
    assert copies.ask(copies[1], "promote")["ok"]
    assert copies.replicate(name="mine")["ok"]
    copies.publish(copies[1], "q", "c")
    copies.until(lambda: copies.contents(copies.b, "mine") == "abc")
    assert copies.line["source"] == "127.0.0.1:5000,127.0.0.1:5001"


def test_one_that_is_told_to_look_elsewhere_in_vain_says_so() -> None:
    """It said that it follows, with success, and followed nobody any more."""
    copies = Copies(3, dequeue_lag=0.0)
    copies.begin()
    right = copies.ask(copies.b, "replicate", 15.0, source=["127.0.0.1:5000"], queue="q")
    assert right["ok"], right
    for wrong, why in (
        ("127.0.0.1:5001", "it does not serve (ready)"),
        (f"127.0.0.1:{copies.b.port}", "this very broker"),
    ):
        answer = copies.ask(copies.b, "replicate", 15.0, source=[wrong], queue="q")
        assert not answer["ok"]
        assert answer["changed"]
        assert answer["reason"].startswith(
            f"'q' looks for 'q' at {wrong} from now on, and has not found it yet: "
        )
        assert why in answer["reason"]
    assert copies.ask(copies.b, "replicate", 15.0, source=["127.0.0.1:5000"], queue="q") == right
    copies.publish(copies[0], "q", "a")
    copies.until(lambda: copies.contents(copies.b, "q") == "a")


def test_a_queue_that_follows_is_itself_not_followed() -> None:
    copies = Copies(3, alone=True, dequeue_lag=0.0)
    copies.begin()
    first = copies.ask(copies[1], "replicate", 15.0, source=["127.0.0.1:5000"], queue="q")
    assert first["ok"], first
    second = copies.ask(copies.b, "replicate", 15.0, source=["127.0.0.1:5001"], queue="q")
    assert not second["ok"]
    assert "its queue 'q' is itself replicated, from 127.0.0.1:5000" in second["reason"]


@pytest.mark.parametrize("errors", [(0, 3 * 3_600_000), (3 * 3_600_000, 0)])
@pytest.mark.parametrize("again", [False, True])
def test_stopped_where_the_clock_is_another_messages_live_as_long_as_they_should(
    errors: tuple[int, int], again: bool
) -> None:
    """`again`: some have come before the connection broke, the others after it."""
    copies = Copies(dequeue_lag=0.0)
    a, b = copies[0], copies.b
    a.wall_error, b.wall_error = errors
    copies.begin("q", {"x-message-ttl": 60_000})
    copies.publish(a, "q", "ab")
    assert copies.replicate()["ok"]
    copies.follows(a)
    if again:
        copies.reset(a, b)
    copies.publish(a, "q", "c")
    copies.follows(a)
    assert copies.ask(b, "replicate-stop", name="q")["ok"]
    copies.run(50)
    assert copies.contents(b, "q") == "abc"
    copies.run(15)
    assert copies.contents(b, "q") == ""
