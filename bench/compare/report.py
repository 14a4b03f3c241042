"""The results of a comparison as one table in Markdown and one plot in SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from statistics import median
from xml.sax.saxutils import escape

from bench.compare.rows import Row
from bench.compare.systems import System

COLORS = ("#d08a3e", "#1f5fa8", "#8a5a2b", "#5b9bd5")
WIDTH, NAMES, PANEL, GAP, BAR = 1160, 210, 440, 35, 13


@dataclass(slots=True, frozen=True)
class Figures:
    """One system under one load, once or as the median of its repeats. Times in microseconds."""

    rate: float
    cpu_us: float
    p50: float
    p99: float
    drain_rate: float = 0
    """With a backlog: messages a second when it is consumed; `rate` and `cpu_us` are of publishing it."""
    drain_cpu_us: float = 0
    memory: float = 0
    """Octets of resident memory a message of a backlog."""

    @classmethod
    def middle(cls, runs: Sequence[Figures]) -> Figures:
        return cls(**{each.name: median(getattr(run, each.name) for run in runs) for each in fields(cls)})


Results = dict[tuple[str, str], Figures]
"""By the names of row and system; a pair that failed or was left out is missing."""


def tables(rows: Sequence[Row], systems: Sequence[System], results: Results) -> str:
    """That of rates, and that of backlogs."""
    passing = [row for row in rows if not row.backlog]
    held = [row for row in rows if row.backlog]
    parts = [table(passing, systems, results)] if passing else []
    parts += [backlogs(held, systems, results)] if held else []
    return "\n\n".join(parts)


def backlogs(rows: Sequence[Row], systems: Sequence[System], results: Results) -> str:
    """A line for each backlog and system."""
    lines = [
        "| backlog | broker | published/s | CPU us | consumed/s | CPU us | memory, bytes a message |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        for system in systems:
            figures = results.get((row.name, system.name))
            if figures is None:
                lines.append(f"| {row.title} | {system.title} | failed | | | | |")
                continue
            lines.append(
                f"| {row.title} | {system.title} | {figures.rate:,.0f} | {figures.cpu_us:,.2f} "
                f"| {figures.drain_rate:,.0f} | {figures.drain_cpu_us:,.2f} | {figures.memory:,.0f} |"
            )
    return "\n".join(lines)


def table(rows: Sequence[Row], systems: Sequence[System], results: Results) -> str:
    """A line for each load and system. Ratios are to the system of the other maker that does the same."""
    lines = [
        "| load | broker | messages/s | ratio | CPU us a message | ratio | confirm p50 us | confirm p99 us |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        for system in systems:
            figures = results.get((row.name, system.name))
            if figures is None:
                lines.append(f"| {row.title} | {system.title} | {_absent(row, system)} | | | | | |")
                continue
            other = results.get((row.name, system.against or ""))
            cells = [
                row.title,
                system.title,
                f"{figures.rate:,.0f}",
                f"{figures.rate / other.rate:.2f}" if other else "-",
                f"{figures.cpu_us:,.2f}",
                f"{figures.cpu_us / other.cpu_us:.2f}" if other and other.cpu_us else "-",
                f"{figures.p50:,.0f}",
                f"{figures.p99:,.0f}",
            ]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def svg(rows: Sequence[Row], systems: Sequence[System], results: Results, about: str) -> str:
    """Two panels of bars on logarithmic axes: rates and CPU times, without those of backlogs."""
    rows = [row for row in rows if not row.backlog]
    names = {row.name for row in rows}
    results = {key: figures for key, figures in results.items() if key[0] in names}
    group = BAR * len(systems) + 16
    top = 74
    height = top + group * len(rows) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="sans-serif" font-size="11">',
        "<title>Messages a second and CPU time a message of RabbitMQ and Understudy</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="12" y="{height - 8}" fill="#555">{escape(about)}</text>',
    ]
    for at, system in enumerate(systems):
        x = NAMES + at * 220
        parts.append(f'<rect x="{x}" y="12" width="12" height="12" fill="{COLORS[at % len(COLORS)]}"/>')
        parts.append(f'<text x="{x + 18}" y="22">{escape(system.title)}</text>')
    for at, row in enumerate(rows):
        for line, words in enumerate(_wrapped(row.title, 34)):
            parts.append(f'<text x="12" y="{top + at * group + 12 + 13 * line}">{escape(words)}</text>')
    panels = (("messages a second: more is better", "rate"), ("CPU us a message: less is better", "cpu_us"))
    for at, (title, field) in enumerate(panels):
        left = NAMES + at * (PANEL + GAP)
        parts += _panel(left, top, group, title, field, rows, systems, results)
    return "\n".join([*parts, "</svg>", ""])


def _panel(
    left: int,
    top: int,
    group: int,
    title: str,
    field: str,
    rows: Sequence[Row],
    systems: Sequence[System],
    results: Results,
) -> list[str]:
    values = [value for figures in results.values() if (value := getattr(figures, field)) > 0] or [1.0]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    wide, bottom = PANEL - 60, top + group * len(rows) - 8
    parts = [f'<text x="{left}" y="46" font-size="13">{title}</text>']
    for power in range(low, high + 1):
        x = left + (power - low) / (high - low) * wide
        parts.append(f'<path d="M{x:.1f} {top - 6}V{bottom}" stroke="#ddd"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{top - 10}" text-anchor="middle" fill="#555">{_power(power)}</text>'
        )
    for at, row in enumerate(rows):
        for place, system in enumerate(systems):
            figures = results.get((row.name, system.name))
            y = top + at * group + BAR * place
            if figures is None or getattr(figures, field) <= 0:
                parts.append(f'<text x="{left + 4}" y="{y + 10}" fill="#a00">{_absent(row, system)}</text>')
                continue
            value = getattr(figures, field)
            length = max(1.0, (math.log10(value) - low) / (high - low) * wide)
            color = COLORS[place % len(COLORS)]
            parts.append(f'<rect x="{left}" y="{y}" width="{length:.1f}" height="{BAR - 2}" fill="{color}"/>')
            shown = f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
            parts.append(f'<text x="{left + length + 4:.1f}" y="{y + 10}">{shown}</text>')
    return parts


def _power(power: int) -> str:
    return f"{10**power:,}" if power >= 0 else f"{10.0**power:g}"


def _absent(row: Row, system: System) -> str:
    return "failed" if row.quorum or not system.quorum else "not offered"


def _wrapped(text: str, most: int) -> list[str]:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) >= most:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
