"""Without an authority that arbitrates: an exclusion of which its backup, or the next primary, never heard.

What was confirmed after it must not be lost by a promotion that nobody forced (invariants 1, 3, 11).
"""

from __future__ import annotations

from ha.core import codes
from tests.ha.pair import Host, Pair


def three() -> tuple[Pair, Host, Host, Host]:
    pair = Pair(3)
    pair.up()
    a, b, c = pair.hosts
    for queue in ("old", "new"):
        pair.declare(a, queue)
    pair.publish(a, "old", "xyz")
    return pair, a, b, c


def test_an_expected_member_that_answers_is_still_excluded_in_time() -> None:
    """It has much to fetch, and acknowledges all the time; the word of its exclusion is lost with b."""
    pair, a, b, c = three()
    pair.run(0.5)
    pair.kill(a)
    assert pair.ask(b, "promote")["ok"]
    begun = pair.now
    pair.snapshots(b, 1)
    pair.publish(b, "new", "0123456789" * 200)
    pair.until(lambda: c.status == "catch-up")
    pair.until(lambda: pair.now - begun > 4.98)
    pair.hold(b, c, 100)
    position = pair.publish(b, "new", "Z")
    pair.until(lambda: pair.confirmed(b, position))
    pair.run(0.02)
    pair.kill(b)
    pair.run(0.1)
    answer = pair.ask(c, "promote", limit=12)
    assert not answer["ok"] and "the last acknowledgement in time to b" in answer["reason"], answer


def test_an_expected_member_that_is_included_anew_is_sure_again() -> None:
    pair, a, b, c = three()
    pair.run(0.5)
    pair.kill(a)
    assert pair.ask(b, "promote")["ok"]
    pair.until(lambda: c.status == "ready")
    position = pair.publish(b, "new", "Z")
    pair.until(lambda: pair.confirmed(b, position))
    pair.run(10.0)
    pair.kill(b)
    pair.run(0.1)
    assert pair.ask(c, "promote", limit=12)["ok"]
    assert pair.contents(c, "new") == "Z"


def test_a_disk_that_is_too_slow_although_it_goes_on() -> None:
    """b syncs, and acknowledges, one batch after the other, each later than it may."""
    pair = Pair(2)
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.run(3.0)
    b.syncing = False
    pair.publish(a, "q", "1")
    pair.run(0.03)
    b.sync.write()
    pair.publish(a, "q", "2")
    pair.run(1.4)
    b.sync.sync()
    b.sync.write()
    pair.run(0.58)
    pair.hold(a, b, 0)
    position = pair.publish(a, "q", "3")
    pair.until(lambda: pair.confirmed(a, position))
    pair.kill(a)
    pair.run(0.05)
    b.syncing = True
    answer = pair.ask(b, "promote", limit=12)
    assert not answer["ok"] and "the last acknowledgement in time to a" in answer["reason"], answer


def test_confirms_wait_until_the_backups_know_of_an_exclusion() -> None:
    """b would expect c, which is not told that it was excluded, and could be promoted after b."""
    pair, a, b, c = three()
    pair.run(3.0)
    pair.hold(a, c)
    position = pair.publish(a, "old", "u")
    pair.run(1.2)
    pair.hold(a, b)
    excluded = codes.BACKUP_EXCLUDED.say(backup="c", why="no acknowledgement for 2 s")
    pair.until(lambda: excluded in a.said)
    pair.run(0.2)
    assert not pair.confirmed(a, position)
    pair.heal()
    pair.until(lambda: pair.confirmed(a, position))
    assert b.running.core.record is not None
    assert c.running.core.record is not None
    assert b.running.core.record.version >= a.running.core.record.version  # type: ignore[union-attr]
