"""Geometry of the reports' pictures: panels of lines over one time axis, outages, and the state of each node.

Pure numbers, in units of the SVG's view box. A picture is drawn twice, for a wide page and for a phone,
because text that shrinks with the picture cannot be read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from understudy.report.scale import log_marks, nice, short, spell, time_ticks

WIDE, NARROW = 960, 360
RIGHT = 10
TOP = 30
AXIS = 24
"""Space for the times below the last panel."""
BAND, BAND_GAP = 22, 8
NEAREST = 14
"""Smallest distance between the marks of an axis."""
LETTER = 7.0
"""Mean width of a letter in the pictures' font."""

Value = float | None


@dataclass(slots=True, frozen=True)
class Series:
    """One line of a panel: its CSS class, its name, and a value for each time slot (None: no value)."""

    style: str
    legend: str
    values: Sequence[Value]


@dataclass(slots=True, frozen=True)
class Panel:
    """A panel to draw. `log`: durations in microseconds on a logarithmic scale."""

    title: str
    series: Sequence[Series]
    height: float
    log: bool = False
    text: Callable[[float], str] = short


@dataclass(slots=True, frozen=True)
class Box:
    x: float
    y: float
    width: float
    height: float
    style: str
    label: str
    title: str
    label_x: float = 0
    label_y: float = 0
    anchor: str = "middle"


@dataclass(slots=True, frozen=True)
class Line:
    style: str
    legend: str
    pieces: list[str]
    """The points of each polyline. Single points are in `dots`."""
    dots: list[tuple[float, float]]


@dataclass(slots=True)
class Drawn:
    """A panel with its place in the picture."""

    title: str
    top: float
    bottom: float
    grid: list[tuple[float, str]] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)


@dataclass(slots=True)
class Picture:
    width: float
    left: float
    height: float = 0
    panels: list[Drawn] = field(default_factory=list)
    times: list[tuple[float, str]] = field(default_factory=list)
    times_y: float = 0
    outages: list[Box] = field(default_factory=list)
    promotions: list[tuple[float, str]] = field(default_factory=list)
    bands: list[Box] = field(default_factory=list)
    nodes: list[tuple[float, str]] = field(default_factory=list)

    @property
    def right(self) -> float:
        return self.width - RIGHT


class Canvas:
    """Draws one picture of the time from begin_us to end_us."""

    def __init__(self, begin_us: int, end_us: int, width: int) -> None:
        self.begin, self.span = begin_us, max(end_us - begin_us, 1)
        self.picture = Picture(width, 58 if width == WIDE else 54)
        self.bottom = 0.0

    def x(self, at_us: float) -> float:
        share = min(max((at_us - self.begin) / self.span, 0.0), 1.0)
        return round(self.picture.left + share * (self.picture.right - self.picture.left), 1)

    def panel(self, panel: Panel, slot_us: int) -> None:
        """Add a panel below the others. The first slot begins at `begin_us`."""
        top = self.bottom + TOP
        drawn = Drawn(panel.title, top, top + panel.height)
        numbers = [value for series in panel.series for value in series.values if value is not None]
        y, drawn.grid = _log(drawn, numbers) if panel.log else _linear(drawn, numbers, panel.text)
        for series in panel.series:
            points = [
                None if value is None else (self.x(self.begin + (k + 0.5) * slot_us), y(value))
                for k, value in enumerate(series.values)
            ]
            drawn.lines.append(Line(series.style, series.legend, *_pieces(points)))
        self.picture.panels.append(drawn)
        self.bottom = drawn.bottom

    def times(self) -> None:
        most = 9 if self.picture.width == WIDE else 4
        ticks = time_ticks(self.begin, self.begin + self.span, most)
        self.picture.times = [(self.x(at), text) for at, text in ticks]
        self.picture.times_y = self.bottom + 17
        self.bottom += AXIS
        self.picture.height = self.bottom

    def failovers(self, failovers: Sequence[Mapping[str, Any]], *, labels: bool = True) -> None:
        """Mark promotions, and shade outages across all panels. The labels of outages are staggered."""
        top, bottom = self.picture.panels[0].top, self.picture.panels[-1].bottom
        for failover in failovers:
            self.picture.promotions.append((self.x(failover["ts_us"]), f"{failover['node']} promoted"))
            if failover["from_us"] is None or failover["to_us"] is None:
                continue
            left, right = self.x(failover["from_us"]), self.x(failover["to_us"])
            text = spell(failover["to_us"] - failover["from_us"])
            room = right + 5 + LETTER * len(text) < self.picture.right
            row = len(self.picture.outages) % 5
            self.picture.outages.append(
                Box(
                    left, top, max(right - left, 1.5), bottom - top, "outage", text if labels else "",
                    f"{text} without a confirm", right + 5 if room else left - 5, top + 13 + 15 * row,
                    "start" if room else "end",
                )
            )  # fmt: skip

    def bands(self, bands: Sequence[Mapping[str, Any]]) -> None:
        """Add a row for each node below the panels, with the node's states and epochs."""
        top = self.bottom + 8
        for place, node in enumerate(sorted({band["node"] for band in bands})):
            y = top + place * (BAND + BAND_GAP)
            self.picture.nodes.append((y + BAND * 0.68, node))
            for band in bands:
                if band["node"] == node:
                    self.picture.bands.append(self._band(band, y))
            self.bottom = y + BAND
        self.picture.height = self.bottom + 6

    def _band(self, band: Mapping[str, Any], y: float) -> Box:
        left, right = self.x(band["from_us"]), self.x(band["to_us"])
        texts = (f"{band['state']}, epoch {band['epoch']}", f"{band['state']} {band['epoch']}", band["state"])
        label = next((text for text in texts if right - left > LETTER * len(text) + 4), "")
        title = f"{band['node']}: {texts[0]}, incarnation {band['incarnation']}"
        middle = round((left + right) / 2, 1)
        return Box(left, y, max(right - left, 1.5), BAND, band["state"], label, title, middle, y + 15)


def _linear(
    drawn: Drawn, numbers: Sequence[float], text: Callable[[float], str]
) -> tuple[Callable[[float], float], list[tuple[float, str]]]:
    top = max(numbers, default=0) or 1
    step = nice(top, 5 if drawn.bottom - drawn.top > 150 else 3)
    ceiling = step * math.ceil(top / step - 1e-9)

    def y(value: float) -> float:
        return round(drawn.bottom - (drawn.bottom - drawn.top) * value / ceiling, 1)

    return y, [(y(step * k), text(step * k)) for k in range(round(ceiling / step) + 1)]


def _log(drawn: Drawn, numbers: Sequence[float]) -> tuple[Callable[[float], float], list[tuple[float, str]]]:
    marks = log_marks(numbers)
    low, high = marks[0], marks[-1]

    def y(value: float) -> float:
        share = math.log(min(max(value, low), high) / low) / math.log(high / low)
        return round(drawn.bottom - (drawn.bottom - drawn.top) * share, 1)

    grid: list[tuple[float, str]] = []
    for mark in marks:
        if not grid or grid[-1][0] - y(mark) >= NEAREST:
            grid.append((y(mark), spell(mark)))
    return y, grid


def _pieces(points: Sequence[tuple[float, float] | None]) -> tuple[list[str], list[tuple[float, float]]]:
    """Polylines between the gaps, and single points."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for point in points:
        if point is not None:
            pieces[-1].append(point)
        elif pieces[-1]:
            pieces.append([])
    lines = [" ".join(f"{x:g},{y:g}" for x, y in piece) for piece in pieces if len(piece) > 1]
    return lines, [piece[0] for piece in pieces if len(piece) == 1]


def thin(values: Sequence[Value], most: int, *, worst: bool) -> tuple[list[Value], int]:
    """At most `most` values, each the mean (or with `worst` the maximum) of a group of `values`; and the size
    of a group."""
    group = max(1, -(-len(values) // most))
    out: list[Value] = []
    for begin in range(0, len(values), group):
        known = [value for value in values[begin : begin + group] if value is not None]
        out.append((max(known) if worst else sum(known) / len(known)) if known else None)
    return out, group
