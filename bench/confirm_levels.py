"""What each level of confirms gains: `python -m bench.confirm_levels [--repeats N] [--seconds S]`.

A pair for each level of `ha.confirm`, all three at once, on this machine's disk. The loads go round, first to
another level each time, so that a disturbance falls on all alike. Persistent messages on a durable queue,
published and confirmed. The table, printed and put into bench/README.md, has medians.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench import brokers
from bench.run import Case, loads, machine
from bench.table import rewrite

LEVELS = ("all-disks", "primary-disk", "all-memory")
WINDOWS = (1, 100, 1000)
BEGIN, END = "<!-- confirm levels -->", "<!-- end of confirm levels -->"
PAPER = Path(__file__).parent / "README.md"
HEAD = [
    "| window | level | messages/s | confirm p50, p99 us | primary, backup CPU us |",
    "|--:|---|--:|--:|--:|",
]


@dataclass(slots=True, frozen=True)
class Published(Case):
    """Persistent messages that nobody consumes."""

    def options(self, seconds: float) -> list[str]:
        found = Case.options(self, seconds)
        found.remove("--consume")
        return found


def measure(options: argparse.Namespace) -> dict[tuple[int, str], list[dict[str, Any]]]:
    """Runs by window and level."""
    found: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    options.engine = "auto"
    with ExitStack() as stack:
        pairs = {
            level: stack.enter_context(brokers.pair(f"ha.confirm={level}", under=options.under))
            for level in LEVELS
        }
        for turn in range(options.repeats):
            for window in WINDOWS:
                for place in range(len(LEVELS)):
                    level = LEVELS[(turn + place) % len(LEVELS)]
                    case = Published("replicated", "persistent", window)
                    found[window, level] += loads(pairs[level], [case], options)
    return found


def table(found: dict[tuple[int, str], list[dict[str, Any]]]) -> str:
    lines = list(HEAD)
    for window in WINDOWS:
        for level in LEVELS:
            runs = found[window, level]
            rate = median(run["rate"] for run in runs)
            p50, p99 = (median(run["confirm_us"][part] for run in runs) for part in ("p50", "p99"))
            spent = [
                f"{median(run['cpu_us_per_message'][node] for run in runs):.2f}"
                for node in ("primary", "backup")
            ]
            lines.append(
                f"| {window} | `{level}` | {rate:,.0f} | {p50:,.0f}, {p99:,.0f} | {', '.join(spent)} |"
            )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.confirm_levels")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="time limit of one measured part")
    parser.add_argument("--under", type=Path, help="folder on the disk to measure; default: the usual one")
    parser.add_argument("--write", action="store_true", help="put the table into bench/README.md")
    options = parser.parse_args(argv)
    load = os.getloadavg()[0]
    try:
        told = table(measure(options))
    except brokers.BrokerError as error:
        print(f"bench.confirm_levels: {error}", file=sys.stderr)
        return 1
    about = machine()
    where = (
        f"{about['when']}, {about['cores']} cores ({about['cpu']}), a load of {load:.0f} by other processes"
    )
    told = f"{where}, median of {options.repeats}.\n\n{told}"
    print(told)
    if options.write:
        rewrite(PAPER, f"{told}\n", BEGIN, END)
    return 0


if __name__ == "__main__":
    sys.exit(main())
