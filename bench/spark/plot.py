"""CPU seconds over numbers of ids, both on logarithmic axes, as a small SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

Point = tuple[float, float]
WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 60, 610, 32, 315
COLORS = ("#1f5fa8", "#b3541e", "#3b7d3b")


def svg(series: Mapping[str, Sequence[Point]]) -> str:
    """A line for each series of (ids, CPU seconds), which must all be positive."""
    every = [point for points in series.values() for point in points]
    x_low, x_high = _decades([x for x, _ in every])
    y_low, y_high = _decades([y for _, y in every])

    def place(x: float, y: float) -> tuple[float, float]:
        along = (math.log10(x) - x_low) / (x_high - x_low)
        up = (math.log10(y) - y_low) / (y_high - y_low)
        return LEFT + along * (RIGHT - LEFT), BOTTOM - up * (BOTTOM - TOP)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'font-family="system-ui, sans-serif" font-size="12">',
        "<title>CPU seconds of the reconciling job over the number of ids</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
    ]
    for power in range(x_low, x_high + 1):
        x, _ = place(10**power, 10**y_low)
        parts.append(f'<path d="M{x:.1f} {TOP}V{BOTTOM}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{BOTTOM + 16}" text-anchor="middle">{_amount(10**power)}</text>')
    for power in range(y_low, y_high + 1):
        _, y = place(10**x_low, 10**power)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{10**power:g}</text>')
    parts.append(f'<text x="{RIGHT}" y="{HEIGHT - 12}" text-anchor="end">ids</text>')
    parts.append(f'<text x="14" y="{TOP - 14}">CPU s</text>')
    for place_, ((name, points), color) in enumerate(zip(series.items(), COLORS, strict=False)):
        at = [place(*point) for point in sorted(points)]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in at)
        parts.append(f'<path d="M{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{color}"/>' for x, y in at]
        parts.append(f'<text x="{LEFT + 14}" y="{TOP + 18 + 16 * place_}" fill="{color}">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _decades(values: Sequence[float]) -> tuple[int, int]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _amount(number: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:g} {unit}"
    return f"{number:g}"
