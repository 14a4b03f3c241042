"""Sums over many seeds, and what they say to a reader: how fast, how full, how much was reached."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from statistics import median

from ha.core.primary.remote_backup import Phase
from tests.simulation.checkers import PENDING
from tests.simulation.harness.coverage import watching
from tests.simulation.harness.coverage.watching import Ledger
from tests.simulation.harness.runner import Outcome

OPERATIONS = "operations of clients"
JOINED = watching.phase_step(Phase.COMMITTED, Phase.IN_SYNC)
NO_FAILOVERS = frozenset({"bootstrap", "cold"})
"""Promotions when nobody was primary before, or none was left who could have been."""
EVICTED = (watching.LOSS, watching.EXCLUDED)


@dataclass(slots=True)
class Tally:
    """Add every outcome; the rest reads."""

    started: float = field(default_factory=time.monotonic)
    runs: int = 0
    failures: list[Outcome] = field(default_factory=list)
    events: int = 0
    virtual_seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    coverage: Ledger = field(default_factory=Counter)
    operations: list[int] = field(default_factory=list)
    """Of clients, one number a seed."""
    failovers: list[int] = field(default_factory=list)
    """One number a seed."""

    def add(self, outcome: Outcome) -> None:
        self.runs += 1
        self.events += outcome.events
        self.virtual_seconds += outcome.virtual_seconds
        self.counts.update(outcome.counts)
        self.coverage.update(outcome.coverage)
        self.operations.append(outcome.counts[OPERATIONS])
        self.failovers.append(failovers(outcome.coverage))
        if outcome.failure is not None:
            self.failures.append(outcome)

    @property
    def seconds(self) -> float:
        """Of the real clock, since the tally began."""
        return max(time.monotonic() - self.started, 1e-9)

    @property
    def median_operations(self) -> float:
        return median(self.operations) if self.operations else 0.0

    @property
    def median_failovers(self) -> float:
        return median(self.failovers) if self.failovers else 0.0

    def summary(self) -> list[str]:
        """The figures, one line each."""
        thousand = 1000 / max(self.runs, 1)
        per_thousand = {
            "failovers": sum(self.failovers),
            "joins": self.coverage[JOINED],
            "evictions": self.coverage[EVICTED],
        }
        lines = [f"  {many:>11,} {name}" for name, many in sorted(self.counts.items())]
        lines += [
            f"  {self.events:>11,} events in {self.virtual_seconds:,.0f} virtual seconds, "
            f"{self.events / self.seconds:,.0f} a second",
            "  per 1,000 seeds: "
            + ", ".join(f"{many * thousand:,.0f} {name}" for name, many in per_thousand.items()),
            f"  median seed: {self.median_operations:,.0f} operations of clients, "
            f"{self.median_failovers:g} failovers",
            f"  not looked into, or not played, {len(PENDING)} things: {', '.join(PENDING)}",
        ]
        return lines

    def last_line(self, first: int) -> str:
        last = first + self.runs - 1
        failures = f"{len(self.failures)} failures"
        rate = self.runs / self.seconds
        return f"simulation: {self.runs} seeds run ({first}..{last}), {failures}, {rate:.1f} seeds/s"


def failovers(ledger: Ledger) -> int:
    """How often a node took over, or took its role again, while the record named somebody who could."""
    return sum(
        many for (theme, how), many in ledger.items() if theme == watching.GRANTED and how not in NO_FAILOVERS
    )
