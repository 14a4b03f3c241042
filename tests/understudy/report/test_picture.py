"""Axes and geometry of the pictures."""

from __future__ import annotations

import pytest

from tests.understudy.report.stored import stored
from understudy.report import run, survey
from understudy.report.picture import NARROW, WIDE, Canvas, Panel, Picture, Series, thin
from understudy.report.scale import log_marks, nice, short, spell, time_ticks

SECOND = 1_000_000
HOUR = 3600 * SECOND


@pytest.mark.parametrize("limit", [0.7, 3, 9.99, 10, 1234, 5e7])
def test_steps_are_round_and_about_as_many_as_asked(limit: float) -> None:
    step = nice(limit)
    assert f"{step:e}"[0] in "125" and 2 <= limit / step <= 5.01


def test_marks_of_durations_enclose_them_and_are_round() -> None:
    marks = log_marks([2_600.0, 2_450_000.0])
    assert [spell(mark) for mark in marks] == ["1 ms", "10 ms", "100 ms", "1 s", "10 s"]
    assert [spell(mark) for mark in log_marks([5e6, 4 * HOUR])] == [
        "1 s",
        "10 s",
        "1 min",
        "10 min",
        "1 h",
        "10 h",
    ]
    assert len(log_marks([])) == 2 and len(log_marks([0.0, 1.0])) == 2 and len(log_marks([1e15])) == 2


def test_time_is_told_in_what_fits_the_span() -> None:
    assert [text for _, text in time_ticks(5, 5 + 20 * SECOND, 4)] == ["0 s", "5 s", "10 s", "15 s", "20 s"]
    assert [text for _, text in time_ticks(0, 6 * HOUR, 4)] == ["00:00", "02:00", "04:00", "06:00"]
    month = time_ticks(0, 30 * 24 * HOUR, 9)
    assert [text for _, text in month][:3] == ["01 Jan", "05 Jan", "09 Jan"] and len(month) <= 9


def test_numbers_are_short() -> None:
    assert [short(n) for n in (0, 0.25, 950, 1500, 2e6)] == ["0", "0.25", "950", "1.5k", "2M"]


def test_a_hole_breaks_the_line_and_a_lonely_point_is_a_dot() -> None:
    canvas = Canvas(0, 6 * SECOND, WIDE)
    canvas.panel(Panel("x", [Series("p50", "half", [1.0, 2.0, None, 3.0, None, 4.0])], 100, log=True), SECOND)
    [line] = canvas.picture.panels[0].lines
    assert len(line.pieces) == 1 and len(line.dots) == 2


def test_thinning_keeps_the_worst_or_the_mean() -> None:
    values = [1.0, 9.0, None, 3.0, None, None]
    assert thin(values, 3, worst=True) == ([9.0, 3.0, None], 2)
    assert thin(values, 3, worst=False) == ([5.0, 3.0, None], 2)
    assert thin(values, 6, worst=True) == (values, 1)


def inside(picture: Picture) -> None:
    boxes = [*picture.outages, *picture.bands]
    xs = [box.x for box in boxes] + [box.x + box.width for box in boxes]
    for panel in picture.panels:
        for line in panel.lines:
            points = [tuple(map(float, point.split(","))) for piece in line.pieces for point in piece.split()]
            assert all(panel.top - 0.1 <= y <= panel.bottom + 0.1 for _, y in [*points, *line.dots])
            xs += [x for x, _ in [*points, *line.dots]]
    assert xs and min(xs) >= 0 and max(xs) <= picture.width
    assert picture.height >= max([box.y + box.height for box in boxes] or [0])
    for above, below in zip(picture.panels, picture.panels[1:], strict=False):
        assert above.bottom < below.top


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("name", ["proven", "violated", "not-provable"])
def test_everything_of_a_run_is_inside_its_picture(name: str, width: int) -> None:
    inside(run.draw(stored(name), width))


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_everything_of_a_survey_is_inside_its_picture(width: int) -> None:
    inside(survey.draw(stored("days"), width))


def test_labels_of_outages_near_each_other_stand_below_each_other() -> None:
    canvas = Canvas(0, 100 * SECOND, WIDE)
    canvas.panel(Panel("x", [Series("sent", "sent", [1.0])], 100), SECOND)
    fails = [
        {"ts_us": at * SECOND, "node": "b", "from_us": at * SECOND, "to_us": (at + 1) * SECOND}
        for at in (10, 11, 99)
    ]
    canvas.failovers(fails)
    first, second, last = canvas.picture.outages
    assert first.label_y < second.label_y
    assert (first.anchor, last.anchor) == ("start", "end"), "no label leaves the picture"
    assert {box.label for box in canvas.picture.outages} == {"1 s"}
