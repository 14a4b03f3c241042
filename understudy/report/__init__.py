"""The HTML reports: one file each, without network access, readable on a phone, light or dark.

`render` takes a result as JSON (of the reconciling job, or of `understudy report`) and returns the page.
`write` saves the page, and the JSON beside it. `understudy reconcile --output` and `understudy report
--output` call it; the demo uses the former.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spark.insight.words import length as short_length
from understudy.report.page import render

__all__ = ["beside", "render", "short_length", "write"]


def beside(page: Path) -> Path:
    """Path of the JSON for a report: report.html -> report.json."""
    return page.with_suffix(".json") if page.suffix != ".json" else page.with_suffix(".report.json")


def write(answer: Mapping[str, Any], page: Path) -> None:
    """Write the page, and beside it the JSON of its result. Raises OSError."""
    page.write_text(render(answer), encoding="utf-8")
    beside(page).write_text(json.dumps(answer, indent=1) + "\n", encoding="utf-8")
