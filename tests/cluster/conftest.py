"""One engine, one image and one report for a whole run of cases; what went wrong to bring them up is an
error.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
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

    books: Path
    rounds: list[Round]
    confirmed: int
    resent: int
    verdict: str = "not asked"
    sentence: str = ""


@dataclass(slots=True)
class Report:
    played: dict[str, Played] = field(default_factory=dict)

    def add(self, name: str, play: Play) -> None:
        self.played[name] = Played(play.books, play.rounds, play.confirmed, play.resent)

    def lines(self) -> list[str]:
        """In Markdown."""
        found = list(table([(name, each.rounds) for name, each in self.played.items()]))
        found += ["", "| case | confirmed | sent again | verdict |", "|---|---|---|---|"]
        for name, each in self.played.items():
            found.append(f"| {name} | {each.confirmed:,} | {each.resent:,} | {each.verdict} |")
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
