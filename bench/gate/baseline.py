"""The figures that a run is held against, and the verdict. Figures are steps of the reference a message.

A file has a baseline for each build and version of Python: `pure-3.11`, `compiled-3.11`. Another version of
Python makes other figures, so it needs a baseline of its own. Another processor makes figures that differ
less, so it gets more tolerance.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("baseline.json")
ROWS = (
    "alike-transient", "alike-persistent", "mix-transient", "mix-persistent", "mix-connections",
    "alike-transient-1",
)  # fmt: skip
TOLERANCE = 0.35
"""How much slower than its baseline a row may be. `bench/README.md` has the noise."""
OTHER_CPU = 2.0
"""Factor of the tolerance, if the baseline is from another processor."""


class BadBaseline(Exception):
    """The file cannot be used; the text says why in one line."""


@dataclass(slots=True, frozen=True)
class Baseline:
    """Of one build. `cpu`: the processor that it was measured on."""

    rows: dict[str, float]
    cpu: str


@dataclass(slots=True, frozen=True)
class Verdict:
    """One row."""

    row: str
    was: float
    now: float
    tolerance: float

    @property
    def change(self) -> float:
        return self.now / self.was - 1

    @property
    def slower(self) -> bool:
        return self.change > self.tolerance

    def __str__(self) -> str:
        said = f"{self.now:8.2f} steps a message, baseline {self.was:8.2f}: {self.change:+6.1%}"
        return f"{self.row:18} {said} (at most {self.tolerance:+.0%})"


def load(path: Path = FILE) -> dict[str, Baseline]:
    """By build. Raises BadBaseline."""
    return {
        key: Baseline(dict(found["rows"]), found["machine"].get("cpu", ""))
        for key, found in _read(path).items()
    }


def store(path: Path, key: str, rows: Mapping[str, float], about: Mapping[str, Any]) -> None:
    """Replace the baseline of one build; those of others stay. Raises BadBaseline, OSError."""
    builds = _read(path) if path.exists() else {}
    builds[key] = {"machine": dict(about), "rows": {name: round(value, 3) for name, value in rows.items()}}
    path.write_text(json.dumps({"builds": dict(sorted(builds.items()))}, indent=1) + "\n")


def compare(was: Baseline, now: Mapping[str, float], cpu: str, tolerance: float = TOLERANCE) -> list[Verdict]:
    """One verdict for each row that was measured, on this processor."""
    most = tolerance if cpu == was.cpu else OTHER_CPU * tolerance
    return [Verdict(row, was.rows[row], figure, most) for row, figure in now.items()]


def _read(path: Path) -> dict[str, Any]:
    try:
        builds = json.loads(path.read_text())["builds"]
        for key, found in builds.items():
            _check(key, found["rows"])
            found["machine"].get("cpu")
    except OSError as error:
        raise BadBaseline(f"{path}: {error.strerror}; make one with --store") from None
    except BadBaseline as error:
        raise BadBaseline(f"{path}: {error}; make a new one with --store") from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise BadBaseline(f"{path} is not a file of baselines; remove it and make one with --store") from None
    return dict(builds)


def _check(key: str, rows: dict[str, object]) -> None:
    for row in ROWS:
        value = rows.get(row)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadBaseline(f"{key} has no figure for {row}")
        if not (value > 0 and math.isfinite(value)):
            raise BadBaseline(f"{key}: {row} is {value}, and not a positive number")
