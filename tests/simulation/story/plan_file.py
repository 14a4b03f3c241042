"""A plan as a file: what a shrunk failure is replayed from, since no seed gives it any more.

JSON with the plan, what it came to, and at which commit. Reading checks every field and its type.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from tests.simulation.harness.plan import Plan

FORMAT = 1
_PLAN = TypeAdapter(Plan)


class BadPlan(Exception):
    """A file that is no plan; the text names it and what is wrong."""


@dataclass(slots=True, frozen=True)
class PlanFile:
    """`failure` and `trace_hash`: of the run it was written for; a replay must come to the same."""

    plan: Plan
    failure: str | None
    trace_hash: str
    commit: str = ""
    mutant: str = ""
    """Name of the breakage that was in place, if one was."""

    def write(self, path: Path) -> None:
        document = {
            "format": FORMAT,
            "commit": self.commit,
            "mutant": self.mutant,
            "failure": self.failure,
            "trace": self.trace_hash,
            "plan": _PLAN.dump_python(self.plan, mode="json"),
        }
        path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def read(path: Path) -> PlanFile:
    """Raises BadPlan."""
    try:
        document = json.loads(path.read_text())
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise BadPlan(f"{path} is no plan of format {FORMAT}")
        plan = _PLAN.validate_python(document["plan"])
        return PlanFile(
            plan,
            document["failure"],
            document["trace"],
            document.get("commit", ""),
            document.get("mutant", ""),
        )
    except OSError as error:
        raise BadPlan(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadPlan(f"{path}: plan.{where}: {first['msg']}") from error
    except (ValueError, KeyError) as error:
        raise BadPlan(f"{path} is no plan: {error}") from error
