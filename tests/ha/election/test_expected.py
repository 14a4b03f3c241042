"""A member that its new primary expects is promotable while it catches up: also if that primary dies then, it
holds every confirmed message, once (invariants 1, 4, 7, 18).

Queues come one after the other. What has moved before, from one to another, has left the one there, and may
not have come to the other here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.ha.client import moving
from tests.ha.pair import Host, Pair
from tests.tiers import sweep

DEAD = {"x-message-ttl": 1000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
CUTS = sweep("apart", sample=245, more=70, whole=35)
"""The bytes between two cuts."""


def succeeded(*queues: str, arguments: dict[str, Any] | None = None) -> Pair:
    """a had xyz in the queue `old`, which b and c have too, and died; b serves, and cannot reach c."""
    pair = Pair(3, authority="register")
    pair.up()
    a, b, c = pair.hosts
    for queue in queues:
        pair.declare(a, queue, arguments=(arguments or {}) if queue == "old" else {})
    pair.publish(a, "old", "xyz")
    pair.run(0.3)
    pair.separate(a, c)
    pair.separate(b, c)
    pair.kill(a)
    assert pair.ask(b, "promote")["ok"]
    return pair


def catches_up(pair: Pair, passing: int) -> bool:
    """c joins b, a few bytes a tick, until the link between them breaks; False if c was in sync before."""
    b = pair[1]
    pair.snapshots(b, 30)
    pair.heal()
    pair.link_ends["b", "c"] = passing
    pair.until(lambda: bool(pair.cut) or b.status == "active")
    return bool(pair.cut)


def promoted(pair: Pair, **how: bool) -> Host:
    """b dies, and c is promoted."""
    _, b, c = pair.hosts
    pair.kill(b)
    answer = pair.ask(c, "promote", limit=12, **how)
    assert answer["ok"], answer
    return c


def quarantined(host: Host) -> int:
    files = host.disk.contents()
    return sum(raw.count(b'"sequence"') for path, raw in files.items() if "quarantine" in path)


def start_of_the_copy(begun: Callable[[], Pair]) -> int:
    """So many bytes of the link may pass, and c has not begun to catch up; a little later it has."""
    passing = 0
    while catches_up(pair := begun(), passing + 500) and pair[2].status != "catch-up":
        passing += 500
    return passing


def cut_at_every_place(begun: Callable[[], Pair], apart: int) -> Pair:
    """c catches up with b until b dies, a little later each time; whatever c had got, it serves xyz, moved.
    The last of them: c was in sync before.
    """
    passing, cuts = start_of_the_copy(begun), 0
    while True:
        pair = begun()
        if not catches_up(pair, passing):
            break
        c = promoted(pair)
        pair.run(1.5)
        found = pair.contents(c, "old"), pair.contents(c, "dead")
        assert found == ("", "xyz"), (passing, found)
        cuts += 1
        passing += apart
    print(f"cut at {cuts} places")
    assert cuts > 1000 // apart
    assert pair.fingerprint(pair[1]) == pair.fingerprint(pair[2])
    return pair


ORDERS = pytest.mark.parametrize("order", [("old", "dead"), ("dead", "old")])
"""Whose queue comes first must make no difference."""


@CUTS
@ORDERS
def test_dead_letters_of_the_last_primary_are_in_one_queue_or_the_other(
    order: tuple[str, str], apart: int
) -> None:
    """They died there before it was followed."""

    def begun() -> Pair:
        pair = succeeded(*order, arguments=DEAD)
        pair.until(lambda: pair.contents(pair[1], "dead") == "xyz")
        return pair

    cut_at_every_place(begun, apart)


def known_to_one(*queues: str) -> Pair:
    """a has moved xyz from `old` to `dead` and died; c heard of it, b did not, and serves without c."""
    pair = Pair(3, authority="register")
    pair.up()
    a, b, c = pair.hosts
    for queue in queues:
        pair.declare(a, queue, arguments=DEAD if queue == "old" else {})
    pair.publish(a, "old", "xyz")
    pair.run(0.3)
    pair.hold(a, b)
    pair.until(lambda: pair.contents(c, "dead") == "xyz")
    assert pair.contents(b, "old") == "xyz"
    pair.separate(a, b)
    pair.separate(a, c)
    pair.separate(b, c)
    pair.kill(a)
    assert pair.ask(b, "promote")["ok"]
    pair.until(lambda: pair.contents(b, "dead") == "xyz")
    return pair


@CUTS
@ORDERS
def test_what_only_this_member_heard_of_the_first_primary_stays_too(
    order: tuple[str, str], apart: int
) -> None:
    """The new primary never had the move that this member knows; its own is not here yet."""
    pair = cut_at_every_place(partial(known_to_one, *order), apart)
    c = pair[2]
    assert quarantined(c) == 3
    pair.kill(c)
    pair.link_ends.clear()
    pair.heal()
    pair.start(c)
    pair.until(lambda: c.status == "ready")
    assert (pair.contents(c, "dead"), quarantined(c)) == ("xyz", 3)


@CUTS
@pytest.mark.parametrize("when", ["before it joins", "meanwhile"])
def test_a_transaction_of_the_last_primary_is_whole_or_nothing(when: str, apart: int) -> None:
    cuts = {"nothing": 0, "whole": 0}
    for passing in range(2000, 6000, apart):
        pair = succeeded("old", "new")
        _, b, c = pair.hosts
        client = moving(pair, pair[1], "old", "new", "xyz")
        if when == "before it joins":
            client.call("tx.commit", pair.now)
            pair.until(lambda pair=pair, b=b: pair.contents(b, "new") == "xyz")
        pair.snapshots(b, 30)
        pair.heal()
        pair.link_ends["b", "c"] = passing
        pair.until(lambda pair=pair, c=c: bool(pair.cut) or c.status == "catch-up")
        if when == "meanwhile":
            client.call("tx.commit", pair.now)
        pair.until(lambda pair=pair, b=b: bool(pair.cut) or b.status == "active")
        if not pair.cut:
            break
        promoted(pair)
        found = pair.contents(c, "old"), pair.contents(c, "new")
        assert found in (("xyz", ""), ("", "xyz")), (passing, found)
        cuts["nothing" if found[0] else "whole"] += 1
    print(f"cut: {cuts}")
    assert all(cuts.values())


def test_unconfirmed_messages_go_to_quarantine_in_memory_and_on_disk() -> None:
    pair = succeeded("new", "old", "more")
    _, b, c = pair.hosts
    pair.publish(b, "new", "uvw")
    pair.publish(b, "more", "0123456789")
    assert pair.consume(b, "old", 1) == "x"
    pair.run(0.1)
    held = pair.contents
    pair.snapshots(b, 30)
    pair.heal()
    pair.until(lambda: held(c, "more") == "01")
    pair.separate(b, c, reset=True)
    promoted(pair)
    assert (held(c, "old"), held(c, "new"), held(c, "more"), quarantined(c)) == ("xyz", "", "", 6)
    noted = [(f["first"], f["last"]) for kind, f in c.ledger.kinds if kind == "quarantine"]
    assert noted == [(1, 3), (1, 3)]
    pair.run(0.1)
    pair.kill(c)
    pair.start(c)
    pair.run(0.1)
    assert (held(c, "old"), held(c, "new")) == ("xyz", "")
    assert pair.ask(c, "promote", limit=12)["ok"]
    pair.heal()
    pair.start(b)
    pair.until(lambda: b.status == "ready")
    assert (held(b, "old"), held(b, "new"), quarantined(b)) == ("xyz", "", 13)


def test_who_is_promoted_by_force_keeps_both() -> None:
    """What a primary could confirm without it, once it was excluded, is not put away."""
    pair = succeeded("new", "old")
    _, b, c = pair.hosts
    position = pair.publish(b, "new", "uvw")
    pair.snapshots(b, 30)
    pair.heal()
    pair.until(lambda: pair.contents(c, "new") == "uvw")
    pair.separate(b, c, reset=True)
    pair.until(lambda: pair.confirmed(b, position))
    pair.kill(b)
    assert not pair.ask(c, "promote", limit=12)["ok"]
    assert pair.ask(c, "promote", limit=12, force_lossy=True)["ok"]
    assert (pair.contents(c, "old"), pair.contents(c, "new")) == ("xyz", "uvw")


def test_who_is_excluded_meanwhile_joins_like_anybody() -> None:
    pair = succeeded("old", "new")
    _, b, c = pair.hosts
    pair.publish(b, "new", "uvw")
    pair.consume(b, "old", 1)
    pair.snapshots(b, 30)
    pair.heal()
    pair.until(lambda: pair.contents(c, "new") != "")
    pair.separate(b, c, reset=True)
    pair.until(lambda: b.status == "active")
    pair.consume(b, "old", 1)
    pair.run(0.1)
    pair.heal()
    pair.until(lambda: c.status == "ready")
    assert (pair.contents(c, "old"), pair.contents(c, "new")) == ("z", "uvw")
    assert pair.fingerprint(b) == pair.fingerprint(c)


def test_what_the_last_primary_had_from_the_one_before_goes_too() -> None:
    """c never had it, so that it was confirmed to nobody: to keep it, and not to know that it was in history,
    would be to serve what every other node puts into quarantine."""
    pair = Pair(3, authority="register")
    pair.up()
    a, b, c = pair.hosts
    for queue in ("old", "more"):
        pair.declare(a, queue)
    pair.publish(a, "old", "xyz")
    pair.run(0.3)
    pair.hold(a, c)
    pair.publish(a, "old", "u")
    pair.run(0.1)
    pair.kill(a)
    assert pair.ask(b, "promote")["ok"]
    pair.publish(b, "more", "0123456789")
    pair.snapshots(b, 30)
    pair.heal()
    pair.until(lambda: pair.contents(c, "old") == "xyzu")
    pair.separate(b, c, reset=True)
    promoted(pair)
    assert pair.contents(c, "old") == "xyz" and quarantined(c) >= 1
    pair.start(a)
    pair.until(lambda: a.status == "ready")
    assert (pair.contents(a, "old"), quarantined(a)) == ("xyz", 1)
    assert pair.fingerprint(a) == pair.fingerprint(c)
