"""The figures of `bench.federation` as a table in Markdown and a plot in SVG."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from bench.compare import report
from bench.compare.rows import Row

Runs = Mapping[tuple[str, str], list[float]]
"""By the names of figure and system."""
SYSTEMS = {
    "understudy": "Understudy",
    "rabbitmq": "RabbitMQ, federation",
    "rabbitmq-shovel": "RabbitMQ, shovel",
}
LINES = [
    ("transient rate", "one hop, transient: messages/s", "300,000"),
    ("transient up us", "the same: CPU us a message, upstream", ""),
    ("transient down us", "the same: CPU us a message, downstream, with delivery", "1.2"),
    ("persistent rate", "one hop, persistent: messages/s", ""),
    ("persistent up us", "the same: CPU us a message, upstream", ""),
    ("persistent down us", "the same: CPU us a message, downstream, with delivery", ""),
    ("pairs rate", "pair to pair, persistent: messages/s", "80,000"),
    ("pairs up us", "the same: CPU us a message, both brokers upstream", ""),
    ("pairs down us", "the same: CPU us a message, both brokers downstream", ""),
    ("octets 1", "octets a message on the line, 256 B, 1 subscriber", "310"),
    ("octets 10", "the same, 10 subscribers", "as for 1"),
    ("octets 1000", "the same, 1,000 subscribers", "as for 1"),
    ("far rate", "300 ms there and back: messages/s", "45,000"),
    ("far up us", "the same: CPU us a message, upstream", ""),
    ("far down us", "the same: CPU us a message, downstream, with delivery", ""),
    ("satellite connects s", "600 ms, 1 Mbit/s: seconds until the link runs", "4"),
    ("satellite share", "the same: share of the line in use, %", "90"),
    ("bindings count", "100 ms there and back: bindings", "40,000"),
    ("bindings first s", "the same: seconds until all are known upstream", "2"),
    ("bindings again s", "the same: seconds after a cut", "0.5"),
    ("outage rate", "an outage drained, beside live traffic: messages/s", "50,000"),
    ("idle octets/s", "idle link: octets/s", "40"),
]
"""Names of figures, what they are, and the goal."""
_ROWS = [Row(name, title, "") for name, title in (
    ("transient", "one hop, transient"), ("persistent", "one hop, persistent"),
    ("pairs", "pair to pair, persistent"), ("far", "300 ms there and back"),
)]  # fmt: skip
_OFFERED = {
    "understudy": "",
    "rabbitmq": "^(transient|persistent|far)$",
    "rabbitmq-shovel": "^(transient|persistent|far)$",
}
"""A pattern of the rows that the plot has for each system."""


@dataclass(slots=True, frozen=True)
class _Drawn:
    name: str
    title: str
    only: str

    def offers(self, row: Row) -> bool:
        return bool(re.search(self.only, row.name))


def table(runs: Runs) -> str:
    """A line for each figure that was measured; medians of repeats."""
    names = [name for name in SYSTEMS if any(system == name for _, system in runs)]
    lines = [f"| figure | goal | {' | '.join(SYSTEMS[name] for name in names)} |"]
    lines.append("|---|--:|" + "--:|" * len(names))
    for figure, title, goal in LINES:
        if any((figure, name) in runs for name in names):
            cells = [_cell(runs.get((figure, name))) for name in names]
            lines.append(f"| {title} | {goal or '-'} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(values: list[float] | None) -> str:
    if not values:
        return "-"
    value = median(values)
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def svg(runs: Runs, about: str) -> str:
    """Rates and CPU times of both nodes together, as those of bench.compare are drawn."""
    systems = [_Drawn(name, title, _OFFERED[name]) for name, title in SYSTEMS.items()]
    results: report.Results = {}
    for row in _ROWS:
        for system in systems:
            rate = runs.get((f"{row.name} rate", system.name))
            if rate:
                ends = [runs.get((f"{row.name} {end} us", system.name), [0.0]) for end in ("up", "down")]
                cpu = sum(median(each) for each in ends)
                results[row.name, system.name] = report.Figures(median(rate), cpu, 0, 0)
    return report.svg(_ROWS, systems, results, about)
