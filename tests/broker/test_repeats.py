"""One log line of a kind each second, with a count."""

from __future__ import annotations

from broker.repeats import Repeats


def test_a_kind_is_logged_once_a_second_with_its_count() -> None:
    lines: list[str] = []
    repeats = Repeats(lines.append)
    for n in range(100):
        repeats.say("a", f"refused {n}", n / 100)
    repeats.say("b", "other", 0.5)
    assert lines == ["refused 0", "other"]
    assert repeats.due == 1.0
    repeats.flush(0.99)
    assert len(lines) == 2
    repeats.flush(1.0)
    assert lines[2:] == ["refused 99 (99 of the kind in the last second)"]
    repeats.flush(2.0)
    assert repeats.due is None and len(lines) == 3
    repeats.say("a", "refused again", 2.0)
    assert lines[3:] == ["refused again"]


def test_a_few_of_a_kind_may_be_logged_each_second() -> None:
    lines: list[str] = []
    repeats = Repeats(lines.append, each=2)
    for n in range(5):
        repeats.say("a", f"open {n}", 0.0)
    repeats.flush(1.0)
    assert lines == ["open 0", "open 1", "open 4 (3 of the kind in the last second)"]
    repeats.say("a", "open 5", 1.5)
    assert lines[3:] == ["open 5"]


def test_kinds_above_the_limit_share_one() -> None:
    lines: list[str] = []
    repeats = Repeats(lines.append)
    for n in range(3000):
        repeats.say(n, f"{n}", 0.0)
    assert len(lines) == 1001
    repeats.flush(1.0)
    assert lines[1001:] == ["2999 (1,999 of the kind in the last second)"]
