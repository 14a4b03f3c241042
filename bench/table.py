"""Results as a table for people, and its place in bench/README.md."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

BEGIN, END = "<!-- results -->", "<!-- end of results -->"
HEAD = [
    "| brokers | load | window | messages/s | primary CPU us | backup CPU us | generator CPU us "
    "| confirm p50 us | confirm p99 us |",
    "|---|---|--:|--:|--:|--:|--:|--:|--:|",
]
LOADS = {
    "publish": "publish, confirm",
    "deliver": "publish, confirm, deliver, ack",
    "message-ids": "the same, each with its own message-id",
    "persistent": "the same, persistent and durable",
}


def table(results: dict[str, Any]) -> str:
    """The medians of all repeats, a row for each case."""
    about = results["machine"]
    lines = [
        f"{about['when']}: {about['cores']} cores ({about['cpu']}), CPython {about['python']}, "
        f"median of {results['repeats']} interleaved repeats, each at most {results['seconds']:g} s.",
        "",
        *HEAD,
    ]
    cases: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for run in results["runs"]:
        cases[run["case"]].append(run)
    lines += [row(runs) for runs in cases.values()]
    return "\n".join(lines)


def row(runs: list[dict[str, Any]]) -> str:
    first = runs[0]

    def middle(read: Any) -> float:
        return float(median(read(run) for run in runs))

    primary = "alone" if first["mode"] == "alone" else "primary"
    backup = "-"
    if first["mode"] != "alone":
        backup = f"{middle(lambda run: run['cpu_us_per_message']['backup']):.2f}"
    cells = [
        first["mode"],
        LOADS[first["load"]],
        f"{first['window']:,}",
        f"{middle(lambda run: run['rate']):,.0f}",
        f"{middle(lambda run: run['cpu_us_per_message'][primary]):.2f}",
        backup,
        f"{middle(lambda run: run['generator_cpu_us_per_message']):.2f}",
        f"{middle(lambda run: run['confirm_us']['p50']):,.0f}",
        f"{middle(lambda run: run['confirm_us']['p99']):,.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


def rewrite(paper: Path, text: str, begin: str = BEGIN, end: str = END) -> None:
    """Put the table between its marks."""
    before, _, rest = paper.read_text().partition(begin)
    after = rest.partition(end)[2]
    paper.write_text(f"{before}{begin}\n{text}\n{end}{after}")
