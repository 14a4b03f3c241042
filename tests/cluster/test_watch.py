"""The lab's own judgement: two nodes that serve at a time are found, and nothing else is taken for it."""

from __future__ import annotations

from tests.cluster.phases import Round, table
from tests.cluster.watch import Sample, overlaps


def samples(
    name: str, begin: float, end: float, status: str = "active", epoch: int = 1, withheld: bool = False
) -> list[Sample]:
    """An answer every tenth of a second."""
    times = [begin + each / 10 for each in range(round((end - begin) * 10) + 1)]
    return [Sample(at, at + 0.01, name, status, epoch, 1, withheld) for at in times]


def test_two_that_serve_at_a_time_are_found() -> None:
    a, b = samples("a", 0, 5), samples("b", 4.5, 9, epoch=2)
    ((one, two), *_rest) = overlaps([a, b])
    assert {one.name, two.name} == {"a", "b"}
    assert overlaps([b, a]), "in whatever order they are given"


def test_one_inside_the_other_is_found() -> None:
    assert overlaps([samples("a", 0, 9), samples("b", 4, 5, epoch=2)])


def test_one_after_the_other_is_no_overlap() -> None:
    assert not overlaps([samples("a", 0, 5), samples("b", 5.2, 9, epoch=2)])


def test_who_withholds_or_follows_does_not_serve() -> None:
    served = samples("b", 0, 9, epoch=2)
    assert not overlaps([samples("a", 0, 9, withheld=True), served])
    assert not overlaps([samples("a", 0, 9, status="ready"), served])


def test_silence_is_not_taken_for_service() -> None:
    frozen = samples("a", 0, 1) + samples("a", 9, 9.05)
    assert not overlaps([frozen, samples("b", 3, 8, epoch=2)])


def test_the_table_has_medians_and_says_nothing_of_what_did_not_happen() -> None:
    rounds = [
        Round("kill", 0.0, {}, {"confirmed": each}, outage={"orders": each}) for each in (1.0, 2.0, 6.0)
    ]
    row = list(table([("case", rounds)]))[-1]
    assert row == "| case: kill | 3 |  |  |  |  |  | 2.00 |  | 2.00 |  |  |"
