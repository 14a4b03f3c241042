"""One engine, one image and one report for a whole run of cases; what went wrong to bring them up is an
error.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import pytest

from tests.cluster.engine import Engine, left_over, why_not
from tests.cluster.phases import Round, table

if TYPE_CHECKING:
    from tests.cluster.play import Play

REPORT = Path(__file__).parent.parent.parent / "build" / "cluster"


@dataclass(slots=True)
class Played:
    """One case that came to its end."""

    ledgers: Path
    rounds: list[Round]
    confirmed: int
    resent: int
    target: float | None = None
    verdict: str = "not asked"
    sentence: str = ""


@dataclass(slots=True)
class Report:
    played: dict[str, Played] = field(default_factory=dict)

    def add(self, name: str, play: Play, target: float | None = None) -> None:
        self.played[name] = Played(play.ledgers, play.rounds, play.confirmed, play.resent, target)

    def lines(self) -> list[str]:
        """In Markdown."""
        found = list(table([(name, each.rounds) for name, each in self.played.items()]))
        found += ["", "| case | confirmed | sent again | verdict |", "|---|---|---|---|"]
        for name, each in self.played.items():
            found.append(f"| {name} | {each.confirmed:,} | {each.resent:,} | {each.verdict} |")
        return found + self._aims()

    def _aims(self) -> list[str]:
        """The client kit's longest time without a confirm, against what is aimed at on an idle machine."""
        found = ["", "| case | rounds | median, s | aim, s | |", "|---|---|---|---|---|"]
        for name, each in self.played.items():
            if each.target is not None:
                outages = [one.outage["orders"] for one in each.rounds]
                held = "held" if median(outages) < each.target else "missed"
                found.append(
                    f"| {name} | {len(outages)} | {median(outages):.2f} | {each.target:g} | {held} |"
                )
        return found

    def write(self) -> None:
        REPORT.mkdir(parents=True, exist_ok=True)
        (REPORT / "report.md").write_text("\n".join(self.lines()) + "\n")
        cases = {
            name: {
                "rounds": [one.as_json() for one in each.rounds], "confirmed": each.confirmed,
                "resent": each.resent, "verdict": each.verdict, "sentence": each.sentence,
            }
            for name, each in self.played.items()
        }  # fmt: skip
        (REPORT / "report.json").write_text(json.dumps(cases, indent=1) + "\n")


_REPORT = Report()


@pytest.fixture(scope="session")
def report() -> Report:
    return _REPORT


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    if reason := why_not():
        pytest.skip(reason)
    with Engine() as made:
        os.environ.update(DOCKER_HOST=made.host, TESTCONTAINERS_RYUK_DISABLED="true")
        yield made
    assert not left_over(), f"left over: {left_over()}"


@pytest.fixture(scope="session")
def image(engine: Engine) -> str:
    from tests.cluster.images import build_all

    return build_all(engine, print)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _REPORT.played:
        _REPORT.write()
        terminalreporter.section("failovers: seconds since the fault, medians")
        for line in _REPORT.lines():
            terminalreporter.write_line(line)
