"""A backup that is stopped on purpose says so: its primary excludes it at once, and its clients wait for
nothing (invariant 3: the exclusion is committed first all the same).
"""

from __future__ import annotations

import pytest

from ha.core import codes
from ha.core.wire.link import Method
from tests.ha.pair import STEP, Host, Pair


def stop(pair: Pair, host: Host) -> None:
    """As a signal to the process does: its last words leave, then its connections close."""
    host.running.stop(pair.now)
    pair.run(2 * STEP)
    pair.kill(host, keep=True)


@pytest.mark.parametrize("authority", ["manual", "register"])
def test_a_backup_that_is_stopped_is_not_waited_for(authority: str) -> None:
    pair = Pair(authority=authority)
    a, b = pair.hosts
    pair.up()
    pair.declare(a, "q")
    stop(pair, b)
    pair.run(0.1)
    assert a.running.core.record is not None and not a.running.core.record.in_sync
    assert codes.BACKUP_EXCLUDED.say(backup="b", why="it has stopped") in a.said
    position = pair.publish(a, "q", "x")
    pair.run(0.1)
    assert pair.confirmed(a, position)


def test_one_that_is_killed_still_is() -> None:
    pair = Pair()
    a, b = pair.hosts
    pair.up()
    pair.kill(b)
    pair.run(1.0)
    assert a.running.core.record is not None and a.running.core.record.in_sync


def test_one_that_has_stopped_comes_back_as_any_other() -> None:
    pair = Pair()
    b = pair[1]
    pair.up()
    stop(pair, b)
    pair.run(0.1)
    pair.start(b)
    pair.until(lambda: b.status == "ready")


def test_with_the_policy_block_confirms_wait_for_a_backup_all_the_same() -> None:
    pair = Pair(on_backup_loss="block")
    a, b = pair.hosts
    pair.up()
    pair.declare(a, "q")
    stop(pair, b)
    position = pair.publish(a, "q", "x")
    pair.run(3.0)
    assert not pair.confirmed(a, position)


def test_a_farewell_of_a_stranger_is_nothing() -> None:
    pair = Pair()
    a, b = pair.hosts
    pair.up()
    before = a.running.core.record
    for peer in (12345, *a.running.core.peers.dialed):
        a.running.core.method(peer, Method.FAREWELL, b"", pair.now)
    pair.run(0.1)
    assert a.status == "active" and b.status == "ready"
    assert a.running.core.record == before
