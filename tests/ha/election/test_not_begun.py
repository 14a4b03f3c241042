"""Whoever is promoted by force while it joins lacks all that had not come, whole queues too: an
old primary that returns keeps that for people, and does not take it for dequeued (invariant 15).
"""

from __future__ import annotations

import pytest

from broker.model.history.epoch_ends import EpochEnds
from broker.model.values import Scope
from tests.ha.election.test_expected import quarantined
from tests.ha.pair import Host, Pair
from tests.simulation.harness.machines.virtual_disk import VirtualDisk


@pytest.mark.parametrize("how", ["at once", "after a restart"])
@pytest.mark.parametrize("known", [True, False], ids=["known queues", "new queues"])
@pytest.mark.parametrize("authority", ["manual", "register"])
def test_what_had_not_begun_to_come_is_not_taken_for_dequeued(how: str, known: bool, authority: str) -> None:
    pair = Pair(2, authority=authority)
    pair.up()
    a, b = pair.hosts
    queues = ("big", "more")
    for queue in queues if known else ():
        pair.declare(a, queue)
    pair.run(0.2)
    pair.kill(b)
    for queue in queues if not known else ():
        pair.declare(a, queue)
    pair.publish(a, "big", "0123456789")
    position = pair.publish(a, "more", "uvw")
    pair.until(lambda: pair.confirmed(a, position))
    assert pair.consume(a, "more", 1) == "u"
    pair.run(0.1)
    pair.snapshots(a, 30)
    pair.start(b)
    pair.until(lambda: "big" in b.running.vhost.queues and pair.contents(b, "big") == "01")
    pair.kill(a)
    if how == "after a restart":
        pair.run(0.1)
        pair.kill(b)
        pair.start(b)
    pair.run(0.3)
    assert pair.ask(b, "promote", limit=12, force_lossy=True)["ok"]
    pair.start(a)
    pair.until(lambda: a.status == "ready")
    came = pair.contents(b, "big")
    assert "0123456789".startswith(came) and len(came) < 5 and pair.contents(b, "more") == ""
    assert quarantined(a) == 10 - len(came) + len("vw")
    assert pair.fingerprint(a) == pair.fingerprint(b)


def test_a_queue_deleted_before_its_snapshot_leaves_no_missing_ids() -> None:
    """Else whoever returns to this node, once it serves, exports what history has deleted."""
    pair = Pair(3, authority="register")
    pair.up()
    a, b, c = pair.hosts
    for queue in ("big", "gone", "more"):
        pair.declare(a, queue)
    pair.publish(a, "gone", "uvwxyz")
    pair.publish(a, "big", "0123456789")
    pair.run(0.1)
    assert pair.contents(c, "gone") == "uvwxyz"
    pair.kill(b)
    pair.kill(c)  # it keeps what it has, and is away
    b.disk = VirtualDisk()
    pair.run(2.5)
    assert pair.consume(a, "gone", 3) == "uvw"
    pair.snapshots(a, 30)
    pair.start(b)
    pair.until(lambda: "big" in b.running.vhost.queues and 0 < len(pair.contents(b, "big")) < 5)
    a.running.vhost.delete_queue("gone", owner=pair)
    pair.until(lambda: b.status == "ready")
    pair.run(0.1)
    assert ends(a) == ends(b)
    pair.kill(a)
    assert pair.ask(b, "promote", limit=12)["ok"]
    pair.start(c)
    pair.until(lambda: c.status == "ready")
    assert quarantined(c) == 0 and "gone" not in c.running.vhost.queues


@pytest.mark.parametrize("how", ["at once", "after restarts"])
def test_what_one_has_put_into_quarantine_is_not_taken_for_dequeued_by_it(how: str) -> None:
    """What a forced promotion has lost, history does not know, whoever held it and gave it up: a third node
    that returns with it keeps it for people, too. Seed 130311283."""
    pair = Pair(3, authority="register")
    pair.up()
    a, b, c = pair.hosts
    pair.declare(a, "big")
    pair.run(0.1)
    pair.publish(a, "big", "0123456789")
    pair.until(lambda: pair.contents(c, "big") == "0123456789")
    pair.run(0.1)
    pair.kill(b)
    pair.kill(c)  # it keeps what it has, and is away
    b.disk = VirtualDisk()
    pair.run(2.5)
    pair.snapshots(a, 30)
    pair.start(b)
    pair.until(lambda: "big" in b.running.vhost.queues and 0 < len(pair.contents(b, "big")) < 5)
    pair.kill(a)
    assert pair.ask(b, "promote", limit=12, force_lossy=True)["ok"]
    lost = 10 - len(pair.contents(b, "big"))
    pair.start(a)
    pair.until(lambda: a.status == "ready")
    pair.run(0.1)
    assert quarantined(a) == lost and ends(a) == ends(b)
    pair.kill(b)
    assert pair.ask(a, "promote", limit=12)["ok"]
    for _ in range(2 if how == "after restarts" else 0):  # at last by a base and old segments
        pair.run(0.1)
        pair.kill(a)
        pair.start(a)
        pair.run(0.1)
        assert pair.ask(a, "promote", limit=12)["ok"]
    pair.start(c)
    pair.until(lambda: c.status == "ready")
    assert quarantined(c) == lost and pair.fingerprint(a) == pair.fingerprint(c)


@pytest.mark.parametrize("how", ["at once", "after a restart"])
def test_who_is_forced_while_it_joins_has_in_its_history_what_it_holds(how: str) -> None:
    """It was told how far the history of its primary goes, and holds more. What that stretch had besides is
    lacking: the copies that join know that, too, and whoever returns with it keeps it. Seed 130522864."""
    pair = Pair(2, authority="register")
    pair.up()
    a, b = pair.hosts
    for queue in ("big", "more"):
        pair.declare(a, queue)
    pair.publish(a, "more", "0")
    pair.run(0.1)
    pair.kill(b)
    position = pair.publish(a, "more", "123456789")
    pair.until(lambda: pair.confirmed(a, position))
    assert pair.consume(a, "more", 4) == "0123"
    pair.run(0.1)
    pair.kill(a)
    pair.start(b)
    pair.run(0.3)
    assert pair.ask(b, "promote", limit=12, force_lossy=True)["ok"]
    position = pair.publish(b, "big", "0123456789")
    pair.until(lambda: pair.confirmed(b, position))
    pair.snapshots(b, 30)
    pair.start(a)
    pair.until(lambda: 0 < len(pair.contents(a, "big")) < 5)
    pair.kill(b)
    if how == "after a restart":
        pair.kill(a)
        pair.start(a)
    pair.run(0.3)
    assert pair.ask(a, "promote", limit=12, force_lossy=True)["ok"]
    assert pair.contents(a, "more") == "456789"
    pair.start(b)
    pair.until(lambda: b.status == "ready")
    pair.run(0.1)
    assert ends(a) == ends(b) and pair.fingerprint(a) == pair.fingerprint(b)
    known = {q.uuid: q.name for q in a.running.vhost.queues.values()}
    of = {known[queue]: said for queue, (said, _) in ends(a).items()}["more"]
    first = min(of)
    assert (of[first].last, of[first].lacking) == (10, ((1, 4),))
    pair.kill(b)
    for _ in range(2):
        pair.run(0.1)
        pair.kill(a)
        pair.start(a)
        pair.run(0.1)
        assert pair.ask(a, "promote", limit=12, force_lossy=True)["ok"]
    again = {known[queue]: said for queue, (said, _) in ends(a).items()}["more"]
    assert again[first] == of[first]


def ends(host: Host) -> dict[bytes, tuple[EpochEnds, bool]]:
    return {record.queue: (record.ends, record.deleted) for record in host.running.vhosts.ends(Scope.LINK)}
