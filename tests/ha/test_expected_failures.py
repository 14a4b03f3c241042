"""What runs today and is wrong: strict expected failures, so that whoever mends one must take its mark off.

Only `AssertionError` counts; what merely sets the scene fails in another way.
"""

from __future__ import annotations

import pytest

from tests.ha.pair import Host, Pair


def must(condition: bool) -> None:
    """The scene is not as it should be: no failure that is expected."""
    if not condition:
        raise RuntimeError("the scene is not set")


def quarantined(host: Host) -> int:
    return int(host.running.status()["quarantined"])


def rejoin(pair: Pair, host: Host, other: Host) -> None:
    pair.start(host)
    pair.until(lambda: host.status == "ready")
    must(pair.fingerprint(host) == pair.fingerprint(other))


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="a deleted queue leaves no tombstone (15)")
def test_what_history_deleted_with_its_queue_is_dropped_silently() -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.publish(a, "q", "abc")
    pair.run(0.2)
    pair.kill(b)
    a.running.vhost.delete_queue("q", owner=pair)
    pair.run(0.2)
    rejoin(pair, b, a)
    assert quarantined(b) == 0


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="the last sequence of an emptied epoch is forgotten (15)"
)
def test_what_history_dequeued_before_two_restarts_is_dropped_silently() -> None:
    """A start compacts the store: of an epoch without messages nothing is left. The second knows nothing."""
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.publish(a, "q", "abc")
    pair.run(0.2)
    pair.kill(b)
    must(pair.consume(a, "q", 3) == "abc")
    pair.run(2.5)
    for _ in range(2):
        pair.kill(a)
        pair.start(a)
        pair.run(0.3)
    must(bool(pair.ask(a, "promote")["ok"]))
    rejoin(pair, b, a)
    assert quarantined(b) == 0


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="the end of an epoch is one number, not a set of ids (15)"
)
def test_what_a_forced_heir_lacks_in_the_middle_is_exported_by_the_old_primary() -> None:
    """b is cut off with the first messages of a queue, and with a live one that came down the stream before
    the rest; forced, it serves those. a has confirmed all: what b lacks must not vanish unexported.
    """
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.kill(b)
    for letter in "abcdefghijkl":
        pair.publish(a, "q", letter)
    pair.run(2.5)
    pair.snapshots(a, 1)
    pair.start(b)
    pair.until(lambda: b.status == "catch-up")
    pair.publish(a, "q", "x")
    pair.until(lambda: "x" in pair.contents(b, "q"))
    pair.separate(a, b, reset=True)
    must(bool(pair.ask(b, "promote", force_lossy=True)["ok"]))
    half = pair.contents(b, "q")
    must("l" not in half and "x" in half)
    pair.run(0.1)
    pair.heal()
    pair.until(lambda: a.status == "ready")
    must(pair.contents(a, "q") == half)
    assert quarantined(a) == len(set("abcdefghijklx") - set(half))
