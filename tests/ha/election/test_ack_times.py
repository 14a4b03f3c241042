"""An acknowledgement that comes late, or owes a batch, is no sign that nobody has excluded this node."""

from __future__ import annotations

from pytest import approx

from broker.model.values import FOREVER, ORIGIN, Position
from ha.core.ack_times import AckTimes

AHEAD = 5000.0
"""By so much the primary's clock is ahead."""


def sent(acks: AckTimes, *times: float, complete: bool = False, durable: Position = FOREVER) -> float:
    for now in times:
        acks.sent(now, durable, complete=complete)
    return acks.sure


def test_each_in_time_counts() -> None:
    assert sent(AckTimes(2.0, 100.0), 101.0, 102.9) == 102.9


def test_acks_after_a_late_one_count_once_the_link_has_stood_a_timeout() -> None:
    acks = AckTimes(2.0, 100.0)
    assert sent(acks, 101.0, 103.0, 104.0, 104.9) == 101.0
    assert sent(acks, 105.0) == 105.0


def test_the_oldest_batch_that_is_not_on_disk_is_what_counts() -> None:
    """By that the primary goes, however often this node says something, and whatever else is on disk."""
    acks = AckTimes(2.0, 100.0)
    acks.got(Position(1, 1), AHEAD + 100.4, 100.5)
    acks.got(Position(1, 2), AHEAD + 100.9, 101.0)
    assert sent(acks, 101.0, 101.5, durable=ORIGIN) == 100.5
    assert sent(acks, 102.0, durable=Position(1, 1)) == 101.0
    assert sent(acks, 102.9, durable=Position(1, 2)) == 102.9


def test_a_batch_that_reaches_the_disk_late_proves_nothing_for_a_timeout() -> None:
    acks = AckTimes(2.0, 100.0)
    acks.got(Position(1, 1), AHEAD + 100.4, 100.5)
    assert sent(acks, 101.0, 102.0, durable=ORIGIN) == 100.5
    assert sent(acks, 102.6, 104.5) == 100.5
    assert sent(acks, 104.6) == 104.6


def test_a_batch_that_was_on_its_way_for_long_is_owed_since_it_was_sent() -> None:
    acks = AckTimes(2.0, 100.0)
    acks.heard(AHEAD + 100.4, 100.5)
    acks.got(Position(1, 1), AHEAD + 100.5, 102.0)
    assert sent(acks, 101.0, durable=ORIGIN) == approx(100.6)
    assert sent(acks, 102.7) == approx(100.6)


def test_clocks_that_drift_apart_do_not_make_every_batch_old() -> None:
    acks = AckTimes(2.0, 0.0)
    now = 0.0
    for n in range(1, 2000):
        now = n * 1.01
        acks.got(Position(1, n), AHEAD + n, now)
        sent(acks, now, durable=Position(1, n))
    assert acks.sure == now


def test_acks_of_an_expected_backup_count_past_its_limit_once_included() -> None:
    acks = AckTimes(2.0, 100.0)
    acks.expected(5.0)
    assert sent(acks, 101.0, 102.0) == 102.0
    assert sent(acks, 103.5, 104.5) == 103.0
    assert sent(acks, 105.5, 106.5, 107.5, complete=True) == 103.0
    acks.included()
    assert acks.sure == 107.5


def test_who_is_asked_for_when_its_time_is_almost_over_is_sure_of_nothing() -> None:
    acks = AckTimes(2.0, 100.0)
    acks.expected(0.5)
    assert sent(acks, 100.1) == 98.5


def test_who_is_included_for_one_that_was_late_is_sure() -> None:
    acks = AckTimes(2.0, 100.0)
    assert sent(acks, 104.0, complete=True) == 100.0
    acks.included()
    assert acks.sure == 104.0 and sent(acks, 105.0) == 105.0


def test_an_answer_that_was_heard_late_vouches_for_nothing_since() -> None:
    """Included, and paused before that was heard: it has been excluded again, perhaps."""
    acks = AckTimes(2.0, 100.0)
    sent(acks, 101.0, complete=True)
    acks.included()
    assert sent(acks, 104.0) == 101.0
    acks = AckTimes(2.0, 100.0)
    sent(acks, 101.0, complete=True)
    assert sent(acks, 104.0, complete=True) == 101.0
    acks.included()
    assert acks.sure == 101.0
