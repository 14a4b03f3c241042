"""An acknowledgement that comes late is no sign that the primary has not excluded this node before."""

from __future__ import annotations

from ha.core.ack_times import AckTimes


def sent(acks: AckTimes, *times: float, complete: bool = False) -> float:
    for now in times:
        acks.sent(now, counts=True, complete=complete)
    return acks.sure


def test_each_in_time_counts() -> None:
    assert sent(AckTimes(2.0, 100.0), 101.0, 102.9) == 102.9


def test_none_counts_after_one_that_was_late_until_the_link_has_stood_as_long() -> None:
    acks = AckTimes(2.0, 100.0)
    assert sent(acks, 101.0, 103.0, 104.0, 104.9) == 101.0
    assert sent(acks, 105.0) == 105.0


def test_one_of_a_disk_that_stands_still_does_not_count() -> None:
    acks = AckTimes(2.0, 100.0)
    acks.sent(101.0, counts=False, complete=False)
    assert acks.sure == 100.0 and sent(acks, 102.0) == 100.0


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
    acks.sent(101.0, counts=False, complete=True)
    assert sent(acks, 104.0, complete=True) == 100.0
    acks.included()
    assert acks.sure == 100.0
