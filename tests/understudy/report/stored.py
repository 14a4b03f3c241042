"""Results of real jobs, stored as printed, so that pages can be made of them without Spark.

`python -m tests.understudy.report.remake` regenerates them from generated histories, when the job's result
changes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"
RUNS = ("proven", "violated", "not-provable")
SURVEYS = ("days",)


def stored(name: str) -> dict[str, Any]:
    answer = json.loads((FOLDER / f"{name}.json").read_text())
    assert isinstance(answer, dict)
    return answer
