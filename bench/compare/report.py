"""The results of a comparison as tables in Markdown and one plot in SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from statistics import median
from typing import Any, Protocol
from xml.sax.saxutils import escape

from bench.compare.rows import Row
from bench.compare.systems import COMPARED, MODULES, System

COLORS = {
    "rabbitmq": "#d08a3e",
    "understudy": "#1f5fa8",
    "rabbitmq-quorum": "#8a5a2b",
    "understudy-pair": "#5b9bd5",
    "understudy-pure": "#7d8b99",
    "understudy-pair-pure": "#b9c4ce",
    "rabbitmq-shovel": "#8a5a2b",
}
WIDTH, NAMES, PANEL, GAP, BAR = 1240, 230, 470, 35, 13


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
    link: float = 0
    """Octets a message from the loaded node to the others."""

    @classmethod
    def middle(cls, runs: Sequence[Figures]) -> Figures:
        return cls(**{each.name: median(getattr(run, each.name) for run in runs) for each in fields(cls)})


Results = dict[tuple[str, str], Figures]
"""By the names of row and system; a pair that failed or was left out is missing."""


class Shown(Protocol):
    """A system as the plot shows it."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def only(self) -> str: ...
    def offers(self, row: Row) -> bool: ...


def plain(runs: dict[tuple[str, str], list[Figures]]) -> list[dict[str, Any]]:
    """All runs, for a file of JSON."""
    return [
        {"load": load, "system": system, "repeat": at, **asdict(figures)}
        for (load, system), every in runs.items()
        for at, figures in enumerate(every)
    ]


def tables(rows: Sequence[Row], systems: Sequence[System], results: Results) -> str:
    """One for each two systems that do the same, then of modules, of the link, and of backlogs."""
    passing = [row for row in rows if not row.backlog and not row.link]
    named = {system.name: system for system in systems}
    parts = []
    for theirs, ours in COMPARED:
        two = [named[name] for name in (theirs, ours) if name in named]
        if two and passing:
            heading = " and ".join(system.title for system in two)
            parts += [f"**{heading}**", table(passing, two, results)]
    if any(name in named for name, _ in MODULES) and (mixed := _offered(passing, named, MODULES[0][0])):
        parts += ["**Pure and compiled modules**", compiled(mixed, named, results)]
    if (linked := [row for row in rows if row.link]) and any(system.replicated for system in systems):
        parts += ["**Octets between the nodes, published and not consumed**", links(linked, systems, results)]
    if held := [row for row in rows if row.backlog]:
        parts += ["**Backlogs, on fresh brokers, once**", backlogs(held, systems, results)]
    return "\n\n".join(parts)


def _offered(rows: Sequence[Row], named: dict[str, System], name: str) -> list[Row]:
    return [row for row in rows if name not in named or named[name].offers(row)]


def table(rows: Sequence[Row], two: Sequence[System], results: Results) -> str:
    """A line for each load; with two systems their ratios, of the second to the first."""
    cells = ["load"]
    for what, ratio in (("messages/s", True), ("CPU us", True), ("p50 / p99 us", False)):
        cells += [f"{_short(system)}: {what}" for system in two]
        cells += ["ratio"] if ratio and len(two) == 2 else []
    lines = [_line(cells), "|---|" + "--:|" * (len(cells) - 1)]
    for row in rows:
        found = [results.get((row.name, system.name)) for system in two]
        cells = [row.title]
        for name in ("rate", "cpu_us"):
            cells += [
                _number(getattr(figures, name)) if figures else _absent(row, system)
                for figures, system in zip(found, two, strict=True)
            ]
            if len(two) == 2:
                cells.append(_ratio(found[1], found[0], name))
        cells += [f"{figures.p50:,.0f} / {figures.p99:,.0f}" if figures else "" for figures in found]
        lines.append(_line(cells))
    return "\n".join(lines)


def compiled(rows: Sequence[Row], named: dict[str, System], results: Results) -> str:
    """A line for each load and kind of broker."""
    lines = [
        _line(
            ["load", "broker", "messages/s, pure", "compiled", "ratio", "CPU us, pure", "compiled", "ratio"]
        ),
        "|---|---|" + "--:|" * 6,
    ]
    for row in rows:
        for before, after in MODULES:
            if before not in named or after not in named:
                continue
            one, other = results.get((row.name, before)), results.get((row.name, after))
            cells = [row.title, named[after].title]
            for name in ("rate", "cpu_us"):
                cells += [_number(getattr(each, name)) if each else "failed" for each in (one, other)]
                cells.append(_ratio(other, one, name))
            lines.append(_line(cells))
    return "\n".join(lines)


def links(rows: Sequence[Row], systems: Sequence[System], results: Results) -> str:
    """A line for each load and replicated system. Ratios are to one copy."""
    lines = [
        _line(["load", "broker", "octets a message", "to one queue", "messages/s", "CPU us"]),
        "|---|---|--:|--:|--:|--:|",
    ]
    for row in rows:
        for system in systems:
            if not system.offers(row):
                continue
            figures, one = (results.get((name, system.name)) for name in (row.name, row.link))
            if figures is None:
                lines.append(_line([row.title, system.title, "failed", "", "", ""]))
                continue
            cells = [row.title, system.title, f"{figures.link:,.0f}", _ratio(figures, one, "link")]
            lines.append(_line([*cells, _number(figures.rate), _number(figures.cpu_us)]))
    return "\n".join(lines)


def backlogs(rows: Sequence[Row], systems: Sequence[System], results: Results) -> str:
    """A line for each backlog and system."""
    names = ["backlog", "broker", "published/s", "CPU us", "consumed/s", "CPU us", "memory, bytes a message"]
    lines = [_line(names), "|---|---|--:|--:|--:|--:|--:|"]
    for row in rows:
        for system in systems:
            if not system.offers(row):
                continue
            figures = results.get((row.name, system.name))
            if figures is None:
                lines.append(_line([row.title, system.title, "failed", "", "", "", ""]))
                continue
            values = (figures.rate, figures.cpu_us, figures.drain_rate, figures.drain_cpu_us, figures.memory)
            lines.append(_line([row.title, system.title, *map(_number, values)]))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _short(system: System) -> str:
    return system.title.split(",")[0]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _ratio(one: Figures | None, other: Figures | None, name: str) -> str:
    below = getattr(other, name) if other else 0
    return f"{getattr(one, name) / below:.2f}" if one and below else "-"


def _absent(row: Row, system: Shown) -> str:
    return "failed" if system.offers(row) else "not offered"


def svg(rows: Sequence[Row], systems: Sequence[Shown], results: Results, about: str) -> str:
    """Two panels of bars on logarithmic axes: rates and CPU times, without those of backlogs and links."""
    rows = [row for row in rows if not row.backlog and not row.link]
    names = {row.name for row in rows}
    results = {key: figures for key, figures in results.items() if key[0] in names}
    tops, top = [], 74
    for row in rows:
        tops.append(top)
        top += max(2, sum(_shown(row, system) for system in systems)) * BAR + 14
    height = top + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="sans-serif" font-size="11">',
        "<title>Messages a second and CPU time a message of RabbitMQ and Understudy</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="12" y="{height - 8}" fill="#555">{escape(about)}</text>',
    ]
    for at, system in enumerate(systems):
        x = 12 + at * (WIDTH - 20) // max(4, len(systems))
        parts.append(f'<rect x="{x}" y="12" width="12" height="12" fill="{COLORS[system.name]}"/>')
        parts.append(f'<text x="{x + 18}" y="22">{escape(system.title)}</text>')
    for row, y in zip(rows, tops, strict=True):
        for line, words in enumerate(_wrapped(row.title, 34)):
            parts.append(f'<text x="12" y="{y + 11 + 13 * line}">{escape(words)}</text>')
    panels = (("messages a second: more is better", "rate"), ("CPU us a message: less is better", "cpu_us"))
    for at, (title, field) in enumerate(panels):
        left = NAMES + at * (PANEL + GAP)
        parts.append(f'<text x="{left}" y="46" font-size="13">{title}</text>')
        parts += _panel(left, top - 10, field, rows, tops, systems, results)
    return "\n".join([*parts, "</svg>", ""])


def _shown(row: Row, system: Shown) -> bool:
    """Whether a bar, or a word in its place, is due."""
    return system.offers(row) or not system.only


def _panel(
    left: int,
    bottom: int,
    field: str,
    rows: Sequence[Row],
    tops: Sequence[int],
    systems: Sequence[Shown],
    results: Results,
) -> list[str]:
    values = [value for figures in results.values() if (value := getattr(figures, field)) > 0] or [1.0]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    wide = PANEL - 60
    parts = []
    for power in range(low, high + 1):
        x = left + (power - low) / (high - low) * wide
        parts.append(f'<path d="M{x:.1f} 68V{bottom}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="64" text-anchor="middle" fill="#555">{_power(power)}</text>')
    for row, top in zip(rows, tops, strict=True):
        y = top
        for system in systems:
            if not _shown(row, system):
                continue
            figures = results.get((row.name, system.name))
            if figures is None or getattr(figures, field) <= 0:
                parts.append(f'<text x="{left + 4}" y="{y + 10}" fill="#a00">{_absent(row, system)}</text>')
            else:
                value = getattr(figures, field)
                length = max(1.0, (math.log10(value) - low) / (high - low) * wide)
                color = COLORS[system.name]
                parts.append(
                    f'<rect x="{left}" y="{y}" width="{length:.1f}" height="{BAR - 2}" fill="{color}"/>'
                )
                parts.append(f'<text x="{left + length + 4:.1f}" y="{y + 10}">{_number(value)}</text>')
            y += BAR
    return parts


def _power(power: int) -> str:
    return f"{10**power:,}" if power >= 0 else f"{10.0**power:g}"


def _wrapped(text: str, most: int) -> list[str]:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) >= most:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
