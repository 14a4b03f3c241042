"""The table of a steady run, and its histograms as an SVG without any library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from bench.steady.histogram import EDGES, Histogram, names

GOAL_MS = 20.0
WIDTH, PANEL, LEFT, BAR = 780, 190, 76, 30
COLORS = ("#9db7d5", "#1f5fa8")
_ONE = 0.15
"""Decades below 1, so that a single wait can be seen."""


@dataclass(slots=True)
class Run:
    """One system under its load. `rate`, `most`: messages a second. `scrape_ms`: the longest."""

    title: str
    seconds: float
    rate: float
    most: float
    behind_ms: float
    scrapes: int
    scrape_ms: float
    pauses: Histogram

    @property
    def met(self) -> bool:
        return self.pauses.longest_own <= GOAL_MS


def table(runs: Sequence[Run]) -> str:
    """A column for each system."""
    lines = ["| | " + " | ".join(run.title for run in runs) + " |", "|---|" + "--:|" * len(runs)]

    def line(name: str, cells: list[str]) -> None:
        lines.append(f"| {name} | " + " | ".join(cells) + " |")

    line("seconds", [f"{run.seconds:,.0f}" for run in runs])
    line("messages a second, in and out", [f"{run.rate:,.0f} of {run.most:,.0f}" for run in runs])
    line("waits", [f"{run.pauses.count:,}" for run in runs])
    for at, name in enumerate(names()):
        line(
            f"{name} ms (with the lack of cores)",
            [f"{run.pauses.own[at]:,} ({run.pauses.waits[at]:,})" for run in runs],
        )
    for share, name in ((0.5, "p50"), (0.99, "p99"), (0.999, "p99.9")):
        line(f"{name} ms", [f"{run.pauses.quantile(share):.2f}" for run in runs])
    line("longest ms", [f"{run.pauses.longest_own:.1f} ({run.pauses.longest:.1f})" for run in runs])
    line("scrapes, longest ms", [f"{run.scrapes:,}, {run.scrape_ms:.0f}" for run in runs])
    line("publisher behind its rate, most ms", [f"{run.behind_ms:.0f}" for run in runs])
    return "\n".join(lines)


def long_waits(run: Run, most: int = 20) -> str:
    """The longest ones, a line each."""
    worst = sorted(run.pauses.long, key=lambda wait: -wait.own)[:most]
    return "\n".join(
        f"{run.title}: at {wait.at:7.2f} s {wait.ms:6.1f} ms, without a core {wait.lacked:6.1f}, "
        f"probe late {wait.late:6.1f}, its own {wait.own:6.1f}, CPU {wait.ran:6.1f}; "
        f"other threads: CPU {wait.others_ran:6.1f}, "
        f"without a core {wait.others_lacked:6.1f}"
        for wait in sorted(worst, key=lambda wait: wait.at)
    )


def svg(runs: Sequence[Run], about: str) -> str:
    """A panel for each system: how many waits were so long, on a logarithmic axis."""
    height = PANEL * len(runs) + 66
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="sans-serif" font-size="11">',
        "<title>Pauses of the event loop under a steady load</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="12" y="{height - 8}" fill="#555">{escape(about)}</text>',
    ]
    for at, words in enumerate(("the whole wait", "without the lack of cores")):
        x = LEFT + at * 190
        parts.append(f'<rect x="{x}" y="10" width="12" height="12" fill="{COLORS[at]}"/>')
        parts.append(f'<text x="{x + 18}" y="20">{words}</text>')
    for at, run in enumerate(runs):
        parts += _panel(34 + at * PANEL, run)
    return "\n".join([*parts, "</svg>", ""])


def _panel(top: int, run: Run) -> list[str]:
    bottom, high = top + PANEL - 34, PANEL - 64
    decades = max(1, math.ceil(math.log10(max(*run.pauses.waits, *run.pauses.own, 10))))
    parts = [f'<text x="{LEFT}" y="{top + 14}" font-size="13">{escape(run.title)}, '
             f"{run.rate:,.0f} messages a second</text>"]  # fmt: skip
    for power in range(decades + 1):
        y = bottom - high * (power + _ONE) / (decades + _ONE)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - 16}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{10**power:,}</text>')
    each = (WIDTH - LEFT - 20) / len(names())
    goal = LEFT + 4 + each * (EDGES.index(GOAL_MS) + 1) - 4
    parts.append(f'<path d="M{goal:.1f} {bottom - high}V{bottom}" stroke="#a00" stroke-dasharray="4 3"/>')
    for at, name in enumerate(names()):
        x = LEFT + 4 + each * at
        for place, counts in enumerate((run.pauses.waits, run.pauses.own)):
            tall = high * (math.log10(counts[at]) + _ONE) / (decades + _ONE) if counts[at] else 0.0
            parts.append(
                f'<rect x="{x + place * BAR:.1f}" y="{bottom - tall:.1f}" width="{BAR - 2}" '
                f'height="{tall:.1f}" fill="{COLORS[place]}"/>'
            )
        parts.append(f'<text x="{x + BAR:.1f}" y="{bottom + 14}" text-anchor="middle">{name} ms</text>')
    return parts
