"""Geometry of the report's picture: rates over time, the outage, and what each node was. Pure numbers.

Units are those of the SVG's view box, WIDTH wide. Time runs from the first record of any writer to the last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

WIDTH, LEFT, RIGHT = 960, 56, 12
TOP, PLOT = 16, 220
BAND, BAND_GAP = 22, 8
SERIES = (("sent", "published"), ("confirmed", "confirmed"), ("received", "received"))


@dataclass(slots=True, frozen=True)
class Box:
    x: float
    y: float
    width: float
    height: float
    style: str
    label: str
    title: str


@dataclass(slots=True)
class Picture:
    height: float = 0
    plot_bottom: float = TOP + PLOT
    lines: list[tuple[str, str, str]] = field(default_factory=list)
    """Class, legend, points of a polyline."""
    rates: list[tuple[float, str]] = field(default_factory=list)
    """y and text of the horizontal grid."""
    times: list[tuple[float, str]] = field(default_factory=list)
    outages: list[Box] = field(default_factory=list)
    promotions: list[tuple[float, str]] = field(default_factory=list)
    bands: list[Box] = field(default_factory=list)
    nodes: list[tuple[float, str]] = field(default_factory=list)


def nice(limit: float, steps: int = 5) -> float:
    """A round step (1, 2 or 5 times a power of ten) so that about `steps` of them reach `limit`."""
    raw = max(limit / steps, 1e-9)
    power = math.pow(10, int(f"{raw:e}".split("e")[1]))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= raw)


def short(number: float) -> str:
    """12345 -> 12k, 0.5 -> 0.5."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= limit:
            return f"{number / limit:g}{letter}"
    return f"{number:g}"


def draw(answer: Mapping[str, Any]) -> Picture:
    """The picture of one result."""
    line = answer["timeline"]
    slot, begin = int(line["slot_us"]), int(line["start_us"])
    span = max(slot * len(line["sent"]), 1)

    def x(at_us: float) -> float:
        share = min(max((at_us - begin) / span, 0.0), 1.0)
        return round(LEFT + share * float(WIDTH - LEFT - RIGHT), 1)

    picture = Picture()
    rates = {name: [value * 1e6 / slot for value in line[name]] for name, _ in SERIES}
    top = max((max(values, default=0) for values in rates.values()), default=0) or 1
    step = nice(top)
    ceiling = step * -(-top // step)

    def y(rate: float) -> float:
        return round(TOP + PLOT * (1 - rate / ceiling), 1)

    picture.rates = [(y(step * k), short(step * k)) for k in range(int(ceiling / step) + 1)]
    for name, legend in SERIES:
        points = " ".join(f"{x(begin + (k + 0.5) * slot)},{y(rate)}" for k, rate in enumerate(rates[name]))
        picture.lines.append((name, legend, points))
    seconds = span / 1e6
    tick = nice(seconds, 8)
    picture.times = [(x(begin + k * tick * 1e6), f"{k * tick:g} s") for k in range(int(seconds / tick) + 1)]
    _outages(picture, answer["failovers"], x)
    _bands(picture, answer["nodes"], x)
    return picture


def _outages(picture: Picture, failovers: Sequence[Mapping[str, Any]], x: Callable[[float], float]) -> None:
    for failover in failovers:
        picture.promotions.append((x(failover["ts_us"]), f"{failover['node']} promoted"))
        if failover["from_us"] is not None:
            left, right = x(failover["from_us"]), x(failover["to_us"])
            text = f"{failover['outage_ms']:,.0f} ms without a confirm"
            picture.outages.append(Box(left, TOP, max(right - left, 1.5), PLOT, "outage", text, text))


def _bands(picture: Picture, bands: Sequence[Mapping[str, Any]], x: Callable[[float], float]) -> None:
    top = picture.plot_bottom + 34
    for place, node in enumerate(sorted({band["node"] for band in bands})):
        y = top + place * (BAND + BAND_GAP)
        picture.nodes.append((y + BAND * 0.68, node))
        for band in bands:
            if band["node"] == node:
                left, right = x(band["from_us"]), x(band["to_us"])
                text = f"{band['state']}, epoch {band['epoch']}"
                label = text if right - left > 7.2 * len(text) else band["state"]
                label = label if right - left > 7.2 * len(label) else ""
                picture.bands.append(
                    Box(left, y, max(right - left, 1.5), BAND, band["state"], label, f"{node}: {text}")
                )
        picture.height = y + BAND + 10
    picture.height = max(picture.height, picture.plot_bottom + 30)


def when(us: int) -> str:
    """Microseconds since 1970 as UTC text."""
    return datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
