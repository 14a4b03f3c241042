"""A member that its new primary expects goes back to what it held, if that dies meanwhile. Where it cannot,
it is not promotable unforced before it has everything (invariants 1, 4, 7): neither in memory nor from disk.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.ha.client import moving
from tests.ha.election.test_expected import DEAD, quarantined, succeeded
from tests.ha.pair import Host, Pair

DELETED = "1 of this node's queues were deleted while it caught up"
INCOMPLETE = "this node's copy is incomplete: this node stopped while catching up"


def halfway(pair: Pair) -> Host:
    """c has some of the queue `more` from b, and nothing of those behind it."""
    _, b, c = pair.hosts
    pair.snapshots(b, 30)
    pair.heal()
    pair.until(lambda: pair.contents(c, "more") == "01")
    return c


def refused(pair: Pair, reason: str) -> None:
    """b dies. c does not take its place unforced; once b is back, they are equal."""
    _, b, c = pair.hosts
    pair.separate(b, c, reset=True)
    pair.kill(b)
    answer = pair.ask(c, "promote", limit=12)
    assert not answer["ok"] and reason in answer["reason"], answer
    pair.heal()
    pair.start(b)
    pair.run(0.3)
    assert pair.ask(b, "promote", limit=12)["ok"]
    pair.until(lambda: c.status == "ready")
    assert pair.fingerprint(b) == pair.fingerprint(c)


def dead_lettered(**also: Any) -> Pair:
    """On b, xyz has moved to `dead`; `more` comes first to whoever joins."""
    pair = succeeded("more", "old", "dead", arguments=DEAD | also)
    pair.publish(pair[1], "more", "0123456789")
    pair.until(lambda: pair.contents(pair[1], "dead") == "xyz")
    return pair


@pytest.mark.parametrize("when", ["before it joins", "meanwhile"])
def test_a_queue_is_deleted_from_which_messages_have_moved(when: str) -> None:
    pair = dead_lettered()
    _, b, c = pair.hosts
    if when == "meanwhile":
        halfway(pair)
    b.running.vhost.delete_queue("old", owner=pair, if_unused=False, if_empty=True)
    if when == "before it joins":
        halfway(pair)
    pair.until(lambda: "old" not in c.running.vhost.queues)
    refused(pair, DELETED)
    assert pair.contents(c, "dead") == "xyz"


def test_a_queue_expires_from_which_messages_have_moved() -> None:
    pair = dead_lettered(**{"x-expires": 1500})
    pair.until(lambda: "old" not in pair[1].running.vhost.queues)
    c = halfway(pair)
    refused(pair, DELETED)
    assert pair.contents(c, "dead") == "xyz"


def test_messages_had_moved_to_a_queue_unknown_to_the_new_primary() -> None:
    """The transaction was not answered; what it took from is there again on b, and is still to come to c."""
    pair = Pair(3, authority="register")
    pair.up()
    a, b, c = pair.hosts
    for queue in ("more", "old"):
        pair.declare(a, queue)
    pair.publish(a, "old", "xyz")
    pair.run(0.3)
    pair.hold(a, b)
    pair.declare(a, "new")
    moving(pair, a, "old", "new", "xyz").call("tx.commit", pair.now)
    pair.until(lambda: "new" in c.running.vhost.queues and pair.contents(c, "new") == "xyz")
    for one, other in ((a, b), (a, c), (b, c)):
        pair.separate(one, other)
    pair.kill(a)
    assert pair.ask(b, "promote")["ok"]
    pair.publish(b, "more", "0123456789")
    pair.run(0.1)
    halfway(pair)
    refused(pair, DELETED)
    assert pair.contents(c, "old") == "xyz"


@pytest.mark.parametrize("what", ["dead letters", "a transaction"])
def test_its_disk_has_what_it_held_and_what_it_was_told_and_is_not_whole(what: str) -> None:
    """Both lose their power: what had moved would be there twice, or half a transaction done."""
    if what == "dead letters":
        pair = succeeded("dead", "old", "more", arguments=DEAD)
        pair.until(lambda: pair.contents(pair[1], "dead") == "xyz")
    else:
        pair = succeeded("new", "old", "more")
        moving(pair, pair[1], "old", "new", "xyz").call("tx.commit", pair.now)
        pair.until(lambda: pair.contents(pair[1], "new") == "xyz")
    _, b, c = pair.hosts
    pair.publish(b, "more", "0123456789")
    pair.run(0.1)
    halfway(pair)
    for host in (b, c):
        pair.kill(host)
    for host in (b, c):
        pair.start(host)
    pair.run(0.3)
    answer = pair.ask(c, "promote", limit=12)
    assert not answer["ok"] and INCOMPLETE in answer["reason"], answer
    assert pair.ask(b, "promote", limit=12)["ok"]
    pair.until(lambda: c.status == "ready")
    assert pair.fingerprint(b) == pair.fingerprint(c)


def test_who_has_gone_back_is_whole_once_its_disk_has_that() -> None:
    pair = dead_lettered()
    _, b, c = pair.hosts
    halfway(pair)
    pair.separate(b, c, reset=True)
    pair.kill(b)
    assert pair.ask(c, "promote", limit=12)["ok"]
    pair.run(0.2)
    pair.kill(c)
    pair.start(c)
    pair.run(0.1)
    assert not c.running.core.incomplete
    answer = pair.ask(c, "promote", limit=12)
    assert answer["ok"], answer
    pair.run(1.5)
    assert (pair.contents(c, "old"), pair.contents(c, "dead")) == ("", "xyz")


def test_what_was_deleted_here_before_is_known_when_it_goes_back() -> None:
    """a deleted the queue, and c alone heard of it. b, which has the queue, is promoted, and dies while c
    catches up: c goes back. What d has of the queue was in c's history, and is not kept for anybody."""
    pair = Pair(4, authority="register")
    pair.up()
    a, b, c, d = pair.hosts
    pair.declare(a, "old")
    pair.declare(a, "more")
    pair.publish(a, "old", "xyz")
    pair.run(0.3)
    pair.hold(a, b)
    pair.hold(a, d)
    a.running.vhost.delete_queue("old", owner=pair, if_unused=False, if_empty=False)
    pair.until(lambda: "old" not in c.running.vhost.queues)
    pair.separate(b, c)
    pair.separate(c, d)
    pair.separate(b, d)
    pair.kill(a)
    assert pair.ask(b, "promote")["ok"]
    pair.publish(b, "more", "0123456789")
    pair.snapshots(b, 30)
    pair.cut.discard(frozenset({b.name, c.name}))
    pair.until(lambda: "old" in c.running.vhost.queues and c.status == "catch-up")
    pair.separate(b, c, reset=True)
    pair.kill(b)
    assert pair.ask(c, "promote", limit=12)["ok"]
    pair.heal()
    pair.until(lambda: c.status == "active")
    assert pair.contents(d, "old") == pair.contents(c, "old") == ""
    assert quarantined(d) == 0
