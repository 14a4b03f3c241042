"""A run's memory and state over time, as an SVG without any library."""

from __future__ import annotations

from collections.abc import Sequence

WIDTH, HEIGHT, MARGIN = 720, 170, 56
COLORS = ("#1f5fa8", "#b5541c", "#2f7d4f", "#6b4a9c")

Series = tuple[str, str, list[float]]
"""title, unit, one value for each time"""


def plot(title: str, minutes: Sequence[float], series: Sequence[Series]) -> str:
    """One strip for each series, all over the same time."""
    height = HEIGHT * len(series) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
        f'font-size="12"><rect width="{WIDTH}" height="{height}" fill="#fff"/>'
        f'<text x="{MARGIN}" y="20" font-size="14">{title}</text>'
    ]
    for index, each in enumerate(series):
        parts.append(_strip(30 + index * HEIGHT, minutes, each, COLORS[index % len(COLORS)]))
    return "\n".join([*parts, "</svg>", ""])


def _strip(top: int, minutes: Sequence[float], series: Series, color: str) -> str:
    name, unit, values = series
    wide, high = WIDTH - 2 * MARGIN, HEIGHT - 60
    end, most = max(minutes, default=1) or 1, max(values, default=1) or 1
    points = " ".join(
        f"{MARGIN + at / end * wide:.1f},{top + 24 + high - value / most * high:.1f}"
        for at, value in zip(minutes, values, strict=True)
    )
    bottom = top + 24 + high
    return (
        f'<text x="{MARGIN}" y="{top + 14}" fill="{color}">{name} ({unit})</text>'
        f'<path d="M{MARGIN} {top + 24}V{bottom}H{MARGIN + wide}" fill="none" stroke="#888"/>'
        f'<text x="{MARGIN - 6}" y="{top + 30}" text-anchor="end">{most:,.0f}</text>'
        f'<text x="{MARGIN - 6}" y="{bottom}" text-anchor="end">0</text>'
        f'<text x="{MARGIN + wide}" y="{bottom + 15}" text-anchor="end">{end:,.0f} min</text>'
        f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.5"/>'
    )
